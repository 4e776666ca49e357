"""Groups of messages: the last of a group to end enqueues the message that follows.

Each member that is left has a row. Who ends a member removes its row, reads one that is left at
snapshot isolation, and relies on that one alone: whoever removes it meanwhile conflicts. Rows stand
by hashes and the search begins at a random one, so ends of a group conflict with a chance of one in
what is left. Who finds no row was the last.
"""

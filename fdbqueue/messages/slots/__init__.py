"""Slots: how many messages of a key may be out at once.

A message is out from when it becomes ready until its end, whatever happens meanwhile: it is ready,
leased, or waits for its next attempt. While it is out it holds one of the numbered slots of its
key. Others stand in the backlog of the key, where no consumer looks, and count as ready all the
same. Whoever ends a message hands its slot over to the next of the backlog in the same transaction.
That one becomes ready behind all others of its level, so no cursor misses it and keys take turns.

An ordering key is a key with one slot. Operations of different keys never conflict; those of one
key as the table in docs/decisions/0016 says.
"""

"""What a process remembers of a line between calls.

A hint saves a read or a wait. One that is wrong costs what its line says, and never an answer: each
is checked by the transaction that uses it.
"""

from __future__ import annotations

from ...store import world


class Hints:
    """The hints of one line; times are those of the monotonic clock.

    ======== ========================================== ============================================
    hint     what it says                               what it costs if it is wrong
    ======== ========================================== ============================================
    crowded  there was a line                           a round trip, or a conflict
    busy     there was an agenda, or what is left of a  a round trip, or reads in vain
             line
    lead     the claim under which this process leads   reads in vain; unless another has the lead,
             the line, while it is away                 those in line wait until it is overdue
    expected how many messages its next round needs     a round trip, or rows read in vain
    returned when the last receive returned             as ``returns``
    returns  its consumer asks again soon               those in line wait until it is overdue
    rounds   how often it has served the line since it  it passes the lead on sooner, or later
             leads
    alone    how often nobody but itself                it gives up the lead sooner, or later
    rests    for how many requests others lead          the same consumer leads again
    served   when it served the line last               the line is served later by a message
    answered after how many seconds a request in line   looks in vain, or an answer that waits for
             is answered                                the next look
    ======== ========================================== ============================================
    """

    __slots__ = (
        "alone",
        "answered",
        "busy",
        "crowded",
        "expected",
        "lead",
        "rests",
        "returned",
        "returns",
        "rounds",
        "served",
    )

    def __init__(self) -> None:
        self.crowded = self.busy = self.returns = False
        self.lead: bytes | None = None
        self.expected = self.rounds = self.alone = self.rests = 0
        self.returned = self.served = 0.0
        self.answered = 0.002

    def take_lead(self, claim: bytes) -> None:
        """Lead the line from now on, while it is away."""
        self.lead, self.rounds, self.alone = claim, 0, 0
        self.served = world.monotonic()

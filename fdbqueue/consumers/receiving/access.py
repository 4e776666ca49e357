"""What receiving remembers of a queue between calls."""

from __future__ import annotations

import threading
import time

from ...schema.catalogue import Entry


class Access(threading.local):
    """What receiving needs of a queue, with hints from the last receive, which only save reads.

    Each thread has its own: threads that share a queue are consumers of their own.

    crowded: whether there was a line. lined: whether the queue's mode has lines. common: whether
    only ready messages are likely. delays: whether there were delayed messages, or a line.
    lead: the claim under which it leads the line while it is away. rounds, alone: how often it has
    served the line since, and nobody but itself. served: when it did so last. expected: how many
    messages its next round may need. returned: when the last receive from a line returned. returns:
    whether it is expected to ask again soon. rests: for how many requests it leaves the lead to
    others, since it has led. answered: after how many seconds its request in line is likely to be
    answered. Times are those of the monotonic clock.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.keys = entry.keys
        self.scope = entry.scope
        self.crowded = False
        self.lined = True
        self.common = True
        self.delays = False
        self.lead: bytes | None = None
        self.rounds = 0
        self.alone = 0
        self.expected = 0
        self.returned = 0.0
        self.returns = False
        self.rests = 0
        self.served = 0.0
        self.answered = 0.002

    def take_lead(self, claim: bytes) -> None:
        """Lead the line from now on, while it is away."""
        self.lead, self.rounds, self.alone = claim, 0, 0
        self.served = time.monotonic()

"""What receiving remembers of a queue between calls."""

from __future__ import annotations

from ...schema.catalogue import Entry


class Access:
    """What receiving needs of a queue, with hints from the last receive, which only save reads.

    crowded: whether there was a line. lined: whether the queue's mode has lines. common: whether
    only ready messages are likely. delays: whether there were delayed messages, or a line.
    lead: the claim under which it leads the line while it is away. rounds, alone: how often it has
    served the line since, and nobody but itself. expected: how many messages its next round may
    need. returned: when the last receive from a line returned, by the monotonic clock. returns:
    whether it is expected to ask again soon.
    """

    __slots__ = (
        "alone",
        "common",
        "crowded",
        "delays",
        "entry",
        "expected",
        "keys",
        "lead",
        "lined",
        "returned",
        "returns",
        "rounds",
        "scope",
    )

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

    def take_lead(self, claim: bytes) -> None:
        """Lead the line from now on, while it is away."""
        self.lead, self.rounds, self.alone = claim, 0, 0

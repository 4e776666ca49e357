"""The loops of a worker's threads, as probes see them."""

from __future__ import annotations

import math

from ...store import world

TURN_SECONDS = 120.0
"""How long a turn of a loop may take while the store answers. A transaction that is always too slow
is given up after 20 attempts of five seconds."""


class Loop:
    """What one thread does again and again. The thread writes, and probes read.

    does: completes "the thread that ...". takes: whether it takes messages.
    patience: seconds that a turn may take.
    """

    def __init__(self, does: str, *, takes: bool = False, patience: float = TURN_SECONDS) -> None:
        self.does = does
        self.takes = takes
        self.patience = patience
        self.turned_at = world.monotonic()
        """When the latest turn began, by ``world.monotonic``. Later than now while it rests."""
        self.took_at = -math.inf
        """When it last looked for messages in the store, whether there were any or not."""
        self.problem: str | None = None
        """Why it could not, since then."""
        self.over = False
        """Whether it has ended as it should."""

    def turn(self, rests: float = 0.0) -> None:
        """Begin a turn that may take longer, by so many seconds."""
        self.turned_at = world.monotonic() + rests

    def took(self) -> None:
        """It has looked for messages."""
        self.took_at, self.problem = world.monotonic(), None

    def failed(self, problem: object) -> None:
        """It could not."""
        self.problem = str(problem)

    def end(self) -> None:
        """There are no more turns."""
        self.over = True

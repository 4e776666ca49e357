"""For the tests of programs that use queues: clocks to move, stores to throw away, assertions."""

from __future__ import annotations

from dataclasses import dataclass

from .binding import fdb
from .clock import VERSIONS_PER_SECOND, Clock


@dataclass
class ManualClock(Clock):
    """Both clocks of a queue, moved forward by hand: ``clock.seconds += 61`` lets a minute pass.

    wall_only: seconds by which the wall clock alone is ahead, as that of a machine that is wrong.
    """

    seconds: float = 0.0
    wall_only: float = 0.0

    def wall_ms(self) -> int:
        """The wall clock in milliseconds since the epoch."""
        return super().wall_ms() + int((self.seconds + self.wall_only) * 1000)

    def version(self, tr: fdb.Transaction) -> int:
        """The transaction's read version."""
        return super().version(tr) + int(self.seconds * VERSIONS_PER_SECOND)

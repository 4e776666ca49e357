"""A clock that tests move by hand."""

from __future__ import annotations

from dataclasses import dataclass

from fdbqueue import Clock
from fdbqueue.binding import fdb


@dataclass
class MovedClock(Clock):
    """Both clocks, moved forward by hand."""

    seconds: float = 0.0
    wall_only: float = 0.0

    def wall_ms(self) -> int:
        return super().wall_ms() + int((self.seconds + self.wall_only) * 1000)

    def version(self, tr: fdb.Transaction) -> int:
        return super().version(tr) + int(self.seconds * 1_000_000)

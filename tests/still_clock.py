"""A clock that only the test moves."""

from __future__ import annotations

from fdbqueue.testing import ManualClock


class StillClock(ManualClock):
    """A clock that stands still unless the test moves it, for tests of exact times."""

    def __init__(self, seconds: float = 0.0, wall_only: float = 0.0) -> None:
        super().__init__(seconds, wall_only)
        self._began = super().wall_ms() - int((seconds + wall_only) * 1000)

    def wall_ms(self) -> int:
        """The wall clock in milliseconds since the epoch."""
        return self._began + round((self.seconds + self.wall_only) * 1000)

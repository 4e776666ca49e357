"""Time that a test moves."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ..store.clocks import SYSTEM_CLOCK, VERSIONS_PER_SECOND, Clock


@dataclass
class ManualClock(Clock):
    """A clock that the test moves: after ``clock.seconds += 61``, a minute has passed.

    wall_only: seconds that only the wall clock is ahead, like that of a misconfigured machine.
        fdbqueue ignores a wall clock that is wrong by more than a minute.
    """

    seconds: float = 0.0
    wall_only: float = 0.0

    def monotonic(self) -> float:
        """Seconds by a clock that never steps."""
        return super().monotonic() + self.seconds

    def wall_ms(self) -> int:
        """The wall clock in milliseconds since the epoch."""
        return super().wall_ms() + int((self.seconds + self.wall_only) * 1000)

    def versions_ahead(self) -> int:
        """How far ``version`` is ahead of the database."""
        return int(self.seconds * VERSIONS_PER_SECOND)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let every handle of the process follow it that has no clock of its own."""
        for name in ("monotonic", "wall_ms", "versions_ahead"):
            patch.setattr(SYSTEM_CLOCK, name, getattr(self, name))

"""How much a worker has handled in the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...store import world
from ...values.states import Outcome

SECONDS = 60


class Recent:
    """Counts, by second, of messages of a queue that were handled, and of which that failed."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()

    def count(self, outcomes: Iterable[Outcome]) -> None:
        """Count messages that have ended now."""
        second, handled, failed = int(world.monotonic()), 0, 0
        for outcome in outcomes:
            handled += outcome is Outcome.DONE
            failed += outcome in (Outcome.FAILED, Outcome.REJECTED)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
        self._seconds[-1][1] += handled
        self._seconds[-1][2] += failed
        self._forget(second)

    def total(self) -> tuple[int, int]:
        """How many were done, and how many failed."""
        self._forget(int(world.monotonic()))
        counts = [*self._seconds]
        return sum(each[1] for each in counts), sum(each[2] for each in counts)

    def _forget(self, now: int) -> None:
        while self._seconds and self._seconds[0][0] <= now - SECONDS:
            self._seconds.popleft()

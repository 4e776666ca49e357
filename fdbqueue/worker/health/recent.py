"""How much a worker has handled in the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...store import world
from ...values.states import Outcome

SECONDS = 60
TIMES, LEAST = 100, 10
"""Of how many of the latest handlings it takes the median, and of how many at least."""


class Recent:
    """Counts, by second, of messages of a queue that were handled, and of which that failed."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()
        self._times: deque[float] = deque(maxlen=TIMES)

    def count(self, outcomes: Iterable[Outcome], seconds: float) -> None:
        """Count messages that have ended now, after so many seconds."""
        self._times.append(seconds)
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

    @property
    def usual_ms(self) -> int | None:
        """The median of how long handling took lately; None while that is not known."""
        times = sorted(self._times.copy())
        return int(times[len(times) // 2] * 1000) if len(times) >= LEAST else None

    def _forget(self, now: int) -> None:
        while self._seconds and self._seconds[0][0] <= now - SECONDS:
            self._seconds.popleft()

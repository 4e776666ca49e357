"""Percentiles of the last half minute, in bounded memory and to three figures."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from threading import Lock

WINDOW = 30
"""Seconds."""
_FIGURES = 3
_LEAST_MS = 1e-3


class Latencies:
    """Counts of latencies, rounded to three figures, for each of the last ``WINDOW`` seconds."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[float]]] = deque(maxlen=WINDOW)
        self._lock = Lock()

    def add(self, milliseconds: float, now: float) -> None:
        """Count one, seen at ``now`` of a clock that does not go back."""
        value = max(milliseconds, _LEAST_MS)
        rounded = round(value, _FIGURES - 1 - math.floor(math.log10(value)))
        with self._lock:
            if not self._seconds or self._seconds[-1][0] != int(now):
                self._seconds.append((int(now), Counter()))
            self._seconds[-1][1][rounded] += 1

    def percentiles(self, shares: Sequence[float], now: float) -> list[float]:
        """The latencies that so many of all do not exceed; 0 where there were none."""
        with self._lock:
            total = sum(
                (counts for second, counts in self._seconds if second > now - WINDOW), Counter()
            )
        count = total.total()
        if not count:
            return [0.0 for _ in shares]
        found = []
        for share in shares:
            passed, wanted = 0, max(1, math.ceil(share * count))
            for value in sorted(total):
                passed += total[value]
                if passed >= wanted:
                    found.append(value)
                    break
        return found

"""Rates: how many messages may come in how much time, such as "100/min"."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

UNITS = {"s": 1, "min": 60, "hour": 3_600, "day": 86_400}
"""The units of time in a rate, in seconds."""
MAX_PER_SECOND = 1_000
"""Clocks tell milliseconds."""
_SECOND_US = 1_000_000


class Rate(NamedTuple):
    """A rate as it is applied: one message in ``interval_us``, and up to ``burst`` at once after a
    rest. Times are in microseconds."""

    interval_us: int
    burst: int

    @property
    def tolerance_us(self) -> int:
        """How much too early a message may come."""
        return (self.burst - 1) * self.interval_us


@lru_cache(maxsize=1_000)
def interval_us(text: str) -> int:
    """The time from one message to the next at a rate, rounded up. Raises ``ValueError``."""
    count, slash, unit = text.partition("/")
    if not slash or unit not in UNITS or not (count.isascii() and count.isdigit()):
        known = ", ".join(UNITS)
        raise ValueError(f'write it as "100/min": a number, and one of {known}')
    seconds = UNITS[unit]
    if len(count) > 9 or not 1 <= int(count) <= MAX_PER_SECOND * seconds:
        raise ValueError(f"must be more than 0, and at most {MAX_PER_SECOND:,}/s")
    return -(-seconds * _SECOND_US // int(count))

"""Rates: how many messages may come in how much time, such as "100/min, burst 10"."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

UNITS = {"s": 1, "min": 60, "hour": 3_600, "day": 86_400}
"""The units of time in a rate, in seconds."""
MAX_PER_SECOND = 1_000
"""Clocks tell milliseconds."""
MAX_BURST = 1_000
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
def parse(text: str) -> Rate:
    """The rate that a text says, its interval rounded up. Raises ``ValueError``."""
    pace, comma, after = text.partition(",")
    burst = after.removeprefix(" burst ") if comma else "1"
    # `isdigit` alone takes superscripts, and `int` takes spaces; long ones cost time.
    whole = burst.isascii() and burst.isdigit() and len(burst) <= 9
    if not (whole and 1 <= int(burst) <= MAX_BURST):
        raise ValueError(f'write a burst as "100/min, burst 10", with at most {MAX_BURST:,}')
    count, slash, unit = pace.partition("/")
    if not slash or unit not in UNITS or not (count.isascii() and count.isdigit()):
        known = ", ".join(UNITS)
        raise ValueError(f'write it as "100/min": a number, and one of {known}')
    seconds = UNITS[unit]
    if len(count) > 9 or not 1 <= int(count) <= MAX_PER_SECOND * seconds:
        raise ValueError(f"must be more than 0, and at most {MAX_PER_SECOND:,}/s")
    # Rounded up: never more messages than the text says.
    return Rate(-(-seconds * _SECOND_US // int(count)), int(burst))

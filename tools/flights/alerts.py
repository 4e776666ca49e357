"""The alerts: days on which an airport had far too many late flights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .table import Flight

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE_MINUTES = 60
SHARE = 0.3
FEWEST = 20
"""An alert needs so many flights, and so large a share of them late or cancelled."""


@dataclass(frozen=True, slots=True)
class Day:
    """An airport on a day: how many flights left it, and how many of these were late."""

    date: str
    origin: str
    flights: int
    late: int


def expected(flights: Iterable[Flight]) -> set[Day]:
    """The alerts, straight from the flights."""
    counts: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for flight in flights:
        count = counts[flight.date, flight.origin]
        count[0] += 1
        count[1] += flight.delay is None or flight.delay >= LATE_MINUTES
    days = (Day(*where, *count) for where, count in counts.items())
    return {day for day in days if day.flights >= FEWEST and day.late >= SHARE * day.flights}


def found(flights: DataFrame) -> DataFrame:
    """The alerts among the flights of a table, as messages: the worse, the more urgent."""
    late = f"delay IS NULL OR delay >= {LATE_MINUTES}"
    return (
        flights.groupBy("date", "origin")
        .agg({"*": "count"})
        .withColumnRenamed("count(1)", "flights")
        .join(
            flights.where(late)
            .groupBy("date", "origin")
            .count()
            .withColumnRenamed("count", "late"),
            ["date", "origin"],
        )
        .where(f"flights >= {FEWEST} AND late >= {SHARE} * flights")
        .selectExpr(
            "struct(date, origin, flights, late) AS payload",
            "LEAST(9, CAST(10 * late / flights AS INT)) AS priority",
            "map('origin', origin) AS headers",
            "concat(date, ' ', origin) AS dedup_id",
        )
    )

"""Histories for the tests of the jobs that read them, as rows and as tables."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fdbqueue.values.states import RELEASE, TRANSITIONS, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON_MS = 1_750_000_000_000
COLUMNS = (
    "queue string, stamp binary, transition string, id string, level int, attempt int, "
    "consumer string, at timestamp, place string"
)


@dataclass(frozen=True)
class Line:
    """An event; ``n`` orders those of a queue."""

    queue: str
    n: int
    transition: str
    id: str
    level: int
    attempt: int
    consumer: str
    at_ms: int
    version: int = 0
    place: str | None = None

    def row(self) -> tuple[object, ...]:
        """As a row of ``COLUMNS``."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        return (
            self.queue,
            b"\x33" + (self.version or self.n).to_bytes(8, "big") + self.n.to_bytes(4, "big"),
            self.transition,
            self.id,
            self.level,
            self.attempt,
            self.consumer,
            at,
            self.id if self.place is None else self.place,
        )


def table(spark: SparkSession, lines: Iterable[Line]) -> DataFrame:
    """Events as the data source reads them."""
    return spark.createDataFrame([line.row() for line in lines], COLUMNS)


def identity(level: int, index: int) -> str:
    """The id of a message."""
    return f"{level:02x}-{index:012x}-{0:016x}"


def walk(queue: str, seed: int, messages: int = 12) -> list[Line]:
    """A history in which every message goes its own way along the transitions, at random.

    Clocks go wrong a little, and some messages had begun before the history did.
    """
    dice = random.Random(seed)
    held: dict[str, tuple[State | None, int, int]] = {}
    for index in range(messages):
        level = dice.randrange(3)
        begun = dice.random() < 0.1
        held[identity(level, index)] = (dice.choice(list(State)) if begun else None, level, 0)
    lines: list[Line] = []
    at_ms = NOON_MS + dice.randrange(10**7)
    while held and len(lines) < 40 * messages:
        name = dice.choice(list(held))
        state, level, attempt = held[name]
        edges = [edge for edge in TRANSITIONS if edge.source is state]
        if not edges or dice.random() < 0.02:
            del held[name]
            continue
        edge = dice.choice(edges)
        attempt += edge is RELEASE
        at_ms += int(dice.expovariate(1 / dice.choice([1, 50, 2_000])))
        consumer = dice.choice(["", "a", "b", "c"])
        shown_ms = at_ms - (dice.random() < 0.1) * dice.randrange(500)
        lines.append(Line(queue, len(lines), edge.name, name, level, attempt, consumer, shown_ms))
        held[name] = (edge.target, level, attempt)
    return lines


def lived(queue: str, n: int, identity: str, *transitions: str) -> list[Line]:
    """The life of one message, a second between its events."""
    return [
        Line(queue, n + i, name, identity, int(identity[:2], 16), 0, "c", NOON_MS + (n + i) * 1000)
        for i, name in enumerate(transitions)
    ]

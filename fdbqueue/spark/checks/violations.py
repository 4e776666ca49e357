"""The verdict of a check; and findings, the rows that Spark computes it from.

A finding has queue, kind, detail, and the ids of its messages. Conditions and details are SQL over
the columns of the rows that are checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from msgspec import Struct, to_builtins
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

MOST_SHOWN = 30
"""Most events shown with a violation."""

Condition = tuple[str, str, str]
"""The kind of a finding, the condition under which a row is one, and its detail: see ``text``."""


class Violation(Struct, frozen=True):
    """A violated guarantee: how often, and the first case with the events that show it.

    source: the queue.
    """

    source: str
    kind: str
    count: int
    detail: str
    shown_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind}: {self.detail}", *self.shown_by])


class Verdict(Struct, frozen=True):
    """The violations that a check found; ``checked`` counts what it read, by name."""

    sources: tuple[str, ...]
    checked: Mapping[str, int]
    violations: tuple[Violation, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    def kinds(self, source: str | None = None) -> dict[str, int]:
        """The number of violations of each kind, of one source or of all."""
        found: Counter[str] = Counter()
        for one in self.violations:
            if source in (None, one.source):
                found[one.kind] += one.count
        return dict(found)

    def to_json(self) -> Mapping[str, Any]:
        """The verdict as plain dictionaries and lists."""
        told: Mapping[str, Any] = to_builtins(self)
        return told


def text(template: str) -> Column:
    """A detail. ``{…}`` holds an SQL expression; null reads as ``none``."""
    parts = []
    for literal, value, _, _ in Formatter().parse(template):
        parts.append(F.lit(literal))
        if value is not None:
            parts.append(F.coalesce(F.expr(value).cast("string"), F.lit("none")))
    return F.concat(*parts)


def findings(frame: DataFrame, tests: Iterable[Condition], ids: str = "array(id)") -> DataFrame:
    """The findings of several conditions, in one pass. ids: SQL."""
    hits = [
        F.when(F.expr(condition), F.struct(F.lit(kind).alias("kind"), text(detail).alias("detail")))
        for kind, condition, detail in tests
    ]
    hit = F.explode(F.array_compact(F.array(*hits))).alias("hit")
    return frame.select("queue", hit, F.expr(ids).alias("ids")).select("queue", "hit.*", "ids")


def violations(
    found: DataFrame, events: DataFrame, describe: Callable[[Row], str]
) -> list[Violation]:
    """The first finding of each queue and kind, with the events of its messages."""
    # The least, not any: the same history shows the same case.
    one = F.min(F.struct("detail", "ids")).alias("one")
    counted = found.groupBy("queue", "kind").agg(F.count("*").alias("count"), one)
    first = counted.orderBy("queue", "kind").collect()
    if not first:
        return []
    rows = [(n, row["queue"], each) for n, row in enumerate(first) for each in row["one"]["ids"]]
    wanted = events.sparkSession.createDataFrame(rows, "finding int, queue string, id string")
    shown: dict[int, list[str]] = defaultdict(list)
    for row in events.join(F.broadcast(wanted), ["queue", "id"]).orderBy("stamp").collect():
        shown[row["finding"]].append(describe(row))
    return [
        Violation(
            row["queue"],
            row["kind"],
            row["count"],
            row["one"]["detail"],
            tuple(shown[n][:MOST_SHOWN]),
        )
        for n, row in enumerate(first)
    ]

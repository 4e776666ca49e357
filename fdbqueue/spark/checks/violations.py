"""Findings: rows while Spark computes them, and plain values at the end.

A row has run, kind, queue, detail, tags (its messages) and refs (its operations). Conditions and
details are SQL over the columns of the rows that are checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from string import Formatter
from typing import Any

from msgspec import Struct, to_builtins
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

REFS = "array<struct<who: string, n: bigint>>"
MOST_SHOWN = 30
"""Most operations or events shown with a violation."""

Condition = tuple[str, str, str]
"""The kind of a finding, the condition under which a row is one, and its detail: see ``text``."""


class Violation(Struct, frozen=True):
    """A violated guarantee: how often, and the first case with the events that show it.

    source: the run or the queue.
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


def as_findings(
    frame: DataFrame,
    kind: Column | str,
    detail: str,
    *,
    tags: str = "array()",
    refs: str = "array()",
) -> DataFrame:
    """Each row as a finding. kind: a text, or a column. detail: see ``text``. tags, refs: SQL."""
    return frame.select(
        "run",
        F.lit(kind).alias("kind"),
        "queue",
        text(detail).alias("detail"),
        F.expr(tags).cast("array<string>").alias("tags"),
        F.expr(refs).cast(REFS).alias("refs"),
    )


def check_rows(
    frame: DataFrame, tests: Iterable[Condition], *, tags: str = "array()", refs: str = "array()"
) -> DataFrame:
    """The findings of several conditions, in one pass."""
    hits = [
        F.when(F.expr(condition), F.struct(F.lit(kind).alias("kind"), text(detail).alias("detail")))
        for kind, condition, detail in tests
    ]
    hit = frame.withColumn("hit", F.explode(F.array_compact(F.array(*hits))))
    return as_findings(hit, F.col("hit.kind"), "{hit.detail}", tags=tags, refs=refs)


def union(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows of some tables. Columns that a table lacks are null."""
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), frames)


def first_of_each(findings: DataFrame) -> list[Row]:
    """For each run and kind, the number of findings, and one of them."""
    one = F.min(F.struct("queue", "detail", "tags", "refs")).alias("one")
    counted = findings.groupBy("run", "kind").agg(F.count("*").alias("count"), one)
    return counted.orderBy("run", "kind").collect()


def described(
    first: list[Row], shown_by: DataFrame, describe: Callable[[Row], str]
) -> list[Violation]:
    """The rows of ``first_of_each`` as plain values.

    shown_by: what shows each, in order; its column ``finding`` is the number of the row.
    """
    shown: dict[int, list[str]] = {}
    for row in shown_by.collect() if first else ():
        texts = shown.setdefault(row["finding"], [])
        if len(texts) < MOST_SHOWN:
            texts.append(describe(row))
    return [
        Violation(
            row["run"], row["kind"], row["count"], row["one"]["detail"], tuple(shown.get(n, ()))
        )
        for n, row in enumerate(first)
    ]

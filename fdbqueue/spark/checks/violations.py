"""Findings: rows while Spark computes them, and plain values at the end."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from string import Formatter
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ...values.records import record

REF = "struct<who: string, n: bigint>"
SCHEMA = (
    f"run string, kind string, queue string, detail string, tags array<string>, refs array<{REF}>"
)
"""A row for each finding: ``tags`` names its messages, ``refs`` its operations."""
MOST_SHOWN = 30
"""Most operations or events shown with a violation."""


@record
class Violation:
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


@record
class Verdict:
    """The violations that a check found; ``checked`` counts what it read, by name."""

    sources: tuple[str, ...]
    checked: Mapping[str, int]
    violations: tuple[Violation, ...]
    unchecked: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    @property
    def looked_at(self) -> Mapping[str, int]:
        """The old name of ``checked``."""
        warnings.warn("Verdict.looked_at is checked now", DeprecationWarning, stacklevel=2)
        return self.checked

    def kinds(self, source: str | None = None) -> dict[str, int]:
        """The number of violations of each kind, of one source or of all."""
        found: Counter[str] = Counter()
        for one in self.violations:
            if source in (None, one.source):
                found[one.kind] += one.count
        return dict(found)

    def to_json(self) -> Mapping[str, Any]:
        """The verdict as plain dictionaries and lists."""
        return asdict(self)


def text(template: str, **others: Column) -> Column:
    """A detail: ``{name}`` is a column of the row, or one of ``others``. Nulls read as ``none``."""
    parts = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(F.lit(literal))
        if name is not None:
            value = others[name] if name in others else F.col(name)
            parts.append(F.coalesce(value.cast("string"), F.lit("none")))
    return F.concat(*parts)


def _detail(detail: str | Column) -> Column:
    return (text(detail) if isinstance(detail, str) else detail).alias("detail")


def ref(who: Column | str = "who", n: Column | str = "n") -> Column:
    """A reference to an operation."""
    return F.struct(
        (F.col(who) if isinstance(who, str) else who).alias("who"),
        (F.col(n) if isinstance(n, str) else n).alias("n"),
    )


def as_findings(
    frame: DataFrame,
    kind: str | Column,
    detail: str | Column,
    *,
    queue: Column | str = "queue",
    tags: Column | None = None,
    refs: Column | None = None,
) -> DataFrame:
    """Each row as a finding."""
    return frame.select(
        "run",
        (F.lit(kind) if isinstance(kind, str) else kind).alias("kind"),
        (F.col(queue) if isinstance(queue, str) else queue).alias("queue"),
        _detail(detail),
        (F.array().cast("array<string>") if tags is None else tags).alias("tags"),
        (F.array().cast(f"array<{REF}>") if refs is None else refs).alias("refs"),
    )


@dataclass(frozen=True)
class Condition:
    """A condition on rows, and the finding if it is true. A detail may be a template: ``text``."""

    kind: str
    condition: Column
    detail: str | Column


def check_rows(
    frame: DataFrame,
    tests: Iterable[Condition],
    *,
    tags: Column | None = None,
    refs: Column | None = None,
) -> DataFrame:
    """The findings of several conditions, in one pass."""
    hits = [
        F.when(
            F.coalesce(each.condition, F.lit(False)),
            F.struct(F.lit(each.kind).alias("kind"), _detail(each.detail)),
        )
        for each in tests
    ]
    hit = frame.withColumn("hit", F.explode(F.array_compact(F.array(*hits))))
    return as_findings(hit, F.col("hit.kind"), F.col("hit.detail"), tags=tags, refs=refs)


def union(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows of some tables."""
    first, *others = frames
    for each in others:
        first = first.unionByName(each)
    return first


def first_of_each(findings: DataFrame) -> list[Row]:
    """For each run and kind, the number of findings, and one of them."""
    columns = [name for name in findings.columns if name not in ("run", "kind")]
    one = F.min(F.struct(*columns)).alias("one")
    return (
        findings.groupBy("run", "kind")
        .agg(F.count("*").alias("count"), one)
        .orderBy("run", "kind")
        .collect()
    )


def violation(row: Row, shown: Iterable[str]) -> Violation:
    """A row of ``first_of_each`` as a plain value."""
    return Violation(row["run"], row["kind"], row["count"], row["one"]["detail"], tuple(shown))

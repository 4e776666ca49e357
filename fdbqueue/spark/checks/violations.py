"""What a check finds: as rows while Spark looks, and as plain values in the end."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ...values.records import record

REF = "struct<who: string, n: bigint>"
SCHEMA = (
    f"run string, kind string, queue string, detail string, tags array<string>, refs array<{REF}>"
)
"""Findings as rows: ``tags`` are the messages that a finding is about, ``refs`` the operations."""
MOST_SHOWN = 30
"""Operations or events that a violation is shown by."""


@record
class Violation:
    """A guarantee that does not hold: how often, and the first case with what shows it.

    ``source`` is the run or the queue whose history it is.
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
        """How many violations there are of each kind, of one source or of all."""
        found: Counter[str] = Counter()
        for one in self.violations:
            if source in (None, one.source):
                found[one.kind] += one.count
        return dict(found)

    def to_json(self) -> Mapping[str, Any]:
        """All of it as plain dictionaries and lists."""
        return asdict(self)


def text(*parts: Column | str) -> Column:
    """A detail: texts and columns, one after another; what is null reads as ``none``."""
    columns = [
        F.lit(part) if isinstance(part, str) else F.coalesce(part.cast("string"), F.lit("none"))
        for part in parts
    ]
    return F.concat(*columns)


def ref(who: Column | str = "who", n: Column | str = "n") -> Column:
    """The name of an operation."""
    return F.struct(
        (F.col(who) if isinstance(who, str) else who).alias("who"),
        (F.col(n) if isinstance(n, str) else n).alias("n"),
    )


def no_refs() -> Column:
    """No operations."""
    return F.array().cast(f"array<{REF}>")


def no_tags() -> Column:
    """No messages."""
    return F.array().cast("array<string>")


def found(
    frame: DataFrame,
    kind: str | Column,
    detail: Column,
    *,
    queue: Column | str = "queue",
    tags: Column | None = None,
    refs: Column | None = None,
) -> DataFrame:
    """Rows that are findings, one each."""
    return frame.select(
        "run",
        (F.lit(kind) if isinstance(kind, str) else kind).alias("kind"),
        (F.col(queue) if isinstance(queue, str) else queue).alias("queue"),
        detail.alias("detail"),
        (no_tags() if tags is None else tags).alias("tags"),
        (no_refs() if refs is None else refs).alias("refs"),
    )


@dataclass(frozen=True)
class Condition:
    """One condition on rows, and what it is a finding of where it is true."""

    kind: str
    condition: Column
    detail: Column


def judged(
    frame: DataFrame,
    tests: Iterable[Condition],
    *,
    tags: Column | None = None,
    refs: Column | None = None,
) -> DataFrame:
    """The findings of several conditions in one pass."""
    hits = [
        F.when(
            F.coalesce(each.condition, F.lit(False)),
            F.struct(F.lit(each.kind).alias("kind"), each.detail.alias("detail")),
        )
        for each in tests
    ]
    hit = frame.withColumn("hit", F.explode(F.array_compact(F.array(*hits))))
    return found(hit, F.col("hit.kind"), F.col("hit.detail"), tags=tags, refs=refs)


def together(frames: Iterable[DataFrame]) -> DataFrame:
    """All findings."""
    first, *others = frames
    for each in others:
        first = first.unionByName(each)
    return first


def first_of_each(findings: DataFrame) -> list[Row]:
    """Of every run and kind, how many there are, and one of them."""
    columns = [name for name in findings.columns if name not in ("run", "kind")]
    one = F.min(F.struct(*columns)).alias("one")
    return (
        findings.groupBy("run", "kind")
        .agg(F.count("*").alias("count"), one)
        .orderBy("run", "kind")
        .collect()
    )


def violation(row: Row, shown: Iterable[str]) -> Violation:
    """The plain value of a row of ``first_of_each``."""
    return Violation(row["run"], row["kind"], row["count"], row["one"]["detail"], tuple(shown))

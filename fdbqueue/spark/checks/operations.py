"""Histories of tools/chaos as a table: a row for each operation of each actor.

A history is a directory of files with a line of JSON for each intent and each outcome;
tools/chaosrun/history.py writes them. One of its operations records the rules of its queues.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...errors import CorruptData, InvalidArgument
from ...values.records import record
from .violations import union

LINE = (
    "who string, n bigint, name string, queue string, what string, began bigint, wall bigint, "
    "ended bigint, result string, error string"
)
WHAT = (
    "messages array<array<string>>, rows array<array<string>>, tags array<string>, "
    "marked boolean, drains boolean, region string, actor string, n bigint, value string, "
    "tag string, count bigint, browser string, depth map<string, bigint>, "
    "dead array<array<string>>, deviations array<string>, unchecked array<string>, "
    "orphans map<string, bigint>, limit int, window int, process string"
)
"""The details of an operation that the checks use."""
SUCCEEDED = "(ended is not null and error is null)"
TAKEN_ROWS = "from_json(outcome, 'array<array<string>>')"
"""The messages that a receive or a dequeue got, if known."""
CALL = ["run", "who", "n"]
"""The columns that identify an operation."""


@record
class Rules:
    """What must hold in a run of tools/chaos.

    max_attempts: of every queue. min_lease_ns: a little less than the shortest lease. lease_ns:
    how long a killed process may still hold messages. early_ms: how early a delivery may seem,
    since clocks differ. strict: queues that keep order. exact: those that keep it at every commit.
    handled: queues with a handler, which may see a delivery several times. filtered: the queue
    with selectors. watched: the queue that is browsed. browsers: the browsers, with the region of
    each, or empty. relaxed: queues that keep order within a window, and its initial size.
    """

    max_attempts: int
    min_lease_ns: int
    lease_ns: int
    early_ms: int
    strict: tuple[str, ...]
    exact: tuple[str, ...]
    handled: tuple[str, ...]
    filtered: str
    watched: str
    browsers: Mapping[str, str] = field(default_factory=dict)
    relaxed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, recorded: Mapping[str, Any]) -> Rules:
        """From the rules recorded in a history. Raises ``CorruptData``."""
        try:
            values: dict[str, Any] = {each.name: recorded[each.name] for each in fields(cls)}
        except KeyError as error:
            raise CorruptData(what="the rules of a run", problem=f"no {error.args[0]}") from None
        values |= {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
        return cls(**values)


def read(spark: SparkSession, directories: Iterable[str | Path]) -> DataFrame:
    """The lines of histories. Raises ``InvalidArgument`` for a directory without any."""
    frames = []
    for directory in dict.fromkeys(str(each) for each in directories):
        if not any(Path(directory).glob("*.jsonl")):
            raise InvalidArgument(
                argument="directory", value=directory, problem="there is no history in it"
            )
        path = f"file://{Path(directory).resolve()}/*.jsonl"
        frames.append(spark.read.text(path).withColumn("run", F.lit(directory)))
    if not frames:
        raise InvalidArgument(argument="directories", value=[], problem="name at least one")
    return union(frames)


def paired(lines: DataFrame) -> DataFrame:
    """Intents joined with their outcomes, by who and n. One shuffle.

    Columns: run, who, n, name, queue, what and result (JSON), began and ended (nanoseconds),
    wall_ms, ended_wall_ms, error. ``ended`` is null if the process was killed before.
    """
    line = F.from_json("value", LINE).alias("line")
    parsed = lines.select("run", line).select("run", "line.*")
    return parsed.groupBy(CALL).agg(
        *(F.max(name).alias(name) for name in ("name", "queue", "what", "began", "ended")),
        *(F.max(name).alias(name) for name in ("result", "error")),
        F.expr("max(if(began is not null, wall, null)) as wall_ms"),
        F.expr("max(if(began is null, wall, null)) as ended_wall_ms"),
    )


def settled(operations: DataFrame) -> DataFrame:
    """Operations with their outcomes, as far as these are known. One shuffle.

    Adds ``about``, the details; ``certain``: true if committed, false if not, null if unknown; and
    ``outcome``, the result as JSON. If the process was killed, the outcome comes from the mark
    that the operation left in the store in the same transaction.
    """
    known = operations.withColumn("about", F.from_json("what", WHAT))
    marks = known.where("who = 'store' and name = 'mark'").selectExpr(
        "run", "about.actor as who", "about.n", "about.value as mark"
    )
    # These errors promise that the operation wrote nothing.
    nothing = "error rlike '^(LeaseLost|StoreFull)'"
    certain = f"when {SUCCEEDED} then true when about.marked then mark is not null"
    return (
        known.join(marks, CALL, "left")
        .selectExpr(
            "*",
            f"case {certain} when {nothing} then false end as certain",
            f"case when {SUCCEEDED} then result when about.marked then mark end as outcome",
        )
        .drop("mark")
    )


def require_complete(operations: DataFrame) -> dict[str, int]:
    """The number of operations of each run. Raises ``CorruptData`` for other lines. Reads all."""
    counted = operations.groupBy("run").agg(
        F.count("*").alias("operations"),
        F.expr("count_if(n is null or began is null or name is null) as others"),
    )
    rows = counted.collect()
    for row in rows:
        if row["others"]:
            raise CorruptData(
                what=f"the history in {row['run']}",
                problem=f"{row['others']:,} of its lines are not operations",
            )
    return {row["run"]: row["operations"] for row in rows}


def recorded_rules(operations: DataFrame, runs: Iterable[str]) -> Rules:
    """The rules recorded in the histories. Raises ``CorruptData`` if missing or different."""
    recorded = operations.where("name = 'rules'").select("run", "what").collect()
    silent = set(runs) - {row["run"] for row in recorded}
    if silent:
        problem = "it does not describe its queues"
        raise CorruptData(what=f"the history in {min(silent)}", problem=problem)
    if len({row["what"] for row in recorded}) > 1:
        problem = "they come from different kinds of runs; check them one by one"
        raise CorruptData(what="the histories", problem=problem)
    return Rules.parse(json.loads(recorded[0]["what"]))

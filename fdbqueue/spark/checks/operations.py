"""Histories of tools/chaos as a table: a row for each operation of each actor.

A history is a directory of files with a line of JSON for each intent and each outcome;
tools/chaosrun/history.py writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...errors import CorruptData, InvalidArgument
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
STORE = "store"
NOTHING_WRITTEN = "^(LeaseLost|StoreFull)"
"""Errors that promise that the operation wrote nothing."""


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
    line = F.from_json("value", LINE)
    parsed = lines.select("run", line.alias("line")).select("run", "line.*")
    intent = F.col("began").isNotNull()
    return parsed.groupBy("run", "who", "n").agg(
        *(F.max(name).alias(name) for name in ("name", "queue", "what", "began", "ended")),
        *(F.max(name).alias(name) for name in ("result", "error")),
        F.max(F.when(intent, F.col("wall"))).alias("wall_ms"),
        F.max(F.when(~intent, F.col("wall"))).alias("ended_wall_ms"),
    )


def settled(operations: DataFrame) -> DataFrame:
    """Operations with their outcomes, as far as these are known. One shuffle.

    Adds ``about``, the details; ``certain``: true if committed, false if not, null if unknown; and
    ``outcome``, the result as JSON. If the process was killed, the outcome comes from the mark
    that the operation left in the store in the same transaction.
    """
    known = operations.withColumn("about", F.from_json("what", WHAT))
    marks = known.where((F.col("who") == STORE) & (F.col("name") == "mark")).select(
        "run",
        F.col("about.actor").alias("who"),
        F.col("about.n").alias("n"),
        F.col("about.value").alias("mark"),
    )
    joined = known.join(marks, ["run", "who", "n"], "left")
    marked = F.coalesce("about.marked", F.lit(False))
    nothing = F.coalesce(F.col("error").rlike(NOTHING_WRITTEN), F.lit(False))
    return joined.select(
        "*",
        F.when(succeeded(), True)
        .when(marked, F.col("mark").isNotNull())
        .when(nothing, False)
        .alias("certain"),
        F.when(succeeded(), F.col("result")).when(marked, F.col("mark")).alias("outcome"),
    ).drop("mark")


def succeeded() -> Column:
    """Whether an operation returned without an error."""
    return F.col("ended").isNotNull() & F.col("error").isNull()


def require_complete(operations: DataFrame) -> dict[str, int]:
    """The number of operations of each run. Raises ``CorruptData`` for other lines. Reads all."""
    whole = F.col("n").isNotNull() & F.col("began").isNotNull() & F.col("name").isNotNull()
    counted = operations.groupBy("run").agg(
        F.count("*").alias("operations"), F.count(F.when(~whole, 1)).alias("others")
    )
    rows = counted.collect()
    for row in rows:
        if row["others"]:
            raise CorruptData(
                what=f"the history in {row['run']}",
                problem=f"{row['others']:,} of its lines are not operations",
            )
    return {row["run"]: row["operations"] for row in rows}


def recorded_rules(operations: DataFrame) -> dict[str, Any]:
    """The rules recorded in the histories. Raises ``CorruptData`` if missing or different."""
    recorded = operations.where(F.col("name") == "rules").select("run", "what").collect()
    silent = {row["run"] for row in operations.select("run").distinct().collect()}
    silent -= {row["run"] for row in recorded}
    if silent:
        problem = "it does not describe its queues"
        raise CorruptData(what=f"the history in {min(silent)}", problem=problem)
    if len({row["what"] for row in recorded}) > 1:
        problem = "they come from different kinds of runs; check them one by one"
        raise CorruptData(what="the histories", problem=problem)
    rules: dict[str, Any] = json.loads(recorded[0]["what"])
    return rules

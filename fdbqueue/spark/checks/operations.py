"""Histories of tools/chaos as a table: one row for each operation of each actor.

A history is a directory of files with a line of JSON for each intent and each outcome; see
tools/chaosrun/history.py, which writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...errors import CorruptData, InvalidArgument

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
"""What the checks need to know of what an operation was about."""
STORE = "store"
NOTHING_WRITTEN = "^(LeaseLost|StoreFull)"
"""Errors that promise that nothing of the operation was written."""


def read(spark: SparkSession, directories: Iterable[str | Path]) -> DataFrame:
    """The lines of several histories, not yet looked at.

    Raises ``InvalidArgument`` for a directory that has none.
    """
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
    together = frames[0]
    for each in frames[1:]:
        together = together.unionByName(each)
    return together


def paired(lines: DataFrame) -> DataFrame:
    """Intents and outcomes together, by who and n. One shuffle.

    Columns: run, who, n, name, queue, what and result (JSON), began and ended (nanoseconds),
    wall_ms, ended_wall_ms, error. ``ended`` is null where the process did not live to see it.
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
    """Operations with what came of them, as far as it is known. One shuffle.

    Adds ``about``, which is what it was about; ``certain``: it was committed, it was not (false),
    or nobody knows (null); and ``outcome``, its result as JSON. Where its process did not live to
    tell, the mark does that it left in the store in the same transaction.
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
    """Whether an operation is known by itself to have succeeded."""
    return F.col("ended").isNotNull() & F.col("error").isNull()


def require_whole(operations: DataFrame) -> dict[str, int]:
    """Raise ``CorruptData`` for lines that are no operations; returns how many there are of each
    run. Looks at all of them."""
    whole = F.col("n").isNotNull() & F.col("began").isNotNull() & F.col("name").isNotNull()
    counted = operations.groupBy("run").agg(
        F.count("*").alias("operations"), F.count(F.when(~whole, 1)).alias("others")
    )
    rows = counted.collect()
    for row in rows:
        if row["others"]:
            raise CorruptData(
                what=f"the history in {row['run']}",
                problem=f"{row['others']:,} lines in it are no operations",
            )
    return {row["run"]: row["operations"] for row in rows}


def told_rules(operations: DataFrame) -> dict[str, Any]:
    """What the histories say of themselves. Raises ``CorruptData`` where they do not, or differ."""
    told = operations.where(F.col("name") == "rules").select("run", "what").collect()
    silent = {row["run"] for row in operations.select("run").distinct().collect()}
    silent -= {row["run"] for row in told}
    if silent:
        problem = "it does not say what its queues were"
        raise CorruptData(what=f"the history in {min(silent)}", problem=problem)
    if len({row["what"] for row in told}) > 1:
        problem = "they are of different kinds of runs; check them one by one"
        raise CorruptData(what="the histories", problem=problem)
    rules: dict[str, Any] = json.loads(told[0]["what"])
    return rules

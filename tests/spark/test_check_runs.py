"""The check of chaos runs as a Spark job: it finds what the checker of tools/chaos finds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from chaosrun import checker
from chaosrun.history import Operation
from chaosrun.rules import rules

from tests.unit.test_chaos_checker import PLANTED, A, B, History, browsed, fifo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from fdbqueue.spark.checking.findings import Verdict
from fdbqueue.spark.checking.job import check_lines
from fdbqueue.spark.checking.rules import Rules

RULES = Rules.parse(rules())


def lines(one: Operation) -> Iterator[str]:
    """What a recorder writes of an operation."""
    who = {"who": one.who, "n": one.n}
    about = {"name": one.name, "queue": one.queue, "what": one.what}
    yield json.dumps({**who, **about, "began": one.began, "wall": one.wall_ms})
    if one.ended is not None:
        came = {"result": one.result, "error": one.error}
        yield json.dumps({**who, "ended": one.ended, "wall": one.ended_wall_ms, **came})


def both(
    spark: SparkSession, histories: dict[str, list[Operation]]
) -> tuple[dict[str, Counter[str]], Verdict]:
    """What the checker of tools/chaos finds in each of several histories, and the Spark job."""
    ordered = {
        name: sorted(operations, key=lambda one: one.began)
        for name, operations in histories.items()
    }
    theirs = {
        name: Counter(one.kind for one in checker.check(operations))
        for name, operations in ordered.items()
    }
    rows = [
        (name, line)
        for name, operations in ordered.items()
        for one in operations
        for line in lines(one)
    ]
    return theirs, check_lines(spark.createDataFrame(rows, "run string, value string"), RULES)


def test_both_checkers_find_the_same(quick: SparkSession) -> None:
    # Given histories with every violation that there is, planted one by one, and some without
    histories: dict[str, list[Operation]] = {"clean": History().operations}
    for plant, _ in PLANTED:
        history = History()
        plant(history)
        histories[plant.__name__] = history.operations
    for n, rows in enumerate([(A, B), (A,), (A, A, B), (B, A), (A, B, ("z", 0, "eu"))]):
        histories[f"browsed {n}"] = browsed(*rows).operations
    for queue in ("staged", "auto", "filtered", "relaxed"):
        history = History(queue)
        fifo(history)
        histories[f"fifo {queue}"] = history.operations
    # When both look at them
    theirs, verdict = both(quick, histories)
    # Then they find the same, kind by kind
    assert {name: verdict.kinds(name) for name in histories} == {
        name: dict(found) for name, found in theirs.items()
    }

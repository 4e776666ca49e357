"""The check of runs of tools/chaos, as a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from .. import session
from ..jobs.steps import OnProgress, steps
from . import messages, operations, order, runs, window
from .message_operations import MESSAGE, actions_of, with_history
from .rules import Rules
from .violations import MOST_SHOWN, SCHEMA, Verdict, first_of_each, union, violation


def check_runs(
    directories: Iterable[str | Path],
    *,
    spark: session.SessionLike = None,
    progress: OnProgress | None = None,
) -> Verdict:
    """Verify the guarantees over the histories of runs of tools/chaos, each on its own.

    directories: one for each run. progress: called as it proceeds. Raises ``InvalidArgument`` if
    there is no history, ``CorruptData`` for anything else in its place.
    """
    session_ = session.resolve(spark)
    with steps(session_, "reading the histories", progress) as step:
        return check_lines(operations.read(session_, directories), step=step)


def check_lines(
    lines: DataFrame,
    rules: Rules | None = None,
    *,
    step: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """As ``check_runs``, for a table of lines: run, and value in JSON.

    rules: of the queues; None to read them from the histories. step: names each step.
    """
    ops = _materialized(operations.settled(operations.paired(lines)))
    actions = _materialized(with_history(actions_of(ops)))
    numbers = operations.require_complete(ops)
    rules = rules or Rules.parse(operations.recorded_rules(ops))
    step("following every message")
    followed = actions.where("rank = 1").count()
    step("checking")
    uncertain = _materialized(order.uncertain_calls(ops, rules))
    findings = union(
        [
            messages.findings(actions, rules),
            order.findings(actions, ops, uncertain, rules),
            window.findings(actions, ops, uncertain, rules),
            runs.cursors(ops, actions, rules),
            runs.replayed(ops, actions, rules),
            runs.counters(ops, actions),
            runs.failures(ops),
        ]
    )
    first = first_of_each(findings)
    shown = _shown(first, ops, actions)
    return Verdict(
        tuple(sorted(numbers)),
        {"operations": sum(numbers.values()), "messages": followed},
        tuple(violation(row, shown.get(n, [])) for n, row in enumerate(first)),
    )


def _materialized(frame: DataFrame) -> DataFrame:
    """A table that Spark computes once.

    Else the plan of each of some twenty checks would include its whole computation.
    """
    return frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)


def _shown(first: list[Row], ops: DataFrame, actions: DataFrame) -> dict[int, list[str]]:
    """The operations that show each finding: those it names, and all of its messages."""
    if not first:
        return {}
    spark = ops.sparkSession
    rows = [
        (n, row["run"], row["one"]["queue"], row["one"]["tags"], row["one"]["refs"])
        for n, row in enumerate(first)
    ]
    schema = SCHEMA.replace("kind string, ", "").replace("detail string, ", "")
    wanted = spark.createDataFrame(rows, f"finding int, {schema}")
    named = wanted.select("finding", "run", F.explode("refs").alias("ref"))
    tags = wanted.select("finding", "run", "queue", F.explode("tags").alias("tag"))
    about = actions.join(F.broadcast(tags), list(MESSAGE)).where("who != 'store'")
    refs = named.select("finding", "run", "ref.who", "ref.n").union(
        about.select("finding", "run", "who", "n")
    )
    found = ops.join(F.broadcast(refs.distinct()), ["run", "who", "n"])
    shown: dict[int, list[str]] = {}
    for row in found.orderBy("finding", "began").collect():
        texts = shown.setdefault(row["finding"], [])
        if len(texts) < MOST_SHOWN:
            texts.append(_describe(row))
    return shown


def _describe(row: Row) -> str:
    end = "killed before it ended" if row["ended"] is None else f"{row['ended'] / 1e6:.3f}"
    came = "" if row["ended"] is None else f" -> {_short(row['error'] or row['result'] or 'null')}"
    began = f"{row['began'] / 1e6:.3f}"
    return (
        f"[{began} .. {end}] {row['who']} #{row['n']} {row['name']} {row['queue']} "
        f"{_short(row['what'])}{came}"
    )


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "…"

"""The check of runs of tools/chaos, as a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from .. import session
from ..jobs.steps import OnProgress, steps
from . import messages, operations, order, runs
from .message_operations import MESSAGE, actions_of, with_history
from .operations import CALL, Rules
from .violations import REFS, Verdict, described, first_of_each, union


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
    # Spark computes these once: else the plan of each check would include their computation.
    ops = operations.settled(operations.paired(lines)).localCheckpoint(eager=False)
    actions = with_history(actions_of(ops)).localCheckpoint(eager=False)
    numbers = operations.require_complete(ops)
    rules = rules or operations.recorded_rules(ops, numbers)
    step("following every message")
    followed = actions.where("rank = 1").count()
    step("checking")
    findings = [messages.findings(actions, rules), order.findings(actions, ops, rules)]
    first = first_of_each(union([*findings, runs.findings(actions, ops, rules)]))
    return Verdict(
        tuple(sorted(numbers)),
        {"operations": sum(numbers.values()), "messages": followed},
        tuple(described(first, _shown_by(first, ops, actions), _describe)),
    )


def _shown_by(first: list[Row], ops: DataFrame, actions: DataFrame) -> DataFrame:
    """The operations that show each finding: those it names, and all of its messages."""
    rows = [
        (n, row["run"], row["one"]["queue"], row["one"]["tags"], row["one"]["refs"])
        for n, row in enumerate(first)
    ]
    schema = f"finding int, run string, queue string, tags array<string>, refs {REFS}"
    wanted = ops.sparkSession.createDataFrame(rows, schema)
    named = wanted.selectExpr("finding", "run", "inline(refs)")
    tags = wanted.selectExpr("finding", "run", "queue", "explode(tags) as tag")
    about = actions.join(F.broadcast(tags), MESSAGE).where("who <> 'store'")
    refs = named.union(about.select("finding", *CALL)).distinct()
    return ops.join(F.broadcast(refs), CALL).orderBy("finding", "began")


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

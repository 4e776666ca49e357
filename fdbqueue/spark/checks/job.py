"""The check as a job: what it reads, in which steps it goes, and what it tells in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from .. import session
from ..jobs.steps import OnProgress, steps
from . import messages, operations, order, runs, window
from .message_operations import MESSAGE, deeds, lives
from .rules import Rules
from .violations import MOST_SHOWN, SCHEMA, Verdict, first_of_each, together, violation


def check_runs(
    directories: Iterable[str | Path],
    *,
    spark: session.SessionLike = None,
    progress: OnProgress | None = None,
) -> Verdict:
    """Verify the guarantees over the histories of runs of tools/chaos, each by itself.

    directories: of the histories, one for each run. progress: is told how far it is.
    Raises ``InvalidArgument`` where there is none, and ``CorruptData`` for what is no history.
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
    """As ``check_runs``, of lines that are a table: run, and value, which is JSON.

    rules: what is known of the queues; None for what the histories say themselves. step: is told
    what is done next.
    """
    acts = _kept(operations.settled(operations.paired(lines)))
    known = _kept(lives(deeds(acts)))
    numbers = operations.require_whole(acts)
    rules = rules or Rules.parse(operations.told_rules(acts))
    step("following every message")
    followed = known.where("rank = 1").count()
    step("checking")
    disturbed = _kept(order.disturbances(acts, rules))
    findings = together(
        [
            messages.findings(known, rules),
            order.findings(known, acts, disturbed, rules),
            window.findings(known, acts, disturbed, rules),
            runs.cursors(acts, known, rules),
            runs.replayed(acts, known, rules),
            runs.counters(acts, known),
            runs.failures(acts),
        ]
    )
    first = first_of_each(findings)
    shown = _shown(first, acts, known)
    return Verdict(
        tuple(sorted(numbers)),
        {"operations": sum(numbers.values()), "messages": followed},
        tuple(violation(row, shown.get(n, [])) for n, row in enumerate(first)),
    )


def _kept(frame: DataFrame) -> DataFrame:
    """A table that is computed once, and of which plans no longer know how.

    Else every one of some twenty checks would carry the whole of it through its planning.
    """
    return frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)


def _shown(first: list[Row], acts: DataFrame, known: DataFrame) -> dict[int, list[str]]:
    """The operations that show a finding: those it names, and all about its messages."""
    if not first:
        return {}
    spark = acts.sparkSession
    rows = [
        (n, row["run"], row["one"]["queue"], row["one"]["tags"], row["one"]["refs"])
        for n, row in enumerate(first)
    ]
    schema = SCHEMA.replace("kind string, ", "").replace("detail string, ", "")
    wanted = spark.createDataFrame(rows, f"finding int, {schema}")
    named = wanted.select("finding", "run", F.explode("refs").alias("ref"))
    tags = wanted.select("finding", "run", "queue", F.explode("tags").alias("tag"))
    about = known.join(F.broadcast(tags), list(MESSAGE)).where("who != 'store'")
    refs = named.select("finding", "run", "ref.who", "ref.n").union(
        about.select("finding", "run", "who", "n")
    )
    found = acts.join(F.broadcast(refs.distinct()), ["run", "who", "n"])
    shown: dict[int, list[str]] = {}
    for row in found.orderBy("finding", "began").collect():
        texts = shown.setdefault(row["finding"], [])
        if len(texts) < MOST_SHOWN:
            texts.append(_told(row))
    return shown


def _told(row: Row) -> str:
    end = "killed before it ended" if row["ended"] is None else f"{row['ended'] / 1e6:.3f}"
    came = "" if row["ended"] is None else f" -> {_short(row['error'] or row['result'] or 'null')}"
    began = f"{row['began'] / 1e6:.3f}"
    return (
        f"[{began} .. {end}] {row['who']} #{row['n']} {row['name']} {row['queue']} "
        f"{_short(row['what'])}{came}"
    )


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "…"

"""The check of queues in use: their delivery history must be legal and add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ...queue.queue import Queue
from ...store.binding import fdb, transactional
from ...store.clocks import VERSIONS_PER_SECOND
from ...values.model import Depth
from ...values.records import record
from ...values.states import ENDS, State
from .. import session
from ..jobs.events import BORN, TAKES, state_of, version
from ..jobs.events import read as read_history
from ..jobs.steps import OnProgress, steps
from . import transitions
from .transitions import NAMES, with_neighbors
from .violations import (
    MOST_SHOWN,
    Condition,
    Verdict,
    Violation,
    check_rows,
    first_of_each,
    text,
    union,
    violation,
)

SLACK = 5 * VERSIONS_PER_SECOND
"""Versions by which a taker's read may be older than its commit."""
STATES = tuple(state.value for state in State)


@record
class QueueSnapshot:
    """The state of a queue at one version, to compare its history with.

    ordered: its messages are taken in the order of their places. limit: the most attempts of a
    message, if that is the same for all.
    """

    name: str
    version: int
    depths: dict[int, Depth]
    ordered: bool
    limit: int | None = None


def check(
    db: fdb.Database,
    queues: Iterable[Queue],
    *,
    max_attempts: int | None = None,
    spark: session.SessionLike = None,
    progress: OnProgress | None = None,
) -> Verdict:
    """Verify the guarantees over the delivery history of queues, which may be in use.

    max_attempts: the most attempts of any message; None not to check. The history does not tell
    the limits of single messages. progress: called as it proceeds.

    Compares each queue's counters at one version with the history up to it. Raises
    ``QueueNotFound``, ``StoreError``, ``MissingPackage``, ``MissingJava``.
    """
    session_ = session.resolve(spark)
    handles = list(queues)
    snapshots = [_snapshot(db, queue, max_attempts) for queue in handles]
    with steps(session_, "reading the histories", progress) as step:
        history = read_history(session_, db, handles)
        return check_history(history, snapshots, step=step)


def _snapshot(db: fdb.Database, queue: Queue, max_attempts: int | None) -> QueueSnapshot:
    @transactional
    def look(tr: fdb.Transaction) -> QueueSnapshot:
        version = tr.get_read_version()
        options = queue.options(tr)
        selected = any(each.selector is not None for each in queue.subscriptions.list(tr))
        ordered = options.contention != "relaxed" and not selected
        depths = queue.depths(tr)
        return QueueSnapshot(queue.name, version.wait(), depths, ordered, max_attempts)

    snapshot: QueueSnapshot = look(db)
    return snapshot


def check_history(
    history: DataFrame,
    snapshots: Iterable[QueueSnapshot],
    *,
    step: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """As ``check``, for a table of history and the state of its queues."""
    queues = list(snapshots)
    spark = history.sparkSession
    beside = spark.createDataFrame(
        [(each.name, each.version, each.ordered, each.limit) for each in queues],
        "queue string, until bigint, ordered boolean, max_attempts int",
    )
    events = history.withColumn("at_ms", F.unix_millis("at"))
    events = events.withColumn("at", version(F.col("stamp")))
    events = events.join(F.broadcast(beside), "queue").where("at <= until")
    events = with_neighbors(events.withColumn("run", F.col("queue")))
    events = events.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)
    step("following every message")
    counted = _counted(events)
    partial = _partial(counted, queues)
    step("checking")
    findings = union([_steps(events, F.col("queue").isin(partial)), _ordered(events)])
    found = first_of_each(findings)
    shown = _shown(found, events)
    violations = [violation(row, shown.get(n, [])) for n, row in enumerate(found)]
    violations += [each for one in queues for each in _counters(one, counted, one.name in partial)]
    return Verdict(
        tuple(each.name for each in queues),
        {
            "events": sum(row["events"] for row in counted),
            "messages": sum(row["messages"] for row in counted),
        },
        tuple(violations),
        (
            *(f"the beginning of the history of {name}: it is no longer kept" for name in partial),
            *(
                f"the order of {each.name}: it is relaxed, or has subscriptions with selectors"
                for each in queues
                if not each.ordered
            ),
        ),
    )


def _steps(events: DataFrame, began_before: Column) -> DataFrame:
    """Check every transition against the previous one of its message."""
    transition, before = F.col("transition"), F.col("before")
    state = state_of(before)
    source = state_of(transition, source=True)
    unknown = before.isNull() & began_before
    known_name = transition.isin(NAMES)
    wrong = ~unknown & ~(state.eqNullSafe(source))
    born = transition.isin(BORN) & before.isNotNull()
    ended = state.isin([each.value for each in ENDS]) & ~born
    leased = (transition == "lease") & (state == State.LEASED.value)
    where = text("{transition} of {id}, which is {state}", state=state)
    attempt, previous = F.col("attempt"), F.col("before_attempt")
    fails = transition.isin(
        "release", "defer", "reclaim", "dead-letter", "drop", "expire leased", "forward leased"
    )
    steps = (
        F.when(transition.isin(BORN) | (transition == "redrive"), attempt == 0)
        .when(fails, (attempt == previous) | (attempt == previous + 1))
        .otherwise(attempt == previous)
    )
    taken = transition.isin(*TAKES)
    due_ms = F.conv(F.substring_index(F.substring("id", 3, 64), "-", 1), 16, 10).cast("bigint")
    early = (transition == "promote") & F.col("id").startswith("d-") & (F.col("at_ms") < due_ms)
    return check_rows(
        events,
        [
            Condition("unknown transition", ~known_name, where),
            Condition("enqueued twice", born, where),
            Condition("leased twice", leased, where),
            Condition("went on after its end", ended, where),
            Condition("illegal transition", known_name & wrong & ~born & ~ended & ~leased, where),
            Condition(
                "attempts do not follow",
                known_name & ~steps,
                "{transition} of {id}: attempt {attempt} after {before_attempt}",
            ),
            Condition(
                "too many attempts",
                taken & (attempt >= F.col("max_attempts")),
                "{transition} of {id} after {attempt} attempts",
            ),
            Condition(
                "early",
                early,
                text("{id}: {early} ms too early", early=due_ms - F.col("at_ms")),
            ),
        ],
        tags=F.array("id"),
    )


def _ordered(events: DataFrame) -> DataFrame:
    """Nothing is taken while another message has been ready at a better place for long enough."""
    place = F.when(F.col("place") != "", F.col("place"))
    placed = events.where("ordered").withColumn("place", place)
    return transitions.taken_out_of_order(placed, "overtaken", F.lit(SLACK))


# -- counters ---------------------------------------------------------------------------------


def _counted(events: DataFrame) -> list[Row]:
    """For each queue and level, how many messages the history leaves in each state."""
    state = state_of(F.col("transition"))
    last = F.col("after_at").isNull()
    return (
        events.groupBy("queue", "level")
        .agg(
            F.count("*").alias("events"),
            F.count(F.when(last, 1)).alias("messages"),
            F.count(F.when(F.col("transition").isin(BORN), 1)).alias("enqueued"),
            *(F.count(F.when(last & (state == name), 1)).alias(name) for name in STATES),
        )
        .collect()
    )


def _partial(counted: list[Row], queues: Iterable[QueueSnapshot]) -> list[str]:
    """The queues whose history does not go back to their beginning."""
    born: dict[str, int] = {}
    for row in counted:
        born[row["queue"]] = born.get(row["queue"], 0) + row["enqueued"]
    return [
        each.name
        for each in queues
        if born.get(each.name, 0) < sum(depth.enqueued for depth in each.depths.values())
    ]


def _counters(one: QueueSnapshot, counted: list[Row], partial: bool) -> Iterator[Violation]:
    """The counters of a queue that differ from what its history adds up to.

    Counters of a partial history may be higher, but not lower.
    """
    mine = {row["level"]: row for row in counted if row["queue"] == one.name}
    for level in sorted(mine.keys() | one.depths.keys()):
        row, depth = mine.get(level), one.depths.get(level, Depth())
        for name in ("enqueued", *STATES):
            expected, found = row[name] if row else 0, getattr(depth, name)
            if expected > found or (expected != found and not partial):
                detail = (
                    f"{one.name}: level {level}: {found:,} {name}, but its history has {expected:,}"
                )
                yield Violation(one.name, "counter", 1, detail)


# -- what shows it ----------------------------------------------------------------------------


def _shown(first: list[Row], events: DataFrame) -> dict[int, list[str]]:
    """The events of the messages in the findings."""
    rows = [(n, row["run"], tag) for n, row in enumerate(first) for tag in row["one"]["tags"]]
    if not rows:
        return {}
    wanted = events.sparkSession.createDataFrame(rows, "finding int, run string, id string")
    found = events.join(F.broadcast(wanted), ["run", "id"]).orderBy("finding", "stamp")
    shown: dict[int, list[str]] = {}
    for row in found.select("finding", *_SHOWN).limit(MOST_SHOWN * len(first)).collect():
        texts = shown.setdefault(row["finding"], [])
        if len(texts) < MOST_SHOWN:
            consumer = f" by {row['consumer']}" if row["consumer"] else ""
            texts.append(
                f"[{row['at']:,}] {row['at_ms']} {row['transition']} {row['id']} "
                f"attempt {row['attempt']}{consumer}"
            )
    return shown


_SHOWN = ("at", "at_ms", "transition", "id", "attempt", "consumer")

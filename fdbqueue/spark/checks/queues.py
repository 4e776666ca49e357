"""The check of queues in use: what their delivery history says must be legal, and must add up."""

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
from ..jobs import events as histories
from ..jobs.steps import OnProgress, steps
from . import transitions
from .transitions import NAMES, followed
from .violations import (
    MOST_SHOWN,
    Condition,
    Verdict,
    Violation,
    first_of_each,
    judged,
    text,
    together,
    violation,
)

SLACK = 5 * VERSIONS_PER_SECOND
"""Who takes messages has read at a version that is at most so much older than its commit."""
STATES = tuple(state.value for state in State)


@record
class Known:
    """What is known of a queue beside its history, all at one version.

    ordered: whether its messages are taken in the order of their places. limit: the most
    attempts that a message may have, if that is the same for all.
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
    """Verify the guarantees over the delivery history of queues, which may be in use meanwhile.

    max_attempts: the most attempts that any message may have. None not to check it: messages may
    have a limit of their own, which the history does not tell.
    progress: is told how far it is.

    Looks at each queue's counters at one version, and at the history up to it. Raises
    ``QueueNotFound``, ``StoreError``, ``MissingPackage``, ``MissingJava``.
    """
    session_ = session.resolve(spark)
    handles = list(queues)
    known = [_look(db, queue, max_attempts) for queue in handles]
    with steps(session_, "reading the histories", progress) as step:
        history = histories.read(session_, db, handles)
        return check_history(history, known, step=step)


def _look(db: fdb.Database, queue: Queue, max_attempts: int | None) -> Known:
    @transactional
    def look(tr: fdb.Transaction) -> Known:
        version = tr.get_read_version()
        options = queue.options(tr)
        selected = any(each.selector is not None for each in queue.subscriptions.list(tr))
        ordered = options.contention != "relaxed" and not selected
        depths = queue.depths(tr)
        return Known(queue.name, version.wait(), depths, ordered, max_attempts)

    looked: Known = look(db)
    return looked


def check_history(
    history: DataFrame,
    known: Iterable[Known],
    *,
    step: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """As ``check``, of a table of history, and what is known of its queues.

    step: is told what is done next.
    """
    queues = list(known)
    spark = history.sparkSession
    beside = spark.createDataFrame(
        [(each.name, each.version, each.ordered, each.limit) for each in queues],
        "queue string, until bigint, ordered boolean, max_attempts int",
    )
    events = history.withColumn("at_ms", F.unix_millis("at"))
    events = events.withColumn("at", histories.version(F.col("stamp")))
    events = events.join(F.broadcast(beside), "queue").where("at <= until")
    lives = followed(events.withColumn("run", F.col("queue")))
    lives = lives.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)
    step("following every message")
    counted = _counted(lives)
    partial = _partial(counted, queues)
    step("checking")
    findings = together([_steps(lives, F.col("queue").isin(partial)), _ordered(lives)])
    found = first_of_each(findings)
    shown = _shown(found, lives)
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
            *(f"the beginning of the history of {name}: it is not kept" for name in partial),
            *(
                f"the order of {each.name}: it is relaxed, or selectors take from it"
                for each in queues
                if not each.ordered
            ),
        ),
    )


def _steps(lives: DataFrame, began_before: Column) -> DataFrame:
    """Every transition against the one before it of the same message."""
    transition, before = F.col("transition"), F.col("before")
    state = histories.state_of(before)
    source = histories.state_of(transition, source=True)
    unknown = before.isNull() & began_before
    known_name = transition.isin(NAMES)
    wrong = ~unknown & ~(state.eqNullSafe(source))
    born = transition.isin(histories.BORN) & before.isNotNull()
    ended = state.isin([each.value for each in ENDS]) & ~born
    leased = (transition == "lease") & (state == State.LEASED.value)
    where = text(transition, " of ", F.col("id"), ", which is ", state)
    attempt, previous = F.col("attempt"), F.col("before_attempt")
    fails = transition.isin(
        "release", "defer", "reclaim", "dead-letter", "drop", "expire leased", "forward leased"
    )
    steps = (
        F.when(transition.isin(histories.BORN) | (transition == "redrive"), attempt == 0)
        .when(fails, (attempt == previous) | (attempt == previous + 1))
        .otherwise(attempt == previous)
    )
    taken = transition.isin(*histories.TAKES)
    due_ms = F.conv(F.substring_index(F.substring("id", 3, 64), "-", 1), 16, 10).cast("bigint")
    early = (transition == "promote") & F.col("id").startswith("d-") & (F.col("at_ms") < due_ms)
    return judged(
        lives,
        [
            Condition("unknown transition", ~known_name, where),
            Condition("enqueued twice", born, where),
            Condition("leased twice", leased, where),
            Condition("went on after its end", ended, where),
            Condition("illegal transition", known_name & wrong & ~born & ~ended & ~leased, where),
            Condition(
                "attempts do not follow",
                known_name & ~steps,
                text(transition, " of ", F.col("id"), ": attempt ", attempt, " after ", previous),
            ),
            Condition(
                "too many attempts",
                taken & (attempt >= F.col("max_attempts")),
                text(transition, " of ", F.col("id"), " after ", attempt, " attempts"),
            ),
            Condition(
                "early",
                early,
                text(F.col("id"), ": ", due_ms - F.col("at_ms"), " ms too early"),
            ),
        ],
        tags=F.array("id"),
    )


def _ordered(lives: DataFrame) -> DataFrame:
    """Nothing is taken while another one has been ready at a better place for long enough."""
    place = F.when(F.col("place") != "", F.col("place"))
    placed = lives.where("ordered").withColumn("place", place)
    return transitions.not_the_first(placed, "overtaken", F.lit(SLACK))


# -- counters ---------------------------------------------------------------------------------


def _counted(lives: DataFrame) -> list[Row]:
    """Of every queue and level, how many messages the history leaves in which state."""
    state = histories.state_of(F.col("transition"))
    last = F.col("after_at").isNull()
    return (
        lives.groupBy("queue", "level")
        .agg(
            F.count("*").alias("events"),
            F.count(F.when(last, 1)).alias("messages"),
            F.count(F.when(F.col("transition").isin(histories.BORN), 1)).alias("enqueued"),
            *(F.count(F.when(last & (state == name), 1)).alias(name) for name in STATES),
        )
        .collect()
    )


def _partial(counted: list[Row], queues: Iterable[Known]) -> list[str]:
    """The queues of whose history the beginning is not kept."""
    born: dict[str, int] = {}
    for row in counted:
        born[row["queue"]] = born.get(row["queue"], 0) + row["enqueued"]
    return [
        each.name
        for each in queues
        if born.get(each.name, 0) < sum(depth.enqueued for depth in each.depths.values())
    ]


def _counters(one: Known, counted: list[Row], partial: bool) -> Iterator[Violation]:
    """Where the counters of a queue are not what its history leaves, state by state.

    Of a history whose beginning is not kept no message can be in a state that is not counted
    there; others may be.
    """
    mine = {row["level"]: row for row in counted if row["queue"] == one.name}
    for level in sorted(mine.keys() | one.depths.keys()):
        row, depth = mine.get(level), one.depths.get(level, Depth())
        for name in ("enqueued", *STATES):
            told, stands = row[name] if row else 0, getattr(depth, name)
            if told > stands or (told != stands and not partial):
                detail = (
                    f"{one.name}: level {level}: {stands:,} {name}, and {told:,} by its history"
                )
                yield Violation(one.name, "counter", 1, detail)


# -- what shows it ----------------------------------------------------------------------------


def _shown(first: list[Row], lives: DataFrame) -> dict[int, list[str]]:
    """The events of the messages that findings are about."""
    rows = [(n, row["run"], tag) for n, row in enumerate(first) for tag in row["one"]["tags"]]
    if not rows:
        return {}
    wanted = lives.sparkSession.createDataFrame(rows, "finding int, run string, id string")
    found = lives.join(F.broadcast(wanted), ["run", "id"]).orderBy("finding", "stamp")
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

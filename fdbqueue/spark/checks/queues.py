"""The check of queues in use: their delivery history must be legal and add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ...queue.queue import Queue
from ...store.binding import fdb, transactional
from ...store.clocks import VERSIONS_PER_SECOND
from ...values.model import Depth
from ...values.states import ENDS, TRANSITIONS, State
from .. import spark_session
from ..jobs.events import BORN, TAKES, into, named, read_events, state_of, version, with_neighbors
from ..jobs.steps import OnProgress, steps
from .interval_joins import least_open
from .violations import Verdict, Violation, findings, violations

SLACK = 5 * VERSIONS_PER_SECOND
"""Versions by which a taker's read may be older than its commit."""
COUNTED_AS = {
    "ready": ("ready", "waiting"),
    "scheduled": ("scheduled", "retrying"),
    **{
        each.value: (each.value,)
        for each in (State.LEASED, State.DEAD, State.DONE, State.EXPIRED, State.PURGED)
    },
}
"""The counters of the states that transitions name, which tell apart less."""
STATES = tuple(COUNTED_AS)

_NEVER = (1 << 62) - 1


class QueueSnapshot(Struct, frozen=True):
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
    spark: spark_session.SessionLike = None,
    progress: OnProgress | None = None,
) -> Verdict:
    """Verify the guarantees over the delivery history of queues, which may be in use.

    max_attempts: the most attempts of any message; None not to check. The history does not tell
    the limits of single messages. progress: called as it proceeds.

    Compares each queue's counters at one version with the history up to it. Raises
    ``QueueNotFound``, ``StoreError``, ``MissingPackage``.
    """
    session_ = spark_session.resolve(spark)
    handles = list(queues)
    snapshots = [_snapshot(db, queue, max_attempts) for queue in handles]
    with steps("reading the histories", progress) as step:
        history = read_events(session_, db, handles)
        return check_history(history, snapshots, step=step)


def _snapshot(db: fdb.Database, queue: Queue, max_attempts: int | None) -> QueueSnapshot:
    @transactional
    def look(tr: fdb.Transaction) -> QueueSnapshot:
        # One transaction, so the counters are of this very version, as is the history up to it.
        version = tr.get_read_version()
        selected = any(each.selector is not None for each in queue.subscriptions.list(tr))
        depths = queue.admin.counters(tr)
        return QueueSnapshot(queue.name, version.wait(), depths, not selected, max_attempts)

    snapshot: QueueSnapshot = look(db)
    return snapshot


def check_history(
    history: DataFrame,
    snapshots: Iterable[QueueSnapshot],
    *,
    step: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """Check a table of history against the state of its queues."""
    queues = list(snapshots)
    beside = history.sparkSession.createDataFrame(
        [(each.name, each.version, each.ordered, each.limit) for each in queues],
        "queue string, until bigint, ordered boolean, max_attempts int",
    )
    events = history.join(F.broadcast(beside), "queue").withColumns(
        {
            "at_ms": F.unix_millis("at"),
            "at": version(F.col("stamp")),
            "place": F.nullif("place", F.lit("")),
        }
    )
    # What happened after the snapshot is not in its counters.
    events = with_neighbors(events.where("at <= until"), ["queue", "id"])
    # Three queries follow: without it, each would sort every message's events again.
    events = events.localCheckpoint(eager=False)
    step("following every message")
    counted = _counted(events)
    partial = _partial(counted, queues)
    step("checking")
    found = _steps(events, partial).union(_taken_out_of_order(events.where("ordered")))
    broken = violations(found, events, _describe)
    broken += [each for one in queues for each in _counters(one, counted, one.name in partial)]
    return Verdict(
        tuple(each.name for each in queues),
        {
            "events": sum(row["events"] for row in counted),
            "messages": sum(row["messages"] for row in counted),
        },
        tuple(broken),
        (
            *(
                f"the beginning of the history of {name}: it no longer has {missing:,} of "
                f"{enqueued:,} messages"
                for name, (missing, enqueued) in partial.items()
            ),
            *(
                f"the order of {each.name}: it has subscriptions with selectors"
                for each in queues
                if not each.ordered
            ),
        ),
    )


def _steps(events: DataFrame, partial: Iterable[str]) -> DataFrame:
    """Check every transition against the previous one of its message."""
    transition, state = F.col("transition"), state_of(F.col("before"))
    born = transition.isin(BORN)
    fails = transition.isin(
        *("release", "defer", "dead-letter", "drop", "expire leased", "forward leased"),
        "replace leased",
    )
    due_ms = "conv(substring_index(substring(id, 3), '-', 1), 16, 10)"
    detailed = events.withColumns(
        {
            "state": state,
            "source": state_of(transition, source=True),
            "known": transition.isin(named(TRANSITIONS)),
            "born_again": born & F.col("before").isNotNull(),
            "ended": state.isin([each.value for each in ENDS]) & ~born,
            "leased_again": (transition == "lease") & (state == State.LEASED.value),
            "unknown": F.col("before").isNull() & F.col("queue").isin([*partial]),
            "follows": F.when(born | (transition == "redrive"), F.col("attempt") == 0)
            .when(fails, F.expr("attempt - before_attempt in (0, 1)"))
            .otherwise(F.expr("attempt = before_attempt")),
            "taken": transition.isin(*TAKES),
            "due_ms": F.expr(f"if(id like 'd-%', bigint({due_ms}), null)"),
        }
    )
    where = "{transition} of {id}, which is {state}"
    illegal = "not unknown and not state <=> source"
    return findings(
        detailed,
        [
            ("unknown transition", "not known", where),
            ("enqueued twice", "born_again", where),
            ("leased twice", "leased_again", where),
            ("went on after its end", "ended", where),
            (
                "illegal transition",
                f"known and {illegal} and not (born_again or ended or leased_again)",
                where,
            ),
            (
                "attempts do not follow",
                "known and not follows",
                "{transition} of {id}: attempt {attempt} after {before_attempt}",
            ),
            (
                "too many attempts",
                "taken and attempt >= max_attempts",
                "{transition} of {id} after {attempt} attempts",
            ),
            (
                "early",
                "transition = 'promote' and at_ms < due_ms",
                "{id}: {due_ms - at_ms} ms too early",
            ),
        ],
    )


def _taken_out_of_order(events: DataFrame) -> DataFrame:
    """Messages taken while another one with a better place had been ready for longer than
    ``SLACK``. Those without a place wait for their ordering keys."""
    placed = events.where("place is not null")
    ready = placed.where(F.col("transition").isin(into(State.READY))).selectExpr(
        "queue",
        f"at + {SLACK} as begin",
        f"coalesce(after_at, {_NEVER}) as end",
        "struct(place, id) as what",
    )
    takes = placed.where(F.col("transition").isin(*TAKES))
    passed = least_open(ready, takes.select("queue", "at", "transition", "id", "place"), ["queue"])
    detail = "{queue}: event {at}: {transition} of {id}, but {what.id} is ready"
    return findings(passed, [("overtaken", "what.place < place", detail)], "array(id, what.id)")


def _counted(events: DataFrame) -> list[Row]:
    """For each queue and level, how many messages the history leaves in each state."""
    last = (f"count_if(after_at is null and state = '{name}') as {name}" for name in STATES)
    counted = events.withColumns(
        {"state": state_of(F.col("transition")), "born": F.col("transition").isin(BORN)}
    )
    numbers = ["count(*) as events", "count_if(after_at is null) as messages"]
    numbers += ["count_if(born) as enqueued", *last]
    return counted.groupBy("queue", "level").agg(*map(F.expr, numbers)).collect()


def _partial(counted: list[Row], queues: Iterable[QueueSnapshot]) -> dict[str, tuple[int, int]]:
    """The queues whose history does not go back to their beginning, and how many messages were
    enqueued before that, and ever."""
    born: Counter[str] = Counter()
    for row in counted:
        born[row["queue"]] += row["enqueued"]
    ever = {each.name: sum(depth.enqueued for depth in each.depths.values()) for each in queues}
    return {name: (n - born[name], n) for name, n in ever.items() if born[name] < n}


def _counters(one: QueueSnapshot, counted: list[Row], partial: bool) -> Iterator[Violation]:
    """The counters of a queue that differ from what its history adds up to.

    Counters of a partial history may be higher, but not lower.
    """
    mine = {row["level"]: row for row in counted if row["queue"] == one.name}
    for level in sorted(mine.keys() | one.depths.keys()):
        row, depth = mine.get(level), one.depths.get(level, Depth())
        for name in ("enqueued", *STATES):
            expected = row[name] if row else 0
            found = sum(getattr(depth, each) for each in COUNTED_AS.get(name, (name,)))
            if expected > found or (expected != found and not partial):
                detail = (
                    f"{one.name}: level {level}: {found:,} {name}, but its history has {expected:,}"
                )
                yield Violation(one.name, "counter", 1, detail)


def _describe(row: Row) -> str:
    consumer = f" by {row['consumer']}" if row["consumer"] else ""
    return (
        f"[{row['at']:,}] {row['at_ms']} {row['transition']} {row['id']} "
        f"attempt {row['attempt']}{consumer}"
    )

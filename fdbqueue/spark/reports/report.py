"""The report on delivery history: waiting times, redeliveries, and how work is shared.

docs/spark.md defines every figure. The history stays in Spark: only one row for each level,
consumer, state and span of time reaches the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from ...errors import MissingPackage
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.durations import Seconds, seconds
from ...values.records import record
from ...values.states import ENDS, State
from .. import session
from ..jobs import events as histories
from ..jobs.events import BORN, TAKES, into, out_of, state_of, with_previous
from ..jobs.steps import OnProgress, steps
from .figures import (
    Balance,
    ConsumerFigures,
    Figures,
    LevelFigures,
    Oldest,
    Percentiles,
    QueueReport,
    Span,
)

PERCENTILES = (0.5, 0.95, 0.99)
ACCURACY = 10_000
"""Percentile ranks are accurate to this fraction of the number of values."""
MOST_SPANS = 120
MOST_CONSUMERS = 200
WIDTHS_MS = tuple(
    seconds * 1000
    for seconds in (
        *(1, 2, 5, 10, 15, 30),
        *(60, 120, 300, 600, 900, 1_800),
        *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 604_800),
    )
)

RETURNED = ("release", "defer", "reclaim")
DONE = into(State.DONE)
DEAD = into(State.DEAD)
COUNTS = ("enqueued", "delivered", "redelivered", "done", "returned", "dead", "expired", "purged")


@dataclass(frozen=True, slots=True)
class Report(Figures):
    """A report on the history of queues. The times are None without a history."""

    def to_html(self, title: str = "Delivery report") -> str:
        """One HTML page with plots and no other resources.

        Raises ``MissingPackage`` without jinja2 and matplotlib.
        """
        try:
            from .page import page
        except ImportError as error:
            package = error.name or str(error)
            raise MissingPackage(purpose="the page", package=package, extra="spark") from None
        return page(self, title)


def report(
    db: fdb.Database,
    queues: Iterable[Queue],
    *,
    spark: session.SessionLike = None,
    since: datetime | None = None,
    until: datetime | None = None,
    width: Seconds | None = None,
    progress: OnProgress | None = None,
) -> Report:
    """Report on the delivery history of queues, which their option ``history_seconds`` keeps.

    spark: a session; None for one on this machine. since, until: the time range, without ``until``
    itself. width: of the spans, in seconds; None for at most 120 spans. progress: called as it
    proceeds.

    Raises ``QueueNotFound``, ``StoreError``, ``MissingPackage``, ``MissingJava``.
    """
    session_ = session.resolve(spark)
    with steps(session_, "reading the history", progress):
        history = histories.read(session_, db, queues, since=since, until=until)
        return summarize(history, width=width)


def summarize(history: DataFrame, *, width: Seconds | None = None) -> Report:
    """The report on a table of history, of one queue or several; ``width`` as in ``report``."""
    events = _timed(with_previous(history)).persist()
    try:
        levels = _levels(events)
        whole = next((row for row in levels if row["queue"] is None), None)
        if whole is None or whole["first_ms"] is None:
            return Report(None, None, None, ())
        since_ms, until_ms = whole["first_ms"], whole["last_ms"]
        width_ms = int(seconds(width) * 1000) if width else span_width_ms(until_ms - since_ms)
        parts = _Parts(
            levels=_by_queue(row for row in levels if row["queue"] is not None),
            spans=_by_queue(_spans(events, width_ms)),
            consumers=_by_queue(_consumers(events)),
            oldest=_by_queue(_oldest(events)),
        )
        queues = (_queue(name, parts, width_ms, until_ms) for name in sorted(parts.levels))
        return Report(since_ms, until_ms, width_ms, tuple(queues))
    finally:
        events.unpersist()


def span_width_ms(length_ms: int) -> int:
    """The smallest round width that gives at most ``MOST_SPANS`` spans."""
    for width_ms in WIDTHS_MS:
        if length_ms // width_ms < MOST_SPANS:
            return width_ms
    weeks = length_ms // (WIDTHS_MS[-1] * (MOST_SPANS - 1)) + 1
    return weeks * WIDTHS_MS[-1]


# -- over the events --------------------------------------------------------------------------


def _timed(events: DataFrame) -> DataFrame:
    """Adds the times that an event ends: wait_ms, service_ms and whole_ms, or null.

    The clocks of two machines differ, so times that would be negative are 0.
    """

    def since(start: str) -> Column:
        # The greatest of null and 0 is 0.
        return F.when(F.col(start).isNotNull(), F.greatest(F.lit(0), F.col("at_ms") - F.col(start)))

    transition, before = F.col("transition"), F.col("before")
    taken, done = transition.isin(*TAKES), transition.isin(DONE)
    waited = taken & before.isin(into(State.READY))
    return events.select(
        "*",
        F.when(waited, since("before_ms")).alias("wait_ms"),
        F.when((transition == "ack") & (before == "lease"), since("before_ms")).alias("service_ms"),
        F.when(done, since("born_ms")).alias("whole_ms"),
    )


def _many(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _times(name: str) -> list[Column]:
    value = F.col(f"{name}_ms")
    ranks = F.percentile_approx(value, list(PERCENTILES), ACCURACY)
    return [F.count(value).alias(f"{name}_count"), ranks.alias(name)]


def _counts() -> list[Column]:
    transition = F.col("transition")
    taken = transition.isin(*TAKES)
    conditions = {
        "enqueued": transition.isin(BORN),
        "delivered": taken,
        "redelivered": taken & (F.col("takes") > 1),
        "done": transition.isin(DONE),
        "returned": transition.isin(*RETURNED),
        "dead": transition.isin(DEAD),
        "expired": transition.isin(into(State.EXPIRED)),
        "purged": transition.isin(into(State.PURGED)),
    }
    return [_many(conditions[name]).alias(name) for name in COUNTS]


def _levels(events: DataFrame) -> list[Row]:
    """A row for each level, each queue (level null), and the whole (queue null)."""
    return (
        events.rollup("queue", "level")
        .agg(
            *_counts(),
            *_times("wait"),
            *_times("service"),
            *_times("whole"),
            F.min("at_ms").alias("first_ms"),
            F.max("at_ms").alias("last_ms"),
        )
        .collect()
    )


def _spans(events: DataFrame, width_ms: int) -> list[Row]:
    transition = F.col("transition")
    begin_ms = F.col("at_ms") - F.pmod(F.col("at_ms"), F.lit(width_ms))
    risen = _many(transition.isin(into(State.READY)))
    return (
        events.groupBy("queue", begin_ms.alias("begin_ms"))
        .agg(
            *_counts(),
            (risen - _many(transition.isin(out_of(State.READY)))).alias("ready_change"),
            *_times("wait"),
            F.max("wait_ms").alias("longest_wait_ms"),
        )
        .orderBy("queue", "begin_ms")
        .collect()
    )


def _consumers(events: DataFrame) -> list[Row]:
    """The busiest consumers of each queue, with the balance of the queue in each row."""
    transition = F.col("transition")
    each = events.groupBy("queue", "consumer").agg(
        _many(transition.isin(*TAKES)).alias("delivered"),
        _many(transition.isin(DONE)).alias("done"),
        _many(transition.isin(*RETURNED) | transition.isin("dead-letter", "drop")).alias("failed"),
        *_times("service"),
    )
    number = F.col("delivered").cast("double")
    everyone = Window.partitionBy("queue")
    busiest = everyone.orderBy(F.desc("delivered"), "consumer")
    count, total = F.count("*").over(everyone), F.sum(number).over(everyone)
    return (
        each.where("delivered > 0")
        .select(
            "*",
            F.row_number().over(busiest).alias("rank"),
            count.alias("consumers"),
            F.max("delivered").over(everyone).alias("most"),
            F.min("delivered").over(everyone).alias("least"),
            (total * total / (count * F.sum(number * number).over(everyone))).alias("evenness"),
        )
        .where(F.col("rank") <= MOST_CONSUMERS)
        .orderBy("queue", "rank")
        .collect()
    )


def _oldest(events: DataFrame) -> list[Row]:
    """For each queue and state, the messages that the history leaves there, and the oldest."""
    state = state_of(F.col("transition"))
    # Without the enqueue in the history, its last event has to do.
    since = F.coalesce("born_ms", "at_ms")
    return (
        events.where("last")
        .where(~F.col("transition").isin(into(*ENDS)))
        .groupBy("queue", state.alias("state"))
        .agg(
            F.count("*").alias("messages"),
            F.min(F.struct(since.alias("since_ms"), "id", "level", "takes")).alias("oldest"),
        )
        .orderBy("queue", "state")
        .collect()
    )


# -- as plain values --------------------------------------------------------------------------


@record
class _Parts:
    """Rows by queue."""

    levels: dict[str, list[Row]]
    spans: dict[str, list[Row]]
    consumers: dict[str, list[Row]]
    oldest: dict[str, list[Row]]


def _by_queue(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row["queue"]].append(row)
    return dict(found)


def _queue(name: str, parts: _Parts, width_ms: int, until_ms: int) -> QueueReport:
    rows = sorted(parts.levels[name], key=lambda row: -1 if row["level"] is None else row["level"])
    whole, *levels = map(_level, rows)
    consumers = parts.consumers.get(name, [])
    return QueueReport(
        queue=name,
        whole=whole,
        levels=tuple(levels),
        spans=tuple(_filled(parts.spans.get(name, []), width_ms)),
        consumers=tuple(map(_consumer, consumers)),
        balance=_balance(consumers[0]) if consumers else None,
        oldest=tuple(
            Oldest(
                state=row["state"],
                messages=row["messages"],
                id=row["oldest"]["id"],
                level=row["oldest"]["level"],
                deliveries=row["oldest"]["takes"],
                since_ms=row["oldest"]["since_ms"],
                age_ms=max(0, until_ms - row["oldest"]["since_ms"]),
            )
            for row in parts.oldest.get(name, [])
        ),
    )


def _percentiles(row: Row, name: str) -> Percentiles:
    return Percentiles(row[f"{name}_count"], *(row[name] or (None, None, None)))


NONE = Percentiles(0, None, None, None)


def _level(row: Row) -> LevelFigures:
    return LevelFigures(
        level=row["level"],
        **{name: row[name] for name in COUNTS},
        waiting=_percentiles(row, "wait"),
        service=_percentiles(row, "service"),
        whole=_percentiles(row, "whole"),
    )


def _consumer(row: Row) -> ConsumerFigures:
    return ConsumerFigures(
        consumer=row["consumer"],
        delivered=row["delivered"],
        done=row["done"],
        failed=row["failed"],
        service=_percentiles(row, "service"),
    )


def _balance(row: Row) -> Balance:
    return Balance(row["consumers"], row["most"], row["least"], row["evenness"])


def _filled(rows: list[Row], width_ms: int) -> Iterator[Span]:
    """Spans without gaps: those without events are included."""
    known = {row["begin_ms"]: row for row in rows}
    ready = 0
    for begin_ms in range(min(known), max(known) + 1, width_ms) if known else ():
        row = known.get(begin_ms)
        if row is None:
            counts, waiting, longest_ms = dict.fromkeys(COUNTS, 0), NONE, None
        else:
            ready += row["ready_change"]
            counts = {name: row[name] for name in COUNTS}
            waiting, longest_ms = _percentiles(row, "wait"), row["longest_wait_ms"]
        yield Span(begin_ms, **counts, ready=ready, waiting=waiting, longest_wait_ms=longest_ms)

"""The report on delivery history: waiting times, redeliveries, and how work is shared.

docs/spark/jobs.md defines every figure. The history stays in Spark: only one row for each level,
consumer, state and span of time reaches the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from ...errors import MissingPackage
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.durations import Seconds, seconds
from ...values.states import ENDS, State
from .. import spark_session
from ..jobs import events as histories
from ..jobs.events import BORN, TAKES, into, out_of, state_of, with_neighbors
from ..jobs.steps import OnProgress, steps
from .figures import (
    Balance,
    ConsumerFigures,
    Counts,
    Figures,
    LevelFigures,
    Oldest,
    Percentiles,
    QueueReport,
    TimeSpan,
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
COUNTS = tuple(each.name for each in fields(Counts))


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
    spark: spark_session.SessionLike = None,
    since: datetime | None = None,
    until: datetime | None = None,
    width: Seconds | None = None,
    progress: OnProgress | None = None,
) -> Report:
    """Report on the delivery history of queues, which their option ``history_seconds`` keeps.

    spark: a session; None for one on this machine. since, until: the time range, without ``until``
    itself. width: of the spans, in seconds; None for at most 120 spans. progress: called as it
    proceeds.

    Raises ``QueueNotFound``, ``StoreError``, ``MissingPackage``.
    """
    session_ = spark_session.resolve(spark)
    with steps("reading the history", progress):
        history = histories.read_events(session_, db, queues, since=since, until=until)
        return summarize(history, width=width)


def summarize(history: DataFrame, *, width: Seconds | None = None) -> Report:
    """The report on a table of history, of one queue or several; ``width`` as in ``report``."""
    events = _followed(history).persist()
    try:
        levels = _levels(events)
        whole = next((row for row in levels if row["queue"] is None), None)
        if whole is None or whole["first_ms"] is None:
            return Report(None, None, None, ())
        since_ms, until_ms = whole["first_ms"], whole["last_ms"]
        width_ms = int(seconds(width) * 1000) if width else span_width_ms(until_ms - since_ms)
        every = (levels, _spans(events, width_ms), _consumers(events), _oldest(events, until_ms))
        parts = [_by_queue(rows) for rows in every]
        names = sorted(name for name in parts[0] if name is not None)
        queues = (_queue(name, width_ms, *(part[name] for part in parts)) for name in names)
        return Report(since_ms, until_ms, width_ms, tuple(queues))
    finally:
        events.unpersist()


def span_width_ms(length_ms: int) -> int:
    """The smallest round width that gives at most ``MOST_SPANS`` spans."""
    # Spans begin at round times: a history may touch one more than its length has.
    whole = MOST_SPANS - 1
    for width_ms in WIDTHS_MS:
        if length_ms // width_ms < whole:
            return width_ms
    weeks = length_ms // (WIDTHS_MS[-1] * whole) + 1
    return weeks * WIDTHS_MS[-1]


def _followed(history: DataFrame) -> DataFrame:
    """Events with what they count as, and what their message went through before. One shuffle.

    Adds ``COUNTS``: whether the event counts; takes: the message's deliveries so far; born_ms: when
    it was enqueued; and the times that the event ends: waiting, service and whole, in milliseconds.
    What the history does not tell is null.
    """
    kinds = {
        "enqueued": BORN,
        "delivered": TAKES,
        "done": into(State.DONE),
        "returned": ("release", "defer", "reclaim", "reclaim later"),
        "dead": into(State.DEAD),
        "expired": into(State.EXPIRED),
        "purged": into(State.PURGED),
        "into_ready": into(State.READY),
        "out_of_ready": out_of(State.READY),
    }
    transition, message = F.col("transition"), ["queue", "id"]
    so_far = Window.partitionBy(message).orderBy("stamp")
    so_far = so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    events = history.withColumn("at", F.unix_millis("at"))
    events = events.withColumns({name: transition.isin(*each) for name, each in kinds.items()})
    followed = with_neighbors(events, message).withColumns(
        {
            "takes": F.count_if("delivered").over(so_far),
            "born_ms": F.min(F.expr("if(enqueued, at, null)")).over(so_far),
            "waited": F.col("delivered") & F.col("before").isin(into(State.READY)),
        }
    )
    # The clocks of two machines differ, so times that would be negative are 0.
    held = "transition = 'ack' and before = 'lease'"
    return followed.selectExpr(
        "*",
        "delivered and takes > 1 as redelivered",
        "if(waited, greatest(0, at - before_at), null) as waiting",
        f"if({held}, greatest(0, at - before_at), null) as service",
        "if(done and born_ms is not null, greatest(0, at - born_ms), null) as whole",
    )


def _counts() -> list[Column]:
    return [F.count_if(name).alias(name) for name in COUNTS]


def _times(*names: str) -> list[Column]:
    """For each, the number of times and their percentiles."""
    ranks = ", ".join(map(str, PERCENTILES))
    figures = "struct(count({0}), percentile_approx({0}, array({1}), {2})) as {0}"
    return [F.expr(figures.format(name, ranks, ACCURACY)) for name in names]


def _levels(events: DataFrame) -> list[Row]:
    """A row for each level, each queue (level null), and the whole (queue null)."""
    span = F.min("at").alias("first_ms"), F.max("at").alias("last_ms")
    levels = events.rollup("queue", "level")
    rows = levels.agg(*_counts(), *_times("waiting", "service", "whole"), *span)
    return rows.orderBy("queue", "level").collect()


def _spans(events: DataFrame, width_ms: int) -> list[Row]:
    spans = events.groupBy("queue", F.expr(f"at - pmod(at, {width_ms}) as begin_ms"))
    return spans.agg(
        *_counts(),
        F.expr("count_if(into_ready) - count_if(out_of_ready) as ready_change"),
        F.max("waiting").alias("longest_wait_ms"),
        *_times("waiting"),
    ).collect()


def _consumers(events: DataFrame) -> list[Row]:
    """The busiest consumers of each queue, with the balance of the queue in each row."""
    failed = "count_if(returned or transition in ('dead-letter', 'drop')) as failed"
    counts = [F.count_if(name).alias(name) for name in ("delivered", "done")]
    each = events.groupBy("queue", "consumer").agg(*counts, F.expr(failed), *_times("service"))
    everyone = "over (partition by queue)"
    squares = f"count(*) {everyone} * sum(pow(delivered, 2)) {everyone}"
    ranked = each.where("delivered > 0").selectExpr(
        "*",
        "row_number() over (partition by queue order by delivered desc, consumer) as rank",
        f"count(*) {everyone} as consumers",
        f"max(delivered) {everyone} as most",
        f"min(delivered) {everyone} as least",
        f"pow(sum(delivered) {everyone}, 2) / ({squares}) as evenness",
    )
    return ranked.where(f"rank <= {MOST_CONSUMERS}").orderBy("queue", "rank").collect()


def _oldest(events: DataFrame, until_ms: int) -> list[Row]:
    """For each queue and state, the messages that the history leaves there, and the oldest."""
    last = events.where("after_at is null").withColumn("state", state_of(F.col("transition")))
    left = last.where(~F.col("state").isin([state.value for state in ENDS]))
    # Without the enqueue in the history, its last event has to do.
    oldest = "min(struct(coalesce(born_ms, at) as since_ms, id, level, takes as deliveries))"
    found = left.groupBy("queue", "state").agg(
        F.count("*").alias("messages"), F.expr(oldest).alias("oldest")
    )
    age = f"greatest(0, {until_ms} - oldest.since_ms) as age_ms"
    return (
        found.selectExpr("queue", "state", "messages", "oldest.*", age).orderBy("state").collect()
    )


def _by_queue(rows: Iterable[Row]) -> dict[str | None, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row["queue"]].append(row)
    return found


def _queue(
    name: str,
    width_ms: int,
    levels: list[Row],
    spans: list[Row],
    consumers: list[Row],
    oldest: list[Row],
) -> QueueReport:
    whole, *each = (LevelFigures(**_figures(LevelFigures, row)) for row in levels)
    return QueueReport(
        queue=name,
        whole=whole,
        levels=tuple(each),
        spans=tuple(_filled(spans, width_ms)),
        consumers=tuple(ConsumerFigures(**_figures(ConsumerFigures, row)) for row in consumers),
        balance=Balance(**_figures(Balance, consumers[0])) if consumers else None,
        oldest=tuple(Oldest(**_figures(Oldest, row)) for row in oldest),
    )


def _figures(kind: type[Any], row: Row) -> dict[str, Any]:
    """The fields of a record that a row has. A row inside it holds percentiles."""
    found = {each.name: row[each.name] for each in fields(kind) if each.name in row}
    return {
        name: Percentiles(value[0], *(value[1] or (None, None, None)))
        if isinstance(value, Row)
        else value
        for name, value in found.items()
    }


def _filled(rows: list[Row], width_ms: int) -> Iterator[TimeSpan]:
    """Spans without gaps: those without events are included."""
    known = {row["begin_ms"]: row for row in rows}
    ready = 0
    for begin_ms in range(min(known), max(known) + 1, width_ms) if known else ():
        row = known.get(begin_ms)
        if row is None:
            nothing = dict.fromkeys(COUNTS, 0)
            none = Percentiles(0, None, None, None)
            yield TimeSpan(**nothing, begin_ms=begin_ms, ready=ready, waiting=none)
        else:
            ready += row["ready_change"]
            yield TimeSpan(**_figures(TimeSpan, row), ready=ready)

"""``fdbq stream report``: a report on delivery history, as a table and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...values.text import duration
from .. import context, durations, terminal
from ..output import Done, Result
from ..parameters import QueueNames, option
from ..queues import queue_history
from . import spark_session

if TYPE_CHECKING:
    from fdbqueue.spark.reports.figures import LevelFigures, QueueReport


def report(
    names: QueueNames,
    html: Path | None = option("FILE", "Also write a self-contained page with plots."),
    since: datetime | None = durations.moment_option("Only what happened at this time or later."),
    until: datetime | None = durations.moment_option("Only what happened before this time."),
    span: float | None = durations.option("The interval of the throughput figures.", least=0.001),
) -> Done:
    """Report on the delivery history of queues.

    The report has waiting and service times, redeliveries, throughput and balance. A queue keeps a
    history for as long as its option history_seconds says. docs/spark/jobs.md defines every figure.

    Examples:
      fdbq stream report orders
      fdbq stream report orders payments --html report.html
      fdbq stream report orders --since 2026-05-01T12:00 --json
    """
    db = context.connect()
    queues = [context.queue(name) for name in dict.fromkeys(names)]
    for queue in queues:
        queue_history.check_kept(db, queue)
    with spark_session.job("report", "steps") as (spark, run):
        found = spark.report(db, queues, since=since, until=until, width=span, **run)
    if html is not None:
        html.write_text(found.to_html(), "utf-8")
    from fdbqueue.spark.reports.figures import moment

    if found.since_ms is None or found.until_ms is None:
        return Result(found.to_json(), (), "there is no history yet")
    begin, length = found.since_ms, duration(found.until_ms - found.since_ms)
    lines = [f"{moment(begin)} to {moment(found.until_ms)} ({length})"]
    return Result(found.to_json(), [*lines, *(line for each in found.queues for line in _of(each))])


RANKS = ("p50", "p95", "p99")


def _of(queue: QueueReport) -> Iterator[str]:
    """The lines about a queue."""
    from fdbqueue.spark.reports.figures import share

    yield from ("", queue.queue)
    headers = ["level", "enqueued", "delivered", "again", "done", "dead"]
    headers += [f"{name} {rank}" for name in ("wait", "service") for rank in RANKS]
    rows = [_row(level) for level in (*queue.levels, queue.whole)]
    yield from terminal.table(headers, rows, room=terminal.width())
    if queue.consumers and queue.balance:
        balance = queue.balance
        yield ""
        yield (
            f"{terminal.count(balance.consumers, 'consumer')}: {balance.least:,} to "
            f"{balance.most:,} deliveries each, evenness {balance.evenness:.3f}"
        )
        rows = [
            [
                *(each.delivered, share(each.delivered, queue.whole.delivered)),
                *(each.done, each.failed, duration(each.service.p50), each.consumer or "(unnamed)"),
            ]
            for each in queue.consumers[:20]
        ]
        headers = ["delivered", "share", "done", "failed", "service p50", "consumer"]
        yield from terminal.table(headers, rows, room=terminal.width())
    for one in queue.oldest:
        yield f"{one.messages:,} {one.state}, the oldest {one.id} for {duration(one.age_ms)}"


def _row(one: LevelFigures) -> list[object]:
    times = [getattr(each, rank) for each in (one.waiting, one.service) for rank in RANKS]
    level = "all" if one.level is None else str(one.level)
    counts = [one.enqueued, one.delivered, one.redelivered, one.done, one.dead]
    return [level, *counts, *map(duration, times)]

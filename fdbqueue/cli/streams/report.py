"""``fdbq stream report``: a report on delivery history, as a table and as a page."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ...values.text import duration
from .. import context, durations, terminal
from ..parameters import AsJson, QueueNames
from ..queues import queue_history
from . import spark_session

if TYPE_CHECKING:
    from fdbqueue.spark.reports.figures import LevelFigures, QueueReport
    from fdbqueue.spark.reports.report import Report


def report(
    names: QueueNames,
    html: Annotated[
        Path | None,
        Option(metavar="FILE", help="Also write a self-contained page with plots."),
    ] = None,
    since: Annotated[
        datetime | None, durations.moment_option("Only what happened at this time or later.")
    ] = None,
    until: Annotated[
        datetime | None, durations.moment_option("Only what happened before this time.")
    ] = None,
    span: Annotated[
        float | None, durations.option("The interval of the throughput figures.", 0.001)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report on the delivery history of queues.

    The report has waiting and service times, redeliveries, throughput and balance. A queue keeps a
    history for as long as its option history_seconds says. docs/spark/jobs.md defines every figure.

    \b
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
    if as_json:
        terminal.print_json(found.to_json())
    else:
        _print(found)


def _print(found: Report) -> None:
    from fdbqueue.spark.reports.figures import moment

    if found.since_ms is None or found.until_ms is None:
        terminal.note("there is no history yet")
        return
    length = duration(found.until_ms - found.since_ms)
    print(f"{moment(found.since_ms)} to {moment(found.until_ms)} ({length})")
    for queue in found.queues:
        print(f"\n{terminal.visible(queue.queue)}")
        headers = ["level", "enqueued", "delivered", "again", "done", "dead"]
        headers += [f"{name} {rank}" for name in ("wait", "service") for rank in RANKS]
        rows = [_row(level) for level in (*queue.levels, queue.whole)]
        terminal.print_table(headers, rows)
        _print_rest(queue)


RANKS = ("p50", "p95", "p99")


def _row(one: LevelFigures) -> list[object]:

    times = [getattr(each, rank) for each in (one.waiting, one.service) for rank in RANKS]
    level = "all" if one.level is None else str(one.level)
    counts = [one.enqueued, one.delivered, one.redelivered, one.done, one.dead]
    return [level, *counts, *map(duration, times)]


def _print_rest(queue: QueueReport) -> None:
    from fdbqueue.spark.reports.figures import share

    if queue.consumers and queue.balance:
        balance = queue.balance
        print(
            f"\n{terminal.count(balance.consumers, 'consumer')}: {balance.least:,} to "
            f"{balance.most:,} deliveries each, evenness {balance.evenness:.3f}"
        )
        rows = [
            [
                each.delivered,
                share(each.delivered, queue.whole.delivered),
                each.done,
                each.failed,
                duration(each.service.p50),
                each.consumer or "(unnamed)",
            ]
            for each in queue.consumers[:20]
        ]
        headers = ["delivered", "share", "done", "failed", "service p50", "consumer"]
        terminal.print_table(headers, rows)
    for one in queue.oldest:
        print(f"{one.messages:,} {one.state}, the oldest {one.id} for {duration(one.age_ms)}")

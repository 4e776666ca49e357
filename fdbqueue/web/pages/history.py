"""The history of a queue: its report, its newest events, and how many there are of each kind."""

from __future__ import annotations

from collections import Counter
from functools import partial

from ...messages import history as events
from ...queue.internals import Internals
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.model import Event
from .. import report
from ..site import Values, Visit

SPANS = {"60": "a minute", "600": "10 minutes", "3600": "an hour", "86400": "a day"}
STEP, MAX_READ, SHOWN = 1_000, 10_000, 200


def history(visit: Visit) -> Values:
    """The page."""
    span, queue = visit.query.get("span", ""), visit.queue
    span = span if span in SPANS else "600"
    options = queue.options(visit.db)
    after = since(visit, float(span))
    found: list[Event] = []
    whole = False
    while len(found) < MAX_READ and not whole:
        before = found[-1].stamp if found else b""
        some = Internals(queue).read(visit.db, partial(_newest, queue, after=after, before=before))
        whole = len(some) < STEP
        found += some
    counts = Counter(event.transition for event in found)
    figures = report.HistoryReport()
    # They were read from the newest on, and are counted in the order in which they happened.
    figures.add(found[::-1])
    begin_ms = found[-1].at_ms if found else 0
    end_ms = found[0].at_ms + 1 if found else begin_ms
    bars, most = report.bars(figures.done_ms, begin_ms, end_ms)
    return {
        "figures": figures.rows(),
        "percentiles": report.percentiles,
        "bars": bars,
        "most": most,
        "span_ms": max(1, (end_ms - begin_ms) // report.SPANS),
        "begin_ms": begin_ms,
        "end_ms": end_ms,
        "kept": options.history_seconds,
        "spans": SPANS,
        "span": span,
        "events": found[:SHOWN],
        "counts": counts.most_common(),
        "read": counts.total(),
        "whole": whole,
    }


def _newest(queue: Queue, tr: fdb.Transaction, after: bytes, before: bytes) -> list[Event]:
    return events.newest(tr, Internals(queue).scope(tr), STEP, after, before)


def since(visit: Visit, seconds: float) -> bytes:
    """The stamp behind which the events of the last seconds are."""
    inner = Internals(visit.queue)
    return inner.read(visit.db, lambda tr: events.stamp_ago(tr, inner.scope(tr), seconds))

"""The history of a queue: its report, its newest events, and how many there are of each kind.

The report has the figures of ``fdbq stream report``, for as many events as fit on a page: how many
messages came and went, how long they waited, and were held. docs/spark/jobs.md defines them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...messages import history as events
from ...queue.internals import Internals
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.model import Event
from ...values.states import ACK, DEQUEUE, LEASE, TRANSITIONS, State, Transition
from ..site import Values, Visit

SPANS = {"60": "a minute", "600": "10 minutes", "3600": "an hour", "86400": "a day"}
STEP, MAX_READ, SHOWN = 1_000, 10_000, 200
PERCENTILES = (50, 95, 99)
BARS, WIDTH, HEIGHT = 60, 300, 60

_EDGES = {edge.name: edge for edge in TRANSITIONS}
_TAKES = {LEASE.name, DEQUEUE.name}


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
    figures = HistoryReport()
    # They were read from the newest on, and are counted in the order in which they happened.
    figures.add(found[::-1])
    begin_ms = found[-1].at_ms if found else 0
    end_ms = found[0].at_ms + 1 if found else begin_ms
    drawn, most = bars(figures.done_ms, begin_ms, end_ms)
    return {
        "figures": figures.rows(),
        "percentiles": percentiles,
        "bars": drawn,
        "most": most,
        "span_ms": max(1, (end_ms - begin_ms) // BARS),
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


@dataclass(slots=True)
class Summary:
    """Those of one level, or of all. Times are in milliseconds."""

    enqueued: int = 0
    delivered: int = 0
    redelivered: int = 0
    done: int = 0
    dead: int = 0
    waiting: list[int] = field(default_factory=list)
    service: list[int] = field(default_factory=list)


class HistoryReport:
    """The figures of a queue's events, which are added in their order."""

    def __init__(self) -> None:
        self.whole = Summary()
        self.levels: dict[int, Summary] = {}
        self.done_ms: list[int] = []
        """When messages were done."""
        # The last transition of each message that changed its state, and when.
        self._last: dict[str, tuple[Transition, int]] = {}
        self._delivered: set[str] = set()

    def add(self, events: Iterable[Event]) -> None:
        """Add events that come after those that are known."""
        for event in events:
            edge = _EDGES[event.transition]
            for figures in (self.whole, self.levels.setdefault(event.level, Summary())):
                self._count(figures, event, edge)
            if edge.target is State.DONE:
                self.done_ms.append(event.at_ms)
            if edge.name in _TAKES:
                self._delivered.add(event.id)
            if edge.source is not edge.target:
                self._last[event.id] = edge, event.at_ms

    def _count(self, figures: Summary, event: Event, edge: Transition) -> None:
        figures.enqueued += edge.source is None
        figures.done += edge.target is State.DONE
        # A dead letter that is edited stays one: it does not die again.
        figures.dead += edge.target is State.DEAD and edge.source is not State.DEAD
        before, before_ms = self._last.get(event.id, (None, 0))
        # The clocks of two machines differ.
        passed = max(0, event.at_ms - before_ms)
        if edge.name in _TAKES:
            figures.delivered += 1
            figures.redelivered += event.id in self._delivered
            if before is not None and before.target is State.READY:
                figures.waiting.append(passed)
        elif edge == ACK and before == LEASE:
            figures.service.append(passed)

    def rows(self) -> list[tuple[int | None, Summary]]:
        """The figures of each level, and those of all (None) if there are several."""
        rows: list[tuple[int | None, Summary]] = [*sorted(self.levels.items())]
        return rows if len(rows) < 2 else [(None, self.whole), *rows]


def percentiles(values: Sequence[int]) -> list[int | None]:
    """Nearest-rank percentiles; None where there is no value."""
    ordered = sorted(values)
    count = len(ordered)
    ranks = [-(-percent * count // 100) for percent in PERCENTILES]
    return [ordered[rank - 1] if count else None for rank in ranks]


def bars(times_ms: Sequence[int], begin_ms: int, end_ms: int) -> tuple[str, int]:
    """How often something happened in each of ``BARS`` spans: bars as the path of an SVG, and the
    height of the highest."""
    width_ms = max(1, -(-(end_ms - begin_ms) // BARS))
    counts = [0] * BARS
    for at_ms in times_ms:
        span = (at_ms - begin_ms) // width_ms
        if 0 <= span < BARS:
            counts[span] += 1
    top, wide = max(counts), WIDTH / BARS
    parts = []
    for span, count in enumerate(counts):
        if count:
            height = count / top * HEIGHT
            parts.append(f"M{span * wide:.1f} {HEIGHT}v-{height:.1f}h{wide - 1:.1f}v{height:.1f}z")
    return "".join(parts), top

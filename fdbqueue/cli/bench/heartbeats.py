"""What a sign of life costs a consumer, beside few others and beside many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from ...consumers import registry
from ...queue.queue import Queue
from ...store import binding
from ...store.binding import fdb, transactional
from ...values.records import record
from ...worker.consumer import Member
from . import measure
from .client_counters import Meter

AT_ONCE = 500
BEATS = 20


@record
class Beat:
    """A sign of life beside so many consumers: rows that are read and round trips, the median and
    the most of them, and the time."""

    consumers: int
    rows: float
    most_rows: int
    round_trips: float
    p50_ms: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def run(counts: Sequence[int]) -> Iterator[Beat]:
    """One beat after another, beside each number of living consumers, in a scratch subspace."""
    db = binding.open()
    meter = Meter()
    meter.install()
    with measure.scratch() as space:
        root = fdb.Subspace(rawPrefix=space)
        for count in counts:
            queue = Queue.create(db, f"beats-{count}", root=root)
            for begin in range(0, count, AT_ONCE):
                _register(db, queue, min(AT_ONCE, count - begin))
            member = Member(db, queue, "beating", 0, None)
            member.join()
            yield _beats(count, member, meter)


@transactional
def _register(tr: fdb.Transaction, queue: Queue, count: int) -> None:
    scope = queue._scope(tr)
    for _ in range(count):
        registry.register(tr, scope, *registry.new(scope, "beside", 0))


def _beats(count: int, member: Member, meter: Meter) -> Beat:
    rows, trips, times = [], [], []
    for _ in range(BEATS):
        before, began = meter.counts - type(meter.counts)(), time.monotonic()
        member.beat()
        cost = meter.counts - before
        rows.append(cost.rows)
        trips.append(cost.round_trips)
        times.append(time.monotonic() - began)
    return Beat(count, median(rows), max(rows), median(trips), 1000 * median(times))

"""The cost of a heartbeat, with few consumers and with many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from fdbqueue.consumers import registry, sessions
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb, transactional
from fdbqueue.store.clocks import SYSTEM_CLOCK
from fdbqueue.values.records import record
from fdbqueue.worker.session import ProcessSession

from . import processes
from .client_counters import Meter

AT_ONCE = 500
BEATS = 20
IN_ONE, IN_MANY = "one", "many"


@record
class Beat:
    """The heartbeat of one process that has all consumers, or one of many processes.

    rows, most_rows: rows read, median and maximum. written: keys set or cleared. p50_ms: latency.
    """

    consumers: int
    processes: str
    rows: float
    most_rows: int
    written: float
    round_trips: float
    p50_ms: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def run(counts: Sequence[int]) -> Iterator[Beat]:
    """Measure heartbeats with each number of consumers, in a temporary subspace."""
    for count in counts:
        for owners in (IN_ONE, IN_MANY):
            with processes.scratch() as space:
                found: Beat = processes.once(partial(_measure, space, count, owners))
            yield found


def _measure(space: bytes, count: int, owners: str) -> Beat:
    meter = Meter()
    meter.install()
    db, root = processes.opened(space)
    queue = Queue.create(db, f"beats-{count}", root=root)
    session = ProcessSession.of(db, queue._root_keys, SYSTEM_CLOCK)
    _register(queue, session, 1)
    if owners == IN_ONE:
        _register(queue, session, count)
    else:
        for begin in range(0, count, AT_ONCE):
            _register_processes(db, queue, min(AT_ONCE, count - begin))
    return _beats(count, owners, session, meter)


def _register(queue: Queue, session: ProcessSession, count: int) -> None:
    def register(tr: fdb.Transaction, name: bytes) -> Any:
        scope = queue._scope(tr)
        for _ in range(at_once - 1):
            registry.register(tr, scope, name, "beside")
        return registry.register(tr, scope, name, "beside")

    for begin in range(0, count, AT_ONCE):
        at_once = min(AT_ONCE, count - begin)
        session.register(register)


@transactional
def _register_processes(tr: fdb.Transaction, queue: Queue, count: int) -> None:
    scope = queue._scope(tr)
    for _ in range(count):
        name = sessions.start(tr, scope.root, scope.clock)
        registry.register(tr, scope, name, "beside")


def _beats(count: int, owners: str, session: ProcessSession, meter: Meter) -> Beat:
    rows, written, trips, times = [], [], [], []
    for _ in range(BEATS):
        before, began = meter.counts - type(meter.counts)(), time.monotonic()
        session.beat(always=True)
        cost = meter.counts - before
        rows.append(cost.rows)
        written.append(cost.written)
        trips.append(cost.round_trips)
        times.append(time.monotonic() - began)
    return Beat(
        count,
        owners,
        median(rows),
        max(rows),
        median(written),
        median(trips),
        1000 * median(times),
    )

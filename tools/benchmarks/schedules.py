"""What ticks of many schedules cost, and what schedules cost that do not tick."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb, transactional
from fdbqueue.testing import ManualClock
from fdbqueue.values.records import record

from . import processes
from .client_counters import Meter

AT_ONCE = 100
EVERY = 3_600
IDLE_SECONDS = 5.0


@record
class Ticking:
    """What schedules of one queue cost.

    tick_ms: for each tick of those that come at the same moment, until its message is ready and
    the next tick waits; with ``skip``, while the message before is not done. cpu_ms: the same as
    processor time. idle_percent: of a core, for a consumer that waits while nothing ticks.
    idle_trips: round trips of that consumer in a second.
    """

    schedules: int
    cron_ms: float
    cpu_ms: float
    every_ms: float
    skip_ms: float
    idle_percent: float
    idle_trips: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def run(counts: Sequence[int]) -> Iterator[Ticking]:
    """Measure with each number of schedules, in a temporary subspace."""
    for count in counts:
        with processes.scratch() as space:
            found: Ticking = processes.once(partial(_measure, space, count))
        yield found


def _measure(space: bytes, count: int) -> Ticking:
    meter = Meter()
    meter.install()
    db, root = processes.opened(space)
    clock = ManualClock()
    costs: list[tuple[float, float]] = []
    for overlap, when in (
        ("queue", {"cron": "0 * * * *", "timezone": "Europe/Berlin"}),
        ("queue", {"every": EVERY}),
        ("skip", {"every": EVERY}),
    ):
        queue = Queue.create(db, f"ticks-{len(costs)}", root=root, clock=clock)
        _set(db, queue, count, overlap=overlap, **when)
        if overlap == "skip":
            _tick(db, queue, clock, count)
        costs.append(_tick(db, queue, clock, count))
    idle = Queue.create(db, "ticks-idle", root=root)
    _set(db, idle, count, cron="0 0 1 1 *")
    before, began = meter.counts - type(meter.counts)(), _processor_seconds()
    assert idle.receive(db, wait=IDLE_SECONDS) is None
    trips = (meter.counts - before).round_trips
    used = _processor_seconds() - began
    return Ticking(
        count,
        costs[0][0],
        costs[0][1],
        costs[1][0],
        costs[2][0],
        100 * used / IDLE_SECONDS,
        trips / IDLE_SECONDS,
    )


def _set(db: fdb.Database, queue: Queue, count: int, **how: Any) -> None:
    @transactional
    def put(tr: fdb.Transaction, first: int) -> None:
        for n in range(first, min(first + AT_ONCE, count)):
            queue.schedules.set(tr, f"s{n}", b"x" * 100, **how)

    for first in range(0, count, AT_ONCE):
        put(db, first)


def _tick(db: fdb.Database, queue: Queue, clock: ManualClock, count: int) -> tuple[float, float]:
    """Let all tick once; returns how long that took for each, and its processor time, in ms."""
    clock.seconds += EVERY
    before = sum(each.fired + each.skipped for each in _all(db, queue))
    began, used = time.monotonic(), _processor_seconds()
    if count:
        queue.sweep(db)
    took, used = time.monotonic() - began, _processor_seconds() - used
    done = sum(each.fired + each.skipped for each in _all(db, queue)) - before
    assert done == count, f"{done} of {count} have ticked"
    return 1000 * took / max(1, count), 1000 * used / max(1, count)


def _all(db: fdb.Database, queue: Queue) -> Iterator[Any]:
    after = None
    while page := queue.schedules.list(db, 1_000, after=after):
        yield from page
        after = page[-1].name


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

"""What ticks of many schedules cost, and what schedules cost that do not tick."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from typer import Option

from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb, transactional
from fdbqueue.testing import ManualClock

from . import processes
from .client_counters import Meter
from .declare import Row, benchmark, counts

AT_ONCE = 100
EVERY = 3_600
IDLE_SECONDS = 5.0


@benchmark("schedules")
def schedules(
    numbers: Annotated[
        str, Option("--schedules", metavar="N,…", help="Numbers of schedules of one queue.")
    ] = "1,10000",
) -> Iterator[Row]:
    """Measure what a tick costs while many schedules tick at once, and what they cost otherwise.

    A tick takes until its message is ready and the next tick waits; with skip, while the message
    before is not done.

    \b
    Examples:
      tools/bench schedules
      tools/bench schedules --schedules 1000 --json
    """
    for count in counts(numbers, 100_000):
        with processes.scratch() as space:
            yield from processes.once(partial(_measure, space, count))


def _measure(space: bytes, count: int) -> list[Row]:
    meter = Meter()
    meter.install()
    db, root = processes.opened(space)
    clock, rows = ManualClock(), []
    for name, overlap, when in (
        ("cron", "queue", {"cron": "0 * * * *", "timezone": "Europe/Berlin"}),
        ("every", "queue", {"every": EVERY}),
        ("skip", "skip", {"every": EVERY}),
    ):
        queue = Queue.create(db, f"ticks-{name}", root=root, clock=clock)
        _set(db, queue, count, overlap=overlap, **when)
        if overlap == "skip":
            _tick(db, queue, clock, count)
        took, used = _tick(db, queue, clock, count)
        rows.append(Row(f"a tick of {count}, {name}", took, "ms", more={"processor ms": used}))
    idle = Queue.create(db, "ticks-idle", root=root)
    _set(db, idle, count, cron="0 0 1 1 *")
    before, began = meter.counts - type(meter.counts)(), time.process_time()
    assert idle.receive(db, wait=IDLE_SECONDS) is None
    trips = (meter.counts - before).round_trips / IDLE_SECONDS
    used = (time.process_time() - began) / IDLE_SECONDS
    name = f"a consumer that waits beside {count}"
    return [*rows, Row(name, 100 * used, "% of a core", more={"round trips/s": trips})]


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
    began, used = time.monotonic(), time.process_time()
    queue.admin.sweep(db)
    took, used = time.monotonic() - began, time.process_time() - used
    done = sum(each.fired + each.skipped for each in _all(db, queue)) - before
    assert done == count, f"{done} of {count} have ticked"
    return 1000 * took / count, 1000 * used / count


def _all(db: fdb.Database, queue: Queue) -> Iterator[Any]:
    after = None
    while page := queue.schedules.list(db, 1_000, after=after):
        yield from page
        after = page[-1].name

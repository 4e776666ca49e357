"""The cost of a heartbeat, with few consumers and with many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Annotated, Any

from typer import Option

from fdbqueue.consumers import registry, sessions
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb, transactional
from fdbqueue.store.clocks import SYSTEM_CLOCK
from fdbqueue.worker.session import ProcessSession

from . import processes
from .client_counters import Meter
from .declare import Row, benchmark, counts

AT_ONCE = 500
BEATS = 20
IN_ONE, IN_MANY = "one process", "many processes"


@benchmark("beats")
def heartbeats(
    consumers: Annotated[
        str, Option(metavar="N,…", help="Numbers of registered consumers.")
    ] = "10,10000",
) -> Iterator[Row]:
    """Measure the cost of heartbeats.

    First all consumers belong to the process that beats, then each has its own process.

    \b
    Examples:
      tools/bench beats
      tools/bench beats --consumers 10,1000 --json
    """
    for count in counts(consumers, 100_000):
        for owners in (IN_ONE, IN_MANY):
            with processes.scratch() as space:
                yield processes.once(partial(_measure, space, count, owners))


def _measure(space: bytes, count: int, owners: str) -> Row:
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


def _beats(count: int, owners: str, session: ProcessSession, meter: Meter) -> Row:
    costs, times = [], []
    for _ in range(BEATS):
        before, began = meter.counts - type(meter.counts)(), time.monotonic()
        session.beat(always=True)
        costs.append(meter.counts - before)
        times.append(time.monotonic() - began)
    return Row(
        f"{count} consumers in {owners}",
        1000 * median(times),
        "ms",
        more={
            "rows": median(each.rows for each in costs),
            "most rows": max(each.rows for each in costs),
            "written": median(each.written for each in costs),
            "round trips": median(each.round_trips for each in costs),
        },
    )

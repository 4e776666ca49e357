"""A worker's latency, its idle cost, and how fast workers handle a backlog.

Workers run in processes of their own. Latency is the time from the return of the enqueue's commit
to the first line of the handler. A backlog is handled when the last message is acknowledged; its
time does not include the start of the processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Any

from typer import Option

from fdbqueue import Run, Worker
from fdbqueue.queue.queue import Queue
from fdbqueue.schema import once
from fdbqueue.store.binding import fdb

from . import processes
from .clients import payload, quantile
from .declare import Row, at_most, benchmark, counts

PAUSE_SECONDS, IDLE_SECONDS = 0.02, 10.0
AT_ONCE = 500
P50_MS, P99_MS, IDLE_PERCENT = 15, 50, 1

FOR_EVER = 1e6


@benchmark("worker")
def worker(
    messages: Annotated[
        int, Option(metavar="N", min=0, help="Enqueues to an idle worker, one at a time.")
    ] = 300,
    backlog: Annotated[int, Option(metavar="N", min=1, help="Messages in a backlog.")] = 8_000,
    handlers: Annotated[
        str, Option(metavar="MS,…", help="Milliseconds that a handler takes.")
    ] = "0,1,100",
    workers: Annotated[
        str, Option("--processes", metavar="N,…", help="Numbers of processes.")
    ] = "1,4",
    batches: Annotated[
        str, Option(metavar="N,…", help="Messages of a batch, with the first handler; 0 for none.")
    ] = "0,100",
) -> Iterator[Row]:
    """Measure a worker's latency, its idle cost, and how fast workers handle a backlog."""
    if messages:
        with processes.scratch() as space:
            yield from _latency(space, messages)
    times = [float(each) for each in handlers.split(",")]
    for batch in map(int, batches.split(",")):
        for ms in times[:1] if batch else times:
            for count in counts(workers):
                most = min(backlog, 160 * count) if ms >= 100 else backlog
                name = f"{ms:g} ms" + (f", batch={batch}" if batch else "")
                yield _backlog(f"{name}, processes: {count}", most, count, ms, batch)


def _latency(space: bytes, messages: int) -> Iterator[Row]:
    """One message at a time, to an idle worker."""
    begun = get_context("fork").SimpleQueue()
    with processes.started(partial(_idle, space, begun)) as process:
        delays: list[float] = processes.once(partial(_send, space, begun, messages))
        used = processes.cpu_seconds(process.pid)
        time.sleep(IDLE_SECONDS)
        idle = (processes.cpu_seconds(process.pid) - used) / IDLE_SECONDS
    yield at_most("an idle worker: latency, p50", 1000 * quantile(delays, 0.5), P50_MS, "ms")
    yield at_most("an idle worker: latency, p99", 1000 * quantile(delays, 0.99), P99_MS, "ms")
    yield at_most("an idle worker: share of a core", 100 * idle, IDLE_PERCENT, "%")


def _queue(space: bytes) -> tuple[fdb.Database, Queue[bytes]]:
    db, root = processes.opened(space)
    return db, Queue.open(db, "handled", root=root, create=True)


def _idle(space: bytes, begun: Any, _: processes.Worker) -> None:
    """Tell when each handler begins."""
    db, queue = _queue(space)
    worker = Worker(db)
    worker.add(queue, lambda message: begun.put(time.monotonic()))
    with worker:
        time.sleep(FOR_EVER)


def _send(space: bytes, begun: Any, messages: int) -> list[float]:
    db, queue = _queue(space)
    queue.enqueue(db, b"first")
    begun.get()
    delays = []
    for n in range(messages):
        time.sleep(PAUSE_SECONDS)
        queue.enqueue(db, b"%d" % n)
        committed = time.monotonic()
        delays.append(begun.get() - committed)
    return delays


def _backlog(name: str, messages: int, count: int, ms: float, batch: int) -> Row:
    """Messages that wait before the workers may take them, until the last is acknowledged."""
    # One for each process, so that none waits for another to count.
    handled = get_context("fork").RawArray("q", count)
    with processes.scratch() as space:
        works = [partial(_work, space, messages, ms, batch, handled, n) for n in range(count)]
        took, *found = processes.together([partial(_lead, space, messages, count), *works])
    if sum(handled) != messages:
        problem = f"{sum(handled)} messages were handled instead of {messages}"
        raise processes.BenchmarkFailed(problem=problem)
    retried, used = (sum(each) * 1000 / messages for each in zip(*found, strict=True))
    more = {"processor ms/message": used, "conflicts/1000": retried}
    return Row(name, messages / took, more=more)


def _lead(space: bytes, messages: int, count: int) -> float:
    """Enqueue while the queue is paused; returns the seconds until all are done."""
    db, queue = _queue(space)
    queue.admin.pause(db)
    for begin in range(0, messages, AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, messages))
        queue.enqueue_many(db, [payload(n) for n in numbers])
    while len(queue.admin.consumers(db)) < count:
        time.sleep(PAUSE_SECONDS)
    time.sleep(1.0)  # until all of them sleep
    began = time.monotonic()
    queue.admin.resume(db)
    while queue.depth(db).done < messages:
        time.sleep(PAUSE_SECONDS)
    return time.monotonic() - began


def _work(
    space: bytes, messages: int, ms: float, batch: int, handled: Any, mine: int
) -> tuple[int, float]:
    """Handle messages until all are done; returns the conflicts, and the processor time."""
    db, queue = _queue(space)
    retried, counting = 0, threading.Lock()

    def retry(code: int) -> None:
        nonlocal retried
        retried += 1

    def handle(given: Any) -> None:
        with counting:
            handled[mine] += len(given) if batch else 1
        if ms:
            time.sleep(ms / 1000)

    once.on_retry(retry)
    worker = Worker(db)
    worker.add(queue, handle, run=Run(batch=batch or None))
    with worker:
        while sum(handled) < messages or queue.depth(db).done < messages:
            time.sleep(PAUSE_SECONDS)
    return retried, time.process_time()

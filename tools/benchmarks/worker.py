"""A worker's latency, its idle cost, and how fast workers handle a backlog.

Workers run in processes of their own. Latency is the time from the return of the enqueue's commit
to the first line of the handler. A backlog is handled when the last message is acknowledged; its
time does not include the start of the processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
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
from .declare import Row, at_most, benchmark
from .process_tree import cpu_seconds

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
    refresh: Annotated[bool, Option(help="Look for more urgent messages in a backlog.")] = True,
) -> Iterator[Row]:
    """Measure a worker's latency, its idle cost, and how fast workers handle a backlog.

    \b
    Examples:
      tools/bench worker
      tools/bench worker --messages 0 --processes 1 --handlers 0,10 --no-refresh
    """
    if messages:
        with processes.scratch() as space:
            yield from _latency(space, messages)
    times = [float(each) for each in handlers.split(",")]
    for batch in map(int, batches.split(",")):
        for ms in times[:1] if batch else times:
            for count in map(int, workers.split(",")):
                most = min(backlog, 160 * count) if ms >= 100 else backlog
                run = _Backlog(most, count, ms, batch, refresh)
                name = f"{ms:g} ms" + (f", batch={batch}" if batch else "")
                yield run.row(f"{name}, processes: {count}")


def _latency(space: bytes, messages: int) -> Iterator[Row]:
    """One message at a time, to an idle worker."""
    begun = get_context("fork").SimpleQueue()
    with processes.started(partial(_idle, space, begun)) as process:
        delays: list[float] = processes.once(partial(_send, space, begun, messages))
        used = cpu_seconds(process.pid) or 0.0
        time.sleep(IDLE_SECONDS)
        idle = ((cpu_seconds(process.pid) or 0.0) - used) / IDLE_SECONDS
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


@dataclass(frozen=True)
class _Backlog:
    """Messages that wait before the workers may take them, until the last is acknowledged."""

    messages: int
    processes: int
    ms: float
    batch: int
    refresh: bool

    def row(self, name: str) -> Row:
        handled = get_context("fork").Value("q", 0)
        with processes.scratch() as space:
            works = [partial(self._work, space, handled) for _ in range(self.processes)]
            lead = partial(self._lead, space)
            (took, *_), *found = processes.together([lead, *works])
        count, retried, used = handled.value, *map(sum, zip(*found, strict=True))
        if count != self.messages:
            problem = f"{count} messages were handled instead of {self.messages}"
            raise processes.BenchmarkFailed(problem=problem)
        more = {
            "processor ms/message": 1000 * used / count,
            "conflicts/1000": 1000 * retried / count,
        }
        return Row(name, count / took, more=more)

    def _lead(self, space: bytes) -> tuple[float]:
        """Enqueue while the queue is paused; returns the seconds until all are done."""
        db, queue = _queue(space)
        queue.admin.pause(db)
        for begin in range(0, self.messages, AT_ONCE):
            count = min(AT_ONCE, self.messages - begin)
            queue.enqueue_many(db, [payload(n) for n in range(begin, begin + count)])
        while len(queue.admin.consumers(db)) < self.processes:
            time.sleep(PAUSE_SECONDS)
        time.sleep(1.0)  # until all of them sleep
        began = time.monotonic()
        queue.admin.resume(db)
        while queue.depth(db).done < self.messages:
            time.sleep(PAUSE_SECONDS)
        return (time.monotonic() - began,)

    def _work(self, space: bytes, handled: Any) -> tuple[int, float]:
        """Handle messages until all are done; returns the conflicts, and the processor time."""
        db, queue = _queue(space)
        retried = 0

        def retry(code: int) -> None:
            nonlocal retried
            retried += 1

        def handle(given: Any) -> None:
            with handled:
                handled.value += len(given) if self.batch else 1
            time.sleep(self.ms / 1000)

        once.on_retry(retry)
        worker = Worker(db)
        more: dict[str, Any] = {} if self.refresh else {"refresh_after": None}
        worker.add(queue, handle, run=Run(batch=self.batch or None), **more)
        with worker:
            while handled.value < self.messages or queue.depth(db).done < self.messages:
                time.sleep(PAUSE_SECONDS)
        return retried, time.process_time()

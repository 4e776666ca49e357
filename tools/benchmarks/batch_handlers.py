"""Workers whose handlers take batches, beside blind sets of as many processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fdbqueue import Queue
from fdbqueue import Worker as QueueWorker
from fdbqueue.store.binding import DEFAULT, Engine

from . import baselines, processes
from .declare import Row, at_least
from .measure import payload

PROCESSES, BATCH, BLOCK = 4, 100, 100
NAME = "handled"
MOST_RATE = 100_000
"""More messages a second than workers handle in batches, so that their queue does not run empty."""


def run(seconds: float) -> Iterator[Row]:
    """Messages a second: of blind sets, and of workers."""
    messages = int(seconds * MOST_RATE)
    with processes.scratch() as space:
        processes.once(partial(_fill, space, messages))
        sets = _rate([partial(_set, space)] * PROCESSES, seconds)
        handled = _rate([partial(_handle, space)] * PROCESSES, seconds)
        if processes.once(partial(_left, space)) < messages // 10:
            raise processes.BenchmarkFailed(problem="the backlog is too small")
    name = f"worker, batches of {BATCH}, {PROCESSES} processes"
    yield Row(f"blind sets, {PROCESSES} processes", sets)
    if DEFAULT.engine is Engine.EMBEDDED:
        yield at_least(name, handled, 50_000, "/s")
    else:
        yield at_least(f"{name}: rate to that of blind sets", handled / sets, 0.25)


def _rate(work: Sequence[processes.Work], seconds: float) -> float:
    _, reports = processes.run(work, seconds)
    return sum(float(each.result) for each in reports) / seconds


def _fill(space: bytes, messages: int) -> None:
    db, root = processes.opened(space)
    queue = Queue.open(db, NAME, root=root)
    given = [payload(n) for n in range(BLOCK)]
    for _ in range(messages // BLOCK):
        queue.enqueue_many(db, given)


def _left(space: bytes) -> int:
    db, root = processes.opened(space)
    return Queue.open(db, NAME, root=root).depth(db).ready


def _set(space: bytes, worker: processes.Worker) -> None:
    db, root = processes.opened(space)
    given, done = [payload(n) for n in range(BATCH)], 0
    worker.start()
    while time.monotonic_ns() < worker.span.end:
        baselines.set_blindly(db, root, [os.urandom(28) for _ in given], given)
        done += BATCH
    worker.report.result = done


def _handle(space: bytes, worker: processes.Worker) -> None:
    db, root = processes.opened(space)
    queue = Queue.open(db, NAME, root=root)
    handled: list[tuple[int, int]] = []

    def handle(messages: list[Any]) -> None:
        handled.append((time.monotonic_ns(), len(messages)))

    handlers = QueueWorker(db)
    handlers.add(queue, handle, batch=BATCH)
    worker.start()
    with handlers:
        time.sleep(max(0, worker.span.end - time.monotonic_ns()) / 1e9)
    worker.report.result = sum(count for at, count in handled if at < worker.span.end)

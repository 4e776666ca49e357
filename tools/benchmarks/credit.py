"""How often a worker looks at a queue when its credit in bytes is used up, and messages come."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fdbqueue import Channel, Credit, Message, Queue
from fdbqueue import Worker as QueueWorker
from fdbqueue.worker.consumer import QueueConsumer

from . import processes
from .declare import Row, Seconds, at_most, benchmark

CREDIT, SIZE = 100, 60
"""Bytes of credit, and of each message: the second does not fit."""
EVERY_SECONDS = 0.005
"""How often a message comes."""
MOST_LOOKS = 2
WINDOW, GRANTED, SHARED = "a window", "granted credit", "a window that two queues share"
SUBSCRIBED = "a window of a subscription"


@benchmark("credit")
def credit(seconds: Seconds = 5.0) -> Iterator[Row]:
    """Measure how often a worker whose credit is used up looks at a queue that messages come to.

    \b
    Examples:
      tools/bench credit
      tools/bench credit --seconds 20 --json
    """
    for kind in (WINDOW, GRANTED, SHARED, SUBSCRIBED):
        with processes.scratch() as space:
            looks = processes.once(partial(_measure, space, kind, seconds))
        yield at_most(f"used up, {kind}: looks", looks, MOST_LOOKS, "/s")


def _measure(space: bytes, kind: str, seconds: float) -> float:
    db, root = processes.opened(space)
    queues = [Queue.create(db, f"credit-{n}", root=root) for n in range(1 + (kind == SHARED))]
    channel = Channel(Credit(bytes=CREDIT, window=kind != GRANTED))
    entered, gate = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        entered.set()
        gate.wait()

    worker = QueueWorker(db, 8)
    for queue in queues:
        wanted = queue.subscribe(db, "all", selector="TRUE") if kind == SUBSCRIBED else None
        worker.add(queue, handle, credit=channel, subscription=wanted)
    queues[0].enqueue(db, b"x" * SIZE)
    with _counted() as looks, worker:
        try:
            entered.wait()
            before, until = looks.copy(), time.monotonic() + seconds
            while time.monotonic() < until:
                for queue in queues:
                    queue.enqueue(db, b"x" * SIZE)
                time.sleep(EVERY_SECONDS)
            return max((looks - before).values(), default=0) / seconds
        finally:
            gate.set()


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Counts how often workers of this process look, by queue."""
    looks: Counter[str] = Counter()
    before = QueueConsumer.fetch, QueueConsumer.settle_and_fetch

    def counting(look: Any) -> Any:
        def counted(self: QueueConsumer, *given: Any, **options: Any) -> Any:
            looks[self.queue.name] += 1
            return look(self, *given, **options)

        return counted

    QueueConsumer.fetch, QueueConsumer.settle_and_fetch = map(counting, before)  # type: ignore[method-assign]
    try:
        yield looks
    finally:
        QueueConsumer.fetch, QueueConsumer.settle_and_fetch = before  # type: ignore[method-assign]

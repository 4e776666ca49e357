"""How long messages of many quiet keys wait, one of each key, beside a key with as many messages.

Two queues have the same messages of quiet keys, and one of them also those of a noisy key. Both are
drained in turn, a slice of one and then a slice of the other. A message waits from when the drain
of its queue begins, by the time that is spent on this queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import NewMessage

from . import processes
from .measure import payload

ALONE, BESIDE = "p99 wait of quiet keys in a drain, s", "beside a noisy key in a drain, s"
WITHOUT, WITH = "without", "with"
NOISY = "noisy"
SLOTS = 10
AT_ONCE = 500
BATCH = 100
SLICE = 50
"""Batches of one queue, before some of the other."""
TOLD_SECONDS = 10.0


def fill(space: bytes, quiet: int, noisy: int, say: Callable[[str], object]) -> None:
    """Enqueue what is missing in both queues. The noisy key comes first, so that its window stands
    before all others."""
    db, root = processes.opened(space)
    for name, first in ((WITH, noisy), (WITHOUT, 0)):
        queue = Queue.open(db, name, root=root, create=True, key_window=1, key_concurrency=SLOTS)
        there, messages = queue.depth(db).enqueued, first + quiet
        began = told = time.monotonic()
        for begin in range(there, messages, AT_ONCE):
            some = range(begin, min(begin + AT_ONCE, messages))
            keys = (NOISY if n < first else f"quiet {n}" for n in some)
            queue.enqueue_many(
                db, [NewMessage(payload(n), key=key) for n, key in zip(some, keys, strict=True)]
            )
            if time.monotonic() > told + TOLD_SECONDS:
                told = time.monotonic()
                rate = (some.stop - there) / (told - began)
                say(f"{name} a noisy key: {some.stop:,} of {messages:,}, {rate:,.0f} a second …")


class _Drain:
    """The drain of one queue."""

    def __init__(self, db: fdb.Database, queue: Queue[bytes]) -> None:
        self._db, self._queue = db, queue
        self._spent = 0.0
        self.quiet = self.noisy = 0
        self.waits: list[tuple[float, int]] = []

    def go_on(self, wanted: int) -> None:
        """Drain a slice, at most until ``wanted`` messages of quiet keys have come."""
        began = time.perf_counter()
        for _ in range(SLICE):
            if self.quiet == wanted:
                break
            batch = self._queue.receive_batch(self._db, BATCH)
            if not batch:
                raise processes.BenchmarkFailed(problem="messages of quiet keys did not come")
            noisy = sum(each.message.key == NOISY for each in batch)
            self.noisy += noisy
            self.quiet += len(batch) - noisy
            self.waits.append((self._spent + time.perf_counter() - began, self.quiet))
            batch.ack(self._db)
        self._spent += time.perf_counter() - began

    def p99(self, of: int) -> float:
        """When 99 of 100 messages of quiet keys had come, in seconds."""
        return next(at for at, quiet in self.waits if quiet >= 0.99 * of)


def run(space: bytes, quiet: int, say: Callable[[str], object]) -> dict[str, float]:
    """Drain ``quiet`` messages of quiet keys from both queues; returns the waits, and how many
    messages of the noisy key came meanwhile."""
    db, root = processes.opened(space)
    drains = [_Drain(db, Queue.open(db, name, root=root)) for name in (WITHOUT, WITH)]
    told = time.monotonic()
    while any(each.quiet < quiet for each in drains):
        for each in drains:
            each.go_on(quiet)
        if time.monotonic() > told + TOLD_SECONDS:
            told = time.monotonic()
            say(f"drained {drains[0].quiet:,} of {quiet:,} …")
    without, beside = drains
    if without.noisy or not beside.noisy:
        raise processes.BenchmarkFailed(problem="the noisy key is not where it should be")
    return {
        ALONE: without.p99(quiet),
        BESIDE: beside.p99(quiet),
        "messages of the noisy key meanwhile": beside.noisy,
    }

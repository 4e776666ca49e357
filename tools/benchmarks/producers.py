"""What producers gain: threads that send single messages, beside single and batched enqueues.

One process does all in turn, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.records import record

from . import processes
from .client_counters import Counts, Meter
from .measure import payload

BATCH = 100
ENQUEUE, MANY = "enqueue", f"enqueue of {BATCH}"
WAITING, STREAMING = "producer, each waits", "producer, nobody waits"


@record
class Cost:
    """What it costs that threads add messages: messages a second by the median of the rounds,
    microseconds of processor time for each, and how many share a commit."""

    way: str
    threads: int
    rate: float
    cpu_us: float
    shared: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def run(threads: Sequence[int], seconds: float, rounds: int) -> list[Cost]:
    """Measure each way with each number of threads, ``rounds`` times in turn."""
    with processes.scratch() as space:
        found: list[Cost] = processes.once(partial(_costs, space, threads, seconds, rounds))
    return found


def _costs(space: bytes, threads: Sequence[int], seconds: float, rounds: int) -> list[Cost]:
    db, root = processes.opened(space)
    meter = Meter()
    meter.install()
    found: defaultdict[tuple[str, int], list[Cost]] = defaultdict(list)
    for n in range(rounds):
        for way, adding in WAYS.items():
            for count in threads:
                queue = Queue.open(db, f"{way} {count} {n}", root=root)
                queue.enqueue_many(db, [payload(0)])  # What is learnt once is known then.
                cost = _cost(db, queue, meter, way, count, partial(adding, queue, db), seconds)
                found[way, count].append(cost)
                queue.delete(db)
    return [
        Cost(
            *(way, count),
            median([each.rate for each in costs]),
            median([each.cpu_us for each in costs]),
            median([each.shared for each in costs]),
        )
        for (way, count), costs in found.items()
    ]


def _cost(
    db: fdb.Database,
    queue: Queue[bytes],
    meter: Meter,
    way: str,
    threads: int,
    adding: Callable[[], Any],
    seconds: float,
) -> Cost:
    """Let threads add messages for a while; the time ends when all are stored."""
    done = [0] * threads
    before = Counts(*meter.counts.values())
    cpu, began = time.process_time(), time.monotonic()
    with adding() as add:

        def work(thread: int) -> None:
            while time.monotonic() < began + seconds:
                done[thread] += add(done[thread])

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    took, used, count = time.monotonic() - began, time.process_time() - cpu, sum(done)
    commits = (meter.counts - before).commits
    if queue.depth(db).enqueued != count + 1:
        raise processes.BenchmarkFailed(problem="a message was lost or doubled")
    return Cost(way, threads, count / took, used / count * 1e6, count / commits)


Add = Callable[[int], int]
"""Adds messages, given the number of the first; returns how many."""


@contextmanager
def _enqueue(queue: Queue[bytes], db: fdb.Database) -> Iterator[Add]:
    def add(n: int) -> int:
        queue.enqueue(db, payload(n))
        return 1

    yield add


@contextmanager
def _enqueue_many(queue: Queue[bytes], db: fdb.Database) -> Iterator[Add]:
    yield lambda n: len(queue.enqueue_many(db, [payload(n + i) for i in range(BATCH)]))


@contextmanager
def _wait(queue: Queue[bytes], db: fdb.Database) -> Iterator[Add]:
    with queue.producer(db) as producer:

        def add(n: int) -> int:
            producer.send(payload(n)).result()
            return 1

        yield add


@contextmanager
def _stream(queue: Queue[bytes], db: fdb.Database) -> Iterator[Add]:
    with queue.producer(db) as producer:

        def add(n: int) -> int:
            producer.send(payload(n))
            return 1

        yield add


WAYS = {ENQUEUE: _enqueue, MANY: _enqueue_many, WAITING: _wait, STREAMING: _stream}

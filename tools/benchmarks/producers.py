"""What producers gain: threads that send single messages, beside single and batched enqueues.

One process does all in turn, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Annotated, Any

from typer import Option

from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb

from . import processes
from .client_counters import Meter
from .clients import payload
from .declare import Rounds, Row, Seconds, benchmark, counts

Cost = tuple[float, float, float]
BATCH = 100
ENQUEUE, MANY = "enqueue", f"enqueue of {BATCH}"
WAITING, STREAMING = "producer, each waits", "producer, nobody waits"


@benchmark("producers")
def producers(
    threads: Annotated[
        str, Option(metavar="N,…", help="Numbers of threads that add messages.")
    ] = "1,8,64",
    seconds: Seconds = 1.0,
    rounds: Rounds = 3,
) -> Iterator[Row]:
    """Measure threads that send single messages, beside single and batched enqueues.

    \b
    Examples:
      tools/bench producers
      tools/bench producers --threads 1,16 --seconds 3
    """
    with processes.scratch() as space:
        yield from processes.once(partial(_rows, space, counts(threads), seconds, rounds))


def _rows(space: bytes, threads: Sequence[int], seconds: float, rounds: int) -> list[Row]:
    db, root = processes.opened(space)
    meter = Meter()
    found: defaultdict[str, list[Cost]] = defaultdict(list)
    for n in range(rounds):
        for way, adding in WAYS.items():
            for count in threads:
                queue = Queue.open(db, f"{way} {count} {n}", root=root)
                queue.enqueue_many(db, [payload(0)])  # What is learnt once is known then.
                cost = _cost(db, queue, meter, count, partial(adding, queue, db), seconds)
                found[f"{way}, {count}"].append(cost)
                queue.delete(db)
    rows = []
    for name, costs in found.items():
        rate, cpu, shared = (median(each) for each in zip(*costs, strict=True))
        rows.append(Row(name, rate, more={"CPU µs/message": cpu, "messages/commit": shared}))
    return rows


def _cost(
    db: fdb.Database,
    queue: Queue[bytes],
    meter: Meter,
    threads: int,
    adding: Callable[[], Any],
    seconds: float,
) -> Cost:
    """Let threads add messages for a while; the time ends when all are stored.

    Returns messages a second, microseconds of processor time for each, and how many share a commit.
    """
    done = [0] * threads
    before = meter.now()
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
    commits = (meter.now() - before).commits
    if queue.depth(db).enqueued != count + 1:
        raise processes.BenchmarkFailed(problem="a message was lost or doubled")
    return count / took, used / count * 1e6, count / commits


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

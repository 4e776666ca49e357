"""What producers gain: threads that send single messages, beside single and batched enqueues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count, product
from statistics import median
from typing import Annotated

from typer import Option

from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb

from . import processes
from .client_counters import Meter
from .clients import payload
from .declare import Rounds, Row, Seconds, benchmark, counts
from .turns import in_turn

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
    """Measure threads that send single messages, beside single and batched enqueues."""
    with processes.scratch() as space:
        found = processes.once(partial(_measured, space, counts(threads), seconds, rounds))
    for name, costs in found.items():
        rate, cpu, shared = (median(each) for each in zip(*costs, strict=True))
        yield Row(name, rate, more={"CPU µs/message": cpu, "messages/commit": shared})


Cost = tuple[float, float, float]
"""Messages a second, microseconds of processor time for each, and how many share a commit."""


def _measured(
    space: bytes, threads: list[int], seconds: float, rounds: int
) -> dict[str, list[Cost]]:
    db, root = processes.opened(space)
    meter, numbers = Meter(), count()

    def cost(way: str, threads: int) -> Cost:
        queue = Queue.open(db, f"queue {next(numbers)}", root=root)
        queue.enqueue_many(db, [payload(0)])  # What is learnt once is known then.
        found = _cost(db, queue, meter, way, threads, seconds)
        queue.delete(db)
        return found

    ways = product((ENQUEUE, MANY, WAITING, STREAMING), threads)
    return in_turn(rounds, {f"{way}, {n}": partial(cost, way, n) for way, n in ways})


def _cost(
    db: fdb.Database, queue: Queue[bytes], meter: Meter, way: str, threads: int, seconds: float
) -> Cost:
    """Let threads add messages for a while; the time ends when all are stored."""
    done = [0] * threads
    before, cpu, began = meter.now(), time.process_time(), time.monotonic()
    with ExitStack() as stack:
        add = _adds(stack, db, queue, way)

        def work(thread: int) -> None:
            # Once at least, however late a busy machine lets it begin.
            while not done[thread] or time.monotonic() < began + seconds:
                add(done[thread])
                done[thread] += BATCH if way == MANY else 1

        with ThreadPoolExecutor(threads) as pool:
            [*pool.map(work, range(threads))]
    took, used, total = time.monotonic() - began, time.process_time() - cpu, sum(done)
    if queue.depth(db).enqueued != total + 1:
        raise processes.BenchmarkFailed(problem="a message was lost or doubled")
    return total / took, used / total * 1e6, total / (meter.now() - before).commits


def _adds(
    stack: ExitStack, db: fdb.Database, queue: Queue[bytes], way: str
) -> Callable[[int], object]:
    """What adds messages, given the number of the first."""
    if way == ENQUEUE:
        return lambda n: queue.enqueue(db, payload(n))
    if way == MANY:
        return lambda n: queue.enqueue_many(db, [payload(n + i) for i in range(BATCH)])
    producer = stack.enter_context(queue.producer(db))
    if way == STREAMING:
        return lambda n: producer.send(payload(n))
    return lambda n: producer.send(payload(n)).result()

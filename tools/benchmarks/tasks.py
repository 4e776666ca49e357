"""Tasks of asyncio: enqueues beside those of a thread that blocks, and what it costs to wait."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Annotated

from typer import Option

from fdbqueue import aio
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb

from . import processes
from .clients import payload
from .declare import Rounds, Row, Seconds, at_least, at_most, benchmark
from .turns import in_turn, ratio

TASKS = 64
THREAD, ONE, MANY = "a thread", "one task", f"{TASKS} tasks"
SETTLING_SECONDS, IDLE_SECONDS = 5.0, 10.0


@benchmark("aio")
def tasks(
    seconds: Seconds = 1.0,
    rounds: Rounds = 3,
    waiting: Annotated[
        int, Option(metavar="N", min=1, help="Tasks that wait for a message.")
    ] = 1000,
) -> Iterator[Row]:
    """Measure tasks of asyncio that enqueue beside a thread, and many that wait for a message."""
    with processes.scratch() as space:
        rates = processes.once(partial(_rates, space, seconds, rounds))
        yield from (Row(way, median(found)) for way, found in rates.items())
        for way, bar in ((ONE, 0.8), (MANY, 2.0)):
            times = ratio(rates[way], rates[THREAD])
            yield at_least(f"{way}: rate to that of a thread", times, bar)
        idle = min(IDLE_SECONDS, 10 * seconds)
        share, memory = processes.once(partial(_waiting, space, waiting, idle))
    yield at_most("tasks that wait: share of a core", share, 0.01)
    yield at_most("tasks that wait: memory each", memory / 1000, 30, "kB")


def _rates(space: bytes, seconds: float, rounds: int) -> dict[str, list[float]]:
    db, root = processes.opened(space)
    queue = Queue.open(db, "enqueued", root=root)
    return in_turn(
        rounds,
        {
            THREAD: lambda: _blocking(db, queue, seconds),
            ONE: lambda: asyncio.run(_enqueue(db, queue, 1, seconds)),
            MANY: lambda: asyncio.run(_enqueue(db, queue, TASKS, seconds)),
        },
    )


def _blocking(db: fdb.Database, queue: Queue[bytes], seconds: float) -> float:
    began, count = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        queue.enqueue(db, payload(count))
        count += 1
    return count / (time.monotonic() - began)


async def _enqueue(db: fdb.Database, queue: Queue[bytes], tasks: int, seconds: float) -> float:
    store, twin = aio.Database(db), aio.Queue.of(queue)
    began, count = time.monotonic(), 0

    async def work() -> None:
        nonlocal count
        while time.monotonic() < began + seconds:
            await twin.enqueue(store, payload(count))
            count += 1

    await asyncio.gather(*(work() for _ in range(tasks)))
    return count / (time.monotonic() - began)


def _waiting(space: bytes, tasks: int, seconds: float) -> tuple[float, float]:
    """The share of a core that waiting tasks take together, and the bytes that each takes."""
    db, root = processes.opened(space)
    queue = aio.Queue.of(Queue.open(db, "empty", root=root))

    async def wait() -> tuple[float, float]:
        store = aio.Database(db)
        await queue.receive(store)
        gc.collect()
        memory = _memory()
        waiting = [asyncio.create_task(queue.receive(store, wait=3600)) for _ in range(tasks)]
        await asyncio.sleep(min(SETTLING_SECONDS, seconds))
        gc.collect()
        memory = _memory() - memory
        used = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - used
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return used / seconds, memory / tasks

    return asyncio.run(wait())


def _memory() -> int:
    """The memory that this process uses, in bytes."""
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

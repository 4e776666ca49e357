"""What keys cost, and what a key with a backlog costs the others.

What is compared is measured in one process, in turn and in the same state of the store, so that
other load on the machine affects both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import median, quantiles
from typing import Annotated

from typer import Option

from fdbqueue.cli import terminal
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.limits import KeyLimits
from fdbqueue.values.model import NewMessage

from . import processes
from .clients import payload
from .declare import Rounds, Row, at_least, at_most, benchmark, known

SLOTS = 10
TENANTS = 100
FILLED_AT_ONCE = 500
PAUSE_SECONDS = 0.004
"""Between two messages of quiet keys: consumers keep up with several times as many."""
ENQUEUE_BAR, THROUGHPUT_BAR, WAIT_BAR = 0.8, 0.6, 2.0
STARTING_SECONDS = 0.5
ALONE, BESIDE = "alone", "beside"
WINDOW = 1


@benchmark("fairness")
def fairness(
    only: Annotated[str, Option(metavar="GROUP,…", help="Only costs or waits.")] = "",
    backlog: Annotated[
        int, Option(metavar="N", min=1_000, help="Messages of the key that is noisy.")
    ] = 20_000,
    calls: Annotated[int, Option(metavar="N", min=10, help="Messages of each measurement.")] = 300,
    rounds: Rounds = 9,
) -> Iterator[Row]:
    """Measure what keys cost, and how long quiet keys wait beside one with a backlog.

    \b
    Examples:
      tools/bench fairness
      tools/bench fairness --only costs --rounds 3
    """
    for group in known("group", only.split(","), ("costs", "waits")):
        terminal.note(f"{group} …")
        with processes.scratch() as space:
            if group == "costs":
                yield from processes.once(partial(_costs, space, backlog, calls, rounds))
            else:
                yield from _waits(space, backlog, calls, rounds)


def _costs(space: bytes, backlog: int, calls: int, rounds: int) -> list[Row]:
    db, make = _makers(space)
    plain, keyed = make(), make(keys=KeyLimits(concurrency=SLOTS))
    fill(db, plain, (None for _ in range(backlog)))
    fill(db, keyed, ("noisy" for _ in range(backlog)))
    return [
        *_compared(
            rounds,
            Row("enqueue", 0),
            lambda: _enqueues(db, plain, None, calls),
            Row("enqueue to a backlog", 0),
            lambda: _enqueues(db, keyed, "noisy", calls),
            at_least("enqueue to a backlog / without key", 0, ENQUEUE_BAR),
        ),
        *_compared(
            rounds,
            Row("throughput", 0),
            lambda: _through(db, make(), lambda n: None, calls),
            Row("throughput with keys", 0),
            lambda: _through(db, make(), _tenant, calls),
            at_least("throughput with keys / without", 0, THROUGHPUT_BAR),
        ),
    ]


def _waits(space: bytes, backlog: int, calls: int, rounds: int) -> list[Row]:
    processes.once(partial(_fill_waits, space, backlog))
    return _compared(
        rounds,
        Row("p99 wait of quiet keys", 0, "ms"),
        lambda: _wait(space, ALONE, calls),
        Row("beside a noisy key", 0, "ms"),
        lambda: _wait(space, BESIDE, calls),
        at_most("wait beside a noisy key / without", 0, WAIT_BAR),
    )


def _fill_waits(space: bytes, backlog: int) -> None:
    db, root = processes.opened(space)
    for name, noisy in ((ALONE, 0), (BESIDE, backlog)):
        queue = Queue.create(db, name, root=root, keys=KeyLimits(window=WINDOW, concurrency=SLOTS))
        fill(db, queue, ("noisy" for _ in range(noisy)))


def _makers(space: bytes) -> tuple[fdb.Database, Callable[..., Queue[bytes]]]:
    """The store, and what makes queues in it."""
    db, root = processes.opened(space)
    names = (f"q{n}" for n in count())
    return db, lambda **options: Queue.create(db, next(names), root=root, **options)


def _compared(
    rounds: int,
    one: Row,
    measure_one: Callable[[], float],
    other: Row,
    measure_other: Callable[[], float],
    bar: Row,
) -> list[Row]:
    """Measure one and the other in turn; the figure of the bar is the ratio, by its median.

    Every other round begins with the other: what one leaves to be done, such as a checkpoint, does
    not always fall to the same.
    """
    runs: list[tuple[float, float]] = []
    for n in range(rounds):
        if n % 2:
            second = measure_other()
            runs.append((measure_one(), second))
        else:
            runs.append((measure_one(), measure_other()))
    figures = [median(each) for each in zip(*runs, strict=True)]
    figures.append(median(second / first for first, second in runs))
    rows = zip((one, other, bar), figures, strict=True)
    return [replace(row, figure=figure) for row, figure in rows]


def _tenant(n: int) -> str:
    return f"tenant {n % TENANTS}"


def fill(db: fdb.Database, queue: Queue[bytes], keys: Iterable[str | None]) -> None:
    """Enqueue a message for each of some keys."""
    some = [NewMessage(payload(n), key=key) for n, key in enumerate(keys)]
    for begin in range(0, len(some), FILLED_AT_ONCE):
        queue.enqueue_many(db, some[begin : begin + FILLED_AT_ONCE])


def _enqueues(db: fdb.Database, queue: Queue[bytes], key: str | None, calls: int) -> float:
    """Single enqueues a second."""
    queue.enqueue(db, payload(0), key=key)  # What is learnt once is known then.
    began = time.perf_counter()
    for n in range(calls):
        queue.enqueue(db, payload(n), key=key)
    return calls / (time.perf_counter() - began)


def _through(
    db: fdb.Database, queue: Queue[bytes], key: Callable[[int], str | None], calls: int
) -> float:
    """Messages a second that are enqueued, received and acknowledged one by one."""
    began = time.perf_counter()
    for n in range(calls):
        queue.enqueue(db, payload(n), key=key(n))
    held = queue.receive_many(db, 1)
    done = 0
    while held:
        done += 1
        held = queue.receive_many(db, 1, ack=held)
    if done != calls:
        raise processes.BenchmarkFailed(problem="a message was lost or doubled")
    return calls / (time.perf_counter() - began)


def _wait(space: bytes, name: str, calls: int) -> float:
    """The p99 of how long messages of quiet keys wait for a consumer, in milliseconds; they come
    from another process."""
    works = partial(_consume, space, name, calls), partial(_produce, space, name, calls)
    waits: list[float] = processes.together(works)[0]
    return quantiles(waits, n=100)[98] * 1000


def _consume(space: bytes, name: str, calls: int) -> list[float]:
    db, root = processes.opened(space)
    queue = Queue.open(db, name, root=root)
    waits: list[float] = []
    held = queue.receive_many(db, 1, wait=1)
    while True:
        now = time.monotonic()
        waits += [now - float(each.payload) for each in held if each.message.key != "noisy"]
        if len(waits) == calls:
            break
        held = queue.receive_many(db, 1, ack=held, wait=1)
    queue.ack(db, held)
    return waits


def _produce(space: bytes, name: str, calls: int) -> None:
    db, root = processes.opened(space)
    queue = Queue.open(db, name, root=root)
    queue.depth(db)  # What is learnt once is known then.
    time.sleep(STARTING_SECONDS)
    for n in range(calls):
        time.sleep(PAUSE_SECONDS)
        queue.enqueue(db, b"%f" % time.monotonic(), key=f"quiet {n}")

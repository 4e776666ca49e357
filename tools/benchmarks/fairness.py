"""What keys cost, and what a key with a backlog costs the others.

What is compared is measured in the same state of the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
from .turns import in_turn, ratio

LIMITS = KeyLimits(window=1, concurrency=10)
TENANTS = 100
FILLED_AT_ONCE = 500
PAUSE_SECONDS = 0.004
"""Between two messages of quiet keys: consumers keep up with several times as many."""
STARTING_SECONDS = 0.5
PLAIN, BUSY = "enqueue", "enqueue to a backlog"
THROUGH, KEYED = "throughput", "throughput with keys"
ALONE, BESIDE = "p99 wait of quiet keys", "beside a noisy key"


@benchmark("fairness")
def fairness(
    only: Annotated[str, Option(metavar="GROUP,…", help="Only costs or waits.")] = "",
    backlog: Annotated[
        int, Option(metavar="N", min=1_000, help="Messages of the key that is noisy.")
    ] = 20_000,
    calls: Annotated[int, Option(metavar="N", min=10, help="Messages of each measurement.")] = 300,
    rounds: Rounds = 9,
) -> Iterator[Row]:
    """Measure what keys cost, and how long quiet keys wait beside one with a backlog."""
    for group in known("group", only.split(","), ("costs", "waits")):
        terminal.note(f"{group} …")
        with processes.scratch() as space:
            if group == "costs":
                found = processes.once(partial(_costs, space, backlog, calls, rounds))
                yield from (Row(name, median(rates)) for name, rates in found.items())
                busy, keyed = ratio(found[BUSY], found[PLAIN]), ratio(found[KEYED], found[THROUGH])
                yield at_least(f"{BUSY} / without key", busy, 0.8)
                yield at_least(f"{KEYED} / without", keyed, 0.6)
            else:
                processes.once(partial(_fill_waits, space, backlog))
                ways = {name: partial(_wait, space, name, calls) for name in (ALONE, BESIDE)}
                found = in_turn(rounds, ways)
                yield from (Row(name, median(waits), "ms") for name, waits in found.items())
                waits = ratio(found[BESIDE], found[ALONE])
                yield at_most("wait beside a noisy key / without", waits, 2.0)


def _costs(space: bytes, backlog: int, calls: int, rounds: int) -> dict[str, list[float]]:
    db, root = processes.opened(space)
    names = map("q{}".format, count())

    def through(key: Callable[[int], str | None]) -> float:
        return _through(db, Queue.create(db, next(names), root=root), key, calls)

    plain = Queue.create(db, "plain", root=root)
    keyed = Queue.create(db, "keyed", root=root, keys=KeyLimits(concurrency=10))
    _fill(db, plain, backlog, None)
    _fill(db, keyed, backlog, "noisy")
    return in_turn(
        rounds,
        {
            PLAIN: partial(_enqueues, db, plain, None, calls),
            BUSY: partial(_enqueues, db, keyed, "noisy", calls),
            THROUGH: partial(through, lambda n: None),
            KEYED: partial(through, lambda n: f"tenant {n % TENANTS}"),
        },
    )


def _fill_waits(space: bytes, backlog: int) -> None:
    db, root = processes.opened(space)
    for name, noisy in ((ALONE, 0), (BESIDE, backlog)):
        _fill(db, Queue.create(db, name, root=root, keys=LIMITS), noisy, "noisy")


def _fill(db: fdb.Database, queue: Queue[bytes], messages: int, key: str | None) -> None:
    for begin in range(0, messages, FILLED_AT_ONCE):
        numbers = range(begin, min(begin + FILLED_AT_ONCE, messages))
        queue.enqueue_many(db, [NewMessage(payload(n), key=key) for n in numbers])


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

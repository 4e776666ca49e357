"""What keys cost, and what a key with a backlog costs the others.

One process does all in turn, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import count
from statistics import median, quantiles
from typing import Any

from fdbqueue.cli.bench import processes
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import NewMessage
from fdbqueue.values.records import record

from .bars import Bar
from .measure import payload

SLOTS = 10
CALLS = 300
QUIET = 400
TENANTS = 100
PAUSE_SECONDS = 0.004
"""Between two messages of quiet keys: consumers keep up with several times as many."""
ENQUEUE_BAR, THROUGHPUT_BAR, WAIT_BAR, USED_BAR = 0.8, 0.6, 2.0, 0.95


@record
class Figure:
    """Something that was measured, in a unit."""

    name: str
    figure: float
    unit: str

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def run(backlog: int, rounds: int) -> tuple[list[Figure], list[Bar]]:
    """Measure all, with a noisy key that has ``backlog`` messages; medians of ``rounds``."""
    with processes.scratch() as space:
        found: tuple[list[Figure], list[Bar]]
        found = processes.once(partial(_all, space, backlog, rounds))
    return found


def _all(space: bytes, backlog: int, rounds: int) -> tuple[list[Figure], list[Bar]]:
    db, root = processes.opened(space)
    names = (f"q{n}" for n in count())

    def make(**options: Any) -> Queue[bytes]:
        return Queue.create(db, next(names), root=root, **options)

    plain, keyed, figures, bars = make(), make(key_concurrency=SLOTS), [], []
    _fill(db, keyed, "noisy", backlog)
    alone = [_enqueues(db, plain, None) for _ in range(rounds)]
    behind = [_enqueues(db, keyed, "noisy") for _ in range(rounds)]
    figures += [
        _figure("enqueue", alone, "messages/s"),
        _figure("enqueue, key with a backlog", behind, "messages/s"),
    ]
    bars.append(_bar("enqueue to a backlog / without key", behind, alone, ENQUEUE_BAR))

    without = [_through(db, make(), lambda n: None) for _ in range(rounds)]
    names_of = [_through(db, make(), lambda n: f"tenant {n % TENANTS}") for _ in range(rounds)]
    figures += [
        _figure("enqueue, receive, ack", without, "messages/s"),
        _figure("the same with keys", names_of, "messages/s"),
    ]
    bars.append(_bar("throughput with keys / without", names_of, without, THROUGHPUT_BAR))

    quiet = [_wait(db, make(key_window=1, key_concurrency=SLOTS), 0) for _ in range(rounds)]
    noisy = [_wait(db, make(key_window=1, key_concurrency=SLOTS), backlog) for _ in range(rounds)]
    figures += [
        _figure("p99 wait of quiet keys", quiet, "ms"),
        _figure("the same beside a noisy key", noisy, "ms"),
    ]
    bars.append(_bar("wait beside a noisy key / without", noisy, quiet, WAIT_BAR, at_most=True))

    used, most = _used(db, make(key_concurrency=SLOTS))
    figures.append(Figure("slots taken while messages wait", used, ""))
    bars += [
        Bar("share of slots in use while there is work", used, USED_BAR, at_most=False),
        Bar("most messages of a key that were out", most, SLOTS, at_most=True),
    ]
    return figures, bars


def _figure(name: str, runs: list[float], unit: str) -> Figure:
    return Figure(name, median(runs), unit)


def _bar(
    name: str, ones: list[float], others: list[float], bar: float, *, at_most: bool = False
) -> Bar:
    pairs = zip(ones, others, strict=True)
    return Bar(name, median(one / other for one, other in pairs), bar, at_most)


def _fill(db: fdb.Database, queue: Queue[bytes], key: str, messages: int) -> None:
    for begin in range(0, messages, 500):
        some = range(begin, min(begin + 500, messages))
        queue.enqueue_many(db, [NewMessage(payload(n), key=key) for n in some])


def _enqueues(db: fdb.Database, queue: Queue[bytes], key: str | None) -> float:
    """Single enqueues a second."""
    queue.enqueue(db, payload(0), key=key)  # What is learnt once is known then.
    began = time.perf_counter()
    for n in range(CALLS):
        queue.enqueue(db, payload(n), key=key)
    return CALLS / (time.perf_counter() - began)


def _through(db: fdb.Database, queue: Queue[bytes], key: Callable[[int], str | None]) -> float:
    """Messages a second that are enqueued, received and acknowledged one by one."""
    began = time.perf_counter()
    for n in range(CALLS):
        queue.enqueue(db, payload(n), key=key(n))
    held = queue.receive_many(db, 1)
    done = 0
    while held:
        done += 1
        held = queue.receive_many(db, 1, ack=held)
    if done != CALLS:
        raise processes.BenchmarkFailed(problem="a message was lost or doubled")
    return CALLS / (time.perf_counter() - began)


def _wait(db: fdb.Database, queue: Queue[bytes], backlog: int) -> float:
    """The p99 of how long messages of quiet keys wait for a consumer, in milliseconds."""
    _fill(db, queue, "noisy", backlog)
    sent: dict[str, float] = {}
    waits: list[float] = []
    finished = threading.Event()

    def consume() -> None:
        held = queue.receive_many(db, 1, wait=0.5)
        while not finished.is_set():
            for each in held:
                if each.message.key != "noisy":
                    waits.append(time.perf_counter() - sent[each.payload.decode()])
            held = queue.receive_many(db, 1, ack=held, wait=0.5)

    consumer = threading.Thread(target=consume)
    consumer.start()
    for name in _paced(QUIET):
        sent[name] = time.perf_counter()
        queue.enqueue(db, name.encode(), key=name)
    deadline = time.monotonic() + 60
    while len(waits) < QUIET and time.monotonic() < deadline:
        time.sleep(0.01)
    finished.set()
    consumer.join()
    if len(waits) != QUIET:
        raise processes.BenchmarkFailed(problem=f"{QUIET - len(waits)} messages did not come")
    return quantiles(waits, n=100)[98] * 1000


def _paced(messages: int) -> Iterator[str]:
    for n in range(messages):
        time.sleep(PAUSE_SECONDS)
        yield f"quiet {n}"


def _used(db: fdb.Database, queue: Queue[bytes]) -> tuple[float, float]:
    """Of keys with a backlog, the share of slots that are taken, and the most that were; looked at
    while consumers take and end messages."""
    tenants = [f"tenant {n}" for n in range(TENANTS)]
    for tenant in tenants:
        _fill(db, queue, tenant, 2 * SLOTS)
    finished = threading.Event()

    def consume() -> None:
        while not finished.is_set():
            queue.ack_many(db, queue.receive_many(db, 7))

    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for each in consumers:
        each.start()
    taken = allowed = most = 0
    while waiting := queue.keys.waiting(db, TENANTS):
        for one in waiting[:: max(1, len(waiting) // 10)]:
            state = queue.keys[one.key].state(db)
            most = max(most, len(state.out))
            if state.waiting:
                taken, allowed = taken + len(state.out), allowed + SLOTS
    finished.set()
    for thread in consumers:
        thread.join()
    return taken / allowed, most

"""What keys cost, and what a key with a backlog costs the others.

One process does all in turn, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
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
TENANTS = 100
PAUSE_SECONDS = 0.004
"""Between two messages of quiet keys: consumers keep up with several times as many."""
ENQUEUE_BAR, THROUGHPUT_BAR, WAIT_BAR, USED_BAR = 0.8, 0.6, 2.0, 0.95


@record
class Figure:
    """Something that was measured: messages a second, unless its name says otherwise."""

    name: str
    figure: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def run(backlog: int, calls: int, rounds: int) -> tuple[list[Figure], list[Bar]]:
    """Measure all, with a noisy key that has ``backlog`` messages, in ``rounds`` of some calls."""
    with processes.scratch() as space:
        found: tuple[list[Figure], list[Bar]]
        found = processes.once(partial(_all, space, backlog, calls, rounds))
    return found


def _all(space: bytes, backlog: int, calls: int, rounds: int) -> tuple[list[Figure], list[Bar]]:
    db, root = processes.opened(space)
    names = (f"q{n}" for n in count())

    def make(**options: Any) -> Queue[bytes]:
        return Queue.create(db, next(names), root=root, **options)

    plain, keyed = make(), make(key_concurrency=SLOTS)
    figures: list[Figure] = []
    bars: list[Bar] = []
    _fill(db, keyed, "noisy", backlog)
    bars += _compared(
        figures,
        rounds,
        ("enqueue", lambda: _enqueues(db, plain, None, calls)),
        ("enqueue to a backlog", lambda: _enqueues(db, keyed, "noisy", calls)),
        Bar("enqueue to a backlog / without key", 0, ENQUEUE_BAR, at_most=False),
    )
    bars += _compared(
        figures,
        rounds,
        ("throughput", lambda: _through(db, make(), lambda n: None, calls)),
        ("throughput with keys", lambda: _through(db, make(), _tenant, calls)),
        Bar("throughput with keys / without", 0, THROUGHPUT_BAR, at_most=False),
    )
    fair = {"key_window": 1, "key_concurrency": SLOTS}
    bars += _compared(
        figures,
        rounds,
        ("p99 wait of quiet keys, ms", lambda: _wait(db, make(**fair), 0, calls)),
        ("beside a noisy key, ms", lambda: _wait(db, make(**fair), backlog, calls)),
        Bar("wait beside a noisy key / without", 0, WAIT_BAR, at_most=True),
    )
    used, most = _used(db, make(key_concurrency=SLOTS))
    bars += [
        Bar("share of slots in use while there is work", used, USED_BAR, at_most=False),
        Bar("most messages of a key that were out", most, SLOTS, at_most=True),
    ]
    return figures, bars


def _compared(
    figures: list[Figure],
    rounds: int,
    one: tuple[str, Callable[[], float]],
    other: tuple[str, Callable[[], float]],
    bar: Bar,
) -> list[Bar]:
    """Measure one and the other in turn; the figure of the bar is the ratio, by its median."""
    runs = [(one[1](), other[1]()) for _ in range(rounds)]
    for n, (name, _) in enumerate((one, other)):
        figures.append(Figure(name, median(each[n] for each in runs)))
    return [replace(bar, figure=median(second / first for first, second in runs))]


def _tenant(n: int) -> str:
    return f"tenant {n % TENANTS}"


def _fill(db: fdb.Database, queue: Queue[bytes], key: str, messages: int) -> None:
    for begin in range(0, messages, 500):
        some = range(begin, min(begin + 500, messages))
        queue.enqueue_many(db, [NewMessage(payload(n), key=key) for n in some])


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


def _wait(db: fdb.Database, queue: Queue[bytes], backlog: int, calls: int) -> float:
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
    for name in _paced(calls):
        sent[name] = time.perf_counter()
        queue.enqueue(db, name.encode(), key=name)
    deadline = time.monotonic() + 60
    while len(waits) < calls and time.monotonic() < deadline:
        time.sleep(0.01)
    finished.set()
    consumer.join()
    if len(waits) != calls:
        raise processes.BenchmarkFailed(problem=f"{calls - len(waits)} messages did not come")
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

"""What keys cost, and what a key with a backlog costs the others.

What is compared is measured in one process, in turn and in the same state of the store, so that
other load on the machine affects both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from statistics import median, quantiles
from typing import Any

from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import NewMessage
from fdbqueue.values.records import record

from . import key_drain, key_limits, processes
from .bars import Bar
from .measure import payload

SLOTS = 10
TENANTS = 100
FILLED_AT_ONCE = 500
PAUSE_SECONDS = 0.004
"""Between two messages of quiet keys: consumers keep up with several times as many."""
ENQUEUE_BAR, THROUGHPUT_BAR, WAIT_BAR = 0.8, 0.6, 2.0
STARTING_SECONDS = 0.5
ALONE, BESIDE = "alone", "beside"
WINDOW = 1

Say = Callable[[str], object]


@record
class Plan:
    """How much to measure.

    backlog: messages of the noisy key. quiet: keys with one message each beside it. drained: how
    many of these come in the drain. calls, rounds: of each kind, of which the median counts.
    limits: the workers and their keys. kept: where the messages of the noisy and the quiet keys
    stay for another run; None to remove them.
    """

    backlog: int
    quiet: int
    drained: int
    calls: int
    rounds: int
    limits: key_limits.Plan
    kept: bytes | None = None


@record
class Figure:
    """Something that was measured: messages a second, unless its name says otherwise."""

    name: str
    figure: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


Found = tuple[list[Figure], list[Bar]]


def run(plan: Plan, only: Sequence[str], say: Say) -> Found:
    """Measure some groups of ``GROUPS``, each in processes of its own."""
    figures: list[Figure] = []
    bars: list[Bar] = []
    for name in only:
        say(f"{name} …")
        found = (_fill if name == FILL else GROUPS[name])(plan, say)
        figures += found[0]
        bars += found[1]
    return figures, bars


def _costs(plan: Plan, say: Say) -> Found:
    with processes.scratch() as space:
        found: Found = processes.once(partial(_measure_costs, space, plan))
    return found


def _measure_costs(space: bytes, plan: Plan) -> Found:
    db, make = _makers(space)
    plain, keyed, calls = make(), make(key_concurrency=SLOTS), plan.calls
    fill(db, plain, (None for _ in range(plan.backlog)))
    fill(db, keyed, ("noisy" for _ in range(plan.backlog)))
    figures: list[Figure] = []
    bars = _compared(
        figures,
        plan.rounds,
        ("enqueue", lambda: _enqueues(db, plain, None, calls)),
        ("enqueue to a backlog", lambda: _enqueues(db, keyed, "noisy", calls)),
        Bar("enqueue to a backlog / without key", 0, ENQUEUE_BAR, at_most=False),
    )
    bars += _compared(
        figures,
        plan.rounds,
        ("throughput", lambda: _through(db, make(), lambda n: None, calls)),
        ("throughput with keys", lambda: _through(db, make(), _tenant, calls)),
        Bar("throughput with keys / without", 0, THROUGHPUT_BAR, at_most=False),
    )
    return figures, bars


def _waits(plan: Plan, say: Say) -> Found:
    figures: list[Figure] = []
    with processes.scratch() as space:
        processes.once(partial(_fill_waits, space, plan.backlog))
        bars = _compared(
            figures,
            plan.rounds,
            ("p99 wait of quiet keys, ms", lambda: _wait(space, ALONE, plan.calls)),
            ("beside a noisy key, ms", lambda: _wait(space, BESIDE, plan.calls)),
            Bar("wait beside a noisy key / without", 0, WAIT_BAR, at_most=True),
        )
    return figures, bars


def _fill_waits(space: bytes, backlog: int) -> None:
    db, root = processes.opened(space)
    for name, noisy in ((ALONE, 0), (BESIDE, backlog)):
        queue = Queue.create(db, name, root=root, key_window=WINDOW, key_concurrency=SLOTS)
        fill(db, queue, ("noisy" for _ in range(noisy)))


def _drain(plan: Plan, say: Say) -> Found:
    if plan.kept is None:
        with processes.scratch() as space:
            return _drained(space, plan, say)
    found = _drained(plan.kept, plan, say)
    processes.clear(plan.kept)
    return found


def _drained(space: bytes, plan: Plan, say: Say) -> Found:
    processes.once(partial(key_drain.fill, space, plan.quiet, plan.backlog, say))
    found: dict[str, float] = processes.once(partial(key_drain.run, space, plan.drained, say))
    ratio = found[key_drain.BESIDE] / found[key_drain.ALONE]
    bar = Bar("drain: wait beside a noisy key / without", ratio, WAIT_BAR, at_most=True)
    return [Figure(name, figure) for name, figure in found.items()], [bar]


def _fill(plan: Plan, say: Say) -> Found:
    assert plan.kept is not None
    processes.once(partial(key_drain.fill, plan.kept, plan.quiet, plan.backlog, say))
    return [], []


def _limits(plan: Plan, say: Say) -> Found:
    with processes.scratch() as space:
        found = key_limits.run(space, plan.limits)
    figures = [Figure(name, figure) for name, figure in found.figures.items()]
    return figures, key_limits.judge(plan.limits, found)


GROUPS: dict[str, Callable[[Plan, Say], Found]] = {
    "costs": _costs,
    "waits": _waits,
    "drain": _drain,
    "limits": _limits,
}
FILL = "fill"
"""The group that only fills the queues of the drain, in a subspace that is kept."""


def _makers(space: bytes) -> tuple[fdb.Database, Callable[..., Queue[bytes]]]:
    """The store, and what makes queues in it."""
    db, root = processes.opened(space)
    names = (f"q{n}" for n in count())
    return db, lambda **options: Queue.create(db, next(names), root=root, **options)


def _compared(
    figures: list[Figure],
    rounds: int,
    one: tuple[str, Callable[[], float]],
    other: tuple[str, Callable[[], float]],
    bar: Bar,
) -> list[Bar]:
    """Measure one and the other in turn; the figure of the bar is the ratio, by its median.

    Every other round begins with the other: what one leaves to be done, such as a checkpoint, does
    not always fall to the same.
    """
    runs: list[tuple[float, float]] = []
    for n in range(rounds):
        if n % 2:
            second = other[1]()
            runs.append((one[1](), second))
        else:
            runs.append((one[1](), other[1]()))
    for n, (name, _) in enumerate((one, other)):
        figures.append(Figure(name, median(each[n] for each in runs)))
    return [replace(bar, figure=median(second / first for first, second in runs))]


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
    queue.ack_many(db, held)
    return waits


def _produce(space: bytes, name: str, calls: int) -> None:
    db, root = processes.opened(space)
    queue = Queue.open(db, name, root=root)
    queue.depth(db)  # What is learnt once is known then.
    time.sleep(STARTING_SECONDS)
    for n in range(calls):
        time.sleep(PAUSE_SECONDS)
        queue.enqueue(db, b"%f" % time.monotonic(), key=f"quiet {n}")

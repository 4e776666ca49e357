"""The rate of a queue in all interleavings of takers, ends of leases, sweeps and changes.

No more messages are taken than may be, and all that may be taken are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from fdbqueue import Delivery, Queue
from fdbqueue.queue.admin import housekeeping
from fdbqueue.store.binding import fdb
from tests.interleaving import Operation, explore
from tests.schemes import forced
from tests.still_clock import StillClock

pytestmark = [pytest.mark.long, pytest.mark.sample(4)]

Start = tuple[Sequence[Operation], Callable[[list[Any]], None]]

INTERVAL = 10


class Paced:
    """A queue of which as many messages were taken at once as may be, ``burst``. They are leased.
    So much time has passed since that ``may`` others may be taken, and nobody has looked.

    due: whether a delayed message is due as well.
    """

    def __init__(
        self,
        db: fdb.Database,
        space: fdb.Subspace,
        name: str,
        *,
        burst: int = 1,
        may: int = 1,
        due: bool = False,
        **options: Any,
    ) -> None:
        self.clock = StillClock()
        self.queue = forced(
            Queue.create(
                db,
                name,
                root=space,
                levels=2,
                rate=f"{60 // INTERVAL}/min, burst {burst}",
                backoff=None,
                clock=self.clock,
                **options,
            ),
            "first",
        )
        for n in range(burst + 4):  # each in a row of its own
            self.queue.enqueue(db, b"x", headers={"n": n % 2})
        if due:
            self.queue.enqueue(db, b"x", delay=may * INTERVAL)
        for name, selector in SELECTED.items():
            self.queue.subscriptions.open(db, name, selector=selector)
        self.held: Sequence[Delivery] = self.queue.receive_many(db, 99)
        assert len(self.held) == burst
        self.clock.seconds += may * INTERVAL
        self.may = may

    def other(self) -> Queue:
        """A handle of its own: threads that share one would take turns."""
        return Queue(self.queue.name, self.queue._root, clock=self.clock)

    def operation(self, db: fdb.Database, name: str) -> Operation:
        if name in SELECTED:
            return self.other().subscriptions.open(db, name, selector=SELECTED[name]).receive
        return partial(OPERATIONS[name], self, self.other())

    def settled(self, db: fdb.Database, taken: int, interval: float = INTERVAL) -> None:
        """No more have come than may come, the rest of those do now, and then all others, one in
        each interval: the first after that of the rate at which the last one came."""
        queue, first = self.queue, min(interval, INTERVAL)
        assert queue.admin.verify(db).deviations == ()
        taken += self.take(db)
        assert taken == self.may
        assert self.after(db, first) or self.after(db, interval - first)
        while queue.depth(db).ready + queue.depth(db).delayed:
            assert self.after(db, interval)
        assert queue.admin.verify(db).deviations == ()

    def after(self, db: fdb.Database, seconds: float) -> bool:
        """Whether one comes after so many seconds; none does sooner."""
        self.clock.seconds += seconds - 0.001
        assert self.take(db) == 0
        self.clock.seconds += 0.001
        found = self.take(db)
        assert found <= 1
        return found == 1

    def take(self, db: fdb.Database) -> int:
        """End all leases, and take what may come; returns how many that are."""
        self.end(db)
        found = self.queue.receive_many(db, 99)
        self.end(db)
        return len(found)

    def end(self, db: fdb.Database) -> None:
        for each in list(self.queue.admin.leases(db)):
            self.queue.ack(db, each.delivery)


def _work(paced: Paced, queue: Queue, db: Any) -> Any:
    """End a lease, and take the next message, in one transaction of the caller."""

    @fdb.transactional
    def work(tr: fdb.Transaction) -> Any:
        queue.ack(tr, paced.held[-1])
        return queue.receive(tr)

    return work(db)


OPERATIONS: dict[str, Callable[[Paced, Queue, Any], Any]] = {
    "receive": lambda paced, queue, db: queue.receive(db),
    "many": lambda paced, queue, db: queue.receive_many(db, 2),
    "batch": lambda paced, queue, db: queue.receive_batch(db, 2),
    "dequeue": lambda paced, queue, db: queue.receive(db, at_most_once=True),
    "work": _work,
    "ack": lambda paced, queue, db: queue.ack(db, paced.held[0]),
    "release": lambda paced, queue, db: queue.release(db, paced.held[0], delay=0),
    "enqueue": lambda paced, queue, db: queue.enqueue(db, b"new", priority=1),
    # The one step of a sweep that returns what has expired or become due.
    "sweep": lambda paced, queue, db: queue._run(db, partial(housekeeping._promote, queue)),
    "faster": lambda paced, queue, db: queue.set_options(db, rate="60/min"),
    "slower": lambda paced, queue, db: queue.set_options(db, rate="1/min"),
}
SELECTED = {"odd": "n = 1", "even": "n = 0"}
"""Subscriptions that are after different messages."""
TAKES = ("receive", "many", "batch", "odd", "even", "dequeue", "work")


def count(name: str, result: Any) -> int:
    """How many messages an operation has taken."""
    assert not isinstance(result, Exception), result
    if name not in TAKES or result is None:
        return 0
    return len(result) if name in ("many", "batch") else 1


@pytest.fixture
def make(db: fdb.Database, space: fdb.Subspace) -> Callable[..., Paced]:
    """Makes a queue of its own for every interleaving."""
    numbers = itertools.count()
    return lambda **options: Paced(db, space, f"q{next(numbers)}", **options)


def against(
    db: fdb.Database,
    make: Callable[[], Paced],
    names: Sequence[str],
    interval: float = INTERVAL,
) -> int:
    def start() -> Start:
        paced = make()

        def check(results: list[Any]) -> None:
            taken = sum(map(count, names, results))
            assert taken <= paced.may
            paced.settled(db, taken, interval)

        return [paced.operation(db, name) for name in names], check

    return explore(db, start)


@pytest.mark.parametrize(("burst", "may"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("names", [*itertools.combinations_with_replacement(TAKES[:-1], 2)])
def test_two_takers(
    db: fdb.Database, make: Callable[..., Paced], names: Sequence[str], burst: int, may: int
) -> None:
    assert against(db, lambda: make(burst=burst, may=may), names) >= 2


@pytest.mark.parametrize("other", ["ack", "release", "enqueue", "receive", "dequeue"])
@pytest.mark.parametrize("taker", ["receive", "many", "work"])
@pytest.mark.parametrize("options", [{}, {"max_in_flight": 2}], ids=["a rate", "both limits"])
def test_a_taker_against_what_ends_leases_or_brings_messages(
    db: fdb.Database,
    make: Callable[..., Paced],
    taker: str,
    other: str,
    options: dict[str, Any],
) -> None:
    assert against(db, lambda: make(burst=2, **options), [taker, other]) >= 2


@pytest.mark.parametrize("taker", TAKES[:-1])
@pytest.mark.parametrize("lease", [INTERVAL / 2, 3_600], ids=["expired", "held"])
def test_a_taker_against_a_sweep(
    db: fdb.Database, make: Callable[..., Paced], taker: str, lease: float
) -> None:
    assert against(db, lambda: make(lease=lease, due=True), [taker, "sweep"]) >= 2


@pytest.mark.parametrize(("change", "interval"), [("faster", 1), ("slower", 60)])
@pytest.mark.parametrize("taker", TAKES[:-1])
def test_a_taker_against_a_change_of_the_rate(
    db: fdb.Database, make: Callable[..., Paced], taker: str, change: str, interval: float
) -> None:
    assert against(db, make, [taker, change], interval) >= 2


@pytest.mark.parametrize(
    "names",
    [
        ("receive", "receive", "ack"),
        pytest.param(("receive", "many", "sweep"), marks=pytest.mark.slow),
        pytest.param(("dequeue", "receive", "receive"), marks=pytest.mark.slow),
        pytest.param(("receive", "receive", "faster"), marks=pytest.mark.slow),
    ],
)
def test_three_at_once(db: fdb.Database, make: Callable[..., Paced], names: Sequence[str]) -> None:
    # What a rate has left of its burst, another one does not give.
    burst, interval = (1, 1) if "faster" in names else (2, INTERVAL)
    assert against(db, lambda: make(burst=burst), names, interval) >= 4

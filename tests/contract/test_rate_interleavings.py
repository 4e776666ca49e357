"""Rates in all interleavings of what lets messages come, frees permits and changes limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from fdbqueue import KeyLimits, NewMessage, Queue
from fdbqueue.queue.admin import housekeeping
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import fdb
from fdbqueue.values.states import State
from tests.interleaving import Operation, explore
from tests.schemes import forced
from tests.still_clock import StillClock

pytestmark = pytest.mark.long

SLOW = pytest.mark.slow

Start = tuple[Sequence[Operation], Callable[[list[Any]], None]]


class Rated:
    """A queue with a key of which a message came in the beginning, is leased, and others wait. Ten
    seconds have passed, so the next may come, and nobody has looked."""

    def __init__(
        self, db: fdb.Database, space: fdb.Subspace, name: str, waiting: int, slots: int | None
    ) -> None:
        self.clock = StillClock()
        self.queue = forced(
            Queue.create(
                db,
                name,
                root=space,
                levels=2,
                keys=KeyLimits(concurrency=slots, rate="6/min"),
                max_attempts=1,
                clock=self.clock,
            ),
            "first",
        )
        self.ids = self.queue.enqueue_many(db, [NewMessage(b"x", key="a")] * (waiting + 1))
        (self.held,) = self.queue.receive_many(db, 9)
        assert self.queue.keys["a"].state(db).waiting == waiting
        self.clock.seconds += 10

    def other(self) -> Queue:
        """A handle of its own: threads that share one would take turns."""
        return Queue(self.queue.name, self.queue._root, clock=self.clock)

    def look(self) -> Operation:
        """Look for what may come now: the one step of a sweep that does."""
        other = self.other()
        return lambda db: other._run(db, partial(housekeeping._promote, other))

    def enqueue(self) -> Operation:
        other = self.other()
        return lambda db: other.enqueue(db, b"new", key="a")

    def end(self) -> Operation:
        return lambda db: self.queue.ack(db, self.held)

    def settled(self, db: fdb.Database, came: int, seconds: int = 10) -> None:
        """At most as many have come as may; all others do, one in each interval, and nothing is
        left in the end."""
        queue = self.queue
        assert queue.admin.verify(db).deviations == ()
        held = queue.receive_many(db, 99)
        assert len(held) <= came
        for _ in range(12):
            assert queue.admin.verify(db).deviations == ()
            queue.ack(db, held)
            self.ack(db)
            if not queue.keys["a"].state(db).waiting:
                break
            late = queue.receive_many(db, 99)  # its slot has become free
            queue.ack(db, late)
            came -= len(late)
            self.clock.seconds += seconds
            held = queue.receive_many(db, 99)
            assert len(held) == 1, "it conforms, and waits"
        else:
            raise AssertionError("they do not come")
        queue.ack(db, queue.receive_many(db, 99))
        self.clock.seconds += 3_600
        queue.admin.sweep(db)
        depth = queue.depth(db)
        assert depth.enqueued == depth.done + depth.dead + depth.purged
        for kind in (Kind.RATE, Kind.TIMER, Kind.SLOT, Kind.BACKLOG):
            every = queue._keys.kind(kind)
            assert db.get_range(every.start, every.stop) == []

    def ack(self, db: fdb.Database) -> None:
        """End the message that is leased from the beginning, if it still is."""
        found = self.queue.get(db, self.held.id)
        if found is not None and found.state is State.LEASED:
            self.queue.ack(db, self.held)


@pytest.fixture
def fresh(db: fdb.Database, space: fdb.Subspace) -> Callable[..., Rated]:
    """Makes a queue of its own for every interleaving."""
    numbers = itertools.count()
    return lambda waiting, slots=None: Rated(db, space, f"q{next(numbers)}", waiting, slots)


def against(
    db: fdb.Database,
    make: Callable[[], Rated],
    operations: Callable[[Rated], Sequence[Operation]],
    seconds: int = 10,
) -> int:
    def start() -> Start:
        rated = make()

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results), results
            rated.settled(db, 1, seconds)

        return operations(rated), check

    return explore(db, start)


@pytest.mark.parametrize("slots", [None, 1, pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize("waiting", [1, pytest.param(2, marks=SLOW)])
def test_two_that_look_against_an_end(
    db: fdb.Database, fresh: Callable[..., Rated], waiting: int, slots: int | None
) -> None:
    def operations(rated: Rated) -> Sequence[Operation]:
        return [rated.look(), rated.end()]

    assert against(db, lambda: fresh(waiting, slots), operations) >= 2


@pytest.mark.parametrize("waiting", [1, pytest.param(2, marks=SLOW)])
def test_two_that_look_against_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Rated], waiting: int
) -> None:
    def operations(rated: Rated) -> Sequence[Operation]:
        return [rated.look(), rated.enqueue()]

    assert against(db, lambda: fresh(waiting), operations) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [1, 2])
def test_all_of_them(db: fdb.Database, fresh: Callable[..., Rated], waiting: int) -> None:
    def operations(rated: Rated) -> Sequence[Operation]:
        return [rated.look(), rated.enqueue(), rated.end()]

    assert against(db, lambda: fresh(waiting, 1), operations) >= 4


@pytest.mark.parametrize("waiting", [1, 2])
def test_a_look_against_the_cancelling_of_those_that_wait(
    db: fdb.Database, fresh: Callable[..., Rated], waiting: int
) -> None:
    def operations(rated: Rated) -> Sequence[Operation]:
        other = rated.other()
        return [rated.look(), lambda db: other.cancel(db, rated.ids[1])]

    assert against(db, lambda: fresh(waiting), operations) >= 2


@pytest.mark.parametrize(
    ("rate", "seconds"), [("60/min", 1), pytest.param("1/hour", 3_600, marks=SLOW)]
)
def test_a_look_against_a_change_of_the_rate(
    db: fdb.Database, fresh: Callable[..., Rated], rate: str, seconds: int
) -> None:
    def operations(rated: Rated) -> Sequence[Operation]:
        other = rated.other()
        return [rated.look(), lambda db: other.keys["a"].set(db, rate=rate)]

    assert against(db, lambda: fresh(2), operations, seconds) >= 2


def test_a_look_against_a_redrive(db: fdb.Database, fresh: Callable[..., Rated]) -> None:
    def operations(rated: Rated) -> Sequence[Operation]:
        other = rated.other()
        return [rated.look(), other.retry]

    def dead() -> Rated:
        rated = fresh(1)
        rated.queue.reject(db, rated.held, "bad")
        return rated

    assert against(db, dead, operations) >= 2

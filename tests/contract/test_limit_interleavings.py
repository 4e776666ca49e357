"""Limits that queues share, in all interleavings of what takes slots and hands them over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from fdbqueue import Delivery, NewMessage, Queue
from fdbqueue.errors import LeaseLost, QueueNotFound
from fdbqueue.queue.admin import housekeeping
from fdbqueue.queue.keys.limits import SharedLimit
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.interleaving import Operation, explore
from tests.schemes import forced
from tests.still_clock import StillClock

pytestmark = pytest.mark.long

SLOW = pytest.mark.slow

Start = tuple[Sequence[Operation], Callable[[list[Any]], None]]


class Given(NamedTuple):
    """Two queues that share a limit, all slots of which are leased in the first. Messages of the
    second wait, and then one of the first."""

    one: Queue
    two: Queue
    limit: SharedLimit
    held: list[Delivery]
    waiting: list[str]

    @property
    def limits(self) -> dict[str, str]:
        return {self.limit.dimension: self.limit.name}

    def again(self, queue: Queue) -> Queue:
        """A handle of its own: threads that share one would take turns."""
        return Queue(queue.name, queue._root)

    def enqueue(self, queue: Queue) -> Operation:
        other = self.again(queue)
        return lambda db: other.enqueue(db, b"new", limits=self.limits)


@pytest.fixture
def fresh(db: fdb.Database, space: fdb.Subspace) -> Callable[..., Given]:
    """Makes queues of their own for every interleaving."""
    numbers = itertools.count()

    def make(slots: int, waiting: int, last: int = 0, lease: int = 10) -> Given:
        n = next(numbers)
        terms: dict[str, Any] = {"levels": 2, "lease": lease, "max_attempts": 1, "root": space}
        one, two = (
            forced(Queue.create(db, f"{name}{n}", **terms), "first") for name in ("one", "two")
        )
        limit = one.limits["api", f"limit {n}"]
        limit.set(db, concurrency=slots)

        def some(count: int) -> list[NewMessage]:
            return [NewMessage(b"x", limits={"api": limit.name})] * count

        for queue in (one, two):  # Each notes the first time that it has such messages.
            queue.cancel(db, queue.enqueue_many(db, some(1))[0])
        one.enqueue_many(db, some(slots))
        ids = list(two.enqueue_many(db, some(waiting))) if waiting else []
        ids += one.enqueue_many(db, some(last)) if last else []
        return Given(one, two, limit, one.receive_many(db, slots), ids)

    return make


def settled(db: fdb.Database, given: Given, slots: int, at_most: int | None = None) -> None:
    """As many are out as may be while messages wait, and in the end all come out, each once."""
    state = given.limit.state(db)
    queues = [queue for queue in (given.one, given.two) if _exists(db, queue)]
    for queue in queues:
        assert queue.admin.verify(db).deviations == ()
    assert len(state.out) <= (at_most or slots)
    if state.waiting:
        assert len(state.out) >= slots, "a slot is free while a message waits"
    later = [Queue(each.name, each._root, clock=ManualClock(seconds=600)) for each in queues]
    for each in later:
        each.admin.sweep(db)
    held = at_most or slots
    while found := [(each, each.receive_many(db, 10)) for each in later]:
        count = sum(len(some) for _, some in found)
        assert count <= held
        for each, some in found:
            each.ack(db, some)
        held = slots
        if not count:
            break
    for queue in queues:
        depth = queue.depth(db)
        assert depth.enqueued == depth.done + depth.dead + depth.purged
        assert queue.admin.verify(db).deviations == ()
    assert (given.limit.state(db).out, given.limit.state(db).waiting) == ({}, 0)


def _exists(db: fdb.Database, queue: Queue) -> bool:
    try:
        queue.options(db)
    except QueueNotFound:
        return False
    return True


def no_errors(results: list[Any], *allowed: type[Exception]) -> None:
    assert [each for each in results if isinstance(each, Exception)] == [
        each for each in results if isinstance(each, allowed)
    ]


@pytest.mark.parametrize(
    ("slots", "waiting", "last"),
    [(1, 1, 0), *(pytest.param(*each, marks=SLOW) for each in ((1, 0, 0), (2, 1, 1), (2, 2, 1)))],
)
def test_ends_against_each_other_and_an_enqueue_elsewhere(
    db: fdb.Database, fresh: Callable[..., Given], slots: int, waiting: int, last: int
) -> None:
    def start() -> Start:
        given = fresh(slots, waiting, last)

        def check(results: list[Any]) -> None:
            no_errors(results)
            settled(db, given, slots)

        ends = [lambda db, one=one: given.one.ack(db, one) for one in given.held]
        return [*ends, given.enqueue(given.two)], check

    assert explore(db, start) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [0, 1])
def test_enqueues_in_two_queues_against_an_end(
    db: fdb.Database, fresh: Callable[..., Given], waiting: int
) -> None:
    def start() -> Start:
        given = fresh(1, waiting)

        def check(results: list[Any]) -> None:
            no_errors(results)
            settled(db, given, 1)

        enqueues = [given.enqueue(given.one), given.enqueue(given.two)]
        return [*enqueues, lambda db: given.one.ack(db, given.held[0])], check

    assert explore(db, start) >= 4


WAYS: dict[str, Callable[[Queue, Delivery], Operation]] = {
    "release": lambda queue, one: lambda db: queue.release(db, one),
    "reject": lambda queue, one: lambda db: queue.reject(db, one, "bad"),
    "drop": lambda queue, one: lambda db: queue.reject(db, one, "bad", drop=True),
    "lapse": lambda queue, one: (
        lambda db: Queue(queue.name, queue._root, clock=ManualClock(seconds=60)).admin.sweep(db)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("waiting", [1, 2])
def test_a_hand_over_to_another_queue_against_what_becomes_of_the_other_message(
    db: fdb.Database, fresh: Callable[..., Given], way: str, waiting: int
) -> None:
    def start() -> Start:
        given = fresh(2, waiting)

        def check(results: list[Any]) -> None:
            no_errors(results, LeaseLost)
            settled(db, given, 2)

        ack = lambda db: given.one.ack(db, given.held[0])  # noqa: E731
        return [ack, WAYS[way](given.again(given.one), given.held[1])], check

    assert explore(db, start) >= 2


@pytest.mark.parametrize(
    ("waiting", "last", "edits"),
    [(1, 0, 0), pytest.param(1, 0, 1, marks=SLOW), pytest.param(2, 1, 1, marks=SLOW)],
)
def test_a_hand_over_against_what_takes_the_next_out_of_its_queue(
    db: fdb.Database, fresh: Callable[..., Given], waiting: int, last: int, edits: int
) -> None:
    def start() -> Start:
        given = fresh(1, waiting, last)
        two, other = given.again(given.two), given.again(given.two)

        def check(results: list[Any]) -> None:
            no_errors(results)
            settled(db, given, 1)

        return [
            lambda db: given.one.ack(db, given.held[0]),
            lambda db: two.cancel(db, given.waiting[0]),
            *[lambda db: other.edit(db, given.waiting[0], priority=9)] * edits,
        ], check

    assert explore(db, start) >= 2


@pytest.mark.parametrize(
    ("deleted", "last", "enqueues"),
    [
        ("one", 0, 0),
        ("two", 0, 0),
        *(pytest.param(q, n, 1, marks=SLOW) for q in ("one", "two") for n in (0, 1)),
    ],
)
def test_the_deletion_of_a_queue_against_a_hand_over_and_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Given], deleted: str, last: int, enqueues: int
) -> None:
    def start() -> Start:
        given = fresh(1, 1, last)
        gone = given.again(given.one if deleted == "one" else given.two)

        def check(results: list[Any]) -> None:
            no_errors(results, LeaseLost, QueueNotFound)
            settled(db, given, 1)

        return [
            lambda db: given.one.ack(db, given.held[0]),
            gone.delete,
            *(given.enqueue(given.two) for _ in range(enqueues)),
        ], check

    assert explore(db, start) >= 2


@pytest.mark.parametrize(
    ("waiting", "new"), [(1, 1), pytest.param(1, 3, marks=SLOW), pytest.param(0, 1, marks=SLOW)]
)
@pytest.mark.parametrize("enqueues", [0, pytest.param(1, marks=SLOW)])
def test_a_change_of_the_limit_against_a_hand_over_and_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Given], waiting: int, new: int, enqueues: int
) -> None:
    def start() -> Start:
        given = fresh(2, waiting)
        limit = given.again(given.one).limits["api", given.limit.name]

        def check(results: list[Any]) -> None:
            no_errors(results)
            settled(db, given, new, max(new, 2))

        return [
            lambda db: given.one.ack(db, given.held[0]),
            lambda db: limit.set(db, concurrency=new),
            *(given.enqueue(given.two) for _ in range(enqueues)),
        ], check

    assert explore(db, start) >= 2


@pytest.mark.parametrize(
    ("waiting", "operations"),
    [
        pytest.param(1, ("look", "end", "enqueue"), marks=SLOW),
        pytest.param(1, ("look", "look in two", "enqueue"), marks=SLOW),
        pytest.param(2, ("look", "look in two", "end"), marks=SLOW),
        pytest.param(2, ("look in two", "cancel", "end"), marks=SLOW),
        pytest.param(2, ("look", "delete two", "enqueue"), marks=SLOW),
    ],
)
def test_what_the_rate_lets_come_against_ends_and_enqueues_in_both_queues(
    db: fdb.Database, fresh: Callable[..., Given], waiting: int, operations: Sequence[str]
) -> None:
    def start() -> Start:
        # Given a message that came in the beginning, and others that wait: the next may come now
        given = fresh(1, 0, lease=600)
        clock = StillClock()
        one, two = (Queue(q.name, q._root, clock=clock) for q in (given.one, given.two))
        given.one.ack(db, given.held)
        limit = one.limits["api", given.limit.name]
        limit.set(db, concurrency=None, rate="6/min")
        one.enqueue(db, b"first", limits=given.limits)
        ids = two.enqueue_many(db, [NewMessage(b"x", limits=given.limits)] * waiting)
        held = one.receive(db)
        assert held is not None
        clock.seconds += 10

        def look(queue: Queue) -> Operation:
            other = Queue(queue.name, queue._root, clock=clock)
            return lambda db: other._run(db, partial(housekeeping._promote, other))

        third = Queue(two.name, two._root, clock=clock)
        ways: dict[str, Operation] = {
            "look": look(one),
            "look in two": look(two),
            "end": lambda db: one.ack(db, held),
            "enqueue": lambda db: third.enqueue(db, b"new", limits=given.limits),
            "cancel": lambda db: third.cancel(db, ids[0]),
            "delete two": third.delete,
        }

        def check(results: list[Any]) -> None:
            no_errors(results, QueueNotFound)
            queues = [queue for queue in (one, two) if _exists(db, queue)]
            came = 0
            for seconds in (0, 10, 10, 10, 10):
                clock.seconds += seconds
                left = limit.state(db).waiting
                new = 0
                for queue in queues:
                    assert queue.admin.verify(db).deviations == ()
                    found = [each for each in queue.receive_many(db, 9) if each.id != held.id]
                    new += len(found)
                    if found:
                        queue.ack(db, found)
                came += new
                assert new <= 1, "one in ten seconds"
                # What had come already may have been cancelled
                assert new or not left or (not seconds and "cancel" in operations)
            assert limit.state(db).waiting == 0

        return [ways[each] for each in operations], check

    assert explore(db, start) >= 2

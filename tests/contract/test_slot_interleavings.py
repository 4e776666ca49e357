"""Slots in all interleavings of what takes them, hands them over and changes their number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fdbqueue import Delivery, KeyLimits, NewMessage, Queue
from fdbqueue.errors import LeaseLost
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.interleaving import Operation, explore
from tests.schemes import forced

pytestmark = pytest.mark.long

SLOW = pytest.mark.slow

Start = tuple[Sequence[Operation], Callable[[list[Any]], None]]


@pytest.fixture
def fresh(db: fdb.Database, space: fdb.Subspace) -> Callable[..., Any]:
    """Makes a queue of its own for every interleaving."""
    numbers = itertools.count()

    def make(slots: int, waiting: int) -> tuple[Queue, list[Delivery], list[str]]:
        """A queue in which all slots of key "a" are leased; with their deliveries, and the ids of
        those that wait."""
        queue = forced(
            Queue.create(
                db,
                f"q{next(numbers)}",
                root=space,
                levels=2,
                keys=KeyLimits(concurrency=slots),
                lease=10,
                max_attempts=1,
            ),
            "first",
        )
        messages = [NewMessage(b"%d" % n, key="a") for n in range(slots + waiting)]
        ids = queue.enqueue_many(db, messages)
        return queue, queue.receive_many(db, slots), ids[slots:]

    return make


def settled(db: fdb.Database, queue: Queue, slots: int, at_most: int | None = None) -> None:
    """As many are out as may be while messages wait, and in the end all come out, each once.

    at_most: how many are out at most, if the limit was higher.
    """
    state = queue.keys["a"].state(db)
    assert queue.admin.verify(db).deviations == ()
    assert len(state.out) <= (at_most or slots)
    if state.waiting:
        assert len(state.out) >= slots, "a slot is free while a message waits"
    later = Queue(queue.name, queue._root, clock=ManualClock(seconds=600))
    later.admin.sweep(db)
    held = at_most or slots
    while found := later.receive_many(db, 10):
        assert len(found) <= held
        later.ack(db, found)
        held = slots
    depth = queue.depth(db)
    assert depth.enqueued == depth.done + depth.dead + depth.purged
    assert queue.keys["a"].state(db).out == {}
    assert queue.admin.verify(db).deviations == ()


def enqueue(queue: Queue) -> Operation:
    # Handles of its own: threads that share one would take turns.
    other = Queue(queue.name, queue._root)
    return lambda db: other.enqueue(db, b"new", key="a")


@pytest.mark.parametrize(
    ("slots", "waiting"),
    [
        (1, 1),
        pytest.param(1, 2, marks=SLOW),
        pytest.param(2, 0, marks=SLOW),
        pytest.param(2, 1, marks=SLOW),
        pytest.param(2, 3, marks=SLOW),
    ],
)
def test_ends_against_each_other_and_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Any], slots: int, waiting: int
) -> None:
    def start() -> Start:
        queue, held, _ = fresh(slots, waiting)

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results)
            settled(db, queue, slots)

        ends = [lambda db, one=one: queue.ack(db, one) for one in held]
        return [*ends, enqueue(queue)], check

    assert explore(db, start) >= 2


@pytest.mark.parametrize(
    ("enqueues", "waiting"),
    [(1, 0), pytest.param(2, 0, marks=SLOW), pytest.param(2, 1, marks=SLOW)],
)
def test_enqueues_against_each_other_and_an_end(
    db: fdb.Database, fresh: Callable[..., Any], enqueues: int, waiting: int
) -> None:
    def start() -> Start:
        queue, held, _ = fresh(1, waiting)

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results)
            settled(db, queue, 1)

        return [
            *(enqueue(queue) for _ in range(enqueues)),
            lambda db: queue.ack(db, held[0]),
        ], check

    assert explore(db, start) >= 2 * enqueues


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [3, None])
def test_takers_of_a_window_against_an_end_and_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Any], concurrency: int | None
) -> None:
    def start() -> Start:
        # Given a window of one place, of which two messages are leased, one is ready and two wait
        queue, held, _ = fresh(2, 3)
        queue.set_options(db, keys=KeyLimits(window=1, concurrency=concurrency))
        queue.ack(db, held[0])
        queue.receive(db)
        takers = [Queue(queue.name, queue._root) for _ in range(2)]

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results)
            assert queue.admin.verify(db).deviations == ()
            later = Queue(queue.name, queue._root, clock=ManualClock(seconds=600))
            while found := later.receive_many(db, 10):
                later.ack(db, found)
            later.admin.sweep(db)
            assert queue.keys["a"].state(db).out == {}
            assert queue.depth(db).ready == 0
            assert queue.admin.verify(db).deviations == ()

        return [
            takers[0].receive,
            lambda db: takers[1].ack(db, held[1]),
            enqueue(queue),
        ], check

    assert explore(db, start) >= 4


WAYS: dict[str, Callable[[Queue, Delivery], Operation]] = {
    "release": lambda queue, one: lambda db: queue.release(db, one),
    "put off": lambda queue, one: lambda db: queue.release(db, one, delay=60),
    "reject": lambda queue, one: lambda db: queue.reject(db, one, "bad"),
    "drop": lambda queue, one: lambda db: queue.reject(db, one, "bad", drop=True),
    "lapse": lambda queue, one: (
        lambda db: Queue(queue.name, queue._root, clock=ManualClock(seconds=60)).admin.sweep(db)
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("waiting", [1, pytest.param(2, marks=SLOW)])
def test_a_hand_over_against_what_becomes_of_the_other_message(
    db: fdb.Database, fresh: Callable[..., Any], way: str, waiting: int
) -> None:
    def start() -> Start:
        queue, held, _ = fresh(2, waiting)

        def check(results: list[Any]) -> None:
            for result in results:
                assert not isinstance(result, Exception) or isinstance(result, LeaseLost)
            settled(db, queue, 2)

        return [lambda db: queue.ack(db, held[0]), WAYS[way](queue, held[1])], check

    assert explore(db, start) >= 2


@pytest.mark.parametrize("waiting", [1, pytest.param(2, marks=SLOW), pytest.param(3, marks=SLOW)])
def test_a_hand_over_against_the_cancelling_of_those_that_wait(
    db: fdb.Database, fresh: Callable[..., Any], waiting: int
) -> None:
    def start() -> Start:
        queue, held, ids = fresh(1, waiting)

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results)
            settled(db, queue, 1)

        others = [Queue(queue.name, queue._root) for _ in range(2)]
        cancels = [
            lambda db, handle=handle, one=one: handle.cancel(db, one)
            for handle, one in zip(others, ids[-2:], strict=False)
        ]
        return [lambda db: queue.ack(db, held[0]), *cancels], check

    assert explore(db, start) >= 2


@pytest.mark.parametrize(
    ("waiting", "new"),
    [
        (1, 1),
        pytest.param(1, None, marks=SLOW),
        pytest.param(0, 1, marks=SLOW),
        pytest.param(0, None, marks=SLOW),
        pytest.param(0, 3, marks=SLOW),
        pytest.param(1, 3, marks=SLOW),
    ],
)
@pytest.mark.parametrize("enqueues", [0, pytest.param(1, marks=SLOW)])
def test_a_change_of_the_limit_against_a_hand_over_and_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Any], waiting: int, new: int | None, enqueues: int
) -> None:
    def start() -> Start:
        queue, held, _ = fresh(2, waiting)
        other = Queue(queue.name, queue._root)

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results)
            if new is not None:
                settled(db, queue, new, max(new, 2))
            else:
                assert queue.keys["a"].state(db).waiting == 0
                assert queue.admin.verify(db).deviations == ()

        return [
            lambda db: queue.ack(db, held[0]),
            lambda db: other.keys["a"].set(db, concurrency=new),
            *(enqueue(queue) for _ in range(enqueues)),
        ], check

    assert explore(db, start) >= 2 + 2 * enqueues


@pytest.mark.parametrize("enqueues", [0, pytest.param(1, marks=SLOW)])
def test_a_pause_against_a_hand_over_and_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Any], enqueues: int
) -> None:
    def start() -> Start:
        queue, held, _ = fresh(1, 1)
        other = Queue(queue.name, queue._root)

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results)
            assert queue.admin.verify(db).deviations == ()
            queue.keys["a"].resume(db)
            settled(db, queue, 1)

        return [
            lambda db: queue.ack(db, held[0]),
            other.keys["a"].pause,
            *(enqueue(queue) for _ in range(enqueues)),
        ], check

    assert explore(db, start) >= 2 + 2 * enqueues


@pytest.mark.slow
def test_a_redrive_against_a_hand_over_and_an_enqueue(
    db: fdb.Database, fresh: Callable[..., Any]
) -> None:
    def start() -> Start:
        queue, held, _ = fresh(2, 0)
        queue.reject(db, held[1], "bad")
        other = Queue(queue.name, queue._root)

        def check(results: list[Any]) -> None:
            assert not any(isinstance(result, Exception) for result in results)
            settled(db, queue, 2)

        return [
            lambda db: queue.ack(db, held[0]),
            other.retry,
            enqueue(queue),
        ], check

    assert explore(db, start) >= 4

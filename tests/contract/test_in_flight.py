"""``max_in_flight``: never more messages are leased, and whoever waits for one to end is woken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Queue
from fdbqueue.consumers import wakeups, watching
from fdbqueue.errors import InvalidOptions
from fdbqueue.schema.consumers import ConsumerRef
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.schemes import forced
from tests.taking import take

Database = fdb.Database
MODES = ("auto", "first", "staged")


def make(db: Database, space: fdb.Subspace, limit: int = 2, **options: Any) -> Queue:
    clock = options.pop("clock", ManualClock())
    return Queue.create(
        db, "jobs", root=space, clock=clock, max_in_flight=limit, backoff=None, **options
    )


def filled(db: Database, space: fdb.Subspace, limit: int = 2, **options: Any) -> Queue:
    queue = make(db, space, limit, **options)
    queue.enqueue_many(db, [b"%d" % n for n in range(8)])
    return queue


@pytest.mark.parametrize("mode", MODES)
def test_no_more_are_leased_than_allowed(db: Database, space: fdb.Subspace, mode: str) -> None:
    queue = forced(filled(db, space), mode)
    first, second = queue.receive(db), queue.receive(db)
    assert first is not None
    assert second is not None
    assert queue.receive(db) is None
    queue.ack(db, first)
    third = take(db, queue)
    assert (third.payload, queue.receive(db)) == (b"2", None)
    assert queue.depth(db).leased == 2


def test_what_a_selector_takes_is_in_flight(db: Database, space: fdb.Subspace) -> None:
    queue = make(db, space, 1)
    for _ in range(2):
        queue.enqueue(db, b"", headers={"n": 1})
    held = take(db, queue, match="n = 1")
    assert queue.receive(db, match="n = 1") is None
    queue.ack(db, held)
    assert queue.receive(db, match="n = 1") is not None


def test_an_acknowledgement_makes_room_in_its_own_transaction(
    db: Database, space: fdb.Subspace
) -> None:
    queue = filled(db, space, 1)
    (held,) = queue.receive_many(db, 5)
    for n in range(1, 5):
        (held,) = queue.receive_many(db, 5, ack=[held])
        assert held.payload == b"%d" % n


ENDS: dict[str, Callable[[Queue, Database, Any], object]] = {
    "ack": lambda queue, db, held: queue.ack(db, held),
    "release": lambda queue, db, held: queue.release(db, held, delay=0),
    "put off": lambda queue, db, held: queue.release(db, held, delay=60),
    "reject": lambda queue, db, held: queue.reject(db, held, "bad"),
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_a_lease_makes_room(db: Database, space: fdb.Subspace, end: str) -> None:
    queue = filled(db, space, 1)
    held = queue.receive(db)
    assert queue.receive(db) is None
    ENDS[end](queue, db, held)
    assert queue.receive(db) is not None
    assert queue.receive(db) is None


def test_of_two_takers_at_once_one_tries_again(db: Database, space: fdb.Subspace) -> None:
    queue = filled(db, space, 3)
    queue.receive(db)
    first, second = db.create_transaction(), db.create_transaction()
    assert len(queue.receive_many(first, 5)) == len(queue.receive_many(second, 5)) == 2
    first.commit().wait()
    with pytest.raises(fdb.FDBError):
        second.commit().wait()
    assert queue.depth(db).leased == 3


def test_a_plan_takes_as_many_as_are_left(db: Database, space: fdb.Subspace) -> None:
    queue = filled(db, space, 3)
    held = queue.receive(db)
    run = queue.streams.plans.planner("stream")
    run.next(db, run.begin(db), messages=8)
    assert queue.depth(db).leased == 3
    assert queue.receive(db) is None
    assert held is not None
    queue.ack(db, held)
    assert queue.receive(db) is not None


def test_an_end_conflicts_with_no_taker(db: Database, space: fdb.Subspace) -> None:
    queue = filled(db, space)
    held = take(db, queue)
    taking, ending = db.create_transaction(), db.create_transaction()
    assert queue.receive(taking) is not None
    queue.ack(ending, held)
    taking.commit().wait()
    ending.commit().wait()


@fdb.transactional
def fall_asleep(tr: fdb.Transaction, queue: Queue) -> watching.Signal:
    return wakeups.register(tr, queue._scope(tr), ConsumerRef(b"c" * 16))


def test_a_guard_that_has_room_watches_no_ends(db: Database, space: fdb.Subspace) -> None:
    queue = make(db, space, 2)
    queue.enqueue_many(db, [b"", b""])
    queue.receive(db)
    assert [each.key for each in fall_asleep(db, queue)][1:] == [queue._keys.change]
    queue.receive(db)
    watched = [each.key for each in fall_asleep(db, queue)]
    assert watched[1:] == [queue._keys.change, queue._keys.in_flight]


def test_a_lower_limit_takes_nothing_back(db: Database, space: fdb.Subspace) -> None:
    queue = filled(db, space, 3)
    held = queue.receive_many(db, 3)
    queue.set_options(db, max_in_flight=1)
    for delivery in held:
        assert queue.receive(db) is None
        queue.ack(db, delivery)
    assert queue.receive(db) is not None


def test_a_limit_of_a_running_queue_counts_what_is_leased(
    db: Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "jobs", root=space)
    queue.enqueue_many(db, [b""] * 3)
    held = queue.receive_many(db, 2)
    queue.set_options(db, max_in_flight=2)
    assert queue.receive(db) is None
    queue.ack(db, held[0])
    assert queue.receive(db) is not None


def test_a_number_that_makes_no_sense_is_refused(db: Database, space: fdb.Subspace) -> None:
    queue = make(db, space)
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(InvalidOptions, match="max_in_flight"):
            queue.set_options(db, max_in_flight=wrong)  # type: ignore[arg-type]


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", MODES)
def test_leases_that_are_over_keep_no_room_however_many_they_are(
    db: Database, space: fdb.Subspace, mode: str
) -> None:
    # Given more leases than one step returns, and than the queue allows by now
    clock = ManualClock()
    queue = forced(Queue.create(db, "many", root=space, clock=clock, lease=60), mode)
    for n in range(100):
        queue.enqueue(db, bytes(60_000), key=str(n))
    while queue.receive_many(db, 100):
        pass
    assert queue.depth(db).leased == 100
    queue.set_options(db, max_in_flight=5)

    # When they are over
    clock.seconds += 61

    # Then a consumer is not told that there is nothing
    assert queue.receive(db) is not None

"""``rate``: messages are taken no faster, and whoever waits for the next one is woken by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Queue
from fdbqueue.errors import CorruptData, InvalidOptions
from fdbqueue.messages import agenda
from fdbqueue.schema.records import Reached
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import Clock
from fdbqueue.values.rates import Rate
from tests.schemes import forced
from tests.still_clock import StillClock
from tests.taking import take

Database = fdb.Database
SYSTEM = Clock()
MODES = ("auto", "first", "staged")


def make(db: Database, space: fdb.Subspace, rate: str = "1/s", **options: Any) -> Queue:
    """A queue with a rate and, unless told otherwise, a clock that stands still."""
    clock = options.pop("clock", StillClock())
    return Queue.create(db, "jobs", root=space, clock=clock, rate=rate, backoff=None, **options)


def filled(db: Database, space: fdb.Subspace, rate: str = "1/s", **options: Any) -> Queue:
    queue = make(db, space, rate, **options)
    queue.enqueue_many(db, [b"%d" % n for n in range(8)])
    return queue


@pytest.mark.parametrize("mode", MODES)
def test_messages_are_taken_no_faster(db: Database, space: fdb.Subspace, mode: str) -> None:
    clock = StillClock()
    queue = forced(filled(db, space, "2/s, burst 2", clock=clock), mode)
    assert [queue.receive(db) is not None for _ in range(3)] == [True, True, False]
    clock.seconds += 0.4
    assert queue.receive(db) is None
    clock.seconds += 0.1
    third = take(db, queue)
    assert (third.payload, queue.receive(db)) == (b"2", None)
    clock.seconds += 20
    assert len(queue.receive_many(db, 10)) == 2


TAKES: dict[str, Callable[[Queue, Database], object]] = {
    "receive": lambda queue, db: queue.receive(db),
    "receive matching": lambda queue, db: queue.receive(db, match="n = 1"),
    "dequeue": lambda queue, db: queue.receive(db, at_most_once=True),
    "dequeue matching": lambda queue, db: queue.receive(db, match="n = 1", at_most_once=True),
    "subscription": lambda queue, db: queue.subscriptions.open(db, "all").receive(db),
    "get": lambda queue, db: queue.subscriptions.open(db, "all").receive(db, at_most_once=True),
}


@pytest.mark.parametrize("take", TAKES)
def test_whoever_takes_a_message_is_counted(db: Database, space: fdb.Subspace, take: str) -> None:
    clock = StillClock()
    queue = make(db, space, clock=clock)
    queue.subscriptions.open(db, "all")
    for _ in range(3):
        queue.enqueue(db, b"", headers={"n": 1})
    assert TAKES[take](queue, db) is not None
    for other in TAKES.values():
        assert other(queue, db) is None
    clock.seconds += 1
    assert TAKES[take](queue, db) is not None


def test_a_plan_takes_as_many_as_may_come(db: Database, space: fdb.Subspace) -> None:
    clock = StillClock()
    queue = filled(db, space, "1/s, burst 3", clock=clock)
    run = queue.streams.plans.planner("stream")
    run.next(db, run.begin(db), messages=8)
    assert queue.depth(db).leased == 3
    assert queue.receive(db) is None
    clock.seconds += 1
    assert queue.receive(db) is not None


def test_what_comes_back_counts_again(db: Database, space: fdb.Subspace) -> None:
    clock = StillClock()
    queue = make(db, space, clock=clock)
    queue.enqueue(db, b"")
    held = take(db, queue)
    queue.release(db, held, delay=0)
    assert queue.receive(db) is None
    clock.seconds += 1
    assert queue.receive(db) is not None


def test_both_limits_hold(db: Database, space: fdb.Subspace) -> None:
    clock = StillClock()
    queue = filled(db, space, "1/s, burst 3", max_in_flight=2, clock=clock)
    held = queue.receive_many(db, 5)
    assert len(held) == 2
    queue.ack(db, held)
    assert len(queue.receive_many(db, 5)) == 1
    clock.seconds += 3
    assert len(queue.receive_many(db, 5)) == 1


def test_of_two_takers_at_once_one_tries_again(db: Database, space: fdb.Subspace) -> None:
    queue = make(db, space)
    ones, twos = (queue.subscriptions.open(db, f"of {n}", selector=f"n = {n}") for n in (1, 2))
    queue.enqueue(db, b"", headers={"n": 1})
    queue.enqueue(db, b"", headers={"n": 2})
    first, second = db.create_transaction(), db.create_transaction()
    assert len(ones.receive_many(first, 1)) == len(twos.receive_many(second, 1)) == 1
    first.commit().wait()
    with pytest.raises(fdb.FDBError):
        second.commit().wait()


def test_enqueues_and_ends_conflict_with_no_taker(db: Database, space: fdb.Subspace) -> None:
    queue = filled(db, space, "1/s, burst 2")
    held = take(db, queue)
    taking, ending, adding = (db.create_transaction() for _ in range(3))
    assert queue.receive(taking) is not None
    queue.ack(ending, held)
    queue.enqueue(adding, b"")
    for transaction in (taking, ending, adding):
        transaction.commit().wait()


def test_a_sleeper_looks_again_when_the_next_message_may_come(
    db: Database, space: fdb.Subspace
) -> None:
    clock = StillClock()
    queue = filled(db, space, "4/s", clock=clock)

    @fdb.transactional
    def sleeps(tr: fdb.Transaction) -> float | None:
        scope = queue._scope(tr)
        return agenda.next_seconds(tr, scope, agenda.coming(tr, scope))

    assert sleeps(db) is None
    assert queue.receive(db, at_most_once=True) is not None
    assert sleeps(db) == 0.25
    clock.seconds += 0.25
    assert sleeps(db) is None


def test_a_clock_far_ahead_stops_a_queue_for_two_minutes_at_most(
    db: Database, space: fdb.Subspace
) -> None:
    clock = StillClock()
    queue = filled(db, space, clock=clock)
    assert queue.receive(db) is not None
    far = Reached(Reached.unpack(db[queue._keys.pace] or b"").tat_us + 10**12, Rate(10**6, 1))
    db[queue._keys.pace] = far.pack()
    assert queue.receive(db) is None
    clock.seconds += 100
    assert queue.receive(db) is None
    clock.seconds += 22
    assert queue.receive(db) is not None


def test_a_pace_that_cannot_be_read_is_reported_and_begins_anew(
    db: Database, space: fdb.Subspace
) -> None:
    queue = filled(db, space, "1/day")
    assert queue.receive(db) is not None
    assert queue.admin.verify(db).ok
    db[queue._keys.pace] = b"\x01\xc1"
    with pytest.raises(CorruptData):
        queue.receive(db)
    assert {each.kind for each in queue.admin.verify(db).deviations} == {"pace unreadable"}
    queue.admin.repair(db)
    assert queue.admin.verify(db).ok
    assert queue.receive(db) is not None


def test_wrong_rates_are_refused(db: Database, space: fdb.Subspace) -> None:
    queue = make(db, space)
    bursts = ("0", "1001", "x", "-1", "")
    texts = ("", "5", "5/week", "0/s", "1001/s", "-1/s", *(f"1/s, burst {n}" for n in bursts))
    for wrong in (*texts, "1/s,", "1/s, 5", 5, True):
        with pytest.raises(InvalidOptions, match="rate"):
            queue.set_options(db, rate=wrong)  # type: ignore[arg-type]


def test_without_its_rate_a_queue_is_as_before(db: Database, space: fdb.Subspace) -> None:
    clock = StillClock()
    queue = filled(db, space, "1/day", clock=clock)
    assert len(queue.receive_many(db, 8)) == 1
    queue.set_options(db, rate=None)
    assert len(queue.receive_many(db, 8)) == 7
    queue.enqueue(db, b"")
    queue.set_options(db, rate="1/s")
    # What came at the old rate holds it up for no longer than the new one could.
    assert queue.receive(db) is None
    clock.seconds += 1
    assert queue.receive(db) is not None

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fdbqueue import Bounds, Depth, KeyLimits, NewMessage, Queue
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue()


def settled(db: Database, queue: Queue) -> None:
    delivery = take(db, queue)
    queue.ack(db, delivery)


def test_a_second_enqueue_within_the_window_writes_nothing(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    first = queue.enqueue(db, b"a", dedup_id="order 17")
    settled(db, queue)
    clock.seconds += 299
    assert queue.enqueue(db, b"again", dedup_id="order 17") == first
    assert queue.enqueue(db, b"other", dedup_id="order 18") != first
    assert queue.depth(db) == Depth(enqueued=2, done=1, ready=1, ready_bytes=5)
    clock.seconds += 2
    assert queue.enqueue(db, b"anew", dedup_id="order 17") != first


@pytest.mark.parametrize("ahead", [-250, 250])
def test_a_clock_that_is_wrong_by_less_than_a_window_sees_it_too(
    db: Database, queue: Queue, clock: ManualClock, ahead: float
) -> None:
    first = queue.enqueue(db, b"a", dedup_id="x")
    clock.wall_only = ahead
    assert queue.enqueue(db, b"b", dedup_id="x") == first


def test_old_ids_are_forgotten(db: Database, queue: Queue, clock: ManualClock) -> None:
    for n in range(6):
        queue.enqueue(db, b"a", dedup_id=f"{n}")
        clock.seconds += 300
    assert queue.receive(db)
    remembered = queue._keys.dedup.rows
    assert 1 <= len(db.get_range(remembered.start, remembered.stop)) <= 3


def test_enqueues_at_once_of_one_id_come_one_after_the_other(db: Database, queue: Queue) -> None:
    one, two, three = (db.create_transaction() for _ in range(3))
    queue.enqueue(one, b"a", dedup_id="x")
    queue.enqueue(two, b"a", dedup_id="x")
    queue.enqueue(three, b"a", dedup_id="y")
    one.commit().wait()
    with pytest.raises(fdb.FDBError):
        two.commit().wait()
    three.commit().wait()
    assert queue.depth(db).ready == 2


def test_twins_in_one_batch_are_one_message(db: Database, queue: Queue) -> None:
    ids = queue.enqueue_many(
        db,
        [
            NewMessage(b"a", dedup_id="x"),
            NewMessage(b"b", dedup_id="x", unique="k"),
            NewMessage(b"c", unique="k"),
            NewMessage(b"d", unique="other", delay=5),
            NewMessage(b"e", unique="other"),
        ],
    )
    assert len(set(ids[:2])) == 1
    assert ids[3] == ids[4]
    assert queue.depth(db).scheduled == 1


def test_a_unique_message_is_there_once_until_it_ends(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    first = queue.enqueue(db, b"a", unique="report", delay=5)
    assert queue.enqueue(db, b"b", unique="report") == first, "scheduled"
    clock.seconds += 6
    queue.admin.sweep(db)
    assert queue.enqueue(db, b"b", unique="report") == first, "ready"
    delivery = take(db, queue)
    assert queue.enqueue(db, b"b", unique="report") == first, "leased"
    queue.ack(db, delivery)
    second = queue.enqueue(db, b"b", unique="report")
    assert second != first, "done"
    assert queue.cancel(db, second)
    assert queue.enqueue(db, b"c", unique="report") not in (first, second), "cancelled"


def test_a_dead_letter_frees_its_key_and_takes_it_again(db: Database, queue: Queue) -> None:
    first = queue.enqueue(db, b"a", unique="report")
    queue.reject(db, queue.receive_many(db, 1), "no")
    second = queue.enqueue(db, b"b", unique="report")
    assert second != first
    assert queue.retry(db).taken == 0, "another message has the key"
    settled(db, queue)
    assert queue.retry(db).taken == 1
    assert queue.enqueue(db, b"c", unique="report") == first


def test_a_batch_tells_how_many_of_its_messages_are_new(db: Database, queue: Queue) -> None:
    first = queue.enqueue_many(db, [NewMessage(b"a", dedup_id="1"), NewMessage(b"b", unique="u")])
    assert first.new == 2
    again = queue.enqueue_many(
        db, [NewMessage(b"a", dedup_id="1"), b"c", NewMessage(b"b", unique="u")]
    )
    assert (again.new, len(again)) == (1, 3)
    assert [again[0], again[2]] == first
    copied = pickle.loads(pickle.dumps(again))
    assert (copied, copied.new) == (again, 1)


@pytest.mark.parametrize("expired", ["drop", "dead"])
@pytest.mark.parametrize("way", ["ready", "scheduled", "waiting", "replace", "full"])
def test_a_message_that_has_expired_holds_no_unique_key(
    db: Database, queue: Queue, clock: ManualClock, expired: str, way: str
) -> None:
    queue.set_options(db, expired=expired, keys=KeyLimits(concurrency=1))
    if way == "waiting":
        queue.enqueue(db, b"before", key="a")
    if way == "full":
        queue.set_options(db, bounds=Bounds(messages=1, when_full="reject"))
    terms: dict[str, Any] = {"unique": "u", "key": "a"}
    old = queue.enqueue(db, b"old", ttl=5, delay=3 if way == "scheduled" else 0, **terms)
    assert queue.enqueue(db, b"known", **terms) == old
    clock.seconds += 6
    if way == "replace":
        terms["on_conflict"] = "replace"
    new = queue.enqueue(db, b"new", **terms)
    assert new != old
    assert queue.enqueue(db, b"known", unique="u") == new
    assert len(queue.dead.list(db)) == (expired == "dead")
    assert queue.admin.verify(db).ok
    while delivery := queue.receive(db):
        queue.ack(db, delivery)
    assert queue.depth(db).done == 1 + (way == "waiting")
    assert queue.admin.verify(db).ok


def test_one_that_has_expired_in_its_handler_holds_its_unique_key(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    held = queue.enqueue(db, b"1", unique="u", ttl=5)
    assert queue.receive(db, lease=60) is not None
    clock.seconds += 6
    assert queue.enqueue(db, b"2", unique="u") == held


@pytest.mark.parametrize("together", [False, True])
def test_one_that_is_there_already_leaves_its_other_name_to_the_next(
    db: Database, queue: Queue, together: bool
) -> None:
    # Given a dedup id that is known, of a message whose unique key is free again
    queue.enqueue(db, b"1", dedup_id="d", unique="u")
    queue.ack(db, queue.receive_many(db, 1))
    some = [NewMessage(b"2", dedup_id="d", unique="u"), NewMessage(b"3", unique="u")]
    # When that comes again, and another with the key
    for each in [some] if together else [[one] for one in some]:
        queue.enqueue_many(db, each)
    # Then the other is new
    assert [each.payload for each in queue.peek(db, 9)] == [b"3"]
    # And where the key holds one back, its dedup id is not known
    some = [NewMessage(b"4", dedup_id="e", unique="u"), NewMessage(b"5", dedup_id="e")]
    for each in [some] if together else [[one] for one in some]:
        queue.enqueue_many(db, each)
    assert [each.payload for each in queue.peek(db, 9)] == [b"3", b"5"]

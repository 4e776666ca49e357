"""Ordering keys: one message of a key at a time, in order; different keys in parallel."""

from __future__ import annotations

from typing import Any

import pytest

from fdbqueue import Delivery, Depth, NewMessage, Queue
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.consumers import woken
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue(max_attempts=2)


def keyed(key: str | None, *payloads: bytes) -> list[NewMessage]:
    return [NewMessage(payload, key=key) for payload in payloads]


@pytest.mark.parametrize("composed", [False, True], ids=["by itself", "in a transaction"])
def test_an_acknowledgement_with_the_next_receive_brings_the_next_message_of_the_key(
    db: Database, queue: Queue, composed: bool
) -> None:
    queue.enqueue_many(db, keyed("a", b"1", b"2", b"3"))
    seen: list[bytes] = []
    held: list[Delivery] = [take(db, queue)]
    while held:
        seen += [delivery.payload for delivery in held]
        if composed:
            tr = db.create_transaction()
            held = queue.receive_many(tr, 1, ack=held)
            tr.commit().wait()
        else:
            held = queue.receive_many(db, 1, ack=held)
    assert seen == [b"1", b"2", b"3"]
    assert queue.depth(db).done == 3


def test_different_keys_and_messages_without_one_do_not_wait(db: Database, queue: Queue) -> None:
    queue.enqueue_many(
        db, [*keyed("a", b"a1", b"a2"), *keyed("b", b"b1"), *keyed(None, b"x", b"y")]
    )
    found = queue.receive_many(db, 10)
    assert [d.payload for d in found] == [b"a1", b"b1", b"x", b"y"]
    queue.ack(db, found)
    assert [d.payload for d in queue.receive_many(db, 10)] == [b"a2"]


def test_a_key_keeps_its_order_whatever_the_priorities(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"1", key="a", priority=0)
    queue.enqueue(db, b"2", key="a", priority=9)
    queue.enqueue(db, b"other", priority=5)
    got = []
    for _ in range(3):
        delivery = take(db, queue)
        got.append(delivery.payload)
        queue.ack(db, delivery)
    assert got == [b"other", b"1", b"2"]


def test_a_message_whose_time_is_over_lets_the_next_one_go(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [NewMessage(b"1", key="a", ttl=5), NewMessage(b"2", key="a", ttl=5)])
    queue.enqueue(db, b"3", key="a")
    clock.seconds += 6
    assert take(db, queue).payload == b"3"
    assert queue.depth(db) == Depth(enqueued=3, leased=1, expired=2)
    assert queue.admin.verify(db).deviations == ()


def test_a_key_is_not_freed_by_release_or_rest(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, keyed("a", b"1", b"2"))
    queue.release(db, take(db, queue))
    queue.release(db, take(db, queue), delay=60)
    assert queue.receive(db) is None, "the first one rests, and its key with it"
    clock.seconds += 61
    assert take(db, queue).payload == b"1"


def test_the_key_of_a_dead_consumer_is_freed_with_its_lease(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, keyed("a", b"1", b"2"))
    queue.set_options(db, max_deaths=2)
    for _ in range(2):
        assert take(db, queue).payload == b"1"
        clock.seconds += 90
    assert take(db, queue).payload == b"2", "after two deaths the first one is dead"


def test_a_delayed_message_takes_its_turn_when_it_is_due(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue(db, b"late", key="a", delay=10)
    queue.enqueue(db, b"1", key="a")
    queue.enqueue(db, b"2", key="a")
    first = take(db, queue)
    clock.seconds += 11
    assert queue.receive(db) is None
    assert queue.admin.verify(db).deviations == ()
    queue.ack(db, first)
    got = []
    for _ in range(2):
        delivery = take(db, queue)
        got.append(delivery.payload)
        queue.ack(db, delivery)
    assert got == [b"2", b"late"]


def code(tr: fdb.Transaction) -> int:
    """What a commit ends with."""
    try:
        tr.commit().wait()
    except fdb.FDBError as error:
        return int(error.code)
    return 0


@pytest.mark.parametrize(("key", "conflicts"), [("b", False), (None, False), ("a", True)])
def test_only_operations_of_one_key_conflict(
    db: Database, queue: Queue, key: str | None, conflicts: bool
) -> None:
    queue.enqueue_many(db, keyed("a", b"1", b"2"))
    delivery = take(db, queue)
    acking, enqueuing = db.create_transaction(), db.create_transaction()
    queue.enqueue(enqueuing, b"3", key=key)
    queue.ack(acking, delivery)
    assert (code(acking), code(enqueuing)) == (0, 1020 if conflicts else 0)

    transactions = [db.create_transaction() for _ in range(2)]
    queue.enqueue(transactions[0], b"4", key="a")
    queue.enqueue(transactions[1], b"5", key=key)
    assert [code(tr) for tr in transactions] == [0, 1020 if conflicts else 0]


def test_a_waiting_consumer_is_woken_by_the_end_of_the_one_before(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, keyed("a", b"1", b"2"))
    first = take(db, queue)
    assert woken(db, queue, lambda: queue.ack(db, first)) == [b"2"]


@pytest.mark.parametrize("key", ["", "x" * 201, 5, b"a"])
def test_a_key_is_a_name(db: Database, queue: Queue, key: Any) -> None:
    with pytest.raises(InvalidArgument):
        queue.enqueue(db, b"1", key=key)
    assert queue.depth(db) == Depth()

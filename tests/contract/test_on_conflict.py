"""Enqueues with a unique key that a message holds already: keep, replace, debounce."""

from __future__ import annotations

from typing import Any

import pytest

from fdbqueue import Bounds, Depth, NewMessage, Queue
from fdbqueue.errors import InvalidArgument, MessagePlanned, QueueFull
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.states import State
from tests.audit import sound

Database = fdb.Database
Subspace = fdb.Subspace


def created(db: Database, space: Subspace, clock: ManualClock, **options: Any) -> Queue:
    return Queue.create(db, "orders", root=space, clock=clock, **options)


@pytest.fixture
def queue(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return created(db, space, clock)


def replaced(db: Database, queue: Queue, payload: bytes, **given: Any) -> str:
    given = {"unique": "u", "on_conflict": "replace", **given}
    return queue.enqueue(db, payload, **given)


def taken(db: Database, queue: Queue) -> list[bytes]:
    """The payloads of all ready messages, in order; they are acknowledged."""
    deliveries = queue.receive_many(db, 100)
    queue.ack(db, deliveries)
    return [each.message.payload for each in deliveries]


def test_a_ready_message_is_replaced_in_its_place(db: Database, queue: Queue) -> None:
    first = replaced(db, queue, b"old", headers={"n": 1})
    queue.enqueue(db, b"other")
    assert replaced(db, queue, b"newer", headers={"n": 2}, max_attempts=3) == first
    state = queue.get(db, first)
    assert state is not None
    assert state.message.headers == {"n": 2}
    assert state.message.max_attempts == 3
    assert queue.depth(db) == Depth(enqueued=2, ready=2, ready_bytes=10)
    sound(db, queue)
    assert taken(db, queue) == [b"newer", b"other"]
    assert replaced(db, queue, b"next") != first


def test_another_priority_moves_it(db: Database, queue: Queue) -> None:
    first = replaced(db, queue, b"old", priority=1)
    queue.enqueue(db, b"other", priority=5)
    assert replaced(db, queue, b"new", priority=9) == first
    sound(db, queue)
    assert taken(db, queue) == [b"new", b"other"]


def test_a_delayed_message_keeps_its_time(db: Database, queue: Queue, clock: ManualClock) -> None:
    first = replaced(db, queue, b"old", delay=60)
    assert replaced(db, queue, b"new") == first
    assert taken(db, queue) == []
    sound(db, queue)
    clock.seconds += 61
    assert taken(db, queue) == [b"new"]


def test_debounce_puts_off_until_it_is_quiet(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    ids = set()
    for n in range(4):
        ids.add(replaced(db, queue, b"%d" % n, on_conflict="debounce", delay=10))
        clock.seconds += 9
        assert taken(db, queue) == []
    assert len(ids) == 1
    sound(db, queue)
    clock.seconds += 2
    assert taken(db, queue) == [b"3"]
    assert queue.depth(db) == Depth(enqueued=1, done=1)


def test_debounce_ends_with_max_delay(db: Database, queue: Queue, clock: ManualClock) -> None:
    for n in range(4):
        replaced(db, queue, b"%d" % n, on_conflict="debounce", delay=10, max_delay=25)
        clock.seconds += 7
    assert taken(db, queue) == [b"3"]


def test_a_ready_message_is_put_off_but_not_beyond_its_limit(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    first = replaced(db, queue, b"a")
    replaced(db, queue, b"b", on_conflict="debounce", delay=10, max_delay=15)
    state = queue.get(db, first)
    assert state is not None
    assert state.state is State.SCHEDULED
    clock.seconds += 20
    queue.admin.sweep(db)
    queue.enqueue(db, b"other")
    replaced(db, queue, b"c", on_conflict="debounce", delay=10, max_delay=15)
    sound(db, queue)
    assert taken(db, queue) == [b"c", b"other"]


def test_a_message_of_a_plan_cannot_be_replaced(db: Database, queue: Queue) -> None:
    first = replaced(db, queue, b"old")
    queue.enqueue_many(db, [b"%d" % n for n in range(3)])
    run = queue.streams.plans.planner("stream")
    run.next(db, run.begin(db), messages=3)
    with pytest.raises(MessagePlanned, match=first):
        replaced(db, queue, b"new")
    assert queue.enqueue(db, b"new", unique="u") == first
    sound(db, queue)


def test_the_last_of_a_batch_counts(db: Database, queue: Queue) -> None:
    batch = [
        NewMessage(b"%d" % n, unique="u", on_conflict="replace", headers={"n": n}) for n in range(3)
    ]
    ids = queue.enqueue_many(db, [b"before", *batch, NewMessage(b"kept", unique="u"), b"after"])
    assert ids.new == 3
    assert len(set(ids)) == 3
    sound(db, queue)
    assert taken(db, queue) == [b"before", b"2", b"after"]


@pytest.mark.parametrize("delay", [0, 60], ids=["ready", "delayed"])
@pytest.mark.parametrize("on_conflict", ["keep", "replace", "debounce"])
def test_none_of_a_batch_is_taken_for_one_that_another_of_it_replaces(
    db: Database, space: Subspace, clock: ManualClock, delay: int, on_conflict: Any
) -> None:
    # Given a message with a unique key, in a queue that keeps the last of each value
    queue = created(db, space, clock, last_value="v")
    queue.enqueue(db, b"old", unique="u", headers={"v": 1})
    # When a newer one of its value comes together with one of its unique key
    newer = NewMessage(b"newer", headers={"v": 1})
    other = NewMessage(b"other", unique="u", headers={"v": 2}, delay=delay, on_conflict=on_conflict)
    new = queue.enqueue_many(db, [newer, other])
    # Then both are there
    assert [bool(queue.get(db, each)) for each in new] == [True, True]
    sound(db, queue)
    clock.seconds += 61
    assert taken(db, queue) == [b"newer", b"other"]


def test_a_message_with_a_key_keeps_its_turn(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"first", key="k")
    waits = replaced(db, queue, b"old", key="k")
    queue.enqueue(db, b"last", key="k")
    assert replaced(db, queue, b"newer", key="k") == waits
    assert queue.depth(db).ready_bytes == 14
    sound(db, queue)
    assert [taken(db, queue) for _ in range(3)] == [[b"first"], [b"newer"], [b"last"]]


@pytest.mark.parametrize("key", ["k", "other"])
def test_a_debounce_puts_off_what_waits_for_its_key(
    db: Database, queue: Queue, clock: ManualClock, key: str
) -> None:
    queue.enqueue(db, b"first", key="k")
    replaced(db, queue, b"old", key="k", keep_result=60)
    queue.enqueue(db, b"last", key="k")
    message_id = replaced(db, queue, b"newer", key=key, on_conflict="debounce", delay=5)
    sound(db, queue)
    assert [taken(db, queue) for _ in range(3)] == [[b"first"], [b"last"], []]
    clock.seconds += 6
    (delivery,) = queue.receive_many(db, 5)
    assert (delivery.id, delivery.payload) == (message_id, b"newer")
    queue.ack(db, delivery, result=b"done")
    assert queue.result(db, message_id) == b"done"
    sound(db, queue)


def test_in_a_sorted_queue_it_takes_the_place_of_its_header(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = created(db, space, clock, sort="rank")
    replaced(db, queue, b"old", headers={"rank": 1})
    queue.enqueue(db, b"second", headers={"rank": 2})
    replaced(db, queue, b"new", headers={"rank": 3})
    sound(db, queue)
    assert taken(db, queue) == [b"second", b"new"]


def test_a_subscription_that_has_passed_it_sees_what_it_says_now(
    db: Database, queue: Queue
) -> None:
    browser = queue.subscriptions.open(db, "browser", mode="browse")
    replaced(db, queue, b"old")
    assert [each.payload for each in browser.browse(db, 10)] == [b"old"]
    replaced(db, queue, b"new")
    assert [each.payload for each in browser.browse(db, 10)] == [b"new"]
    sound(db, queue)


def test_a_bounded_queue_has_room_for_what_replaces(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = created(db, space, clock, bounds=Bounds(messages=1, bytes=100))
    replaced(db, queue, b"old")
    replaced(db, queue, b"x" * 100)
    with pytest.raises(QueueFull):
        replaced(db, queue, b"x" * 101, room=0)
    assert taken(db, queue) == [b"x" * 100]


@pytest.mark.parametrize("how", ["in its place", "another key", "sorted", "browsed", "leased"])
@pytest.mark.parametrize("full", ["reject", "drop-oldest"])
def test_a_full_queue_refuses_before_anything_is_written(
    db: Database, space: Subspace, clock: ManualClock, how: str, full: str
) -> None:
    sort = "rank" if how == "sorted" else None
    queue = created(db, space, clock, bounds=Bounds(bytes=100, when_full=full), sort=sort)
    if how == "browsed":
        queue.subscriptions.open(db, "browser", mode="browse")
    first = replaced(db, queue, b"old", headers={"rank": 1})
    delivery = queue.receive(db) if how == "leased" else None
    # When a caller goes on after the refusal
    tr = db.create_transaction()
    with pytest.raises(QueueFull):
        queue.enqueue(
            tr,
            b"x" * 101,
            unique="u",
            on_conflict="replace",
            headers={"rank": 1},
            key="k" if how == "another key" else None,
        )
    tr.commit().wait()
    # Then the message is there still, with its key
    sound(db, queue)
    assert queue.enqueue(db, b"new", unique="u", headers={"rank": 1}) == first
    if delivery is not None:
        queue.release(db, delivery)
    assert taken(db, queue) == [b"old"]


def test_it_is_part_of_the_transaction(db: Database, queue: Queue) -> None:
    replaced(db, queue, b"old")
    tr = db.create_transaction()
    queue.enqueue(tr, b"new", unique="u", on_conflict="replace")
    assert [each.payload for each in queue.peek(db)] == [b"old"]
    tr.commit().wait()
    assert [each.payload for each in queue.peek(db)] == [b"new"]


@pytest.mark.parametrize("other", ["take", "cancel", "replace", "put off"])
def test_of_two_at_once_one_comes_first(db: Database, queue: Queue, other: str) -> None:
    first = replaced(db, queue, b"old")
    tr = db.create_transaction()
    queue.enqueue(tr, b"new", unique="u", on_conflict="replace")
    if other == "take":
        assert queue.receive(db) is not None
    elif other == "cancel":
        assert queue.cancel(db, first)
    elif other == "replace":
        replaced(db, queue, b"between")
    else:
        assert queue.edit(db, first, delay=5)
    with pytest.raises(fdb.FDBError) as raised:
        tr.commit().wait()
    assert raised.value.code == 1020
    sound(db, queue)


@pytest.mark.parametrize(
    "given",
    [
        {"on_conflict": "never", "unique": "u"},
        {"on_conflict": "replace"},
        {"on_conflict": "replace", "unique": "u", "max_delay": 5},
        {"max_delay": 5},
        {"on_conflict": "debounce", "unique": "u", "max_delay": -1},
    ],
)
def test_wrong_arguments_are_refused(db: Database, queue: Queue, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        queue.enqueue(db, b"a", **given)
    assert queue.depth(db) == Depth()

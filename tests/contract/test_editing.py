"""Messages that wait: looked at, and given another priority or time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fdbqueue import Bounds, NewMessage, Queue, fdb
from fdbqueue.errors import InvalidArgument, InvalidPayload, PayloadTooLarge, QueueFull
from fdbqueue.queue.admin import finding
from fdbqueue.testing import ManualClock, drain
from tests.still_clock import StillClock
from tests.taking import ready, take


def drained(db: fdb.Database, queue: Queue) -> list[bytes]:
    taken = []
    while (delivery := queue.receive(db)) is not None:
        taken.append(delivery.payload)
        queue.ack(db, delivery)
    return taken


def test_what_waits_is_looked_at_by_what_it_waits_for(db: fdb.Database, queue: Queue) -> None:
    first, *_ = queue.enqueue_many(db, [NewMessage(b"%d" % n, key="k") for n in range(3)])
    later = queue.enqueue(db, b"later", delay=60)
    soon = queue.enqueue(db, b"soon", delay=30)

    assert [each.id for each in queue.messages(db)] == [first]
    assert [each.id for each in queue.messages(db, "scheduled")] == [soon, later]
    blocked = queue.messages(db, "waiting")
    assert [each.message.payload for each in blocked] == [b"1", b"2"]
    assert all(each.waits_for == "k" for each in blocked)
    assert blocked[0] == queue.get(db, blocked[0].id)
    with pytest.raises(InvalidArgument):
        queue.messages(db, "leased")


@pytest.mark.parametrize("state", ["ready", "scheduled", "waiting"])
def test_a_listing_goes_on_behind_any_message(db: fdb.Database, queue: Queue, state: str) -> None:
    key, delay = ("k", 0) if state == "waiting" else (None, 60 if state == "scheduled" else 0)
    queue.enqueue_many(db, [NewMessage(b"%d" % n, key=key, delay=delay) for n in range(8)])
    every = [each.id for each in queue.messages(db, state)]

    pages, after = [], None
    while page := [each.id for each in queue.messages(db, state, 3, after)]:
        pages += page
        after = page[-1]

    assert pages == every
    assert len(every) == (7 if state == "waiting" else 8)


def test_a_listing_goes_on_behind_a_message_that_is_gone(db: fdb.Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, [b"a", b"b", b"c"])
    queue.cancel(db, ids[1])

    assert [each.id for each in queue.messages(db, after=ids[1])] == [ids[2]]
    with pytest.raises(InvalidArgument, match="no longer there"):
        queue.messages(db, "scheduled", after=ids[1])


def test_another_priority_takes_a_message_behind_the_others_of_its_level(
    db: fdb.Database, queue: Queue
) -> None:
    ids = queue.enqueue_many(db, [NewMessage(b"a", 1), NewMessage(b"b", 9), NewMessage(b"c", 9)])

    assert queue.edit(db, ids[0], priority=9)
    assert queue.edit(db, ids[1], priority=0)

    assert ready(db, queue) == [b"c", b"a", b"b"]
    found = queue.get(db, ids[0])
    assert found is not None
    assert (found.message.priority, found.message.id) == (9, ids[0])
    assert queue.admin.verify(db).ok


def test_what_is_put_off_returns_to_its_place(db: fdb.Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, [b"a", b"b"])

    assert queue.edit(db, ids[0], delay=60)
    assert ready(db, queue) == [b"b"]
    assert queue.admin.verify(db).ok
    assert queue.edit(db, ids[0], delay=0)

    assert ready(db, queue) == [b"a", b"b"]
    assert queue.admin.verify(db).ok


def test_what_is_for_later_gets_another_time_and_priority(db: fdb.Database, queue: Queue) -> None:
    message_id = queue.enqueue(db, b"x", delay=60)
    at = datetime.now(UTC) + timedelta(days=1)

    assert queue.edit(db, message_id, at=at, priority=9)

    (found,) = queue.messages(db, "scheduled")
    assert found.due_at_ms == round(at.timestamp() * 1000)
    assert queue.admin.counters(db)[0].scheduled == 1
    assert queue.edit(db, message_id, delay=0)
    assert ready(db, queue) == [b"x"]
    assert queue.admin.verify(db).ok


def test_another_priority_does_not_change_the_order_of_a_key(
    db: fdb.Database, queue: Queue
) -> None:
    ids = queue.enqueue_many(db, [NewMessage(b"%d" % n, key="k") for n in range(3)])
    assert queue.edit(db, ids[0], priority=9)
    assert queue.edit(db, ids[1], priority=9)
    assert queue.edit(db, ids[2], delay=0)
    assert ready(db, queue) == [b"0"]
    assert queue.admin.verify(db).ok
    assert drained(db, queue) == [b"0", b"1", b"2"]


def test_what_is_put_off_holds_up_nothing_of_its_key(
    db: fdb.Database, space: fdb.Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "orders", root=space, clock=clock)
    ids = queue.enqueue_many(
        db, [NewMessage(b"%d" % n, key="k", limits={"account": "a"}) for n in range(4)]
    )
    (delivery,) = queue.receive_many(db, 5)
    queue.release(db, delivery, delay=10)
    for n in (1, 0):  # One waits for the key, one for its time after an attempt.
        assert queue.edit(db, ids[n], delay=7 * 86_400)
        assert queue.admin.verify(db).ok
    assert drained(db, queue) == [b"2", b"3"]
    clock.seconds += 7 * 86_400 + 1
    assert sorted(drained(db, queue)) == [b"0", b"1"]
    assert queue.admin.verify(db).ok


def test_what_is_leased_or_gone_stays_as_it_is(db: fdb.Database, queue: Queue) -> None:
    message_id = queue.enqueue(db, b"x")
    delivery = take(db, queue)

    assert not queue.edit(db, message_id, priority=9)
    queue.ack(db, delivery)
    assert not queue.edit(db, message_id, priority=9)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"priority": 10}, InvalidArgument),
        ({"delay": -1}, InvalidArgument),
        ({"at": datetime(2030, 1, 1)}, InvalidArgument),
    ],
)
def test_a_wrong_change_is_refused(
    db: fdb.Database, queue: Queue, change: dict[str, Any], error: type[Exception]
) -> None:
    message_id = queue.enqueue(db, b"x")
    with pytest.raises(error):
        queue.edit(db, message_id, **change)
    assert ready(db, queue) == [b"x"]


@pytest.mark.parametrize("gone", [[1], [0, 1]])
def test_the_shell_lists_on_behind_messages_that_are_gone(
    db: fdb.Database, queue: Queue, monkeypatch: pytest.MonkeyPatch, gone: list[int]
) -> None:
    monkeypatch.setattr(finding, "PAGE", 2)
    ids = [queue.enqueue(db, b"x", delay=60 + n) for n in range(5)]
    shown = []
    for each in finding.find(db, queue, ("scheduled",)):
        shown.append(each.id)
        if len(shown) == 2:
            for n in gone:
                assert queue.cancel(db, ids[n])
    assert shown == ids


VERBS: dict[str, Callable[..., object]] = {
    "cancel": Queue.cancel,
    "purge": Queue.purge,
    "move": lambda queue, db, **chosen: queue.move(db, "elsewhere", **chosen),
    "edit": lambda queue, db, **chosen: queue.edit(db, priority=5, **chosen),
    "put off": lambda queue, db, **chosen: queue.edit(db, delay=60, **chosen),
}


@pytest.mark.parametrize("by", ["ids", "match"])
@pytest.mark.parametrize("verb", VERBS)
def test_some_of_the_messages_of_one_call_are_taken_and_the_others_stay(
    db: fdb.Database, queue: Queue, verb: str, by: str
) -> None:
    Queue.create(db, "elsewhere", root=queue._root)
    ids = queue.enqueue_many(db, [NewMessage(b"%d" % n, 5) for n in range(10)])
    some = [ids[1], ids[4], ids[5]]

    chosen = {"ids": some} if by == "ids" else {"match": lambda message: message.id in some}
    VERBS[verb](queue, db, **chosen)

    stay = ids if verb == "edit" else [each for each in ids if each not in some]
    assert queue.admin.verify(db).deviations == ()
    assert [one.id for one in queue.receive_many(db, 10)] == stay


@dataclass
class Order:
    number: int


SIZES = {"small": 1, "in chunks": 200_000}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("before", SIZES.values(), ids=SIZES)
def test_a_message_says_something_else_in_its_place(
    db: fdb.Database, space: fdb.Subspace, before: int, size: int
) -> None:
    queue = Queue[Any].create(db, "orders", root=space, max_attempts=1, history_seconds=60)
    held, ready, *_ = queue.enqueue_many(db, [b"%d" % n + b"x" * before for n in range(10)])
    other = queue.enqueue(db, b"0", priority=9)
    waits = [queue.enqueue(db, b"x" * before, key="k") for _ in range(2)][1]
    later = queue.enqueue(db, b"x" * before, delay=60)
    for _ in range(2):
        delivery = take(db, queue)
        if delivery.id == other:
            queue.reject(db, delivery, "malformed")
    order = [each.id for each in queue.peek(db, 99)]
    said = b"y" * size

    done = queue.edit(db, [held, ready, other, waits, later], payload=said)

    assert done.taken == 4
    assert [each.id for each in queue.peek(db, 99)] == order
    for each, state in (
        (ready, "ready"),
        (other, "dead"),
        (waits, "waiting"),
        (later, "scheduled"),
    ):
        found = queue.get(db, each)
        assert found is not None
        assert (found.message.payload, found.state.value) == (said, state)
    dead = queue.dead.list(db)[0]
    assert (dead.message.payload, dead.death.reason) == (said, "malformed")
    assert "revise dead" in [each.transition for each in queue.history(db)]
    assert queue.admin.verify(db).deviations == ()
    queue.retry(db, other)
    again = take(db, queue)
    assert again.payload == said
    queue.purge(db, match="TRUE", states=["ready", "waiting", "scheduled"])
    queue.ack(db, again)
    queue.cancel(db, held)
    assert queue.depth(db).ready_bytes == 0
    assert queue.admin.verify(db).deviations == ()


def test_a_malformed_payload_is_repaired_and_a_wrong_one_refused(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    orders = Queue.create(db, "orders", root=space, serializer=Order, max_attempts=1)
    untyped = Queue[Any]("orders", space)
    bad = untyped.enqueue(db, {"number": "seven"})
    seen: list[int] = []
    drain(db, orders, lambda order: seen.append(order.number), failures=True)
    assert [each.id for each in orders.dead.list(db)] == [bad]
    with pytest.raises(InvalidPayload):
        orders.edit(db, bad, payload={"number": "eight"})
    with pytest.raises(InvalidArgument, match="give ids"):
        orders.edit(db, match="TRUE", payload=Order(7))
    # With another change, dead letters stay as they are.
    assert orders.edit(db, bad, payload=Order(6), priority=9).taken == 0
    assert orders.edit(db, bad, payload=Order(7)).taken == 1
    orders.retry(db, bad)
    drain(db, orders, lambda order: seen.append(order.number))
    assert seen == [7]


def test_a_payload_that_grows_needs_room(db: fdb.Database, space: fdb.Subspace) -> None:
    queue = Queue.create(db, "orders", root=space, bounds=Bounds(bytes=10), max_payload=20)
    first, second = queue.enqueue(db, b"12345"), queue.enqueue(db, b"12345", delay=60)
    with pytest.raises(QueueFull):
        queue.edit(db, first, payload=b"x" * 11)
    with pytest.raises(PayloadTooLarge):
        queue.edit(db, second, payload=b"x" * 21)
    assert queue.edit(db, first, payload=b"x" * 10).taken == 1
    assert ready(db, queue) == [b"x" * 10]


@pytest.mark.parametrize("terms", [{}, {"key": "k"}])
def test_messages_that_are_due_are_changed_together(
    db: fdb.Database, space: fdb.Subspace, terms: dict[str, Any]
) -> None:
    clock = StillClock()
    queue = Queue.create(db, "jobs", root=space, clock=clock)
    queue.enqueue_many(db, [NewMessage(b"%d" % n, delay=5, **terms) for n in range(5)])
    clock.seconds += 60
    assert queue.edit(db, priority=9, states="scheduled", match=lambda _: True).taken == 5
    assert queue.admin.verify(db).deviations == ()
    assert sorted(drained(db, queue)) == [b"%d" % n for n in range(5)]

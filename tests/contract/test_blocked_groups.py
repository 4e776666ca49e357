"""Blocked groups: whoever looks for messages tries their callbacks again, and each comes once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, Then
from fdbqueue.messages import agenda
from fdbqueue.messages.groups import group_state
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace


@pytest.fixture
def parts(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "parts", root=space, clock=clock)


def state(db: Database, queue: Queue, name: str = "g") -> str:
    found = queue.groups.get(db, name)
    assert found is not None
    return found.state


def block(db: Database, parts: Queue, names: str = "g", then: Any = b"all") -> None:
    """End groups whose callbacks' queue is gone."""
    wholes = Queue.create(db, "wholes", root=parts._root, clock=parts._clock)
    for name in names:
        parts.enqueue_many(db, [b"x"], group=Then(then, queue=wholes, name=name))
    wholes.delete(db)
    for delivery in parts.receive_many(db, len(names)):
        parts.ack(db, delivery)
    assert {state(db, parts, name) for name in names} == {"blocked"}


def again(db: Database, parts: Queue) -> Queue:
    return Queue.create(db, "wholes", root=parts._root, clock=parts._clock)


def came(db: Database, queue: Queue) -> list[bytes]:
    """The payloads of what has come, taken."""
    found = []
    while (delivery := queue.receive(db)) is not None:
        queue.ack(db, delivery)
        found.append(delivery.payload)
    return found


def in_transaction(db: Database, work: Callable[[Any], object]) -> None:
    tr = db.create_transaction()
    work(tr)
    tr.commit().wait()


LOOKS: dict[str, Callable[[Database, Queue], object]] = {
    "receive": lambda db, queue: queue.receive(db),
    "receive_many": lambda db, queue: queue.receive_many(db, 5),
    "wait": lambda db, queue: queue.receive(db, wait=0.01),
    "selector": lambda db, queue: queue.receive(db, match="a = 1"),
    "dequeue": lambda db, queue: queue.receive(db, at_most_once=True),
    "in a transaction": lambda db, queue: in_transaction(db, queue.receive),
    "subscription": lambda db, queue: queue.subscriptions.open(db, "s").receive(db),
    "sweep": lambda db, queue: queue.admin.sweep(db),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_who_looks_for_messages_tries_a_callback_again(
    db: Database, parts: Queue, clock: ManualClock, look: Callable[[Database, Queue], object]
) -> None:
    block(db, parts)
    wholes = again(db, parts)
    look(db, parts)
    assert state(db, parts) == "blocked", "it is not time yet"
    clock.seconds += 100
    look(db, parts)
    assert state(db, parts) == "complete"
    clock.seconds += 100
    look(db, parts)
    assert came(db, wholes) == [b"all"]
    assert parts.admin.verify(db).ok
    assert wholes.admin.verify(db).ok


def test_a_callback_of_the_queue_itself_comes_to_who_waits(
    db: Database, parts: Queue, clock: ManualClock
) -> None:
    parts.enqueue_many(db, [b"x"], group=Then(b"large" * 100, name="g"))
    parts.set_options(db, max_payload=100)
    delivery = take(db, parts)
    parts.ack(db, delivery)
    assert state(db, parts) == "blocked"
    parts.set_options(db, max_payload=90_000)
    clock.seconds += 100
    delivery = take(db, parts)
    assert delivery.payload == b"large" * 100
    parts.ack(db, delivery)
    assert parts.receive(db) is None
    assert parts.admin.verify(db).ok


def following(db: Database, parts: Queue) -> float:
    """In how many seconds a consumer that waits would look."""
    tr = db.create_transaction()
    scope = parts._scope(tr)
    seconds = agenda.next_seconds(tr, scope, agenda.coming(tr, scope))
    assert seconds is not None
    return seconds


def test_who_waits_knows_when_to_try_again(db: Database, parts: Queue, clock: ManualClock) -> None:
    block(db, parts)
    assert following(db, parts) == pytest.approx(60, abs=30)
    clock.seconds += 100
    assert following(db, parts) == 0
    parts.receive(db)
    assert following(db, parts) == pytest.approx(120, abs=30), "its queue is still gone"
    assert state(db, parts) == "blocked"


def pauses(db: Database, parts: Queue, clock: ManualClock, count: int) -> list[float]:
    """How long a blocked group waits before each of the next tries, which are made."""
    found = []
    for _ in range(count):
        found.append(following(db, parts))
        clock.seconds += found[-1] + 1
        parts.receive(db)
        assert parts.admin.verify(db).ok
    return found


def test_the_pause_doubles_to_ten_minutes_and_is_short_again_after_a_success(
    db: Database, parts: Queue, clock: ManualClock
) -> None:
    block(db, parts)
    grown = [60, 120, 240, 480, 600, 600]
    assert pauses(db, parts, clock, len(grown)) == pytest.approx(grown, abs=30)
    wholes = again(db, parts)
    clock.seconds += 601
    parts.receive(db)
    assert state(db, parts) == "complete"
    assert came(db, wholes) == [b"all"]
    parts.groups.forget(db, "g")
    wholes.delete(db)
    block(db, parts)
    assert pauses(db, parts, clock, 2) == pytest.approx([60, 120], abs=30)


def test_a_group_tells_when_it_is_tried_again(
    db: Database, parts: Queue, clock: ManualClock
) -> None:
    block(db, parts)
    found = parts.groups.get(db, "g")
    assert found is not None
    assert found.retry_ms is not None
    assert found.ended_ms is None
    assert found.retry_ms - found.created_ms == pytest.approx(60_000, abs=30_000)
    again(db, parts)
    clock.seconds += 100
    parts.receive(db)
    found = parts.groups.get(db, "g")
    assert found is not None
    assert found.retry_ms is None
    assert found.ended_ms is not None


def test_two_at_once_enqueue_one_callback(db: Database, parts: Queue, clock: ManualClock) -> None:
    block(db, parts)
    wholes = again(db, parts)
    clock.seconds += 100
    one, other = db.create_transaction(), db.create_transaction()
    for tr in (one, other):
        parts.receive(tr)
    one.commit().wait()
    with pytest.raises(fdb.FDBError):
        other.commit().wait()
    assert state(db, parts) == "complete"
    assert came(db, wholes) == [b"all"]


def test_many_blocked_groups_are_looked_at_some_at_a_time(
    db: Database, parts: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_state, "MAX_LOOKED", 2)
    block(db, parts, "abcde", NewMessage(b"x" * 80_000))
    wholes = again(db, parts)
    clock.seconds += 100
    parts.enqueue(db, b"beside")
    assert came(db, parts) == [b"beside"]
    assert not any(each.state == "blocked" for each in parts.groups.list(db))
    assert came(db, wholes) == [b"x" * 80_000] * 5


def test_a_group_that_stays_blocked_keeps_nobody_from_messages(
    db: Database, parts: Queue, clock: ManualClock
) -> None:
    block(db, parts, "abc")
    for _ in range(3):
        clock.seconds += 100
        parts.enqueue(db, b"beside")
        assert came(db, parts) == [b"beside"]
    assert state(db, parts, "b") == "blocked"
    assert parts.admin.verify(db).ok

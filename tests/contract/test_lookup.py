"""A message is found by its id with a handful of reads, however many others there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fdbqueue import MessageState, NewMessage, Queue, State
from fdbqueue.errors import LeaseLost
from fdbqueue.messages.streams import planning
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock

Database = fdb.Database

pytestmark = pytest.mark.queue(lease=60)


def looked_up(
    db: Database, queue: Queue, rows: list[int], message_id: str
) -> tuple[MessageState | None, int]:
    rows.clear()
    return queue.get(db, message_id), sum(rows)


def leased(db: Database, queue: Queue) -> str:
    (delivery,) = queue.receive_many(db, 1)
    return delivery.id


def extended(db: Database, queue: Queue) -> str:
    (delivery,) = queue.receive_many(db, 1)
    return queue.extend(db, delivery, 600).id


def received_again(db: Database, queue: Queue) -> str:
    (delivery,) = queue.receive_many(db, 1)
    queue.release(db, delivery)
    return leased(db, queue)


def scheduled(db: Database, queue: Queue) -> str:
    clock = queue._clock
    assert isinstance(clock, ManualClock)
    queue.purge(db)
    message_id = queue.enqueue(db, b"later", delay=5)
    clock.seconds += 10
    assert leased(db, queue) == message_id
    return message_id


def redriven(db: Database, queue: Queue) -> str:
    (delivery,) = queue.receive_many(db, 1)
    queue.reject(db, delivery, "no")
    queue.retry(db)
    queue.receive_many(db, 100)
    return delivery.id


@pytest.mark.parametrize("way", [leased, extended, received_again, scheduled, redriven])
def test_a_leased_message_is_found_at_any_number_of_leases(
    db: Database, queue: Queue, rows: list[int], way: Callable[[Database, Queue], str]
) -> None:
    # Given many leases around that of the message
    queue.enqueue_many(db, [b"x"] * 300)
    queue.receive_many(db, 200)
    message_id = way(db, queue)
    queue.enqueue_many(db, [b"x"] * 10)
    queue.receive_many(db, 1_000)
    # When it is looked up, then few rows are read
    found, read = looked_up(db, queue, rows, message_id)
    assert found is not None
    assert (found.id, found.state) == (message_id, State.LEASED)
    assert found.lease_expires_at_ms is not None
    assert read <= 10


def test_a_finished_message_is_known_to_be_gone_at_any_number_of_leases(
    db: Database, queue: Queue, rows: list[int]
) -> None:
    queue.enqueue_many(db, [b"x"] * 300)
    first, *_ = queue.receive_many(db, 300)
    queue.ack(db, first)
    found, read = looked_up(db, queue, rows, first.id)
    assert found is None
    assert read <= 8


@pytest.mark.parametrize("claim", [7, 100])
def test_a_message_of_a_plan_is_found_at_any_number_of_messages(
    db: Database, queue: Queue, rows: list[int], monkeypatch: pytest.MonkeyPatch, claim: int
) -> None:
    # Given a plan in claims of some messages, some of which waited for others of their key
    monkeypatch.setattr(planning, "CLAIM_MESSAGES", claim)
    ids = queue.enqueue_many(
        db, [NewMessage(b"%d" % n, key=None if n % 10 else "k", priority=n % 5) for n in range(150)]
    )
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(db, start)
    assert queue.depth(db).leased == 150
    # When each is looked up, then it is found with a number of reads that grows with the claims
    most = 10 + (150 // claim + 1) * 8
    for n, message_id in enumerate(ids):
        found, read = looked_up(db, queue, rows, message_id)
        assert found is not None
        assert (found.message.payload, found.state) == (b"%d" % n, State.LEASED)
        assert (found.consumer, found.lease_expires_at_ms) == ("stream", None)
        assert read <= most
    # And when the plan is done, all are gone
    run.next(db, until)
    assert [queue.get(db, message_id) for message_id in ids[::7]] == [None] * len(ids[::7])


def test_only_the_current_lease_of_a_message_settles(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    (before,) = queue.receive_many(db, 1)
    queue.release(db, before)
    (current,) = queue.receive_many(db, 1)
    assert before.token != current.token
    for settle in (
        lambda: queue.ack(db, before),
        lambda: queue.extend(db, before),
        lambda: queue.release(db, before),
        lambda: queue.reject(db, before, "no"),
    ):
        with pytest.raises(LeaseLost):
            settle()
    assert queue.admin.delivery(db, before.token) is None
    queue.ack(db, current)
    assert queue.get(db, current.id) is None

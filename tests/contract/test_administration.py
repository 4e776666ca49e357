"""What tools read of queues: leases by token, consumers to evict, many queues at once."""

from __future__ import annotations

from typing import Any

import pytest

from fdbqueue import Depth, Queue, survey
from fdbqueue.errors import InvalidArgument, LeaseLost, QueueNotFound
from fdbqueue.queue.admin.inventory import inventory
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.consumers import register
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue()


@pytest.mark.parametrize("payload", [b"small", b"large" * 50_000], ids=["whole", "in chunks"])
def test_a_token_is_enough_to_settle(db: Database, queue: Queue, payload: bytes) -> None:
    queue.enqueue(db, payload)
    received = take(db, queue)

    found = queue.admin.delivery(db, received.token)

    assert found == received
    queue.ack(db, found)
    assert queue.admin.delivery(db, received.token) is None
    with pytest.raises(LeaseLost):
        queue.ack(db, found)


def test_a_token_names_one_lease_of_a_batch(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    first, second = queue.receive_many(db, 2)
    assert queue.admin.delivery(db, second.token) == second
    assert queue.admin.delivery(db, first.token[:-1]) is None
    assert queue.admin.delivery(db, b"") is None


def test_leases_are_listed_page_by_page(db: Database, queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    received = queue.receive_many(db, 2, consumer="billing", lease=10)
    received += queue.receive_many(db, 1, lease=60)

    first = queue.admin.leases(db, 2)
    listed = first + queue.admin.leases(db, 2, after=first[-1].delivery.token)

    assert {each.delivery.token for each in listed} == {each.token for each in received}
    assert sorted(each.consumer for each in listed) == ["", "billing", "billing"]
    assert not any(each.expired for each in listed)
    clock.seconds += 11
    assert {each.consumer for each in queue.admin.leases(db) if each.expired} == {"billing"}
    with pytest.raises(InvalidArgument):
        queue.admin.leases(db, 0)


def test_a_consumer_is_evicted_by_name_or_when_it_is_dead(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    for name in ("one", "two"):
        register(db, queue, name)
    one = next(each for each in queue.admin.consumers(db) if each.name == "one")

    assert queue.admin.evict(db) == []
    assert queue.admin.evict(db, one) == [one.id]
    assert [each.name for each in queue.admin.consumers(db)] == ["two"]
    clock.seconds += 60
    assert len(queue.admin.evict(db)) == 1
    assert queue.admin.consumers(db) == []


def test_the_oldest_ready_message_is_that_of_any_level(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    assert queue.admin.ready_since_ms(db) is None
    before = clock.wall_ms()
    queue.enqueue(db, b"late", priority=1)
    after = clock.wall_ms()
    clock.seconds += 100
    queue.enqueue(db, b"early", priority=9)
    oldest = queue.admin.ready_since_ms(db)
    assert oldest is not None
    assert before <= oldest <= after


def test_many_queues_are_surveyed_at_once(
    db: Database, space: fdb.Subspace, queue: Queue, clock: ManualClock
) -> None:
    other = Queue.create(db, "other", root=space, levels=3)
    other.enqueue(db, b"abc", priority=9)

    found = survey(db, ["orders", "other", "nowhere"], root=space)

    assert found.keys() == {"orders", "other"}
    assert found["orders"].depth == Depth()
    assert found["other"].options.levels == 3
    assert found["other"].levels == {0: Depth(enqueued=1, ready=1, ready_bytes=3)}
    assert survey(db, [], root=space) == {}


def test_what_a_queue_stores_is_counted_by_kind(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    queue.enqueue(db, b"later", delay=60)
    found = {stock.kind: stock.rows for stock in inventory(db, queue)}
    assert {kind: found[kind] for kind in (QueueKeys.meta, QueueKeys.ready, QueueKeys.delayed)} == {
        QueueKeys.meta: 1,
        QueueKeys.ready: 2,
        QueueKeys.delayed: 1,
    }
    every = queue._keys.all()
    rows = len(list(db.get_range(every.start, every.stop)))
    assert sum(found.values()) == rows
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        list(inventory(db, queue))


@pytest.mark.parametrize("stray", [(), (6,), (57.5,), ("name",), (99, b"x"), (-1,)])
def test_verify_finds_what_somebody_else_wrote_into_a_queue(
    db: Database, queue: Queue, stray: tuple[object, ...]
) -> None:
    assert queue.admin.verify(db).deviations == ()
    db[fdb.tuple.pack(stray, queue._keys.prefix)] = b"not ours"
    (found,) = queue.admin.verify(db).deviations
    assert found.kind == "stray key"


@pytest.mark.parametrize("name", ["\ud800", "", "\n", 7])
def test_lists_go_on_behind_names_only(db: Database, queue: Queue, name: Any) -> None:
    for list_ in (
        queue.schedules.list,
        queue.groups.list,
        queue.keys.waiting,
        queue.keys.limited,
    ):
        with pytest.raises(InvalidArgument):
            list_(db, after=name)

"""What a batch conflicts with, and how much is read to fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, list_queues
from fdbqueue.store import client
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.schemes import forced

Take = Callable[[fdb.Transaction], list[Any]]
KILOBYTES_20 = bytes(20_000)


@pytest.fixture(params=["receive", "dequeue"])
def take(request: pytest.FixtureRequest, db: fdb.Database, queue: Queue) -> Take:
    """A way to take what is there."""
    if request.param == "dequeue":
        return lambda tr: [message for message in [queue.dequeue(tr)] if message]
    return lambda tr: queue.receive_many(tr, 50)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of values that ranges have brought, read after read."""
    sizes: list[int] = []
    wait = client._Rows.wait

    def counting(self: Any) -> Any:
        found = wait(self)
        sizes.append(sum(len(kv.value) for kv in found[0]))
        return found

    monkeypatch.setattr(client._Rows, "wait", counting)
    return sizes


def test_a_batch_that_found_fewer_than_it_may_hold_conflicts_with_no_arrival_behind_it(
    db: fdb.Database, queue: Queue, take: Take
) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    tr = db.create_transaction()
    taken = take(tr)
    queue.enqueue(db, b"3")
    tr.commit().wait()
    assert taken
    assert queue.depth(db).ready == 3 - len(taken)


def test_what_is_scheduled_for_later_disturbs_nobody_who_takes_or_waits(
    db: fdb.Database, queue: Queue
) -> None:
    before = db[queue._keys.change]
    queue.enqueue(db, b"later", delay=3600)
    assert db[queue._keys.change] == before
    queue.enqueue(db, b"soon", delay=5)
    assert db[queue._keys.change] != before, "who sleeps must learn when to look"


@pytest.mark.parametrize("mode", ["first", "staged"])
def test_a_batch_of_large_messages_reads_little_more_than_it_takes(
    db: fdb.Database,
    queue: Queue,
    read_bytes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    monkeypatch.setattr("fdbqueue.messages.delivery.scan.BATCH_BYTES", 500_000)
    forced(queue, mode)
    for _ in range(2):
        queue.enqueue_many(db, [KILOBYTES_20] * 75)
    read_bytes.clear()
    found = queue.receive_many(db, 150)
    assert 20 <= len(found) <= 50
    assert sum(read_bytes) < 1_300_000


def test_a_peek_reads_little_more_than_it_returns(
    db: fdb.Database, queue: Queue, read_bytes: list[int]
) -> None:
    for _ in range(3):
        queue.enqueue_many(db, [bytes(80_000)] * 50)
    read_bytes.clear()
    found = queue.peek(db, 150)
    assert 90 <= len(found) < 110
    assert sum(read_bytes) < 9_000_000


def test_messages_that_fall_due_are_read_as_far_as_they_become_ready_at_once(
    db: fdb.Database, space: fdb.Subspace, read_bytes: list[int]
) -> None:
    clock = ManualClock()
    queue = Queue.create(db, "later", root=space, clock=clock)
    later = [NewMessage(KILOBYTES_20, delay=60) for _ in range(100)]
    queue.enqueue_many(db, later)
    clock.seconds += 61
    read_bytes.clear()
    assert queue.receive(db) is not None
    assert sum(read_bytes) < 1_000_000


def test_a_large_batch_fits_in_a_transaction_however_long_the_queues_name_is(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "語" * 200, root=space)
    for _ in range(4):
        queue.enqueue_many(db, [b"x"] * 500)
    taken = 0
    # With the settlement of the batch before: what a loop of consume does.
    held = queue.receive_many(db, 2_000)
    while held:
        taken += len(held)
        held = queue.receive_many(db, 2_000, ack=held)
    assert taken == 2_000


def test_leases_that_lapse_are_read_as_far_as_they_are_returned_at_once(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    queue = Queue.create(db, "lapsing", root=space, clock=clock, lease=10)
    for _ in range(2):
        queue.enqueue_many(db, [KILOBYTES_20] * 50)
    assert len(queue.receive_many(db, 100)) == 100
    clock.seconds += 11
    read: list[bytes] = []
    wait = client._Rows.wait

    def counting(page: Any) -> Any:
        found = wait(page)
        read.extend(kv.key for kv in found[0])
        return found

    monkeypatch.setattr(client._Rows, "wait", counting)
    queue.receive(db)
    leases = queue._keys.lease.rows
    assert 8 <= len([key for key in read if leases.start <= key < leases.stop]) < 50


def test_queues_are_listed_in_as_many_transactions_as_it_takes(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdbqueue.queue.overview.NAMES", 3)
    names = [f"queue-{n}" for n in range(8)]
    for count in (0, 5, 6, 8):
        for name in names[:count]:
            Queue.open(db, name, root=space)
        assert list_queues(db, root=space) == names[:count]
    assert list_queues(db.create_transaction(), root=space) == names


def test_large_leases_are_listed_in_as_many_transactions_as_it_takes(
    db: fdb.Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_many(db, [KILOBYTES_20] * 40)
    held = sorted(delivery.token for delivery in queue.receive_many(db, 40))
    monkeypatch.setattr("fdbqueue.messages.delivery.scan.BATCH_BYTES", 200_000)
    assert [one.delivery.token for one in queue.admin.leases(db)] == held
    assert [one.delivery.token for one in queue.admin.leases(db, 15)] == held[:15]
    assert [one.delivery.token for one in queue.admin.leases(db, 100, held[9])] == held[10:]
    assert 10 <= len(queue.admin.leases(db.create_transaction())) < 15


def test_no_more_leases_are_listed_than_asked_for_where_they_share_rows(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"small"] * 40)
    held = sorted(delivery.token for delivery in queue.receive_many(db, 40))
    assert [one.delivery.token for one in queue.admin.leases(db, 15)] == held[:15]
    assert [one.delivery.token for one in queue.admin.leases(db, 15, held[14])] == held[15:30]
    assert [one.delivery.token for one in queue.admin.leases(db.create_transaction(), 3)] == held[
        :3
    ]

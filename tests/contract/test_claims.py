"""What is taken together is one claim: few keys, one end, and settled one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Delivery, Depth, Queue
from fdbqueue.errors import LeaseLost, OwnWritesUnseen
from fdbqueue.messages import run
from fdbqueue.messages.delivery import lease, lease_expiry
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.schema.leases import pack_expiry
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import Position
from tests.taking import payloads, take

pytestmark = pytest.mark.queue(lease=60, backoff=None)

ENDS = (QueueKeys.lease, QueueKeys.until, QueueKeys.expiry)


def stored(db: fdb.Database, queue: Queue, *kinds: Kind) -> list[int]:
    counts = []
    for kind in kinds or ENDS:
        every = queue._keys.kind(kind)
        rows = list(db.get_range(every.start, every.stop))
        counts.append(
            len(list(run.alone(queue._keys, rows))) if kind is QueueKeys.lease else len(rows)
        )
    return counts


def returned(db: fdb.Database, queue: Queue) -> list[bytes]:
    """What the queue has ready, at last; each message that comes back comes alone."""
    queue.admin.sweep(db)
    found: list[bytes] = []
    while more := queue.receive_many(db, 10):
        queue.ack(db, more)
        found += payloads(more)
    return found


# -- what it costs ----------------------------------------------------------------------------


def test_a_message_alone_is_taken_and_settled_by_ten_writes(
    db: fdb.Database, queue: Queue, mutations: Callable[[Callable[[], Any]], int]
) -> None:
    queue.enqueue_many(db, [b"x"] * 3)
    queue.ack(db, queue.receive_many(db, 1))
    held: list[Delivery] = []
    received = mutations(lambda: held.extend(queue.receive_many(db, 1)))
    assert received + mutations(lambda: queue.ack(db, held[0])) <= 10


def test_a_settlement_of_some_writes_no_more_than_their_leases(
    db: fdb.Database, queue: Queue, mutations: Callable[[Callable[[], Any]], int]
) -> None:
    queue.enqueue_many(db, [b"x"] * 100)
    held = queue.receive_many(db, 100)
    queue.ack(db, held.pop())
    assert mutations(lambda: queue.ack(db, held.pop())) <= 3


# -- the ends of a claim ------------------------------------------------------------------------


def test_extensions_of_one_claim_in_one_transaction_have_one_end(
    db: fdb.Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(4)])

    @fdb.transactional
    def take(tr: fdb.Transaction) -> list[Delivery]:
        # At one version: the end of the first extension is that of the claim
        held = queue.receive_many(tr, 4)
        queue.extend(tr, held[0])
        queue.extend(tr, held[1])
        queue.extend(tr, held[1], 90)
        queue.extend(tr, held[2], 90)
        return held

    held = take(db)
    assert queue.admin.verify(db).ok
    clock.seconds += 62
    assert returned(db, queue) == [b"0", b"3"]
    queue.ack(db, held[2])
    clock.seconds += 30
    assert returned(db, queue) == [b"1"]
    assert stored(db, queue) == [0, 0, 0]


# -- expiry -------------------------------------------------------------------------------------


def test_a_claim_too_large_to_return_at_once_comes_back_in_several_transactions(
    db: fdb.Database, queue: Queue, clock: ManualClock
) -> None:
    names = [b"%02d" % n for n in range(40)]
    queue.enqueue_many(db, [name + bytes(50_000) for name in names])
    held = queue.receive_many(db, 40)
    queue.ack(db, held[1])
    clock.seconds += 61
    first = take(db, queue)
    assert first.payload[:2] == b"00"
    assert 0 < queue.depth(db).ready < 38
    assert queue.admin.verify(db).ok
    queue.admin.sweep(db)
    assert queue.depth(db).ready == 38
    assert stored(db, queue) == [1, 0, 1]


def test_thousands_of_expiries_without_leases_block_no_receive(
    db: fdb.Database, queue: Queue, clock: ManualClock
) -> None:
    # Given claims of which everything has been settled, one by one, and one behind them
    queue.enqueue_many(db, [b"lost", b"ready"])
    assert queue.receive(db, lease=90) is not None
    keys = queue._keys
    level = queue.options(db).levels // 2
    version = queue._scope(db.create_transaction()).version(db.create_transaction())
    for _ in range(10):
        tr = db.create_transaction()
        for n in range(1_000):
            places = [keys.ready_key(Position(level, n, random.randbytes(8))) for _ in range(2)]
            places = [place[len(keys.ready.prefix) :] for place in places]
            expiry = keys.expiry(version + n, random.randbytes(16))
            tr[expiry] = pack_expiry(clock.now_ms(tr), places)
        tr.commit().wait()
    clock.seconds += 101
    # When consumers look
    found = [queue.receive(db), queue.receive(db)]
    # Then the first gets a message at once, and the lost one comes back
    assert b"ready" in [one.payload for one in found if one]
    looks = 0
    while len([one for one in found if one]) < 2:
        found.append(queue.receive(db))
        looks += 1
    assert looks < 10_000 / lease_expiry.MAX_EXPIRED
    queue.admin.sweep(db)
    assert stored(db, queue)[2] == 2
    assert queue.admin.verify(db).ok


# -- beside others --------------------------------------------------------------------------------


def test_a_batch_that_is_taken_aborts_no_cursor_behind_it(db: fdb.Database, queue: Queue) -> None:
    watcher = queue.subscriptions.open(db, "watcher", mode="browse")
    queue.enqueue_many(db, [b"%d" % n for n in range(10)])
    tr = db.create_transaction()
    assert len(watcher.browse(tr, 10)) == 10
    assert len(queue.receive_many(db, 5)) == 5
    tr.commit().wait()
    assert watcher.browse(db, 10) == []


def test_more_than_a_claim_holds_is_taken_in_several(
    db: fdb.Database, queue: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MAX_TOGETHER", 7)
    queue.enqueue_many(db, [b"%02d" % n for n in range(20)])
    held = queue.receive_many(db, 20)
    assert stored(db, queue) == [20, 0, 3]
    assert queue.admin.verify(db).ok
    queue.ack(db, held[7:14])
    assert stored(db, queue) == [13, 0, 2]
    queue.ack(db, held[:6])
    clock.seconds += 61
    assert returned(db, queue) == [b"06", *(b"%02d" % n for n in range(14, 20))]


def test_a_delivery_given_twice_is_settled_once_or_not_at_all(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    held = queue.receive_many(db, 2)
    with pytest.raises(LeaseLost):
        queue.ack(db, [held[0], held[0]])
    assert queue.depth(db).leased == 2
    queue.ack(db, held)
    assert queue.depth(db) == Depth(enqueued=2, done=2)


def test_a_batch_that_is_taken_leaves_what_others_put_between_it(
    db: fdb.Database, queue: Queue, clock: ManualClock
) -> None:
    # Given a batch in whose middle a message has come back
    queue.enqueue_many(db, [b"%02d" % n for n in range(20)])
    held = queue.receive_many(db, 20)
    queue.release(db, held[10], delay=0)
    # When another takes that one, while the others are settled
    settle = db.create_transaction()
    queue.ack(settle, held[:10] + held[11:])
    other = queue.receive(db)
    settle.commit().wait()
    # Then it keeps it
    assert other is not None
    assert queue.depth(db) == Depth(enqueued=20, leased=1, done=19)
    queue.ack(db, other)
    assert queue.admin.verify(db).ok


def test_a_batch_in_a_transaction_that_sees_no_writes_is_refused(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    tr = db.create_transaction()
    tr.options.set_snapshot_ryw_disable()
    queue.enqueue(tr, b"urgent", priority=9)
    with pytest.raises(OwnWritesUnseen):
        queue.receive_many(tr, 2)
    assert payloads(queue.receive_many(db, 3)) == [b"1", b"2"]

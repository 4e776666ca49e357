from __future__ import annotations

import pytest

from fdbqueue import Depth, Headers, NewMessage, Queue
from fdbqueue.errors import InvalidArgument, InvalidPayload, TransactionTooLarge
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import Position
from tests.progress import Steps
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace


def drain(db: Database, queue: Queue) -> list[bytes]:
    found = []
    while (message := queue.receive(db, at_most_once=True)) is not None:
        found.append(message.payload)
    return found


def test_messages_come_out_in_order_of_priority_then_arrival(db: Database, queue: Queue) -> None:
    for payload, priority in [(b"a", 4), (b"b", 9), (b"c", 0), (b"d", 9), (b"e", 4)]:
        queue.enqueue(db, payload, priority=priority)
    assert drain(db, queue) == [b"b", b"d", b"a", b"e", b"c"]


def test_a_message_comes_back_as_it_went_in(db: Database, queue: Queue) -> None:
    headers: Headers = {"region": "eu", "n": -5, "x": 0.5, "ok": True, "none": None, "": ""}
    message_id = queue.enqueue(db, b"\x00\xff", priority=7, headers=headers)
    message = queue.receive(db, at_most_once=True)
    assert message is not None
    assert (message.id, message.payload, message.headers) == (message_id, b"\x00\xff", headers)
    assert (message.priority, message.level, message.attempts) == (7, 2, 0)


def test_indexes_grow_also_when_the_queue_drains(db: Database, queue: Queue) -> None:
    ids = []
    for _ in range(3):
        ids.append(queue.enqueue(db, b"x"))
        queue.receive(db, at_most_once=True)
    assert [Position.from_id(i).index for i in ids] == [1, 2, 3]


def test_a_batch_keeps_its_order_and_takes_consecutive_indexes(db: Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, [b"a", NewMessage(b"urgent", 9), b"b", b"c"])
    assert [m.payload for m in queue.peek(db, 10)] == [b"urgent", b"a", b"b", b"c"]
    assert [Position.from_id(i).index for i in ids] == [1, 1, 2, 3]


def test_several_enqueues_in_one_transaction_keep_their_order(db: Database, queue: Queue) -> None:
    @fdb.transactional
    def three(tr: fdb.Transaction) -> None:
        for payload in (b"a", b"b", b"c"):
            queue.enqueue(tr, payload)

    three(db)
    assert drain(db, queue) == [b"a", b"b", b"c"]


def test_an_enqueue_that_is_not_committed_is_not_there(db: Database, queue: Queue) -> None:
    tr = db.create_transaction()
    queue.enqueue(tr, b"x")
    del tr
    assert queue.peek(db) == []
    assert queue.depth(db) == Depth()


def test_enqueues_never_conflict_with_each_other_or_with_a_dequeue(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    open_transactions = [db.create_transaction() for _ in range(8)]
    for tr in open_transactions:
        queue.enqueue(tr, b"x")
    taker = db.create_transaction()
    queue.dequeue(taker)
    for tr in open_transactions[:4]:
        tr.commit().wait()
    taker.commit().wait()
    for tr in open_transactions[4:]:
        tr.commit().wait()
    assert queue.depth(db).ready == 9


@pytest.mark.promise(4)
def test_a_dequeue_of_nothing_conflicts_with_an_arrival(db: Database, queue: Queue) -> None:
    tr = db.create_transaction()
    assert queue.dequeue(tr) is None
    tr[b"decided"] = b"the queue was empty"
    queue.enqueue(db, b"x")
    with pytest.raises(fdb.FDBError):
        tr.commit().wait()


@pytest.mark.promise(3)
def test_a_more_urgent_arrival_makes_a_dequeue_look_again(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"later", priority=1)
    tr = db.create_transaction()
    queue.dequeue(tr)
    queue.enqueue(db, b"urgent", priority=9)
    with pytest.raises(fdb.FDBError):
        tr.commit().wait()
    assert drain(db, queue) == [b"urgent", b"later"]


def test_queues_do_not_see_each_other(db: Database, space: Subspace) -> None:
    names = ["a", "a\u00e9", "aa", "b"]
    queues = [Queue.create(db, name, root=space) for name in names]
    for queue in queues:
        queue.enqueue(db, queue.name.encode())
    for queue in queues:
        assert drain(db, queue) == [queue.name.encode()]


def test_counters_follow_every_transition(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"aa", b"bbb", NewMessage(b"c", 9)])
    assert queue.depth(db) == Depth(enqueued=3, ready=3, ready_bytes=6)
    queue.receive(db, at_most_once=True)
    delivery = take(db, queue)
    assert queue.depth(db) == Depth(enqueued=3, ready=1, leased=1, done=1, ready_bytes=3)
    assert queue.admin.counters(db) == {
        0: Depth(enqueued=1, done=1),
        5: Depth(enqueued=2, ready=1, leased=1, ready_bytes=3),
    }
    queue.ack(db, delivery)
    assert queue.depth(db) == Depth(enqueued=3, ready=1, done=2, ready_bytes=3)


def test_purging_removes_what_is_ready_and_keeps_count(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"x"] * 1200)
    held = take(db, queue)
    told = Steps()
    assert queue.purge(db, progress=told).taken == 1199
    *several, total = [each.taken for each in told]
    assert several == sorted(several)
    assert (bool(several), total) == (True, 1199)
    assert queue.depth(db) == Depth(enqueued=1200, leased=1, purged=1199)
    queue.ack(db, held)


def test_nothing_at_all_cannot_be_enqueued(db: Database, queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="give 1 to"):
        queue.enqueue_many(db, [])


def test_one_bad_message_keeps_the_whole_batch_out(db: Database, queue: Queue) -> None:
    with pytest.raises(InvalidArgument):
        queue.enqueue_many(db, [NewMessage(b"x"), NewMessage(b"y", 10)])
    with pytest.raises(InvalidPayload):
        queue.enqueue_many(db, [b"x", {"text"}])
    assert queue.depth(db) == Depth()


def test_more_than_a_transaction_takes_writes_nothing(db: Database, queue: Queue) -> None:
    with pytest.raises(TransactionTooLarge, match="nothing was written"):
        queue.enqueue_many(db, [bytes(90_000)] * 120)
    assert queue.depth(db) == Depth()


@pytest.mark.parametrize("limit", [0, -1, 10**9, "1", True])
def test_a_limit_out_of_range_is_refused(db: Database, queue: Queue, limit: object) -> None:
    with pytest.raises(InvalidArgument):
        queue.peek(db, limit)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        queue.receive_many(db, limit)  # type: ignore[call-overload]


def test_what_removes_a_message_takes_a_transaction_or_says_that_it_may_lose_it(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"1", b"2", b"3"])
    subscription = queue.subscriptions.open(db, "all")
    with pytest.raises(InvalidArgument, match="at_most_once"):
        queue.dequeue(db)  # type: ignore[arg-type]
    assert queue.depth(db).ready == 3
    tr = db.create_transaction()
    taken = [queue.dequeue(tr), subscription.receive(tr, at_most_once=True)]
    assert [message and message.payload for message in taken] == [b"1", b"2"]
    tr.commit().wait()
    assert queue.depth(db).done == 2
    assert queue.receive(db, at_most_once=True) is not None
    assert subscription.receive(db, at_most_once=True) is None

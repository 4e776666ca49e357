"""Transactions that do not see what they write: what would happen twice is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fdbqueue import KeyLimits, NewMessage, Queue
from fdbqueue.errors import LeaseLost, OwnWritesUnseen, TransactionShared
from fdbqueue.store.binding import fdb
from tests.taking import take

OPTIONS = ["set_snapshot_ryw_disable", "set_read_your_writes_disable"]
Operation = Callable[[Queue, fdb.Transaction], object]
OPERATIONS: list[Operation] = [
    lambda queue, tr: queue.receive(tr),
    lambda queue, tr: queue.receive_many(tr, 5),
    lambda queue, tr: queue.dequeue(tr),
    lambda queue, tr: queue.enqueue(tr, b"x"),
    lambda queue, tr: queue.enqueue_many(tr, [b"x", b"y"]),
]
NAMES = ["receive", "receive_many", "dequeue", "enqueue", "enqueue_many"]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_a_second_operation_of_a_transaction_that_cannot_see_the_first_is_refused(
    db: fdb.Database, queue: Queue, option: str, operation: Operation
) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    tr = db.create_transaction()
    getattr(tr.options, option)()
    operation(queue, tr)
    with pytest.raises(OwnWritesUnseen, match="snapshot_ryw_disable"):
        operation(queue, tr)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_slot_or_a_lease_is_not_given_up_or_taken_twice_unseen(
    db: fdb.Database, queue: Queue, option: str
) -> None:
    queue.set_options(db, keys=KeyLimits(concurrency=1))
    queue.enqueue_many(db, [b"1", b"2"])
    delivery = take(db, queue)
    twice: list[tuple[Callable[[fdb.Transaction], object], Callable[[fdb.Transaction], object]]] = [
        (
            lambda tr: queue.enqueue(tr, b"3", key="a", priority=3),
            lambda tr: queue.enqueue(tr, b"4", key="a", priority=5),
        ),
        (lambda tr: queue.ack(tr, delivery), lambda tr: queue.ack(tr, delivery)),
        (lambda tr: queue.ack(tr, delivery), lambda tr: queue.release(tr, delivery)),
    ]
    for first, second in twice:
        tr = db.create_transaction()
        getattr(tr.options, option)()
        first(tr)
        with pytest.raises((OwnWritesUnseen, LeaseLost)):
            second(tr)


@pytest.mark.parametrize("option", OPTIONS)
def test_one_operation_of_such_a_transaction_does_no_harm(
    db: fdb.Database, queue: Queue, option: str
) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    tr = db.create_transaction()
    getattr(tr.options, option)()
    assert len(queue.receive_many(tr, 2)) == 2
    tr.commit().wait()
    assert queue.depth(db).leased == 2


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_a_transaction_that_is_reset_may_do_the_same_again_at_the_same_version(
    db: fdb.Database, queue: Queue, operation: Operation
) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    tr = db.create_transaction()
    version = tr.get_read_version().wait()
    for _ in range(3):
        operation(queue, tr)
        tr.reset()
        tr.set_read_version(version)
    operation(queue, tr)
    tr.commit().wait()


def test_what_is_given_back_can_be_taken_again_in_the_same_transaction(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue(db, b"1")
    tr = db.create_transaction()
    first = take(tr, queue)
    queue.release(tr, first)
    again = take(tr, queue)
    assert again.id == first.id
    tr.commit().wait()


def test_an_option_of_the_database_does_not_matter_where_no_transaction_is_given(
    db: fdb.Database, queue: Queue
) -> None:
    queue.set_options(db, keys=KeyLimits(concurrency=1))
    db.options.set_snapshot_ryw_disable()
    try:
        queue.enqueue_many(db, [NewMessage(b"1", 3, key="a"), NewMessage(b"2", 5, key="a")])
        assert queue.keys["a"].state(db).waiting == 1
        queue.enqueue(db, b"3", key="a", delay=0.001)
        for _ in range(3):
            (delivery,) = queue.receive_many(db, 5, wait=10)
            queue.ack(db, delivery)
    finally:
        db.options.set_snapshot_ryw_enable()
    assert queue.admin.verify(db).ok


def test_threads_do_not_share_a_transaction(db: fdb.Database, queue: Queue) -> None:
    # More than they can take, also if one thread of the pool does all their work
    queue.enqueue_many(db, [b"%d" % n for n in range(30)])
    tr = db.create_transaction()
    refused: list[Exception] = []

    def take() -> None:
        for _ in range(5):
            try:
                queue.receive(tr)
            except TransactionShared as error:
                refused.append(error)

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(take) for _ in range(4)]:
            each.result()
        with pytest.raises(TransactionShared):
            pool.submit(queue.receive, tr).result() if queue.receive(tr) else None
    assert queue.admin.verify(db).ok

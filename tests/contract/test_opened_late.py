"""A queue, or a subscription, that is opened when a transaction needs it is found by that one."""

from __future__ import annotations

import asyncio
import functools
import pickle
from typing import Any

import pytest

from fdbqueue import Queue, aio, transactional
from fdbqueue.errors import NotFound, QueueNotFound
from fdbqueue.store.binding import fdb
from fdbqueue.testing import drain


@pytest.mark.parametrize("decorate", [transactional, fdb.transactional], ids=["ours", "bindings"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "made by another meanwhile"])
def test_a_transaction_that_has_read_before_finds_it(
    db: fdb.Database, space: fdb.Subspace, decorate: Any, there: bool
) -> None:
    @functools.cache
    def orders(name: str) -> Queue:
        if there:
            Queue.create(db, name, root=space)
        return Queue.open(db, name, root=space)

    @decorate  # type: ignore[untyped-decorator]
    def place(tr: fdb.Transaction, number: bytes) -> bool:
        row = space["row"][number].key()
        if tr[row].present():
            return False
        tr[row] = b"placed"
        orders("orders").enqueue(tr, number)
        orders("bills").enqueue_many(tr, [number])
        return True

    assert [place(db, b"1"), place(db, b"1"), place(db, b"2")] == [True, False, True]
    assert orders("orders").depth(db).ready == orders("bills").depth(db).ready == 2


def test_a_coroutine_finds_it(db: fdb.Database, space: fdb.Subspace) -> None:
    adb, known = aio.Database(db), list[aio.Queue[Any]]()

    @aio.transactional
    async def place(tr: aio.Transaction) -> None:
        await tr.get(space["row"].key())
        if not known:
            known.append(await aio.Queue.open(adb, "orders", root=space))
        await known[0].enqueue(tr, b"x")

    asyncio.run(place(adb))
    assert Queue.open(db, "orders", root=space).depth(db).ready == 1


def test_a_handler_finds_it(db: fdb.Database, queue: Queue, space: fdb.Subspace) -> None:
    @functools.cache
    def after() -> Queue:
        return Queue.open(db, "after", root=space).within(10)

    queue.enqueue(db, b"x")
    assert len(drain(db, queue, lambda tr, value: after().enqueue(tr, value))) == 1
    assert after().depth(db).ready == 1


@pytest.mark.parametrize("mode", ["acquire", "browse"])
def test_a_subscription_is_found(db: fdb.Database, queue: Queue, mode: str) -> None:
    @functools.cache
    def large() -> Any:
        return queue.subscriptions.open(db, "large", mode=mode)

    @transactional
    def look(tr: fdb.Transaction) -> list[bytes]:
        assert queue.depth(tr).ready == 1
        assert large().definition(tr).mode.value == mode
        found = large().browse(tr) if mode == "browse" else large().receive_many(tr, 10)
        return [each.payload for each in found]

    queue.enqueue(db, b"x")
    assert look(db) == [b"x"]


def test_what_is_gone_is_not_waited_for(db: fdb.Database, space: fdb.Subspace) -> None:
    queue = Queue.open(db, "orders", root=space)
    large = queue.subscriptions.open(db, "large")
    times = 0

    @transactional
    def take(tr: fdb.Transaction) -> None:
        nonlocal times
        times += 1
        large.receive(tr)

    @transactional
    def delete(tr: fdb.Transaction) -> None:
        queue.delete(tr)
        queue.enqueue(tr, b"x")

    large.remove(db)
    with pytest.raises(NotFound):
        take(db)
    with pytest.raises(QueueNotFound):
        delete(db)
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        queue.enqueue(db, b"x")
    assert times == 1


def test_who_does_not_try_again_is_told_why(db: fdb.Database, space: fdb.Subspace) -> None:
    tr = db.create_transaction()
    tr.get_read_version().wait()
    queue = Queue.open(db, "orders", root=space)
    with pytest.raises(fdb.FDBError) as told:
        queue.enqueue(tr, b"x")
    assert "opened after this transaction" in told.value.__notes__[0]
    with pytest.raises(QueueNotFound):
        pickle.loads(pickle.dumps(queue)).enqueue(tr, b"x")
    tr.on_error(told.value).wait()
    queue.enqueue(tr, b"x")
    tr.commit().wait()

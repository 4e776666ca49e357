"""What is given the database in a transaction would commit apart from it: that is an error."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fdbqueue
from fdbqueue import NewMessage, Queue, Then, aio, transactional
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import close, fdb
from fdbqueue.testing import drain
from tests.patience import DEADLINE

APART = "commits apart from the transaction"
CALLS: dict[str, Callable[[Queue, Any], object]] = {
    "enqueue": lambda queue, db: queue.enqueue(db, b"x"),
    "enqueue_many": lambda queue, db: queue.enqueue_many(db, [b"x", b"y"]),
    "group": lambda queue, db: queue.enqueue_many(db, [b"x"], group=Then(NewMessage(b"then"))),
    "ack": lambda queue, db: queue.ack(db, []),
    "settle": lambda queue, db: queue.settle(db, [], {}),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_database_in_place_of_the_transaction_is_refused(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, call: Callable[[Queue, Any], object]
) -> None:
    @transactional
    def place(tr: fdb.Transaction, given: fdb.Database | None) -> None:
        tr[space["row"].key()] = b"1"
        call(queue, given or tr)

    with pytest.raises(InvalidArgument, match=APART):
        place(db, db)
    with pytest.raises(InvalidArgument, match=APART):
        place(db.create_transaction(), db)
    assert db[space["row"].key()] is None
    assert queue.depth(db).ready == 0
    call(queue, db)
    place(db, None)


def test_a_job_is_enqueued_in_the_transaction_or_not(db: fdb.Database, queue: Queue) -> None:
    @queue.job
    def brew(tea: str) -> None: ...

    with pytest.raises(InvalidArgument, match=APART):
        transactional(lambda tr: brew.enqueue(db, "assam"))(db)


def test_a_handler_with_a_transaction_enqueues_in_it(
    db: fdb.Database, queue: Queue, space: fdb.Subspace
) -> None:
    after = Queue.create(db, "after", root=space)

    def mistaken(tr: fdb.Transaction, value: bytes) -> None:
        after.enqueue(db, value)

    def plain(value: bytes) -> None:
        after.enqueue(db, value)

    def right(tr: fdb.Transaction, value: bytes) -> None:
        after.enqueue(tr, value)

    queue.enqueue(db, b"x")
    with pytest.raises(InvalidArgument, match=APART):
        drain(db, queue, mistaken)
    for handler in (plain, right):
        queue.purge(db)
        queue.enqueue(db, b"x")
        drain(db, queue, handler)
    assert after.depth(db).ready == 2


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_worker_fails_the_message_of_such_a_handler(
    db: fdb.Database, space: fdb.Subspace, kind: str
) -> None:
    queue = Queue.create(db, "orders", root=space, max_attempts=1)

    def mistaken(tr: fdb.Transaction, value: bytes) -> None:
        queue.enqueue(db, value)

    async def mistaken_too(tr: aio.Transaction, value: bytes) -> None:
        await aio.Queue.of(queue).enqueue(aio.Database(db), value)

    async def main() -> str:
        worker = aio.Worker(aio.Database(db), 1)
        worker.add(aio.Queue.of(queue), mistaken if kind == "plain" else mistaken_too)
        queue.enqueue(db, b"x")
        async with asyncio.timeout(DEADLINE), worker:
            while not (dead := queue.dead.list(db)):
                await asyncio.sleep(0.01)
        return str(dead[0].death.reason)

    assert APART in asyncio.run(main())
    assert queue.depth(db).ready == 0


def test_a_coroutine_in_a_transaction_enqueues_in_it(db: fdb.Database, queue: Queue) -> None:
    orders, adb = aio.Queue.of(queue), aio.Database(db)

    @aio.transactional
    async def place(tr: aio.Transaction, given: aio.Database | None) -> None:
        await orders.enqueue(given or tr, b"x")

    async def other() -> None:
        await orders.enqueue(adb, b"of another task")

    @aio.transactional
    async def beside(tr: aio.Transaction) -> None:
        await asyncio.create_task(other())

    async def main() -> None:
        for given in (adb, adb.create_transaction()):
            with pytest.raises(InvalidArgument, match=APART):
                await place(given, adb)
        await place(adb, None)
        await beside(adb)

    asyncio.run(main())
    assert queue.depth(db).ready == 2


def test_what_is_in_no_transaction_may_take_the_database(
    db: fdb.Database, queue: Queue, space: fdb.Subspace
) -> None:
    later: list[contextvars.Context] = []
    enqueued: list[str] = []

    def enqueue() -> None:
        enqueued.append(queue.enqueue(db, b"x"))

    @transactional
    def place(tr: fdb.Transaction) -> None:
        later.append(contextvars.copy_context())
        Queue.open(db, "opened when it is needed", root=space)
        queue.release(db, held or [])  # as before an exception that ends the transaction
        thread = threading.Thread(target=enqueue)
        thread.start()
        thread.join()

    queue.enqueue(db, b"first")
    held = queue.receive(db)
    place(db)
    later[0].run(enqueue)  # of what the function has started, and runs after its end
    with pytest.raises(ZeroDivisionError):
        transactional(lambda tr: 1 / 0)(db)
    enqueue()
    assert len(enqueued) == 3


def test_a_transaction_of_another_store_is_another_matter(
    db: fdb.Database, queue: Queue, tmp_path: Path, embedded: bool
) -> None:
    if not embedded:
        pytest.skip("a process has one cluster")
    other = fdbqueue.open(tmp_path / "other.fdbq")
    try:

        @transactional
        def outer(tr: fdb.Transaction, then: Callable[[fdb.Transaction], object]) -> None:
            then(tr)

        outer(other, lambda tr: queue.enqueue(db, b"x"))
        with pytest.raises(InvalidArgument, match=APART):
            outer(db, lambda tr: outer(other, lambda tr: queue.enqueue(db, b"x")))
    finally:
        close(other)

"""Handlers learn within moments that their messages were cancelled.

Leases here outlast every deadline of a test, so no extension tells it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from fdbqueue import Delivery, Depth, Message, Queue, Run, Worker, aio, context
from fdbqueue.consumers import watching
from fdbqueue.messages.delivery import cancellation
from fdbqueue.schema.scope import Scope
from fdbqueue.store.binding import fdb
from fdbqueue.worker import cancellations
from fdbqueue.worker.stock import events
from tests.patience import DEADLINE, eventually

Database = fdb.Database
LEASE = 20 * DEADLINE


@pytest.fixture
def queue(db: Database, space: fdb.Subspace) -> Queue:
    return Queue.create(db, "jobs", root=space, lease=LEASE, backoff=None)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When workers have looked what is cancelled."""
    looks: list[float] = []
    look = cancellation.requested

    def counted(tr: fdb.Transaction, scope: Scope, held: Sequence[Delivery]) -> frozenset[bytes]:
        found = look(tr, scope, held)
        looks.append(time.monotonic())
        return found

    monkeypatch.setattr(cancellation, "requested", counted)
    return looks


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The watches that workers have armed for cancellations."""
    armed: list[Any] = []
    watch = watching.watch

    def kept(db: Database, key: bytes, timeout: float) -> watching.ArmedWatch:
        found = watch(db, key, timeout)
        armed.append(found)
        return found

    monkeypatch.setattr(watching, "watch", kept)
    return armed


class Handlers:
    """Handlers that run until their messages are cancelled, or they may go on."""

    def __init__(self) -> None:
        self.begun: set[bytes] = set()
        self.told: set[bytes] = set()
        self.go_on = threading.Event()

    def handle(self, message: Message) -> None:
        assert not context.cancelled
        self.begun.add(message.payload)
        eventually(lambda: context.cancelled or self.go_on.is_set())
        if context.cancelled:
            self.told.add(message.payload)

    @contextmanager
    def at(self, worker: Worker) -> Iterator[Worker]:
        """Run a worker; let the handlers end before it stops."""
        with worker:
            try:
                yield worker
            finally:
                self.go_on.set()


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("batch", [None, 2])
def test_a_handler_is_told(db: Database, queue: Queue, raises: bool, batch: int | None) -> None:
    begun, found = threading.Event(), threading.Event()
    after = Queue.create(db, "after", root=queue._root)

    def handle(messages: Any) -> None:
        assert not context.cancelled
        context.then(after, b"next")
        begun.set()
        eventually(lambda: context.cancelled)
        found.set()
        if raises:
            raise RuntimeError("stopped")

    ids = queue.enqueue_many(db, [b"x"] * (batch or 1))
    with Worker(db, 1).add(queue, handle, run=Run(batch=batch)):
        assert begun.wait(DEADLINE)
        for each in ids:
            queue.cancel(db, each)
        eventually(lambda: queue.depth(db).leased == 0)
    assert found.is_set()
    depth = queue.depth(db)
    assert (depth.done, depth.purged) == ((0, len(ids)) if raises else (len(ids), 0))
    assert after.depth(db).ready == (not raises)
    assert not context.cancelled, "no handler runs here"
    assert queue.admin.verify(db).ok


def test_a_coroutine_is_told(db: Database, queue: Queue) -> None:
    job = queue.enqueue(db, b"x")
    begun = threading.Event()

    async def handle(message: Message) -> None:
        begun.set()
        while not aio.context.cancelled:
            await asyncio.sleep(0.01)
        raise RuntimeError("stopped")

    async def run() -> None:
        adb = aio.Database(db)
        jobs = await aio.Queue.open(adb, "jobs", root=queue._root)
        worker = aio.Worker(adb, 1).add(jobs, handle)
        running = asyncio.create_task(worker.run())
        assert await asyncio.to_thread(begun.wait, DEADLINE)
        await jobs.cancel(adb, job)
        await asyncio.to_thread(eventually, lambda: queue.depth(db).leased == 0)
        worker.stop()
        await running

    asyncio.run(run())
    assert queue.depth(db) == Depth(enqueued=1, purged=1)


def test_what_a_worker_has_prefetched_is_not_begun(
    db: Database, queue: Queue, handlers: Handlers
) -> None:
    first, second = queue.enqueue_many(db, [b"first", b"second"])
    with handlers.at(Worker(db, 1, prefetch=2).add(queue, handlers.handle)):
        eventually(lambda: queue.depth(db).leased == 2 and handlers.begun)
        queue.cancel(db, second)
        eventually(lambda: queue.depth(db).purged == 1)
        handlers.go_on.set()
        eventually(lambda: queue.depth(db).done == 1)
    assert handlers.begun == {b"first"}
    assert queue.get(db, first) is None


def test_a_batch_is_told_once_all_of_it_is_cancelled(
    db: Database, queue: Queue, looks: list[float]
) -> None:
    begun, told = threading.Event(), threading.Event()

    def handle(messages: list[Message]) -> None:
        begun.set()
        eventually(lambda: context.cancelled)
        told.set()

    ids = queue.enqueue_many(db, [b"x"] * 3)
    with Worker(db, 1).add(queue, handle, run=Run(batch=3)):
        eventually(lambda: begun.is_set() and looks)
        for each in ids[:2]:
            count = len(looks)
            queue.cancel(db, each)
            eventually(lambda: len(looks) > count)  # noqa: B023
        assert not told.is_set()
        queue.cancel(db, ids[2])
        assert told.wait(DEADLINE)
    assert queue.depth(db).done == 3


@pytest.mark.parametrize("batches", [1, 100], ids=["in one transaction", "one by one"])
def test_many_cancellations_cost_few_looks(
    db: Database, queue: Queue, handlers: Handlers, looks: list[float], batches: int
) -> None:
    queue.enqueue(db, b"first")
    ids = [queue.enqueue(db, b"%d" % n) for n in range(100)]

    @fdb.transactional
    def cancel(tr: fdb.Transaction, some: Sequence[str]) -> None:
        for each in some:
            queue.cancel(tr, each)

    with handlers.at(Worker(db, 1, prefetch=150).add(queue, handlers.handle)):
        eventually(lambda: queue.depth(db).leased == 101)
        before = len(looks)
        began = time.monotonic()
        for n in range(0, 100, 100 // batches):
            cancel(db, ids[n : n + 100 // batches])
        eventually(lambda: queue.depth(db).purged == 100)
        passed = time.monotonic() - began
        # Two transactions see all that it holds.
        assert len(looks) - before <= 2 * (2 + passed / events.PACE_SECONDS)
    assert handlers.begun == {b"first"}
    assert handlers.told == set()
    assert queue.admin.verify(db).ok


def before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, does: Callable[[], object]
) -> None:
    """Do something once, before a function is called again."""
    function = getattr(owner, name)

    def first(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, function)
        does()
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, first)


def test_what_is_cancelled_before_the_watch_is_armed(
    db: Database, queue: Queue, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queue.enqueue(db, b"job")

    def cancel() -> None:
        eventually(lambda: handlers.begun)
        queue.cancel(db, job)

    before(monkeypatch, watching, "watch", cancel)
    with handlers.at(Worker(db).add(queue, handlers.handle)):
        eventually(lambda: handlers.told)


def test_what_is_cancelled_while_a_worker_looks(
    db: Database, queue: Queue, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (queue.enqueue(db, payload) for payload in (b"first", b"second"))
    with handlers.at(Worker(db, 2).add(queue, handlers.handle)):
        eventually(lambda: len(handlers.begun) == 2)
        # The look is for the first.
        before(monkeypatch, watching, "watch", lambda: queue.cancel(db, second))
        queue.cancel(db, first)
        eventually(lambda: len(handlers.told) == 2)


def test_a_watch_that_fails_is_armed_again(
    db: Database, queue: Queue, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellations, "RETRY_SECONDS", 0.01)

    def fail() -> None:
        raise fdb.FDBError(1032)  # too many watches

    before(monkeypatch, watching, "watch", fail)
    job = queue.enqueue(db, b"job")
    with handlers.at(Worker(db).add(queue, handlers.handle)):
        eventually(lambda: handlers.begun)
        queue.cancel(db, job)
        eventually(lambda: handlers.told)


def test_a_worker_that_stops_leaves_no_watch_and_no_thread(
    db: Database, queue: Queue, handlers: Handlers, armed: list[Any]
) -> None:
    queue.enqueue(db, b"job")
    with handlers.at(Worker(db).add(queue, handlers.handle)):
        eventually(lambda: handlers.begun and armed)
        assert not armed[0].is_ready()
    assert all(each.is_ready() for each in armed)
    assert "fdbqueue-fetcher" not in [each.name for each in threading.enumerate()]

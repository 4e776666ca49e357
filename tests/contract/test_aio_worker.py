"""What is special about the worker of asyncio.

What it has in common with the blocking one is tested by the same tests: see ``through_aio``.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tenacity

from fdbqueue import Credit, Depth, Fail, Message, NewMessage, Queue, Run, Take, Worker, aio
from fdbqueue.errors import InvalidArgument
from fdbqueue.store import tasks
from fdbqueue.store.binding import fdb
from tests.contract.test_aio import run
from tests.contract.test_worker_health import ask
from tests.patience import DEADLINE, eventually

Database = fdb.Database


@pytest.fixture
def adb(db: Database) -> aio.Database:
    return aio.Database(db)


@pytest.fixture
def orders(queue: Queue) -> aio.Queue:
    return aio.Queue.of(queue)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():
            await asyncio.sleep(0.002)


def test_a_thousand_handlers_run_at_once_in_one_thread_with_one_feeder(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue
) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(1_000)])
    worker, threads, all_run = aio.Worker(adb, 1_000, prefetch=0), set[int](), asyncio.Event()
    running = 0

    async def handle(message: Message) -> None:
        nonlocal running
        running += 1
        threads.add(threading.get_ident())
        if running == 1_000:
            all_run.set()
        await all_run.wait()

    async def main() -> list[str]:
        async with worker.add(orders, handle):
            await all_run.wait()
            names = [each.name for each in threading.enumerate()]
            await until(lambda: queue.depth(db).done == 1_000)
        return names

    names = run(main())
    assert threads == {threading.get_ident()}
    assert names.count("fdbqueue-feeder") == names.count("fdbqueue-fetcher") == 1
    assert "fdbqueue-handler" not in names
    assert queue.depth(db) == Depth(enqueued=1_000, done=1_000)


def test_an_event_loop_that_a_handler_blocks_for_too_long_is_told_to_probes(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue
) -> None:
    blocks, gate = threading.Event(), threading.Event()
    worker = aio.Worker(adb, 1, health=("127.0.0.1", 0))

    async def handle(message: Message) -> None:
        blocks.set()
        gate.wait(DEADLINE)  # not await: nothing else runs in the loop

    queue.enqueue(db, b"x")
    worker.add(orders, handle, run=Run(timeout=60))
    running = threading.Thread(target=lambda: asyncio.run(worker.run()))
    running.start()
    try:
        assert blocks.wait(DEADLINE)
        eventually(lambda: ask(worker.blocking, "/readyz")[0] == 200)
        assert worker.blocking._runtime is not None
        (loop,) = (
            each for each in worker.blocking._runtime.state.loops if each.does == "runs coroutines"
        )
        assert loop.patience > 60
        loop.patience = 0.0
        eventually(lambda: ask(worker.blocking, "/livez")[0] == 503)
        loop.patience = 60.0
        loop.turned_at -= 3_600
        gate.set()
        eventually(lambda: ask(worker.blocking, "/livez")[0] == 200)
    finally:
        gate.set()
        worker.stop()
        running.join()


def test_jobs_that_are_coroutine_functions_run_in_the_loop_and_others_in_threads(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue, space: fdb.Subspace
) -> None:
    threads: dict[str, int] = {}
    washed = asyncio.Event()

    @orders.job
    async def brew(tea: str) -> str:
        threads[tea] = threading.get_ident()
        await washed.wait()
        return tea

    @orders.job(name="wash")
    def wash(pot: str) -> None:
        threads[pot] = threading.get_ident()

    async def main() -> None:
        # Given messages of both, of which the first two wait in the loop
        for tea in ("assam", "darjeeling"):
            await brew.enqueue(adb, tea, priority=9)
        await wash.enqueue(adb, "pot")
        async with aio.Worker(adb, 3).add(orders):
            await until(lambda: len(threads) == 3 and queue.depth(db).done == 1)
            washed.set()
            await until(lambda: queue.depth(db).done == 3)
        # And a job is still a function
        assert await brew("oolong") == "oolong"

    run(main())
    here = threading.get_ident()
    assert {each for each, thread in threads.items() if thread != here} == {"pot"}


def test_a_job_of_asyncio_may_write_in_the_transaction_that_ends_its_message(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue, space: fdb.Subspace
) -> None:
    @orders.job
    async def note(tr: aio.Transaction, tea: str) -> None:
        assert await tr.get(space.pack((tea,))) is None
        tr[space.pack((tea,))] = b"noted"

    async def main() -> None:
        await note.enqueue(adb, "assam")
        async with aio.Worker(adb, 1).add(orders):
            await until(lambda: queue.depth(db).done == 1)

    run(main())
    assert db[space.pack(("assam",))] == b"noted"


def test_plain_handlers_run_in_threads_beside_coroutines(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue, space: fdb.Subspace
) -> None:
    bills = Queue.open(db, "bills", root=space)
    worker, met = aio.Worker(adb, 4), asyncio.Event()
    entered, gate = threading.Event(), threading.Event()

    @worker.handler(orders)
    async def in_loop(message: Message) -> None:
        met.set()

    @worker.handler(aio.Queue.of(bills))
    def in_thread(tr: fdb.Transaction, message: Message) -> None:
        assert isinstance(tr, fdb.Transaction)
        entered.set()
        assert gate.wait(DEADLINE)

    async def main() -> None:
        async with worker:
            bills.enqueue(db, b"bill")
            await until(entered.is_set)
            queue.enqueue(db, b"order")
            await met.wait()  # though the other handler blocks its thread
            gate.set()
            await until(lambda: bills.depth(db).done == queue.depth(db).done == 1)

    run(main())


@pytest.mark.parametrize("batch", [None, 3])
def test_the_writes_of_a_coroutine_commit_with_the_acknowledgement(
    db: Database,
    adb: aio.Database,
    queue: Queue,
    orders: aio.Queue,
    space: fdb.Subspace,
    batch: int | None,
) -> None:
    key, worker, tries = space.pack(("effect",)), aio.Worker(adb, 2), 0

    @worker.handler(orders, run=Run(batch=batch), fail=Fail(backoff=tenacity.wait_none()))
    async def handle(tr: aio.Transaction, message: Any) -> None:
        nonlocal tries
        tries += 1
        assert isinstance(tr, aio.Transaction)
        await tr.get(key)
        if tries == 1:
            db[key] = b"disturbed"  # a conflict: it runs again
        if tries == 2:
            tr[key] = b"never"
            raise ValueError("no")
        tr[key] = b"written"
        await orders.enqueue(tr, b"next", delay=3600)

    queue.enqueue(db, b"one")

    async def main() -> None:
        async with worker:
            await until(lambda: queue.depth(db).done == 1)

    run(main())
    assert db[key] == b"written"
    assert tries == 3
    assert queue.depth(db).scheduled == 1


def test_a_coroutine_that_takes_too_long_is_cancelled_and_has_failed(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue
) -> None:
    queue.enqueue(db, b"long")
    cancelled: list[str] = []

    async def handle(message: Message) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(message.id)

    async def main() -> None:
        async with aio.Worker(adb, 1).add(
            orders, handle, run=Run(timeout=0.05), fail=Fail(max_attempts=1)
        ):
            await until(lambda: queue.depth(db).dead == 1)

    run(main())
    [dead] = queue.dead.list(db)
    assert "took longer than 0.05 s" in str(dead.death.reason)
    assert len(cancelled) == 1


def test_a_coroutine_that_will_not_be_cancelled_is_replaced(
    db: Database,
    adb: aio.Database,
    queue: Queue,
    orders: aio.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fdbqueue.aio.handler_tasks.INTERRUPTED_SECONDS", 0.0)
    queue.enqueue_many(db, [b"stubborn", b"other"])
    gate = asyncio.Event()

    async def handle(message: Message) -> None:
        while message.payload == b"stubborn" and not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        async with aio.Worker(adb, 1).add(
            orders, handle, run=Run(timeout=0.05), fail=Fail(max_attempts=1)
        ):
            await until(lambda: queue.depth(db).done == 1)
            gate.set()

    run(main())
    assert queue.depth(db) == Depth(enqueued=2, done=1, dead=1)


# -- stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["the grace is over", "a second signal", "a second cancellation"])
def test_handlers_that_do_not_end_are_cancelled_and_their_messages_given_back(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue, how: str
) -> None:
    queue.enqueue(db, b"long")
    begun, ended = asyncio.Event(), list[str]()
    worker = aio.Worker(adb, 1, shutdown=0.01 if how == "the grace is over" else DEADLINE)

    async def handle(message: Message) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def main() -> None:
        running = asyncio.create_task(worker.add(orders, handle).run())
        await begun.wait()
        for _ in range(1 if how == "the grace is over" else 2):
            if how == "a second cancellation":
                running.cancel()
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
        await asyncio.wait([running])
        assert running.cancelled() == (how == "a second cancellation")
        assert ended == ["cancelled"]

    run(main())
    delivery = queue.receive(db)
    assert delivery is not None
    assert delivery.attempt == 1  # No attempt was lost.


# -- what goes through -------------------------------------------------------------------------

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


def test_handlers_see_context_variables_and_keep_their_own(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue, space: fdb.Subspace
) -> None:
    bills = Queue.open(db, "bills", root=space)
    worker, seen = aio.Worker(adb, 1), list[str]()

    @worker.handler(orders)
    async def in_loop(message: Message) -> None:
        seen.append(variable.get())
        variable.set("of a handler")

    @worker.handler(aio.Queue.of(bills))
    def in_thread(message: Message) -> None:
        seen.append(variable.get())
        variable.set("of a handler")

    async def main() -> None:
        variable.set("of the worker")
        async with worker:
            for each in (queue, bills):
                each.enqueue_many(db, [b"one", b"two"])
                await until(lambda: each.depth(db).done == 2)  # noqa: B023
        assert variable.get() == "of the worker"

    run(main())
    assert seen == ["of the worker"] * 4


def test_a_flush_of_a_channel_waits_in_a_task(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue
) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(3)])
    channel, handled = aio.Channel(Credit(messages=0, window=False)), list[bytes]()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        handled.append(message.payload)

    async def main() -> None:
        async with aio.Worker(adb, 1).add(orders, handle, take=Take(credit=channel)):
            channel.grant(2)
            await channel.flush(timeout=DEADLINE)

    run(main())
    assert handled == [b"0", b"1"]


def test_a_browsing_subscription_hands_its_messages_to_a_coroutine(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue
) -> None:
    queue.enqueue_many(db, [b"one", b"two"])
    seen, threads = list[bytes](), set[int]()

    async def handle(tr: aio.Transaction, message: Message) -> None:
        threads.add(threading.get_ident())
        await tr.get(b"anything")
        seen.append(message.payload)

    async def main() -> None:
        looks = await orders.subscriptions.open(adb, "looks", mode="browse")
        async with aio.Worker(adb, 1).add(orders, handle, take=Take(subscription=looks)):
            await until(lambda: len(seen) == 2)

    run(main())
    assert seen == [b"one", b"two"]
    assert threads == {threading.get_ident()}


def test_a_coroutine_may_call_the_blocking_api_too(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue, space: fdb.Subspace
) -> None:
    """By itself, which stops the loop, or in a thread, which inherits its context."""
    copies = Queue.open(db, "copies", root=space)
    queue.enqueue_many(db, [b"one", b"two"])

    async def handle(message: Message) -> None:
        assert tasks.current.get() is None  # Else what follows never returns.
        copies.enqueue(db, message.payload)
        await asyncio.to_thread(copies.enqueue, db, message.payload)

    async def main() -> None:
        async with aio.Worker(adb, 1).add(orders, handle, fail=Fail(max_attempts=1)):
            await until(lambda: queue.depth(db).done + queue.depth(db).dead == 2)

    run(main())
    assert queue.depth(db).done == 2
    assert copies.depth(db).ready == 4


# -- the blocking worker -----------------------------------------------------------------------


class Called:
    async def __call__(self, message: Message) -> None: ...


async def coroutine(message: Message) -> None: ...


@pytest.mark.parametrize("handler", [coroutine, Called()])
def test_the_blocking_worker_says_who_runs_coroutines(
    db: Database, queue: Queue, handler: Any
) -> None:
    with pytest.raises(InvalidArgument, match=r"fdbqueue\.aio\.Worker runs those"):
        Worker(db).add(queue, handler)


def test_a_function_that_returns_a_coroutine_has_failed(db: Database, queue: Queue) -> None:
    def handle(message: Message) -> object:
        return coroutine(message)

    queue.enqueue(db, b"one")
    with Worker(db, 1).add(queue, handle, fail=Fail(max_attempts=1)):
        deadline = time.monotonic() + DEADLINE
        while not queue.depth(db).dead and time.monotonic() < deadline:
            time.sleep(0.002)
    [dead] = queue.dead.list(db)
    assert "make it an async def" in str(dead.death.reason)


def test_a_worker_of_asyncio_needs_a_loop(
    db: Database, adb: aio.Database, orders: aio.Queue
) -> None:
    worker = aio.Worker(adb, 1).add(orders, coroutine)
    with pytest.raises(InvalidArgument, match="runs only in an event loop"):
        worker.blocking.__enter__()


@pytest.mark.parametrize("ask", ["channel", "described", "start"])
def test_the_loop_goes_on_while_a_worker_reads_the_options_of_its_queues(
    adb: aio.Database, orders: aio.Queue, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    answered, asked, reads = tasks.Event(), asyncio.Event(), []
    original = Worker.add

    def slow(self: Worker, *args: Any, **how: Any) -> Worker:
        asked.set()
        reads.append(answered.wait(DEADLINE))
        return original(self, *args, **how)

    monkeypatch.setattr(Worker, "add", slow)

    async def main() -> None:
        worker = aio.Worker(adb, 1).add(orders, coroutine)

        async def start() -> None:
            async with worker:
                pass

        asks: dict[str, Callable[[], Any]] = {
            "channel": lambda: worker.channel(orders),
            "described": worker.described,
            "start": start,
        }
        # Two at once: the handler is added once.
        both = [asyncio.ensure_future(asks[ask]()), asyncio.ensure_future(worker.described())]
        await asked.wait()
        answered.set()
        await asyncio.gather(*both)

    run(main())
    assert reads == [True]


def test_messages_with_a_trace_pass_it_on_to_a_coroutine(
    db: Database, adb: aio.Database, queue: Queue, orders: aio.Queue
) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    queue.enqueue_many(db, [NewMessage(b"one", headers={"traceparent": parent})])
    found: list[int] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        found.append(trace.get_current_span().get_span_context().trace_id)

    async def main() -> None:
        async with aio.Worker(adb, 1).add(orders, handle):
            await until(lambda: found)

    run(main())
    assert found == [0x0AF7651916CD43DD8448EB211C80319C]

"""What follows a message is enqueued with its acknowledgement: both, or neither, once."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
import tenacity

from fdbqueue import (
    Bounds,
    Depth,
    Message,
    Queue,
    Reject,
    Retry,
    Snooze,
    Take,
    Worker,
    aio,
    context,
)
from fdbqueue.errors import InvalidArgument, InvalidPayload
from fdbqueue.queue.continuations.successors import MAX_SUCCESSORS
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock, drain
from tests.flaky import (
    FlakyDatabase,
)
from tests.patience import DEADLINE, eventually
from tests.taking import ready

Database = fdb.Database
COUNT = 12


@pytest.fixture
def orders(db: Database, space: fdb.Subspace, clock: ManualClock) -> Queue:
    return Queue.create(
        db, "orders", root=space, lease=60, backoff=None, max_attempts=2, clock=clock
    )


@pytest.fixture
def parcels(db: Database, space: fdb.Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "parcels", root=space, clock=clock)


def payloads(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def plain(queue: Queue) -> Callable[[Message], None]:
    def handle(message: Message) -> None:
        context.then(queue, message.payload)

    return handle


def transactional(queue: Queue) -> Callable[[Any, Message], None]:
    def handle(tr: fdb.Transaction, message: Message) -> None:
        context.then(queue, message.payload)

    return handle


def together(queue: Queue) -> Callable[[list[Message]], None]:
    def handle(messages: list[Message]) -> None:
        for each in messages:
            context.then(queue, each.payload)

    return handle


def transactional_together(queue: Queue) -> Callable[[Any, list[Message]], None]:
    def handle(tr: fdb.Transaction, messages: list[Message]) -> None:
        for each in messages:
            context.then(queue, each.payload)

    return handle


HANDLERS = [
    pytest.param(plain, None, id="plain"),
    pytest.param(transactional, None, id="transactional"),
    pytest.param(together, 5, id="batch"),
    pytest.param(transactional_together, 5, id="transactional batch"),
]


@pytest.mark.parametrize(("handler", "batch"), HANDLERS)
@pytest.mark.parametrize(
    "error",
    [ValueError("no"), Retry(seconds=60), Snooze(60), Reject("no"), SystemExit(1)],
    ids=repr,
)
def test_a_handler_that_fails_enqueues_nothing(
    db: Database,
    orders: Queue,
    parcels: Queue,
    handler: Any,
    batch: int | None,
    error: BaseException,
) -> None:
    orders.enqueue_many(db, payloads(3))
    inner = handler(parcels)

    @wraps(inner)
    def call(*args: Any) -> None:
        inner(*args)
        raise error

    drain(db, orders, call, transactional="tr" in inner.__code__.co_varnames, batch=batch,
          failures=True)  # fmt: skip
    assert parcels.depth(db) == Depth()
    assert orders.depth(db).done == 0


def test_handlers_that_finish_together_share_a_commit_with_their_successors(
    db: Database, orders: Queue, parcels: Queue
) -> None:
    orders.enqueue_many(db, payloads(80))
    barrier = threading.Barrier(8)

    def handle(message: Message) -> None:
        context.then(parcels, message.payload)
        barrier.wait(DEADLINE)

    counted: Any = FlakyDatabase(db, [])
    with Worker(counted, 8).add(orders, handle):
        eventually(lambda: orders.depth(db).done == 80)
    assert counted.commits < 80
    assert Counter(ready(db, parcels)) == Counter(payloads(80))


def test_a_successor_that_cannot_be_enqueued_fails_its_message_and_no_neighbour(
    db: Database, space: fdb.Subspace, clock: ManualClock, parcels: Queue
) -> None:
    # Given a full queue, one that is gone, and messages that are followed by one in either
    orders = Queue.create(
        db, "orders", root=space, clock=clock, max_attempts=1, dead_letter_queue=None
    )
    full = Queue.create(
        db, "full", root=space, clock=clock, bounds=Bounds(messages=1, when_full="reject")
    )
    full.enqueue(db, b"the only one")
    gone = Queue.create(db, "gone", root=space, clock=clock)
    gone.delete(db)
    orders.enqueue_many(db, payloads(6))
    barrier = threading.Barrier(6)

    def handle(message: Message) -> None:
        target = {b"2": full, b"4": gone}.get(message.payload, parcels)
        context.then(parcels, b"of " + message.payload)
        context.then(target, message.payload)
        barrier.wait(DEADLINE)

    # When they are acknowledged together
    with Worker(db, 6, prefetch=0).add(orders, handle):
        eventually(lambda: orders.depth(db).done + len(orders.dead.list(db)) == 6)
    # Then the two have failed, with the reason, and no part of what follows them has come
    assert orders.depth(db) == Depth(enqueued=6, done=4, dead=2)
    reasons = {each.message.payload: each.death.reason for each in orders.dead.list(db)}
    assert "full" in reasons[b"2"]
    assert "gone" in reasons[b"4"]
    good = [b"0", b"1", b"3", b"5"]
    assert Counter(ready(db, parcels)) == Counter([*good, *(b"of " + each for each in good)])
    assert ready(db, full) == [b"the only one"]


@pytest.mark.parametrize(("handler", "batch"), HANDLERS)
def test_a_failed_successor_is_tried_again_when_there_is_room(
    db: Database,
    space: fdb.Subspace,
    clock: ManualClock,
    orders: Queue,
    handler: Any,
    batch: int | None,
) -> None:
    full = Queue.create(
        db, "full", root=space, clock=clock, bounds=Bounds(messages=1, when_full="reject")
    )
    full.enqueue(db, b"the first one")
    orders.set_options(db, backoff=tenacity.wait_fixed(60))
    orders.enqueue(db, b"1")
    given = handler(full)
    drain(db, orders, given, transactional="tr" in given.__code__.co_varnames, batch=batch,
          failures=True)  # fmt: skip
    assert orders.depth(db).done == 0
    assert full.receive(db, at_most_once=True) is not None
    clock.seconds += 3600
    drain(db, orders, given, transactional="tr" in given.__code__.co_varnames, batch=batch,
          failures=True)  # fmt: skip
    assert orders.depth(db).done == 1
    assert ready(db, full) == [b"1"]


def test_who_lost_the_lease_enqueues_nothing(db: Database, orders: Queue, parcels: Queue) -> None:
    orders.enqueue_many(db, payloads(2))

    def handle(message: Message) -> None:
        if message.payload == b"0" and not parcels.depth(db).enqueued:
            held = next(each for each in orders.admin.leases(db) if each.delivery.id == message.id)
            orders.release(db, held.delivery, delay=3600)
        context.then(parcels, message.payload)

    with Worker(db, 1).add(orders, handle):
        eventually(lambda: orders.depth(db).done == 1)
    assert ready(db, parcels) == [b"1"]


def test_a_batch_whose_lease_is_lost_in_part_is_handled_one_by_one(
    db: Database, orders: Queue, parcels: Queue
) -> None:
    # Given a batch, one of whose leases ends while it is handled
    orders.enqueue_many(db, payloads(3))
    sizes = []

    def handle(messages: list[Message]) -> None:
        sizes.append(len(messages))
        if len(messages) == 3:
            held = next(
                each for each in orders.admin.leases(db) if each.delivery.id == messages[1].id
            )
            orders.release(db, held.delivery, delay=3600)
        for each in messages:
            context.then(parcels, each.payload)

    # When it is handled
    drain(db, orders, handle, batch=3, failures=True)
    # Then what follows a message comes with it alone
    assert sizes == [3, 1, 1, 1]
    assert ready(db, parcels) == [b"0", b"2"]
    assert orders.depth(db) == Depth(enqueued=3, done=2, scheduled=1)


def test_verdicts_of_a_batch_are_settled_with_its_successors(
    db: Database, orders: Queue, parcels: Queue
) -> None:
    ids = orders.enqueue_many(db, payloads(3))

    def handle(messages: list[Message]) -> dict[str, Exception]:
        context.then(parcels, b"%d" % len(messages))
        return {ids[1]: Reject("no")}

    drain(db, orders, handle, batch=3, failures=True)
    assert orders.depth(db) == Depth(enqueued=3, done=2, dead=1)
    assert ready(db, parcels) == [b"3"]


def test_successors_of_a_message_keep_their_order_and_their_options(
    db: Database, space: fdb.Subspace, orders: Queue, clock: ManualClock
) -> None:
    values: Queue[Any] = Queue.create(db, "values", root=space, levels=10, clock=clock)
    changing, began = {"n": 1}, clock.wall_ms()

    def handle(message: Message) -> None:
        context.then(values, changing)
        changing["n"] = 2
        context.then(values, changing)
        context.then(values, "urgent", priority=9, headers={"of": message.id}, max_attempts=7)
        context.then(values, "later", delay=60)
        clock.seconds += 30

    order = orders.enqueue(db, b"")
    drain(db, orders, handle)
    found = values.peek(db, 10)
    # What is given is encoded at once
    assert [values.value(each) for each in found] == ["urgent", {"n": 1}, {"n": 2}]
    assert found[0].headers == {"of": order}
    assert found[0].enqueued_at_ms >= began + 30_000
    # A delay begins with the acknowledgement
    clock.seconds += 59
    assert len(values.receive_many(db, 10)) == 3
    clock.seconds += 2
    assert len(values.receive_many(db, 10)) == 1


def test_a_successor_may_replace_one_that_waits(
    db: Database, orders: Queue, parcels: Queue
) -> None:
    def handle(message: Message) -> None:
        context.then(parcels, message.payload, unique="of ann", on_conflict="replace")

    for n in range(3):
        orders.enqueue(db, b"%d" % n)
    drain(db, orders, handle)
    assert [each.payload for each in parcels.peek(db, 10)] == [b"2"]
    assert parcels.admin.verify(db).ok


def test_a_successor_may_be_in_the_same_queue(db: Database, orders: Queue) -> None:
    def handle(message: Message) -> None:
        if len(message.payload) < 5:
            context.then(orders, message.payload + b"!")

    orders.enqueue(db, b"")
    with Worker(db, 2).add(orders, handle):
        eventually(lambda: orders.depth(db).done == 6)
    assert orders.depth(db) == Depth(enqueued=6, done=6)


def test_a_successor_that_is_too_large_for_the_transaction_fails_its_message(
    db: Database, space: fdb.Subspace, orders: Queue
) -> None:
    large = Queue.create(db, "large", root=space, max_payload=6_000_000)

    def handle(message: Message) -> None:
        for _ in range(3):
            context.then(large, b"x" * 5_000_000)

    orders.set_options(db, max_attempts=1)
    orders.enqueue(db, b"")
    drain(db, orders, handle, failures=True)
    assert orders.depth(db) == Depth(enqueued=1, dead=1)
    assert large.depth(db) == Depth()


def test_what_is_wrong_with_a_successor_is_raised_where_it_is_given(
    db: Database, orders: Queue, parcels: Queue
) -> None:
    raised: list[str] = []

    def handle(message: Message) -> None:
        wrong: list[dict[str, Any]] = [
            {"payload": {"text"}}, {"payload": b"", "delay": -1},
            {"payload": b"", "headers": {1: 2}}, {"payload": b"", "max_attempts": 0},
            {"payload": b"", "ttl": 0},
        ]  # fmt: skip
        for how in wrong:
            with pytest.raises((InvalidArgument, InvalidPayload, ValueError)) as error:
                context.then(parcels, **how)
            raised.append(type(error.value).__name__)
        for _ in range(MAX_SUCCESSORS):
            context.then(parcels, b"")
        with pytest.raises(InvalidArgument, match="1,000"):
            context.then(parcels, b"")

    orders.enqueue(db, b"")
    drain(db, orders, handle)
    assert len(raised) == 5
    assert parcels.depth(db).enqueued == MAX_SUCCESSORS


def test_nothing_follows_where_no_acknowledgement_comes(
    db: Database, orders: Queue, parcels: Queue
) -> None:
    # Given a handler that keeps its context for later
    kept: list[Any] = []

    def handle(message: Message) -> None:
        kept.append(contextvars.copy_context())

    orders.enqueue(db, b"")
    drain(db, orders, handle)
    with pytest.raises(InvalidArgument, match="has returned"):
        kept[0].run(context.then, parcels, b"")
    # Then there is none there, nor outside of handlers, nor after the settlement
    with pytest.raises(InvalidArgument, match="no acknowledgement comes here"):
        context.then(parcels, b"")
    failed = threading.Event()

    def settled(message: Message) -> None:
        try:
            context.then(parcels, b"")
        except InvalidArgument:
            failed.set()

    orders.enqueue(db, b"")
    with Worker(db, 1).add(orders, settled, take=Take(at_most_once=True)):
        assert failed.wait(DEADLINE)
    assert parcels.depth(db) == Depth()


@pytest.mark.parametrize("suspends", [False, True], ids=["plain", "transactional"])
def test_coroutines_leave_successors_too(
    db: Database, orders: Queue, parcels: Queue, suspends: bool
) -> None:
    orders.enqueue_many(db, payloads(COUNT))
    twin = aio.Queue.of(parcels)

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        aio.context.then(twin, message.payload)

    async def handle_in(tr: aio.Transaction, message: Message) -> None:
        await asyncio.sleep(0)
        aio.context.then(twin, message.payload)

    async def main() -> None:
        worker = aio.Worker(aio.Database(db), 4)
        async with worker.add(aio.Queue.of(orders), handle_in if suspends else handle):
            async with asyncio.timeout(DEADLINE):
                while (await aio.Queue.of(orders).depth(aio.Database(db))).done < COUNT:
                    await asyncio.sleep(0.002)

    asyncio.run(main())
    assert Counter(ready(db, parcels)) == Counter(payloads(COUNT))

"""Tasks of one event loop that enqueue at the same time share transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from fdbqueue import Bounds, Queue, aio
from fdbqueue.store.binding import fdb
from tests import flaky
from tests.patience import DEADLINE

TASKS = 64


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(DEADLINE):
            return await coroutine

    return asyncio.run(main())


def database(db: fdb.Database, plan: Sequence[str | None] = ()) -> flaky.FlakyDatabase:
    return flaky.FlakyDatabase(db, plan)


def opened(db: flaky.FlakyDatabase, queue: Queue) -> tuple[aio.Database, aio.Queue]:
    return aio.Database(db), aio.Queue.of(queue)


def payloads(db: fdb.Database, queue: Queue) -> list[bytes]:
    found = []
    while taken := queue.receive_many(db, 100):
        found += [each.payload for each in taken]
        queue.ack(db, taken)
    return found


def test_tasks_share_a_commit_and_each_has_its_own_message(db: fdb.Database, queue: Queue) -> None:
    counted = database(db)
    store, orders = opened(counted, queue)

    async def main() -> list[str]:
        return await asyncio.gather(*(orders.enqueue(store, b"%d" % n) for n in range(TASKS)))

    ids = run(main())
    assert counted.commits == 2  # of the first, and of all that came meanwhile
    assert len({*ids}) == TASKS
    found = queue.receive_many(db, TASKS)
    assert [(each.id, each.payload) for each in found] == [
        (message_id, b"%d" % n) for n, message_id in enumerate(ids)
    ]


def test_messages_of_all_kinds_share_a_commit(db: fdb.Database, queue: Queue) -> None:
    counted = database(db)
    store, orders = opened(counted, queue)

    async def main() -> list[str]:
        calls = [orders.enqueue(store, b"first")]
        calls += [orders.enqueue(store, b"same", unique="k") for _ in range(2)]
        calls += [orders.enqueue(store, b"twice", dedup_id="d") for _ in range(2)]
        calls += [orders.enqueue(store, b"%d" % n, key="tenant") for n in range(2)]
        calls += [orders.enqueue(store, b"later", delay=100)]
        calls += [orders.enqueue(store, b"urgent", priority=9)]
        return await asyncio.gather(*calls)

    ids = run(main())
    assert counted.commits == 2
    assert ids[1] == ids[2]
    assert ids[3] == ids[4]
    depth = queue.depth(db)
    assert (depth.ready, depth.waiting, depth.scheduled) == (5, 1, 1)
    assert payloads(db, queue) == [b"urgent", b"first", b"same", b"twice", b"0", b"1"]


def test_tasks_wait_for_room_each_for_itself(db: fdb.Database, space: fdb.Subspace) -> None:
    queue = Queue.create(db, "full", root=space, bounds=Bounds(messages=2, when_full="block"))
    store, orders = opened(database(db), queue)

    async def main() -> list[str]:
        calls = [asyncio.create_task(orders.enqueue(store, b"%d" % n)) for n in range(6)]
        while not all(each.done() for each in calls):
            for delivery in await orders.receive_many(store, 10):
                await orders.ack(store, delivery)
            await asyncio.sleep(0.001)
        return [each.result() for each in calls]

    assert len({*run(main())}) == 6
    assert queue.depth(db).done + queue.depth(db).ready == 6


# -- cancellation ------------------------------------------------------------------------------


def test_a_task_that_is_cancelled_before_its_commit_enqueues_nothing(
    db: fdb.Database, queue: Queue
) -> None:
    store, orders = opened(database(db), queue)

    async def main() -> list[Any]:
        calls = [asyncio.create_task(orders.enqueue(store, b"%d" % n)) for n in range(5)]
        await asyncio.sleep(0)  # The first one is at work, and the others wait.
        calls[1].cancel()  # It would lead next.
        calls[3].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    results = run(main())
    assert [type(each) for each in results] == [
        *(str, asyncio.CancelledError, str, asyncio.CancelledError, str)
    ]
    assert payloads(db, queue) == [b"0", b"2", b"4"]


@pytest.mark.parametrize("cancelled", [1, 2], ids=["the one that leads", "one that follows"])
def test_a_task_that_is_cancelled_during_its_commit_has_enqueued(
    db: fdb.Database, queue: Queue, cancelled: int
) -> None:
    counted = database(db)
    store, orders = opened(counted, queue)
    calls: list[asyncio.Task[str]] = []

    def cancel() -> None:
        if counted.commits == 2:  # that of those that share
            calls[cancelled].cancel()

    counted._before = cancel

    async def main() -> list[Any]:
        calls.extend(asyncio.create_task(orders.enqueue(store, b"%d" % n)) for n in range(4))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = run(main())
    assert isinstance(results[cancelled], asyncio.CancelledError)
    assert sum(isinstance(each, str) for each in results) == 3
    assert payloads(db, queue) == [b"0", b"1", b"2", b"3"]

"""Whoever finds no message has looked behind everything that is due, however much that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, fdb
from tests.schemes import forced
from tests.still_clock import StillClock
from tests.taking import take

MANY = 250
"""More than one transaction promotes at once."""


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def queue(db: fdb.Database, space: fdb.Subspace, clock: StillClock) -> Queue:
    return Queue.create(
        db, "jobs", root=space, clock=clock, backoff=None, max_attempts=1, max_deaths=1
    )


def expired(db: fdb.Database, queue: Queue, clock: StillClock) -> None:
    queue.enqueue_many(db, [NewMessage(b"late", delay=1, ttl=1.5)] * MANY)


def waiting(db: fdb.Database, queue: Queue, clock: StillClock) -> None:
    queue.enqueue(db, b"out", key="one", headers={"kind": "out"})
    assert queue.receive(db, lease=3600) is not None
    queue.enqueue_many(db, [NewMessage(b"waits", delay=1, key="one")] * MANY)


def dying(db: fdb.Database, queue: Queue, clock: StillClock) -> None:
    queue.enqueue_many(db, [b"dies"] * MANY)
    for _ in range(MANY):
        assert queue.receive(db, lease=1) is not None


def others(db: fdb.Database, queue: Queue, clock: StillClock) -> None:
    queue.enqueue_many(db, [NewMessage(b"other", delay=1)] * MANY)


def received(db: fdb.Database, queue: Queue) -> Any:
    return queue.receive(db)


def matching(db: fdb.Database, queue: Queue) -> Any:
    return queue.receive(db, match="kind = 'live'")


def subscribed(db: fdb.Database, queue: Queue) -> Any:
    return queue.subscriptions.open(db, "live", selector="kind = 'live'").receive(db)


def staged(db: fdb.Database, queue: Queue) -> Any:
    forced(queue, "staged")
    return queue.receive(db)


def batched(db: fdb.Database, queue: Queue) -> Any:
    return next(iter(queue.receive_many(db, 10)), None)


def dequeued(db: fdb.Database, queue: Queue) -> Any:
    @fdb.transactional
    def dequeue(tr: fdb.Transaction) -> Any:
        return queue.dequeue(tr)

    return dequeue(db)


ALL = [received, staged, batched, dequeued, matching, subscribed]
SELECTED = [matching, subscribed]


@pytest.mark.sample(6)
@pytest.mark.parametrize("take", ALL)
@pytest.mark.parametrize("due", [expired, waiting, dying])
def test_a_live_message_is_found_behind_many_that_are_due(
    db: fdb.Database,
    queue: Queue,
    clock: StillClock,
    due: Callable[..., None],
    take: Callable[..., Any],
) -> None:
    due(db, queue, clock)
    queue.enqueue(db, b"live", delay=2, headers={"kind": "live"})
    clock.seconds += 60
    found = take(db, queue)
    assert found is not None
    assert found.payload == b"live"
    assert queue.admin.verify(db).deviations == ()


@pytest.mark.parametrize("take", SELECTED)
def test_the_first_match_is_found_behind_many_that_are_due(
    db: fdb.Database, queue: Queue, clock: StillClock, take: Callable[..., Any]
) -> None:
    others(db, queue, clock)
    queue.enqueue(db, b"live", delay=2, headers={"kind": "live"})
    clock.seconds += 60
    found = take(db, queue)
    assert found is not None
    assert found.payload == b"live"


def test_who_receives_goes_on_behind_what_newer_messages_have_replaced(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    clock = StillClock()
    queue = Queue.create(db, "newest", root=space, clock=clock, last_value="n")
    queue.enqueue_many(db, [NewMessage(b"old", headers={"n": n}) for n in range(101)])
    old = queue.receive_many(db, 101)
    queue.enqueue_many(db, [NewMessage(b"new", headers={"n": n}) for n in range(101)])
    queue.release(db, old, delay=10)
    assert len(queue.receive_many(db, 200)) == 101
    queue.enqueue(db, b"other", headers={"n": -1}, delay=11)
    clock.seconds += 20
    received = take(db, queue)
    assert received.payload == b"other"

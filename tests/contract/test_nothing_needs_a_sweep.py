"""What workers and producers leave behind is tidied by workers and producers."""

from __future__ import annotations

import pytest

from fdbqueue import KeyLimits, NewMessage, Queue, fdb
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from tests.still_clock import StillClock


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def queue(db: fdb.Database, space: fdb.Subspace, clock: StillClock) -> Queue:
    return Queue.create(db, "jobs", root=space, clock=clock)


def rows(db: fdb.Database, queue: Queue, *kinds: Kind) -> int:
    every = [queue._keys.kind(kind) for kind in kinds]
    return sum(len(db.get_range(each.start, each.stop)) for each in every)


def test_results_go_while_others_come(db: fdb.Database, queue: Queue, clock: StillClock) -> None:
    for _ in range(5):
        queue.enqueue_many(db, [NewMessage(b"x", keep_result=60)] * 20)
        queue.ack(db, queue.receive_many(db, 20))
        clock.seconds += 100
    assert rows(db, queue, QueueKeys.result) <= 20


def test_dedup_ids_go_though_no_other_comes(
    db: fdb.Database, queue: Queue, clock: StillClock
) -> None:
    queue.enqueue_many(db, [NewMessage(b"x", dedup_id=f"{n}") for n in range(20)])
    for _ in range(5):
        clock.seconds += 1_000
        queue.enqueue(db, b"y")
        queue.ack(db, queue.receive_many(db, 30))
    assert rows(db, queue, QueueKeys.dedup) == 0


def test_resting_keys_go_behind_a_slow_one(
    db: fdb.Database, queue: Queue, clock: StillClock
) -> None:
    queue.keys["slow"].set(db, rate="1/day")
    queue.set_options(db, keys=KeyLimits(rate="60/min", concurrency=None))
    queue.enqueue_many(db, [NewMessage(b"x", key="slow")] * 3)
    queue.enqueue_many(db, [NewMessage(b"x", key=f"{n}") for n in range(50)])
    for _ in range(5):
        queue.ack(db, queue.receive_many(db, 60))
        clock.seconds += 600
    assert rows(db, queue, QueueKeys.rate) <= 5

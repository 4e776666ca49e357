"""Channels: credit that is granted, shared and flushed while a worker runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fdbqueue import Channel, Credit, Message, Queue, Retry, Take, Worker
from fdbqueue.errors import InvalidArgument, Unfinished
from fdbqueue.store.binding import fdb
from tests.gates import Gate
from tests.patience import DEADLINE, eventually

Database = fdb.Database

pytestmark = pytest.mark.queue(max_attempts=3, lease=60, backoff=None)


@pytest.fixture
def other(db: Database, space: fdb.Subspace) -> Queue:
    return Queue.create(db, "refunds", root=space, lease=60, backoff=None)


def granted(**credit: int) -> Channel:
    return Channel(Credit(window=False, **credit))


def suspended(db: Database, queue: Queue) -> bool:
    """Whether all consumers of a queue are suspended: none looks for messages."""
    return [int(each.state or 0) for each in queue.admin.consumers(db)] == [1]


def test_a_worker_takes_as_many_messages_as_are_granted(db: Database, queue: Queue) -> None:
    handled: list[bytes] = []
    channel = granted(messages=2)
    queue.enqueue_many(db, [b"%d" % n for n in range(6)])
    with Worker(db, 4).add(queue, handled.append, take=Take(credit=channel)):
        eventually(lambda: queue.depth(db).done == 2)
        eventually(lambda: suspended(db, queue))
        channel.grant(messages=3)
        eventually(lambda: queue.depth(db).done == 5)
        eventually(lambda: suspended(db, queue))
        assert queue.depth(db).ready == 1
    assert sorted(handled) == [b"%d" % n for n in range(5)]


def test_credit_is_granted_by_bytes_and_what_is_larger_comes_alone(
    db: Database, queue: Queue, gate: Gate
) -> None:
    channel = granted(bytes=100)
    queue.enqueue_many(db, [b"a" * 60, b"b" * 60, b"c" * 500, b"d" * 10])
    with Worker(db, 4).add(queue, gate, take=Take(credit=channel)):
        gate.wait_for(1)
        gate.let(1)
        eventually(lambda: queue.depth(db).done == 1 and suspended(db, queue))
        assert len(gate.entered) == 1, "the second fits once more is granted"
        channel.grant(bytes=30)
        gate.wait_for(2)
        gate.let(1)
        eventually(lambda: queue.depth(db).done == 2)
        assert gate.wait_for(3)[2] == b"c" * 500, "it is larger than all that was left"
        gate.let(1)
        eventually(lambda: queue.depth(db).done == 3 and suspended(db, queue))
        channel.grant(bytes=490)
        eventually(lambda: suspended(db, queue))
        assert len(gate.entered) == 3, "490 bytes were owed"
        channel.grant(bytes=10)
        gate.wait_for(4)
        gate.let(1)


def test_a_handler_may_grant_the_next_message(db: Database, queue: Queue) -> None:
    channel = granted(messages=1)

    def handle(message: Message) -> None:
        channel.grant(messages=1)

    queue.enqueue_many(db, [b"x"] * 20)
    with Worker(db, 2).add(queue, handle, take=Take(credit=channel)):
        eventually(lambda: queue.depth(db).done == 20)


def test_what_no_handler_began_with_costs_no_granted_credit(
    db: Database, queue: Queue, gate: Gate
) -> None:
    channel = granted(messages=5)
    queue.enqueue_many(db, [b"x"] * 9)
    worker = Worker(db, 1, prefetch=4).add(queue, gate, take=Take(credit=channel))
    with worker:
        gate.wait_for(1)
        eventually(lambda: queue.depth(db).leased == 5)
        gate.let(1)
        gate.wait_for(2)
        gate.let(1)
        worker.stop()
    begun = len(gate.entered)
    assert channel.credit.room(9) == 5 - begun
    assert queue.depth(db).done == begun
    gate.let(9)
    with worker:
        eventually(lambda: queue.depth(db).done == 5)
        eventually(lambda: suspended(db, queue))
    assert len(gate.entered) == 5


# -- shared ---------------------------------------------------------------------------------------


def test_queues_and_subscriptions_share_one_credit(
    db: Database, queue: Queue, other: Queue, gate: Gate
) -> None:
    channel = Channel(Credit(messages=3))
    third = other.subscriptions.open(db, "third", selector="of = 3")
    queue.enqueue_many(db, [b"first"] * 5)
    other.enqueue_many(db, [b"second"] * 5)
    for _ in range(5):
        other.enqueue(db, b"third", headers={"of": 3})
    worker = Worker(db, 9)
    for each, subscription in ((queue, None), (other, third)):
        worker.add(each, gate, take=Take(credit=channel, subscription=subscription))
    with worker:
        for n in range(10):
            assert len(gate.wait_for(min(10, n + 3))) <= n + 3
            assert channel.credit.held <= 3
            gate.let(1)
        eventually(lambda: queue.depth(db).done + other.depth(db).done == 10)
    assert sorted({*gate.entered}) == [b"first", b"third"]


# -- flush ----------------------------------------------------------------------------------------


def test_a_flush_ends_when_what_is_there_is_handled(db: Database, queue: Queue, gate: Gate) -> None:
    channel = granted(messages=9)
    queue.enqueue_many(db, [b"x"] * 3)
    with Worker(db, 2).add(queue, gate, take=Take(credit=channel)), ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(channel.flush)
        gate.wait_for(2)
        gate.let(2)
        gate.wait_for(3)
        assert not flushed.done(), "a slow handler still has the third"
        gate.let(1)
        flushed.result(DEADLINE)
        assert queue.depth(db).done == 3
        queue.enqueue(db, b"late")
        channel.flush(DEADLINE)
        assert queue.depth(db).ready == 1, "what was left of the credit is withdrawn"
        channel.grant(messages=1)
        gate.let(1)
        channel.flush(DEADLINE)
        assert queue.depth(db).done == 4


def test_a_flush_of_a_channel_waits_for_all_that_share_it(
    db: Database, queue: Queue, other: Queue, gate: Gate
) -> None:
    channel = granted(messages=9)
    other.enqueue(db, b"x")
    worker = (
        Worker(db, 1)
        .add(queue, gate, take=Take(credit=channel))
        .add(other, gate, take=Take(credit=channel))
    )
    with worker, ThreadPoolExecutor(1) as pool:
        gate.wait_for(1)
        flushed = pool.submit(channel.flush)
        with pytest.raises(Unfinished, match="time is over"):
            channel.flush(0.05)
        gate.let(1)
        flushed.result(DEADLINE)
        assert channel.credit.exhausted


def test_a_flush_ends_when_the_worker_stops(db: Database, queue: Queue, gate: Gate) -> None:
    channel = granted(messages=9)
    queue.enqueue_many(db, [b"x"] * 2)
    worker = Worker(db, 1, shutdown=0).add(queue, gate, take=Take(credit=channel))
    with ThreadPoolExecutor(1) as pool:
        with worker:
            gate.wait_for(1)
            flushed = pool.submit(channel.flush)
            eventually(lambda: channel._flushes)
        with pytest.raises(Unfinished, match="stopped"):
            flushed.result(DEADLINE)
    with pytest.raises(InvalidArgument, match="no worker runs"):
        channel.flush()


def test_a_message_that_is_tried_again_uses_credit_again(db: Database, queue: Queue) -> None:
    tries: list[int] = []

    def handle(message: Message) -> None:
        tries.append(message.attempts)
        if len(tries) < 3:
            raise Retry(seconds=0)

    channel = granted(messages=2)
    queue.enqueue(db, b"x")
    with Worker(db, 1).add(queue, handle, take=Take(credit=channel)):
        eventually(lambda: len(tries) == 2)
        eventually(lambda: suspended(db, queue) and queue.depth(db).ready == 1)
        channel.grant(messages=1)
        eventually(lambda: queue.depth(db).done == 1)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"messages": 0},
        {"messages": -1},
        {"messages": True},
        {"messages": 1.5},
        {"bytes": 10},
        {"messages": 1, "bytes": 10},
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(more: dict[str, Any]) -> None:
    channel = granted(messages=1)
    with pytest.raises(InvalidArgument):
        channel.grant(**more)
    assert channel.credit == Credit(messages=1, window=False)


def test_a_window_is_not_granted_or_withdrawn() -> None:
    channel = Channel(Credit(messages=1))
    with pytest.raises(InvalidArgument, match="window"):
        channel.grant(messages=1)
    with pytest.raises(InvalidArgument, match="window"):
        channel.withdraw()


def test_explicit_credit_needs_a_channel_and_a_channel_one_worker(
    db: Database, queue: Queue, other: Queue, gate: Gate
) -> None:
    with pytest.raises(InvalidArgument, match="Channel"):
        Worker(db).add(queue, gate, take=Take(credit=Credit(messages=1, window=False)))
    with pytest.raises(InvalidArgument, match="must be a Credit"):
        Channel(7)  # type: ignore[arg-type]
    channel = granted(messages=1)
    worker = Worker(db).add(queue, gate, take=Take(credit=channel))
    assert worker.channel(queue) is channel
    with pytest.raises(InvalidArgument, match="no handler"):
        worker.channel(other)
    with pytest.raises(InvalidArgument, match="another worker"):
        Worker(db).add(other, gate, take=Take(credit=channel))

from __future__ import annotations

from collections.abc import Callable

import pytest

from fdbqueue import Depth, Message, Queue
from fdbqueue.store.binding import fdb
from fdbqueue.testing import (
    ManualClock,
    assert_depth,
    assert_enqueued,
    drain,
    fdbqueue_clock,
    fdbqueue_db,
    fdbqueue_queue,
    fdbqueue_root,
)

# As `pytest_plugins = ["fdbqueue.testing"]` in a user's conftest.
__all__ = ["fdbqueue_clock", "fdbqueue_db", "fdbqueue_queue", "fdbqueue_root"]

Make = Callable[..., Queue]


def test_a_queue_is_drained_in_the_order_of_delivery(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue(levels=3)
    queue.enqueue(fdbqueue_db, b"low", priority=0)
    queue.enqueue(fdbqueue_db, b"high", priority=9)
    seen: list[bytes] = []
    handled = drain(fdbqueue_db, queue, lambda message: seen.append(message.payload))
    assert [message.payload for message in handled] == seen == [b"high", b"low"]
    assert_depth(fdbqueue_db, queue, done=2, ready=0)


def test_the_exception_of_a_handler_reaches_the_test(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue(backoff=None)
    queue.enqueue(fdbqueue_db, b"a")

    def handle(message: Message) -> None:
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        drain(fdbqueue_db, queue, handle)
    assert_depth(fdbqueue_db, queue, ready=1)


def test_failures_go_the_way_of_the_queues_policy(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue(max_attempts=3, backoff=None)
    queue.enqueue(fdbqueue_db, b"a")
    attempts: list[int] = []

    def handle(tr: fdb.Transaction, messages: list[Message]) -> None:
        attempts.append(messages[0].attempts)
        raise ValueError

    assert drain(fdbqueue_db, queue, handle, batch=2, failures=True) == []
    assert attempts == [0, 1, 2]
    assert_depth(fdbqueue_db, queue, dead=1)


def test_time_passes_when_the_test_says_so(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make, fdbqueue_clock: ManualClock
) -> None:
    queue = fdbqueue_queue()
    queue.enqueue(fdbqueue_db, b"a", delay=3600)
    assert drain(fdbqueue_db, queue, print, transactional=False) == []
    fdbqueue_clock.seconds += 3601
    assert len(drain(fdbqueue_db, queue, print, transactional=False)) == 1


def test_assertions_say_what_there_is_instead(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue()
    queue.enqueue(fdbqueue_db, b"a", headers={"region": "eu", "n": 1})
    assert_enqueued(fdbqueue_db, queue, b"a", headers={"region": "eu"}, priority=4, count=1)
    with pytest.raises(AssertionError, match="'region': 'eu'"):
        assert_enqueued(fdbqueue_db, queue, b"a", headers={"region": "us"})
    with pytest.raises(AssertionError, match="0 messages"):
        assert_enqueued(fdbqueue_db, queue, b"b")
    with pytest.raises(AssertionError, match="enqueued=1, ready=1"):
        assert_depth(fdbqueue_db, queue, ready=2)
    assert queue.depth(fdbqueue_db) == Depth(enqueued=1, ready=1, ready_bytes=1)


@pytest.mark.parametrize(
    "wrong", ["assert_depth(db, queue, ready=1)", "assert_enqueued(db, queue)"]
)
def test_a_failed_assertion_shows_the_test_and_not_the_kit(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make, wrong: str
) -> None:
    names = {"db": fdbqueue_db, "queue": fdbqueue_queue()}
    with pytest.raises(AssertionError) as caught:
        exec(wrong, {**names, "assert_depth": assert_depth, "assert_enqueued": assert_enqueued})
    shown = [entry.path for entry in caught.traceback.filter(caught)]
    assert shown
    assert all("testing.py" not in str(path) for path in shown)

"""Whatever moves a message keeps all its properties but those that docs/ names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tenacity import wait_exponential

from fdbqueue import KeyLimits, Message, NewMessage, Queue
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.taking import take

Database = fdb.Database
PROPERTIES: dict[str, dict[str, Any]] = {
    "headers": {"headers": {"region": "eu", "n": 3}},
    "priority": {"priority": 7},
    "content type": {"content_type": "text/plain"},
    "max_attempts": {"max_attempts": 1},
    "backoff": {"backoff": wait_exponential(max=30)},
    "no backoff": {"backoff": None},
    "keep_result": {"keep_result": 600},
    "key": {"key": "a"},
    "limit": {"limits": {"account": "a"}},
    "ttl": {"ttl": 500},
    "large": {"headers": {"x": "y" * 4_000}},
}


def told(message: Message) -> dict[str, Any]:
    return {
        name: getattr(message, name)
        for name in (
            *("payload", "headers", "priority", "content_type", "enqueued_at_ms", "key"),
            *("limits", "max_attempts", "backoff", "keep_result_ms", "expires_at_ms"),
        )
    }


class World:
    def __init__(self, db: Database, space: fdb.Subspace) -> None:
        self.db, self.clock = db, ManualClock()
        of: dict[str, Any] = {"root": space, "clock": self.clock}
        self.queue = Queue.create(db, "jobs", keys=KeyLimits(concurrency=5), lease=5, **of)
        self.other = Queue.create(db, "other", keys=KeyLimits(concurrency=5), **of)
        self.grave = Queue.create(db, "grave", **of)

    def taken(self) -> Any:
        return take(self.db, self.queue)

    def one(self, queue: Queue) -> Message:
        (message,) = queue.peek(self.db, 5)
        return message


def released(world: World) -> Message:
    world.queue.release(world.db, world.taken())
    return world.one(world.queue)


def released_for_later(world: World) -> Message:
    world.queue.release(world.db, world.taken(), delay=10)
    world.clock.seconds += 11
    world.queue.admin.sweep(world.db)
    return world.one(world.queue)


def rejected_and_redriven(world: World) -> Message:
    world.queue.reject(world.db, world.taken(), "no")
    assert world.queue.retry(world.db).taken == 1
    return world.one(world.queue)


def moved(world: World) -> Message:
    assert world.queue.move(world.db, world.other).taken == 1
    assert world.queue.admin.verify(world.db).ok
    return world.one(world.other)


def copied(world: World) -> Message:
    assert world.queue.copy(world.db, world.other).taken == 1
    return world.one(world.other)


def delayed_and_moved(world: World) -> Message:
    assert world.queue.edit(world.db, world.one(world.queue).id, delay=60)
    assert world.queue.move(world.db, world.other, states="scheduled").taken == 1
    world.clock.seconds += 61
    world.other.admin.sweep(world.db)
    return world.one(world.other)


def dead_in_another_queue_and_back(world: World) -> Message:
    world.queue.set_options(world.db, dead_letter_queue="grave")
    world.queue.reject(world.db, world.taken(), "no")
    assert world.grave.admin.verify(world.db).ok
    assert world.grave.move(world.db, world.queue).taken == 1
    return world.one(world.queue)


def put_off(world: World) -> Message:
    assert world.queue.edit(world.db, world.one(world.queue).id, delay=60)
    world.clock.seconds += 61
    world.queue.admin.sweep(world.db)
    return world.one(world.queue)


def said_again(world: World) -> Message:
    delivery = world.taken()
    world.queue.extend(world.db, delivery, 60)
    world.queue.release(world.db, delivery)
    return world.one(world.queue)


MOVES: list[Callable[[World], Message]] = [
    released,
    released_for_later,
    rejected_and_redriven,
    moved,
    copied,
    delayed_and_moved,
    dead_in_another_queue_and_back,
    put_off,
    said_again,
]
DEAD = {rejected_and_redriven, dead_in_another_queue_and_back}


@pytest.mark.sample(30)
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
@pytest.mark.parametrize("given", PROPERTIES.values(), ids=PROPERTIES)
def test_a_message_that_moves_keeps_its_properties(
    db: Database, space: fdb.Subspace, given: dict[str, Any], move: Callable[[World], Message]
) -> None:
    world = World(db, space)
    content: dict[str, Any] = {} if "content_type" in given else {"content_type": "text/csv"}
    world.queue.enqueue_many(db, [NewMessage(b"x", **given, **content)])
    before = told(world.one(world.queue))
    if move in DEAD:  # A dead letter no longer expires.
        before["expires_at_ms"] = None
    assert told(move(world)) == before
    assert world.queue.admin.verify(db).ok
    assert world.other.admin.verify(db).ok


def test_messages_that_are_larger_where_they_go_move_in_as_many_steps_as_it_takes(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    small = Queue.create(db, "small", root=space, compression="zlib")
    large = Queue.create(db, "large", root=space)
    small.enqueue_many(db, [bytes(80_000)] * 150)
    assert small.move(db, large).taken == 150
    assert large.depth(db).ready == 150

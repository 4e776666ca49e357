"""What one end sets off is bounded: what does not fit is done by whoever comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, fdb, verify
from tests.still_clock import StillClock

LARGE = bytes(80_000)


def drained(db: fdb.Database, queue: Queue, most: int) -> int:
    """How many messages come, by so many, until there are none."""
    count = 0
    while found := queue.receive_many(db, most):
        queue.ack_many(db, found)
        count += len(found)
    return count


def keyed(count: int, payload: bytes, **terms: Any) -> list[NewMessage]:
    return [NewMessage(payload, key=f"k{n}", **terms) for n in range(count)]


def test_messages_that_expire_together_let_large_ones_out_that_wait_behind_them(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    clock = StillClock()
    queue = Queue.create(db, "jobs", root=space, clock=clock)
    queue.enqueue_many(db, keyed(150, b"small", ttl=5))
    for n in range(0, 150, 50):
        queue.enqueue_many(db, keyed(150, bytes(88_000))[n : n + 50])
    queue.enqueue(db, b"urgent", priority=9)
    clock.seconds += 60
    urgent = queue.receive(db)
    assert urgent is not None
    assert urgent.payload == b"urgent"
    queue.ack(db, urgent)
    assert drained(db, queue, 100) == 150
    assert verify(db, queue).deviations == ()


@pytest.mark.parametrize("options", [{}, {"key_window": 1, "key_concurrency": 2}])
def test_a_batch_of_any_size_is_taken_and_settled_where_a_large_message_waits_behind_each(
    db: fdb.Database, space: fdb.Subspace, options: dict[str, Any]
) -> None:
    queue = Queue.create(db, "jobs", root=space, **options)
    queue.enqueue_many(db, keyed(200, b"first"))
    for n in range(0, 200, 50):
        queue.enqueue_many(db, keyed(200, LARGE)[n : n + 50])
    first = queue.receive_many(db, 200)
    assert [each.payload for each in first] == [b"first"] * 200
    queue.reject_many(db, first[:100], "no")
    queue.ack_many(db, first[100:])
    assert drained(db, queue, 100) == 200
    assert verify(db, queue).deviations == ()


@pytest.mark.parametrize("end", ["ack", "delete"])
def test_slots_of_limits_go_to_large_messages_of_other_queues(
    db: fdb.Database, space: fdb.Subspace, end: str
) -> None:
    one, two = (Queue.create(db, name, root=space) for name in ("one", "two"))
    limits = {f"d{n}": "x" for n in range(5)}
    for dimension in limits:
        one.limits[dimension, "x"].set(db, concurrency=25)
    one.enqueue_many(db, keyed(25, b"first", limits=limits))
    held = one.receive_many(db, 25)
    assert len(held) == 25
    for dimension in limits:
        two.enqueue_many(db, [NewMessage(LARGE, limits={dimension: "x"})] * 25)
    ends: dict[str, Callable[[], object]] = {
        "ack": lambda: one.ack_many(db, held),
        "delete": lambda: one.delete(db),
    }
    ends[end]()
    assert drained(db, two, 25) == 125
    assert verify(db, two).deviations == ()


def test_a_purge_reads_a_bounded_part_of_what_waits_in_each_transaction(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "jobs", root=space)
    for _ in range(4):
        queue.enqueue_many(db, [NewMessage(LARGE, key="one")] * 50)
    assert queue.purge(db) == 200
    assert queue.depth(db).ready == 0
    assert verify(db, queue).deviations == ()


@pytest.mark.parametrize("end", ["ack", "reject"])
def test_many_groups_end_at_once_with_large_callbacks(
    db: fdb.Database, space: fdb.Subspace, end: str
) -> None:
    parts, wholes = (Queue.create(db, name, root=space) for name in ("parts", "wholes"))
    for n in range(60):
        parts.enqueue_group(
            db, [b"x"], then=LARGE, then_queue=wholes, name=f"{n}", then_on="settled"
        )
    held = parts.receive_many(db, 60)
    assert len(held) == 60
    if end == "ack":
        parts.ack_many(db, held)
    else:
        parts.reject_many(db, held, "no")
    assert parts.receive(db) is None  # Whoever looks for messages goes on.
    assert {each.state for each in parts.groups.list(db)} == {"complete"}
    assert drained(db, wholes, 10) == 60
    assert verify(db, parts).deviations == ()
    assert verify(db, wholes).deviations == ()

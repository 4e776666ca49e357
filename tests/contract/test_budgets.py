"""What one end sets off is bounded: what does not fit is done by whoever comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Bounds, KeyLimits, NewMessage, Queue, Then, fdb
from tests.still_clock import StillClock
from tests.taking import take

LARGE = bytes(80_000)


def drained(db: fdb.Database, queue: Queue, most: int) -> int:
    """How many messages come, by so many, until there are none."""
    count = 0
    while found := queue.receive_many(db, most):
        queue.ack(db, found)
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
    urgent = take(db, queue)
    assert urgent.payload == b"urgent"
    queue.ack(db, urgent)
    assert drained(db, queue, 100) == 150
    assert queue.admin.verify(db).deviations == ()


@pytest.mark.parametrize("options", [{}, {"keys": KeyLimits(window=1, concurrency=2)}])
def test_a_batch_of_any_size_is_taken_and_settled_where_a_large_message_waits_behind_each(
    db: fdb.Database, space: fdb.Subspace, options: dict[str, Any]
) -> None:
    queue = Queue.create(db, "jobs", root=space, **options)
    queue.enqueue_many(db, keyed(200, b"first"))
    for n in range(0, 200, 50):
        queue.enqueue_many(db, keyed(200, LARGE)[n : n + 50])
    first = queue.receive_many(db, 200)
    assert [each.payload for each in first] == [b"first"] * 200
    queue.reject(db, first[:100], "no")
    queue.ack(db, first[100:])
    assert drained(db, queue, 100) == 200
    assert queue.admin.verify(db).deviations == ()


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
        "ack": lambda: one.ack(db, held),
        "delete": lambda: one.delete(db),
    }
    ends[end]()
    assert drained(db, two, 25) == 125
    assert two.admin.verify(db).deviations == ()


def test_a_purge_reads_a_bounded_part_of_what_waits_in_each_transaction(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "jobs", root=space)
    for _ in range(4):
        queue.enqueue_many(db, [NewMessage(LARGE, key="one")] * 50)
    assert queue.purge(db).taken == 200
    assert queue.depth(db).ready == 0
    assert queue.admin.verify(db).deviations == ()


@pytest.mark.parametrize("end", ["ack", "reject"])
def test_many_groups_end_at_once_with_large_callbacks(
    db: fdb.Database, space: fdb.Subspace, end: str
) -> None:
    parts, wholes = (Queue.create(db, name, root=space) for name in ("parts", "wholes"))
    for n in range(60):
        parts.enqueue_many(db, [b"x"], group=Then(LARGE, queue=wholes, on="settled", name=f"{n}"))
    held = parts.receive_many(db, 60)
    assert len(held) == 60
    if end == "ack":
        parts.ack(db, held)
    else:
        parts.reject(db, held, "no")
    assert parts.receive(db) is None  # Whoever looks for messages goes on.
    assert {each.state for each in parts.groups.list(db)} == {"complete"}
    assert drained(db, wholes, 10) == 60
    assert parts.admin.verify(db).deviations == ()
    assert wholes.admin.verify(db).deviations == ()


def test_an_enqueue_reads_few_rows_however_many_slots_are_out(
    db: fdb.Database, space: fdb.Subspace, rows: list[int]
) -> None:
    queue = Queue.create(db, "jobs", root=space, keys=KeyLimits(concurrency=1_000))
    for _ in range(3):
        queue.enqueue_many(db, [NewMessage(b"x", key="a")] * 270)
    rows.clear()
    queue.enqueue(db, b"x", key="a")
    assert sum(rows) < 100


def test_a_limit_that_is_due_does_not_make_receives_of_other_queues_conflict(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    clock = StillClock()
    one, two, three = (
        Queue.create(db, name, root=space, clock=clock) for name in ("one", "two", "three")
    )
    one.limits["api", "x"].set(db, rate="60/min")
    for queue in (one, two, three):
        queue.enqueue_many(db, [NewMessage(b"x", limits={"api": "x"})] * 3)
        queue.ack(db, queue.receive_many(db, 9))
        queue.enqueue(db, b"y")
    clock.seconds += 60
    transactions = [db.create_transaction() for _ in range(2)]
    for queue, tr in zip((two, three), transactions, strict=True):
        assert queue.receive(tr) is not None
    for tr in transactions:
        tr.commit().wait()


def test_many_large_leased_messages_are_cancelled_by_what_matches(
    db: fdb.Database, queue: Queue
) -> None:
    for _ in range(4):
        queue.enqueue_many(db, [NewMessage(LARGE)] * 50)
        assert len(queue.receive_many(db, 50)) == 50
    steps: list[int] = []
    done = queue.cancel(
        db, match=lambda _: True, states="leased", progress=lambda each: steps.append(each.taken)
    )
    assert done.taken == 200
    assert len(steps) > 10
    assert queue.admin.verify(db).deviations == ()


def test_a_queue_far_above_its_bounds_loses_a_bounded_part_with_each_enqueue(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [NewMessage(LARGE)] * 60)
    queue.set_options(db, bounds=Bounds(messages=1, when_full="drop-oldest", dropped="dead"))
    queue.enqueue(db, b"small")
    assert queue.depth(db).ready > 40
    for _ in range(20):
        queue.enqueue(db, b"small")
    assert queue.depth(db).ready == 1


def test_who_returns_leases_that_have_expired_reads_few_large_ones_behind_small_ones(
    db: fdb.Database, space: fdb.Subspace, rows: list[int]
) -> None:
    clock = StillClock()
    queue = Queue.create(db, "jobs", root=space, clock=clock)
    queue.enqueue_many(db, [NewMessage(b"%d" % n, headers={"n": n}) for n in range(10)])
    queue.enqueue_many(db, [NewMessage(LARGE)] * 60)
    assert len(queue.receive_many(db, 70)) == 70
    clock.seconds += 60
    rows.clear()
    queue.receive(db)
    assert sum(rows) < 50


def test_who_extends_small_leases_reads_few_large_ones_between_them(
    db: fdb.Database, queue: Queue, rows: list[int]
) -> None:
    for _ in range(40):
        queue.enqueue(db, b"small", headers={"mine": True})
        queue.enqueue(db, LARGE, headers={"mine": False})
    mine = queue.receive_many(db, 20, match="mine")
    assert len(queue.receive_many(db, 20)) == 20
    rows.clear()
    assert len(queue.extend(db, mine, 60)) == 20
    assert sum(rows) < 35

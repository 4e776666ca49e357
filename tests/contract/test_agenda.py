"""What falls due: the most urgent first, and nobody is told that nothing is there before."""

from __future__ import annotations

import pytest

from fdbqueue import NewMessage, Queue
from fdbqueue.schema.codec import pack_time, unpack_time
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.taking import take

Database = fdb.Database
DUE = 3_000

pytestmark = pytest.mark.queue(max_attempts=2)


def intact(db: Database, queue: Queue) -> None:
    checked = queue.admin.verify(db)
    assert (checked.deviations, checked.unchecked) == ((), ())


def due_one_after_the_other(db: Database, queue: Queue, clock: ManualClock) -> None:
    """Messages of all priorities but the most urgent, and last one of that."""
    some = [NewMessage(b"%d" % n, priority=n % 9, delay=1 + n / 1_000) for n in range(DUE)]
    for n in range(0, DUE, 500):
        queue.enqueue_many(db, some[n : n + 500])
    queue.enqueue(db, b"urgent", priority=9, delay=10)
    clock.seconds += 60


def test_the_most_urgent_of_all_that_is_due_comes_first(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    due_one_after_the_other(db, queue, clock)
    found = take(db, queue)
    assert found.payload == b"urgent"
    # And behind it each level that comes next, in the order of its times
    following = [queue.receive(db) for _ in range(3)]
    assert [each and each.payload for each in following] == [b"8", b"17", b"26"]


def test_what_is_due_later_is_looked_at_once(
    db: Database, queue: Queue, clock: ManualClock, rows: list[int]
) -> None:
    for priority in range(10):
        queue.enqueue(db, b"later", priority=priority, delay=3_600)
    for _ in range(4):
        queue.enqueue(db, b"now")
    assert queue.receive(db)
    rows.clear()
    assert queue.receive(db)
    once = sum(rows)
    # And after one of them was purged, whose time has passed by now
    gone = queue.enqueue(db, b"gone", delay=10)
    assert queue.purge(db, gone).taken == 1
    clock.seconds += 60
    assert queue.receive(db)
    rows.clear()
    assert queue.receive(db)
    assert sum(rows) <= once
    keys = queue._keys
    assert unpack_time(db[keys.earliest(5)] or b"") > queue._clock.now_ms(db)


def test_nothing_is_due_is_one_read_whatever_the_number_of_levels(
    db: Database, space: fdb.Subspace, clock: ManualClock, rows: list[int]
) -> None:
    asked = []
    for levels in (1, 256):
        queue = Queue.create(db, f"of {levels}", root=space, clock=clock, levels=levels)
        later = [NewMessage(b"x", priority=n, delay=3_600) for n in range(max(10, levels))]
        queue.enqueue_many(db, later)
        for _ in range(3):
            queue.enqueue(db, b"now")
            rows.clear()
            assert queue.receive(db)
        asked.append(len(rows))
        assert sum(rows) < levels + 10
    assert asked[0] == asked[1]


def test_times_to_live_that_are_over_take_messages_out_where_nobody_meets_them(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [NewMessage(b"x", priority=0, ttl=10)] * 50)
    queue.enqueue_many(db, [b"urgent"] * 9)
    clock.seconds += 60
    for _ in range(8):
        assert queue.receive(db)
    assert queue.depth(db).expired == 50
    intact(db, queue)


def test_additions_to_the_agenda_conflict_with_nothing(db: Database, queue: Queue) -> None:
    first, second = db.create_transaction(), db.create_transaction()
    for tr in (first, second):
        queue.enqueue(tr, b"later", delay=60)
    first.commit().wait()
    second.commit().wait()
    assert queue.depth(db).scheduled == 2


def test_an_agenda_that_is_looked_at_too_late_is_found_and_repaired(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue(db, b"a", delay=60)
    db[queue._keys.earliest(5)] = pack_time(2**62)
    assert {each.kind for each in queue.admin.verify(db).deviations} == {"agenda too late"}
    queue.admin.repair(db)
    intact(db, queue)
    clock.seconds += 61
    assert queue.receive(db)

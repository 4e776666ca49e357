"""Schedules: each tick comes once, whoever looks, whatever fails, and whichever clock is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from fdbqueue import Message, Queue, transactional
from fdbqueue.errors import (
    InvalidArgument,
    InvalidInput,
    NotFound,
)
from fdbqueue.schema.codec import pack_time
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock, assert_depth
from fdbqueue.values.schedules import Schedule
from tests.patience import DEADLINE
from tests.taking import take

DAY = 86_400


@dataclass
class StoppedClock(ManualClock):
    """A clock that stands still until it is moved, at a full second."""

    begin_ms: int = field(default_factory=lambda: ManualClock().wall_ms() // 1000 * 1000)

    def wall_ms(self) -> int:
        return self.begin_ms + int((self.seconds + self.wall_only) * 1000)


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def queue(db: fdb.Database, space: fdb.Subspace, clock: StoppedClock) -> Queue:
    return Queue.create(db, "orders", root=space, clock=clock, lease=DAY, backoff=None)


def tick(message: Message) -> float:
    """The tick of a message, in seconds since the epoch."""
    shown = message.headers["tick"]
    assert isinstance(shown, str)
    return datetime.fromisoformat(shown).timestamp()


def come(db: fdb.Database, queue: Queue, clock: StoppedClock) -> list[float]:
    """Take and finish what is ready; returns the ticks, in seconds from the clock's begin."""
    found = []
    while held := queue.receive_many(db, 100):
        found += [tick(each.message) - clock.begin_ms / 1000 for each in held]
        queue.ack(db, held)
    return found


def known(db: fdb.Database, queue: Queue, name: str = "a") -> Schedule:
    found = queue.schedules.get(db, name)
    assert found is not None
    return found


def intact(db: fdb.Database, queue: Queue) -> None:
    checked = queue.admin.verify(db)
    assert (checked.deviations, checked.unchecked) == ((), ())


# -- ticks ------------------------------------------------------------------------------------


def test_every_tick_enqueues_the_message_that_was_set(
    db: fdb.Database, queue: Queue, clock: StoppedClock
) -> None:
    made = queue.schedules.set(
        db,
        "a",
        b"a report",
        every=60,
        priority=7,
        headers={"region": "eu"},
        ttl=30,
        max_attempts=2,
        key="reports",
    )
    assert (made.next_ms, made.last_ms, made.fired) == (clock.begin_ms + 60_000, None, 0)
    clock.seconds = 59
    assert queue.receive(db) is None
    clock.seconds = 61
    found = take(db, queue)
    message = found.message
    assert (message.payload, message.priority, message.key) == (b"a report", 7, "reports")
    assert {**message.headers, "tick": ""} == {"region": "eu", "schedule": "a", "tick": ""}
    assert tick(message) == clock.begin_ms / 1000 + 60
    assert message.max_attempts == 2
    assert message.expires_at_ms == clock.begin_ms + 91_000
    assert known(db, queue).last_id == message.id
    assert known(db, queue).fired == 1
    intact(db, queue)
    clock.seconds = 180
    queue.ack(db, found)
    assert come(db, queue, clock) == [120, 180]
    intact(db, queue)


def test_ticks_count_in_a_limit_that_queues_share(
    db: fdb.Database, space: fdb.Subspace, queue: Queue, clock: StoppedClock
) -> None:
    limits = {"api": "stripe"}
    stripe = queue.limits["api", "stripe"]
    stripe.set(db, concurrency=1)
    other = Queue.create(db, "invoices", root=space, clock=clock, lease=DAY)
    other.enqueue(db, b"an invoice", limits=limits)
    made = queue.schedules.set(db, "a", b"a report", every=60, limits=limits)
    assert made.limits == known(db, queue).limits == limits
    assert stripe.state(db).waiting == 0, "the next tick needs no slot"
    clock.seconds = 61
    assert queue.receive(db) is None
    assert (stripe.state(db).waiting_in, known(db, queue).fired) == ({"orders": 1}, 1)
    queue.schedules.run(db, "a")
    assert stripe.state(db).waiting == 2
    for each in (other, queue, queue):
        held = take(db, each)
        each.ack(db, held)
    assert queue.receive(db) is None
    assert stripe.state(db).out == {}
    intact(db, queue)


def test_the_next_tick_waits_as_a_delayed_message_that_only_its_schedule_changes(
    db: fdb.Database, queue: Queue
) -> None:
    queue.schedules.set(db, "a", b"x", every=60)
    queue.enqueue(db, b"other", delay=60)
    assert_depth(db, queue, scheduled=2, enqueued=2)
    (waiting,) = [each for each in queue.messages(db, "scheduled") if each.message.payload == b"x"]
    changes: list[Callable[[], object]] = [
        lambda: queue.cancel(db, waiting.message.id),
        lambda: queue.edit(db, waiting.message.id, delay=0),
    ]
    for change in changes:
        with pytest.raises(InvalidArgument, match="the next tick of schedule a"):
            change()
    other = Queue.create(db, "else", root=queue._root)
    assert queue.purge(db, match="priority >= 0", states="scheduled").taken == 1
    assert queue.move(db, other, states="scheduled").taken == 0
    assert_depth(db, queue, scheduled=1)
    intact(db, queue)


@pytest.mark.parametrize(
    ("catch_up", "wanted"),
    [("last", [600]), ("all", [*range(60, 601, 60)]), ("none", [600])],
)
def test_ticks_that_were_missed_come_as_asked(
    db: fdb.Database, queue: Queue, clock: StoppedClock, catch_up: Any, wanted: list[int]
) -> None:
    queue.schedules.set(db, "a", every=60, catch_up=catch_up)
    # Of 540 and 600, the first is more than a minute late, and the second is not.
    clock.seconds = 601
    found = come(db, queue, clock)
    assert found == ([540, *wanted] if catch_up == "last" else wanted)
    clock.seconds = 660
    assert come(db, queue, clock) == [660]
    intact(db, queue)


def test_a_tick_is_left_out_while_the_message_before_it_is_not_done(
    db: fdb.Database, queue: Queue, clock: StoppedClock
) -> None:
    queue.schedules.set(db, "a", every=60, overlap="skip")
    clock.seconds = 60
    held = take(db, queue)

    def look(state: Callable[[], object] = lambda: None) -> int:
        state()
        clock.seconds += 60
        queue.admin.sweep(db)
        return queue.depth(db).ready

    # Leased, ready and put off, it is there
    assert look() == 0
    assert look(lambda: queue.release(db, held, delay=0)) == 1
    again = take(db, queue)
    assert look(lambda: queue.release(db, again, delay=3600)) == 0
    assert known(db, queue).skipped == 3
    clock.seconds += 3600
    third = take(db, queue)
    assert third.message.id == held.message.id
    # As a dead letter it is not
    assert look(lambda: queue.reject(db, third, "no")) == 1
    assert come(db, queue, clock) == [clock.seconds]
    assert look() == 1
    intact(db, queue)


def test_a_consumer_that_waits_makes_the_tick_itself(db: fdb.Database, space: fdb.Subspace) -> None:
    queue = Queue.create(db, "orders", root=space)
    queue.schedules.set(db, "a", b"x", every=1)
    found = take(db, queue, wait=DEADLINE)
    assert found.message.payload == b"x"


# -- changes ----------------------------------------------------------------------------------


def test_the_same_again_changes_nothing_and_other_times_begin_anew(
    db: fdb.Database, queue: Queue, clock: StoppedClock
) -> None:
    first = queue.schedules.set(db, "a", b"x", every=60)
    clock.seconds = 45
    assert queue.schedules.set(db, "a", b"x", every=60) == first
    assert_depth(db, queue, enqueued=1)
    # With the same times, the next tick stays, and has what is set now
    changed = queue.schedules.set(db, "a", b"y", every=60, priority=9)
    assert changed.next_ms == first.next_ms
    clock.seconds = 60
    (message,) = queue.receive_many(db, 9)
    assert (message.payload, message.message.priority) == (b"y", 9)
    changed = queue.schedules.set(db, "a", b"y", every=30)
    assert changed.next_ms == clock.begin_ms + 90_000
    assert changed.fired == 1
    queue.ack(db, message)
    clock.seconds = 120
    assert come(db, queue, clock) == [90, 120]
    intact(db, queue)


def test_a_pause_leaves_out_the_ticks_of_the_meantime(
    db: fdb.Database, queue: Queue, clock: StoppedClock
) -> None:
    queue.schedules.set(db, "a", every=60, catch_up="all")
    assert queue.schedules.pause(db, "a") == queue.schedules.pause(db, "a")
    assert_depth(db, queue, scheduled=0)
    clock.seconds = 200
    assert come(db, queue, clock) == []
    assert queue.schedules.set(db, "a", b"y", every=60, catch_up="all").paused
    assert_depth(db, queue, scheduled=0)
    intact(db, queue)
    resumed = queue.schedules.resume(db, "a")
    assert (resumed.paused, resumed.next_ms) == (False, clock.begin_ms + 240_000)
    clock.seconds = 240
    assert come(db, queue, clock) == [240]
    intact(db, queue)


def test_a_run_is_beside_the_ticks(db: fdb.Database, queue: Queue, clock: StoppedClock) -> None:
    queue.schedules.set(db, "a", b"x", every=60, overlap="skip")
    clock.seconds = 7
    message_id = queue.schedules.run(db, "a")
    assert known(db, queue).last_id == message_id
    clock.seconds = 60
    queue.admin.sweep(db)
    assert known(db, queue).skipped == 1
    assert come(db, queue, clock) == [7]
    clock.seconds = 120
    assert come(db, queue, clock) == [120]
    queue.schedules.pause(db, "a")
    queue.schedules.run(db, "a")
    assert_depth(db, queue, ready=1)
    intact(db, queue)


def test_a_deleted_schedule_leaves_what_has_come(
    db: fdb.Database, queue: Queue, clock: StoppedClock
) -> None:
    queue.schedules.set(db, "a", every=60)
    clock.seconds = 60
    queue.admin.sweep(db)
    assert queue.schedules.delete(db, "a")
    assert not queue.schedules.delete(db, "a")
    assert queue.schedules.get(db, "a") is None
    clock.seconds = 600
    assert come(db, queue, clock) == [60]
    everything = queue._keys.schedule.rows
    assert not list(db.get_range(everything.start, everything.stop))
    for missing in (queue.schedules.pause, queue.schedules.resume, queue.schedules.run):
        with pytest.raises(NotFound, match="no schedule 'a'"):
            missing(db, "a")
    intact(db, queue)


def test_schedules_are_part_of_the_callers_transaction(db: fdb.Database, queue: Queue) -> None:
    @transactional
    def both(tr: fdb.Transaction, fails: bool) -> None:
        queue.schedules.set(tr, "a", b"x", every=60)
        queue.schedules.set(tr, "a", b"y", every=90)
        assert known(tr, queue).payload == b"y"  # type: ignore[arg-type]
        queue.schedules.run(tr, "a")
        if fails:
            raise KeyError

    with pytest.raises(KeyError):
        both(db, True)
    assert queue.schedules.list(db) == []
    both(db, False)
    assert_depth(db, queue, ready=1, scheduled=1)
    intact(db, queue)


def test_schedules_are_listed_by_name_page_by_page(db: fdb.Database, queue: Queue) -> None:
    names = [f"s{n}" for n in range(7)]
    for name in names:
        queue.schedules.set(db, name, every=60)
    assert [each.name for each in queue.schedules.list(db)] == names
    assert [each.name for each in queue.schedules.list(db, 3)] == names[:3]
    assert [each.name for each in queue.schedules.list(db, 3, after="s2")] == names[3:6]
    assert queue.schedules.list(db, 3, after="s6") == []


def test_what_a_schedule_cannot_be_is_refused_before_anything_is_written(
    db: fdb.Database, queue: Queue, space: fdb.Subspace
) -> None:
    wrong: list[tuple[type[InvalidInput], dict[str, Any]]] = [
        (InvalidArgument, {"cron": "never"}),
        (InvalidArgument, {"every": 60, "overlap": "both"}),
        (InvalidArgument, {"every": 60, "catch_up": "some"}),
        (InvalidArgument, {"every": 60, "payload": bytes(90_501)}),
        (InvalidArgument, {"every": 60, "ttl": 0}),
        (InvalidArgument, {"every": 60, "headers": {"tick": 1}}),
        (InvalidArgument, {"every": 60, "priority": 10}),
        (InvalidInput, {"every": 60, "key": ""}),
    ]
    for error, terms in wrong:
        with pytest.raises(error):
            queue.schedules.set(db, "a", **terms)
    with pytest.raises(InvalidInput):
        queue.schedules.set(db, "", every=60)
    assert queue.schedules.list(db) == []
    assert_depth(db, queue, enqueued=0)


# -- verify -----------------------------------------------------------------------------------


def test_a_schedule_that_has_lost_its_tick_is_found_and_repaired(
    db: fdb.Database, queue: Queue, clock: StoppedClock
) -> None:
    queue.schedules.set(db, "a", every=60)
    delayed = queue._keys.delayed.rows
    ((key, value),) = [(kv.key, kv.value) for kv in db.get_range(delayed.start, delayed.stop)]
    del db[key]
    kinds = {each.kind for each in queue.admin.verify(db).deviations}
    assert "schedule without tick" in kinds
    queue.admin.repair(db)
    queue.admin.repair(db)  # Counters and places of the tick that was lost.
    clock.seconds = 60
    assert come(db, queue, clock) == [60]
    # And a tick that no schedule knows, which never comes
    keys, due_ms = queue._keys, clock.begin_ms + 70_000
    db[keys.delayed(5, due_ms, b"12345678")] = value
    db[keys.earliest(5)] = pack_time(due_ms)
    assert "tick without schedule" in {each.kind for each in queue.admin.verify(db).deviations}
    clock.seconds = 71
    assert come(db, queue, clock) == []


def test_a_schedule_that_cannot_be_read_waits_until_it_can(
    db: fdb.Database, queue: Queue, clock: StoppedClock
) -> None:
    queue.schedules.set(db, "a", every=60)
    queue.schedules.set(db, "b", every=60)
    key = queue._keys.schedule("a")
    value = db[key]
    assert value is not None
    db[key] = b"\x02" + value[1:]
    clock.seconds = 61
    assert [each.message.headers["schedule"] for each in queue.receive_many(db, 9)] == ["b"]
    assert "unreadable" in {each.kind for each in queue.admin.verify(db).deviations}
    db[key] = value
    clock.seconds = 121
    found = queue.receive_many(db, 9)
    assert sorted(tick(each.message) - clock.begin_ms / 1000 for each in found) == [60, 120]
    assert come(db, queue, clock) == [120]
    intact(db, queue)

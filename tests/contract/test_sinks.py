"""Sinks: what many tasks bring is enqueued once, whatever runs twice or ends halfway."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fdbqueue import Bounds, NewMessage, Queue
from fdbqueue.errors import (
    BatchLost,
    InvalidArgument,
    PayloadTooLarge,
    QueueFull,
    QueueNotFound,
    QueueReplaced,
    SinkBehind,
    SinkUnfinished,
)
from fdbqueue.messages import run
from fdbqueue.messages.streams import staging
from fdbqueue.messages.streams.undecided import KEPT_DAYS
from fdbqueue.queue.streams.sinks import ANONYMOUS_DAYS, Sink, anonymous
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.schema.streams import StagingAttempt
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import Clock
from fdbqueue.testing import ManualClock
from tests.progress import Steps
from tests.taking import ready

Database = fdb.Database


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows to a transaction."""
    monkeypatch.setattr(staging, "STEP_ROWS", 3)
    monkeypatch.setattr("fdbqueue.messages.streams.packing.PIECE_ROWS", 2)
    monkeypatch.setattr("fdbqueue.queue.streams.sinks.FLUSH_PIECES", 2)


@pytest.fixture
def sink(queue: Queue) -> Sink:
    return queue.streams.sink("a")


def staged(db: Database, sink: Sink, batch: int, rows: Sequence[bytes]) -> StagingAttempt:
    """An attempt that brings plain rows."""
    stager = sink.stage(db, batch)
    for row in rows:
        stager.plain(row, 4)
    return stager.finish()


def publish(db: Database, sink: Sink, batch: int, *attempts: StagingAttempt) -> None:
    sink.publish(db, batch, attempts, room=0)


def left_over(db: Database, queue: Queue) -> int:
    """Keys that staging keeps, but for those that say how far the sinks have come."""
    return stored(db, queue) - len(queue.streams.sinks(db))


def stored(db: Database, queue: Queue) -> int:
    kinds = (
        queue._keys.kind(kind) for kind in (QueueKeys.staged, QueueKeys.attempt, QueueKeys.sink)
    )
    return sum(len(db.get_range(each.start, each.stop)) for each in kinds)


def rows(count: int, name: str = "row") -> list[bytes]:
    return [f"{name} {n}".encode() for n in range(count)]


def test_rows_are_enqueued_in_the_order_of_attempts_and_rows(
    db: Database, queue: Queue, sink: Sink, small_steps: None
) -> None:
    first, second = staged(db, sink, 0, rows(7)), staged(db, sink, 0, rows(4, "other"))
    none = staged(db, sink, 0, [])
    assert queue.depth(db).enqueued == 0

    told = Steps()
    sink.publish(db, 0, [none, first, second], progress=told)

    assert ready(db, queue) == rows(7) + rows(4, "other")
    assert told[-1].published == 11
    assert len(told) > 2
    assert sink.state(db).done == 0
    assert left_over(db, queue) == 0
    assert queue.admin.verify(db).ok


def test_an_attempt_that_does_not_count_leaves_nothing(
    db: Database, queue: Queue, sink: Sink
) -> None:
    # Given a task that ran twice, and staged its rows both times, in another order
    wins, loses = staged(db, sink, 0, rows(3)), staged(db, sink, 0, rows(3)[::-1])

    publish(db, sink, 0, wins)

    assert loses.rows == 3
    assert ready(db, queue) == rows(3)
    assert left_over(db, queue) == 0


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("steps", range(1, 4))
@pytest.mark.promise(9)
def test_a_driver_that_is_killed_is_gone_on_with(
    db: Database, queue: Queue, sink: Sink, steps: int
) -> None:
    # Given a driver that has published some steps of a batch
    attempt = staged(db, sink, 0, rows(8))
    sink.publish(db, 0, [attempt], progress=Steps(steps))

    # When the tasks run again, and another driver publishes what they bring
    again = staged(db, sink, 0, rows(8)[::-1])
    publish(db, sink, 0, again)

    # Then each row was enqueued once, and once it had begun, from the first attempt
    assert sorted(ready(db, queue)) == rows(8)
    assert again.rows == 8
    assert ready(db, queue) == rows(8)
    assert left_over(db, queue) == 0


def test_a_task_that_is_late_cannot_stage(db: Database, queue: Queue, sink: Sink) -> None:
    # Given a transaction of a task that has looked, and not yet committed
    attempt = staged(db, sink, 0, rows(2))
    late = db.create_transaction()
    other = replace(attempt, name=b"late", pieces=1)
    assert staging.stage(late, queue._scope(late), "a", 0, other, [b"piece"])

    publish(db, sink, 0, attempt)

    with pytest.raises(fdb.FDBError) as raised:
        late.commit().wait()
    assert raised.value.code == 1020
    assert left_over(db, queue) == 0


def test_a_write_that_is_given_up_leaves_nothing(db: Database, queue: Queue, sink: Sink) -> None:
    given_up, counts = staged(db, sink, 0, rows(3)), staged(db, sink, 0, rows(2))
    sink.discard(db, 0, [given_up])
    publish(db, sink, 0, counts)
    # What is decided is not given up any more.
    begun = staged(db, sink, 1, rows(3, "x"))
    sink.publish(db, 1, [begun], progress=Steps(1))
    sink.discard(db, 1, [begun])
    publish(db, sink, 1)

    assert ready(db, queue) == rows(2) + rows(3, "x")
    assert left_over(db, queue) == 0


def test_a_batch_waits_for_the_one_before(
    db: Database, queue: Queue, sink: Sink, small_steps: None
) -> None:
    sink.publish(db, 0, [staged(db, sink, 0, rows(8))], progress=Steps(1))

    with pytest.raises(SinkBehind, match="batch 0 is not fully published"):
        publish(db, sink, 1, staged(db, sink, 1, rows(1)))

    sink.forget(db)
    assert queue.streams.sinks(db) == {}
    assert left_over(db, queue) == 0


def test_a_sink_that_is_removed_meanwhile_is_an_error(
    db: Database, sink: Sink, small_steps: None
) -> None:
    attempt = staged(db, sink, 0, rows(8))
    with pytest.raises(SinkUnfinished, match="removed"):
        sink.publish(db, 0, [attempt], progress=lambda _: sink.forget(db))


def test_whatever_an_enqueue_takes(db: Database, queue: Queue, sink: Sink) -> None:
    stager = sink.stage(db, 0)
    stager.plain(b"plain", 9, {"region": "eu", "n": 7})
    stager.add(NewMessage(b"later", delay=3600))
    stager.add(NewMessage(b"once", dedup_id="d"))
    stager.add(NewMessage(b"twice", dedup_id="d"))
    stager.add(NewMessage(b"mortal", 0, ttl=3600))
    stager.add(NewMessage(b"k1", key="k"))
    stager.add(NewMessage(b"k2", key="k"))
    stager.add(NewMessage(b"u1", unique="u"))
    stager.add(NewMessage(b"u2", unique="u"))
    publish(db, sink, 0, stager.finish())

    depth = queue.depth(db)
    counted = depth.enqueued, depth.scheduled, depth.ready, depth.waiting
    assert counted == (7, 1, 5, 1)
    assert sink.state(db).new == 7
    first, *rest = queue.peek(db, 9)
    assert (first.payload, first.priority, first.headers) == (b"plain", 9, {"region": "eu", "n": 7})
    assert [each.payload for each in rest] == [b"once", b"k1", b"u1", b"mortal"]
    assert rest[-1].expires_at_ms is not None
    assert queue.admin.verify(db).ok


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_payloads_of_any_size(db: Database, queue: Queue, sink: Sink, compression: str) -> None:
    queue.set_options(db, compression=compression)
    sizes = [0, 89_000, 90_000, 100_000, 5_000_000, 10, 300_000]
    large = [bytes([n]) * size for n, size in enumerate(sizes)]

    publish(db, sink, 0, staged(db, sink, 0, large))

    found = [each.payload for each in iter(lambda: queue.receive(db, at_most_once=True), None)]
    assert [len(each) for each in found] == sizes
    assert found == large
    assert queue.admin.verify(db).ok


def test_what_no_queue_takes_is_refused_before_anything_is_enqueued(
    db: Database, queue: Queue, sink: Sink
) -> None:
    queue.set_options(db, max_payload=1_000)
    stager = sink.stage(db, 0)
    with pytest.raises(InvalidArgument):
        stager.plain(b"", 10)
    with pytest.raises(InvalidArgument):
        stager.plain(b"", 4, {"x": [1]})  # type: ignore[dict-item]
    with pytest.raises(PayloadTooLarge):
        stager.plain(bytes(1_001), 4)
    with pytest.raises(PayloadTooLarge):
        stager.add(NewMessage(bytes(1_001)))
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        sink.stage(db, 0)
    with pytest.raises(QueueNotFound):
        publish(db, sink, 0)


def test_rows_that_are_more_than_a_transaction_takes_come_in_smaller_steps(
    db: Database, queue: Queue, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given steps that are by far too large
    monkeypatch.setattr(staging, "STEP_BYTES", 100_000_000)
    stager = sink.stage(db, 0)
    for n in range(1_500):
        stager.plain(b"%d" % n, 4, {"large": "x" * 7_990})

    publish(db, sink, 0, stager.finish())

    assert ready(db, queue) == [b"%d" % n for n in range(1_500)]


def test_transactions_that_take_too_long_become_smaller(
    db: Database, queue: Queue, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "STEP_ROWS", 8)
    monkeypatch.setattr("fdbqueue.messages.streams.packing.PIECE_ROWS", 2)
    monkeypatch.setattr("fdbqueue.queue.streams.sinks._SLOW_SECONDS", -1.0)
    attempt = staged(db, sink, 0, rows(20))

    told = Steps()
    sink.publish(db, 0, [attempt], progress=told)

    assert [each.published for each in told[:3]] == [8, 12, 14]
    assert ready(db, queue) == rows(20)


# -- blocks -----------------------------------------------------------------------------------


def test_what_is_staged_together_becomes_blocks(db: Database, queue: Queue, sink: Sink) -> None:
    # Given two tasks that bring rows of two levels in turn, and one that brings a few
    def brought(count: int, before: int) -> StagingAttempt:
        stager = sink.stage(db, 0)
        for n in range(before, before + count):
            stager.plain(b"%d" % n, n % 2)
        return stager.finish()

    attempts = [brought(2_400, 0), brought(3, 2_400), brought(600, 2_403)]

    sink.publish(db, 0, attempts)

    # Then they share rows, as few as these may be, and each level is in order
    every = queue._keys.ready.rows
    held = [len(row) for row in run.rows(queue._keys, db.get_range(every.start, every.stop))]
    assert held == [1_000, 501, 1_000, 502]
    assert queue.depth(db).ready == queue.depth(db).enqueued == 3_003
    got = [each.payload for each in queue.browse(db)]
    for level in (0, 1):
        assert [n for n in map(int, got) if n % 2 == level] == list(range(level, 3_003, 2))
    assert queue.admin.verify(db).ok


# -- bounded queues ---------------------------------------------------------------------------


def test_a_full_queue_holds_publishing_up(db: Database, queue: Queue, sink: Sink) -> None:
    # Given a queue that is far too small for the batch, and lets producers wait
    queue.set_options(db, bounds=Bounds(messages=10, when_full="block"))
    attempt = staged(db, sink, 0, rows(30))
    with pytest.raises(SinkUnfinished, match=r"of 30 rows .*queue .* is full"):
        publish(db, sink, 0, attempt)
    held = queue.depth(db).ready
    assert 8 <= held <= 10

    # When a consumer makes room, and it is gone on with
    taken: list[bytes] = []
    for _ in range(30):
        message = queue.receive(db, at_most_once=True)
        assert message is not None
        taken.append(message.payload)
        if queue.depth(db).ready < 8:
            sink.publish(db, 0, [attempt], room=60, progress=Steps(1))

    assert taken == rows(30)


def test_a_queue_that_rejects_takes_all_of_a_batch_or_nothing(
    db: Database, queue: Queue, sink: Sink
) -> None:
    queue.set_options(db, bounds=Bounds(messages=10))
    attempt = staged(db, sink, 0, rows(11))
    with pytest.raises(QueueFull):
        publish(db, sink, 0, attempt)
    sink.discard(db, 0, [attempt])

    assert queue.depth(db).enqueued == 0
    assert left_over(db, queue) == 0
    publish(db, sink, 0, staged(db, sink, 0, rows(10)))
    assert ready(db, queue) == rows(10)


# -- what else happens in a queue -------------------------------------------------------------


def test_history_tells_of_every_row(db: Database, queue: Queue, sink: Sink) -> None:
    queue.set_options(db, history_seconds=60)
    publish(db, sink, 0, staged(db, sink, 0, rows(5)))
    ids = [message.id for message in queue.browse(db)]
    assert [event.id for event in queue.history(db)] == ids


def test_what_a_write_without_a_name_left_is_swept(db: Database, queue: Queue, sink: Sink) -> None:
    now_ms = Clock().wall_ms()
    day_ms = 24 * 3600 * 1000
    old = queue.streams.sink(anonymous(now_ms - (ANONYMOUS_DAYS + 1) * day_ms))
    fresh = queue.streams.sink(anonymous(now_ms - (ANONYMOUS_DAYS - 1) * day_ms))
    attempts = [staged(db, each, 0, rows(3)) for each in (old, fresh, sink)]

    publish(db, queue.streams.sink("other"), 0)

    with pytest.raises(BatchLost):
        publish(db, old, 0, attempts[0])
    publish(db, fresh, 0, attempts[1])
    publish(db, sink, 0, attempts[2])
    assert ready(db, queue) == rows(3) * 2


# -- drivers that die before they decide ------------------------------------------------------


@pytest.mark.usefixtures("small_steps")
def test_what_a_driver_that_died_has_left_is_counted_and_can_be_forgotten(
    db: Database, queue: Queue, sink: Sink
) -> None:
    # Given a task that is done, one that runs, and a batch that was published before
    publish(db, sink, 0, staged(db, sink, 0, rows(2)))
    staged(db, sink, 1, rows(5))
    running = sink.stage(db, 1)
    for row in rows(9):
        running.plain(row, 4)
    other = queue.streams.sink("other")
    staged(db, other, 0, rows(3))

    found = queue.streams.undecided(db)

    assert {name: (each.attempts, each.rows) for name, each in found.items()} == {
        "a": (2, 5 + 8),
        "other": (1, 3),
    }
    assert found["other"].size == sum(map(len, rows(3)))
    verified = queue.admin.verify(db)
    assert verified.ok
    assert verified.staged == 16
    other.forget(db)
    sink.forget(db)
    assert queue.streams.undecided(db) == {}
    assert left_over(db, queue) == 0
    # and who goes on with what is no more is told so
    running.plain(b"more", 4)
    with pytest.raises(BatchLost):
        running.finish()


def test_what_nobody_comes_back_to_is_removed_after_a_week(
    db: Database, space: fdb.Subspace, small_steps: None
) -> None:
    clock = ManualClock()
    queue = Queue.create(db, "orders", root=space, clock=clock)
    begun, dead, late = (
        queue.streams.sink("begun"),
        queue.streams.sink("dead"),
        queue.streams.sink("late"),
    )
    begun.publish(db, 0, [staged(db, begun, 0, rows(8))], progress=Steps(1))
    lost = staged(db, dead, 0, rows(3))
    clock.seconds += KEPT_DAYS * 24 * 3600 - 60
    kept = staged(db, late, 0, rows(2))
    clock.wall_only = 10 * 24 * 3600  # a machine whose clock is wrong
    assert queue.admin.sweep(db).staged == 0
    clock.wall_only = 0
    clock.seconds += 120
    assert queue.admin.sweep(db).staged == 3
    assert {*queue.streams.undecided(db)} == {"late"}
    with pytest.raises(BatchLost, match="write them again"):
        publish(db, dead, 0, lost)

    # Another write removes it, too
    staged(db, dead, 0, rows(3))
    clock.seconds += KEPT_DAYS * 24 * 3600 + 60
    publish(db, late, 1)
    assert queue.streams.undecided(db) == {}
    assert kept.rows == 2
    # and what is decided stays, however long ago that was
    begun.finish(db)
    assert ready(db, queue) == rows(8)
    assert left_over(db, queue) == 0


def test_rows_for_a_queue_that_was_made_anew_are_refused(
    db: Database, queue: Queue, space: fdb.Subspace
) -> None:
    sink = queue.streams.sink("a")
    attempt, running, late = staged(db, sink, 0, rows(3)), sink.stage(db, 0), sink.stage(db, 0)
    running.plain(b"row", 4)
    late.plain(b"row", 4)
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        running.finish()
    running.discard()
    assert stored(db, queue) == 0
    Queue.create(db, queue.name, root=space)
    staged(db, sink, 0, rows(1))
    with pytest.raises(QueueReplaced):
        late.finish()
    late.discard()
    with pytest.raises(QueueReplaced):
        publish(db, sink, 0, attempt)
    sink.discard(db, 0, [attempt])
    assert queue.streams.undecided(db)["a"].rows == 1
    assert queue.depth(db).enqueued == 0


def test_what_is_staged_is_verified(db: Database, queue: Queue, sink: Sink) -> None:
    attempts = [staged(db, sink, 1, rows(3)) for _ in range(3)]
    keys = queue._keys
    first, second, _ = (each.name for each in attempts)
    del db[keys.attempt("a", 1, first)]
    del db[keys.staged("a", 1, second, 0)]
    found = queue.admin.repair(db).deviations
    assert [(each.kind, each.repaired) for each in found] == [
        ("staged without attempt", True),
        ("staged rows missing", False),
    ]
    sink.discard(db, 1, attempts[1:2])
    assert queue.admin.verify(db).ok
    publish(db, sink, 1, attempts[2])
    assert left_over(db, queue) == 0

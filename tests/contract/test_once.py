"""Exactly once under unknown outcomes: every operation, under every plan of faults."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import NoReturn, cast

import pytest

from fdbqueue import Depth, Queue
from fdbqueue.errors import OperationTimedOut, OutcomeUnknown
from fdbqueue.schema import once
from fdbqueue.store.binding import DEFAULT, Engine, fdb
from fdbqueue.store.clocks import SYSTEM_CLOCK
from tests.flaky import (
    CONFLICT,
    PLANS,
    TIMED_OUT_COMMITTED,
    TIMED_OUT_LOST,
    UNKNOWN_COMMITTED,
    UNKNOWN_LOST,
    FlakyDatabase,
)
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace

CANCELLED = 1101


def flaky(db: Database, plan: Sequence[str | None]) -> Database:
    return cast("Database", FlakyDatabase(db, plan))


@pytest.mark.parametrize("plan", PLANS, ids=", ".join)
@pytest.mark.promise(6)
def test_every_operation_takes_effect_once(
    db: Database, queue: Queue, plan: Sequence[str | None]
) -> None:
    ids = queue.enqueue_many(flaky(db, plan), [b"a", b"b", b"c"])
    assert [m.id for m in queue.peek(db, 9)] == ids
    message = queue.receive(flaky(db, plan), at_most_once=True)
    assert message is not None
    assert message.id == ids[0]
    delivery = take(flaky(db, plan), queue)
    assert delivery.id == ids[1]
    delivery = queue.extend(flaky(db, plan), delivery, 60)
    queue.release(flaky(db, plan), delivery)
    delivery = take(flaky(db, plan), queue, wait=5)
    assert delivery.id == ids[1]
    queue.ack(flaky(db, plan), delivery)
    assert queue.depth(db) == Depth(enqueued=3, ready=1, done=2, ready_bytes=1)


@pytest.mark.parametrize("plan", PLANS, ids=", ".join)
def test_a_queue_is_created_and_deleted_once(
    db: Database, space: Subspace, plan: Sequence[str | None]
) -> None:
    queue = Queue.create(flaky(db, plan), "orders", root=space)
    queue.delete(flaky(db, plan))


def test_the_result_is_that_of_the_attempt_that_committed(db: Database, queue: Queue) -> None:
    numbers = itertools.count()
    result = once.run(
        flaky(db, [CONFLICT, UNKNOWN_COMMITTED]), queue._keys.once, lambda tr: next(numbers)
    )
    assert result == 1


@pytest.mark.parametrize("fault", [UNKNOWN_COMMITTED, UNKNOWN_LOST])
def test_an_error_that_cannot_be_retried_leaves_no_outcome_open(
    db: Database, queue: Queue, fault: str
) -> None:
    # Given a commit with an unknown outcome, behind which no retry is possible
    SYSTEM_CLOCK.now_ms(db)  # which takes a transaction of its own the first time
    troubled = FlakyDatabase(db, [fault])
    create = troubled.create_transaction

    def last(error: fdb.FDBError) -> NoReturn:
        raise fdb.FDBError(CANCELLED)

    def first() -> fdb.Transaction:
        tr = create()
        tr.on_error = last  # type: ignore[method-assign,assignment]
        troubled.create_transaction = create  # type: ignore[method-assign]
        return tr

    troubled.create_transaction = first  # type: ignore[method-assign]
    # Then the call ends as the commit did
    if fault == UNKNOWN_COMMITTED:
        message_id = queue.enqueue(cast("Database", troubled), b"x")
        assert [m.id for m in queue.peek(db, 9)] == [message_id]
    else:
        with pytest.raises(fdb.FDBError) as raised:
            queue.enqueue(cast("Database", troubled), b"x")
        assert raised.value.code == CANCELLED
        assert queue.depth(db) == Depth()


@pytest.mark.parametrize("minutes", [once.KEPT_MINUTES, -1], ids=["later", "back in time"])
@pytest.mark.promise(6)
def test_a_record_that_may_be_gone_is_an_error_and_no_second_effect(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    # Given a database that is asked twice what time it is, and by then may have lost a record
    now = itertools.count(100, minutes)
    monkeypatch.setattr(once, "TRUSTED_SECONDS", -1.0)
    monkeypatch.setattr(once, "_minute", lambda tr: next(now))
    # When the outcome of a commit is unknown, then it stays unknown
    with pytest.raises(OutcomeUnknown, match="once or not at all"):
        once.run(flaky(db, [UNKNOWN_LOST]), queue._keys.once, lambda tr: "done")
    assert next(now) == 100 + 2 * minutes


def test_a_record_is_kept_by_the_minute_in_its_key(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The minute of a record may be one that was read before: then others remove it sooner."""
    store = flaky(db, [None, UNKNOWN_LOST])
    queue.enqueue(store, b"x")
    known = once._minute(db.create_transaction())
    monkeypatch.setattr(once, "_minute", lambda tr: known + once.KEPT_MINUTES)
    with pytest.raises(OutcomeUnknown, match="once or not at all"):
        once.run(store, queue._keys.once, lambda tr: "done")


def test_old_records_are_swept(db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    records = queue._keys.once
    everything = records.before(10**9)

    def count() -> int:
        return len(db.get_range(everything.start, everything.stop))

    monkeypatch.setattr(once, "TRUSTED_SECONDS", -1.0)
    for n in range(5):
        monkeypatch.setattr(once, "_minute", lambda tr, n=n: 1_000_000 + n * once.KEPT_MINUTES)
        queue.enqueue(db, b"x")
    assert count() == 2, "the last two: the older ones were swept"


def _records(db: Database, queue: Queue) -> list[bytes]:
    everything = queue._keys.once.before(10**9)
    return [bytes(kv.key) for kv in db.get_range(everything.start, everything.stop)]


def test_operations_at_the_same_time_have_records_of_their_own(db: Database, queue: Queue) -> None:
    keys, counter = queue._keys.once, queue._keys.prefix + b"counter"
    queue.enqueue(db, b"x")

    def add(tr: fdb.Transaction) -> None:
        tr.add(counter, (1).to_bytes(8, "little"))

    def outer(tr: fdb.Transaction) -> int:
        tries.append(1)
        tr.get(b"a").wait()
        once.run(db, keys, add)
        add(tr)
        return len(tries)

    tries: list[int] = []
    # One that ends while the other runs gives its record to the next, not to the other.
    before = set(_records(db, queue))
    assert once.run(db, keys, outer) == 1
    assert once.run(db, keys, outer) == 2
    assert len(set(_records(db, queue)) - before) == 1
    assert int.from_bytes(db[counter] or b"", "little") == 4


@pytest.mark.parametrize("fault", [TIMED_OUT_COMMITTED, TIMED_OUT_LOST])
def test_a_record_with_the_number_of_another_operation_settles_nothing(
    db: Database, queue: Queue, fault: str
) -> None:
    store = flaky(db, [None, fault])
    once.run(store, queue._keys.once, lambda tr: "first")
    if fault == TIMED_OUT_COMMITTED:
        assert once.run(store, queue._keys.once, lambda tr: "second") == "second"
    else:
        with pytest.raises(OperationTimedOut):
            once.run(store, queue._keys.once, lambda tr: "second")
    assert once.run(store, queue._keys.once, lambda tr: "third") == "third"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_uses_no_record_of_its_parent(db: Database, queue: Queue) -> None:
    if DEFAULT.engine is not Engine.EMBEDDED:
        pytest.skip("a forked child cannot use a cluster")
    queue.enqueue(db, b"x")
    (record,) = queue._keys.once.latest.free
    value = db[record.key]
    child = os.fork()
    if not child:
        try:
            queue.enqueue(db, b"y")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert len(queue.peek(db, 9)) == 2
    assert db[record.key] == value
    assert len(_records(db, queue)) == 2

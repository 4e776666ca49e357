"""The states of messages as people count them: ``depth`` counts what is listed and shown."""

from __future__ import annotations

from fdbqueue import KeyLimits, NewMessage, Queue
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.taking import take

Database = fdb.Database
COUNTED = ("ready", "waiting", "retrying", "scheduled")
STRIPE = {"api": "stripe"}


def counts(db: Database, queue: Queue) -> tuple[int, ...]:
    """What a queue counts, once it is known that it lists the same, and each message says it."""
    depth = queue.depth(db)
    for state in COUNTED:
        listed = queue.messages(db, state)
        found = [queue.get(db, each.id) for each in listed]
        assert [each and each.state.value for each in found] == [state] * getattr(depth, state)
        assert queue.count(db, states=state).taken == len(listed)
        assert queue.count(db, [each.id for each in listed]).taken == len(listed)
    assert queue.admin.verify(db).ok
    return tuple(getattr(depth, state) for state in COUNTED)


def test_who_counts_by_ids_counts_what_there_is(db: Database, queue: Queue) -> None:
    ready, leased, done, purged = queue.enqueue_many(
        db, [NewMessage(b"", priority=each) for each in (1, 2, 3, 4)]
    )
    assert queue.purge(db, purged)
    queue.ack(db, take(db, queue))
    assert take(db, queue).id == leased
    assert [queue.count(db, each).taken for each in (ready, leased, done, purged)] == [1, 1, 0, 0]


def test_what_waits_for_a_key_is_waiting_until_it_gets_the_slot(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [NewMessage(b"", key="k", priority=n) for n in (3, 9, 1)])
    assert counts(db, queue) == (1, 2, 0, 0)
    held = take(db, queue)
    assert counts(db, queue) == (0, 2, 0, 0)
    queue.ack(db, held)
    assert counts(db, queue) == (1, 1, 0, 0)
    queue.set_options(db, keys=KeyLimits(concurrency=9))
    assert counts(db, queue) == (2, 0, 0, 0)


def test_what_waits_for_a_limit_is_counted_in_its_own_queue(
    db: Database, queues: tuple[Queue, Queue]
) -> None:
    one, two = queues
    one.limits["api", "stripe"].set(db, concurrency=1)
    one.enqueue(db, b"", limits=STRIPE)
    two.enqueue_many(db, [NewMessage(b"", key="k", limits=STRIPE) for _ in range(3)])
    assert (counts(db, one), counts(db, two)) == ((1, 0, 0, 0), (0, 3, 0, 0))
    one.ack(db, take(db, one))
    assert (counts(db, one), counts(db, two)) == ((0, 0, 0, 0), (1, 2, 0, 0))


def test_one_that_has_failed_is_retrying_and_no_other(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    failed, _, again = queue.enqueue_many(db, [b"failed", b"later", b"again"])
    queue.release(db, take(db, queue), error="no", delay=5)
    queue.release(db, take(db, queue), delay=5)
    queue.edit(db, again, delay=60)
    queue.enqueue(db, b"scheduled", delay=60)
    assert counts(db, queue) == (0, 0, 1, 3)
    assert [each.id for each in queue.messages(db, "retrying")] == [failed]
    assert queue.edit(db, priority=9, states="retrying", match="TRUE").taken == 1
    assert counts(db, queue) == (0, 0, 1, 3)

    # Retried are those that fail, and not what was scheduled
    assert queue.retry(db, states="retrying").taken == 1
    assert counts(db, queue) == (1, 0, 0, 3)
    assert take(db, queue).id == failed


def test_one_of_few_is_found_behind_many_others(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [NewMessage(b"", delay=60) for _ in range(1_500)])
    failed = queue.enqueue(db, b"failed")
    queue.release(db, take(db, queue), error="no", delay=3600)
    assert [each.id for each in queue.messages(db, "retrying")] == [failed]
    assert queue.depth(db).retrying == 1
    with_transaction = db.create_transaction()
    assert [each.id for each in queue.messages(with_transaction, "retrying")] == [failed]


def test_a_newer_one_in_its_place_has_not_failed(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"old", unique="u")
    queue.release(db, take(db, queue), error="no", delay=60)
    queue.enqueue(db, b"new", unique="u", on_conflict="replace", delay=90)
    assert sum(counts(db, queue)) == 1

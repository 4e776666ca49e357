"""Cancelling messages that are leased: none is delivered again, and what is done is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fdbqueue import (
    Delivery,
    Depth,
    Message,
    Queue,
    Reject,
    Retry,
    Snooze,
)
from fdbqueue.errors import LeaseLost
from fdbqueue.messages.delivery import cancellation
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock, drain
from fdbqueue.values.states import State
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue("jobs", lease=60, backoff=None, history_seconds=3600)
Settlement = Callable[[Queue, Database, Delivery], object]


def expired(queue: Queue, db: Database, delivery: Delivery) -> None:
    clock = queue._clock
    assert isinstance(clock, ManualClock)
    clock.seconds += 61
    queue.admin.sweep(db)


FAILURES: dict[str, Settlement] = {
    "release": lambda queue, db, each: queue.release(db, each),
    "release later": lambda queue, db, each: queue.release(db, each, delay=5),
    "release with an error": lambda queue, db, each: queue.release(db, each, error="no"),
    "reject": lambda queue, db, each: queue.reject(db, each, "bad"),
    "drop": lambda queue, db, each: queue.reject(db, each, "bad", drop=True),
    "expire": expired,
}


@pytest.mark.parametrize("end", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("others", [0, 3])
def test_whatever_ends_its_lease_it_is_never_delivered_again(
    db: Database, queue: Queue, end: Settlement, others: int
) -> None:
    # Also in a row with others
    job, *_ = queue.enqueue_many(db, [b"x"] * (1 + others))
    delivery, *rest = queue.receive_many(db, 1 + others)
    assert delivery.id == job
    assert queue.cancel(db, job)
    state = queue.get(db, job)
    assert state is not None
    assert (state.state, state.cancelled) == (State.LEASED, True)
    queue.ack(db, rest)
    end(queue, db, delivery)
    assert queue.get(db, job) is None
    assert queue.depth(db) == Depth(enqueued=others + 1, done=others, purged=1)
    told = [each.transition for each in queue.history(db) if each.id == job]
    assert told == ["enqueue", "lease", "request cancel", "cancel"]
    with pytest.raises(LeaseLost):
        queue.ack(db, delivery)
    assert queue.admin.verify(db).ok


def test_what_is_acknowledged_is_done_with_its_effects(db: Database, queue: Queue) -> None:
    job, delivery = queue.enqueue(db, b"job"), take(db, queue)
    queue.cancel(db, job)
    queue.ack(db, delivery)
    assert queue.depth(db) == Depth(enqueued=1, done=1)
    assert queue.admin.verify(db).ok


def test_it_is_cancelled_once(db: Database, queue: Queue) -> None:
    job = queue.enqueue(db, b"job")
    take(db, queue)
    assert queue.cancel(db, job)
    assert not queue.cancel(db, job)
    assert queue.depth(db).leased == 1
    assert not queue.cancel(db, "05-0000000000ff-0123456789abcdef")


@pytest.mark.parametrize("count", [2, 9, 300])
def test_others_of_its_row_stay_as_they_are(db: Database, queue: Queue, count: int) -> None:
    ids = queue.enqueue_many(db, [b"%d" % n for n in range(count)])
    held = queue.receive_many(db, count)
    gone = {ids[0], ids[count // 2], ids[-1]}
    for each in gone:
        queue.cancel(db, each)
    assert queue.admin.verify(db).ok
    assert {each.delivery.id for each in queue.admin.leases(db) if each.delivery.cancelled} == gone
    named = {each.token: each.id for each in held}
    assert {named[token] for token in requested(db, queue, held)} == gone
    renewed = queue.extend(db, held)
    assert {each.id for each in renewed if each.cancelled} == gone
    queue.release(db, renewed)
    assert queue.depth(db) == Depth(
        enqueued=count,
        ready=count - len(gone),
        purged=len(gone),
        ready_bytes=sum(len(b"%d" % n) for n in range(count) if ids[n] not in gone),
    )
    assert [each.id for each in queue.peek(db, count)] == [each for each in ids if each not in gone]
    again = queue.receive_many(db, count)
    assert requested(db, queue, held) == requested(db, queue, again) == frozenset()
    assert queue.admin.verify(db).ok


def requested(db: Database, queue: Queue, held: Sequence[Delivery]) -> frozenset[bytes]:
    """What a worker that holds these is told."""

    @fdb.transactional
    def look(tr: fdb.Transaction) -> frozenset[bytes]:
        return cancellation.requested(tr, queue._scope(tr), held)

    return look(db)


def test_cancellations_of_two_messages_do_not_conflict(db: Database, queue: Queue) -> None:
    ids = [queue.enqueue(db, b"job") for _ in range(3)]
    held = queue.receive_many(db, 3)
    queue.cancel(db, ids[0])
    first, second, looking = (db.create_transaction() for _ in range(3))
    looking.get_read_version().wait()
    queue.cancel(first, ids[1])
    queue.cancel(second, ids[2])
    first.commit().wait()
    second.commit().wait()
    # Who looks has no conflict, either.
    assert len(cancellation.requested(looking, queue._scope(looking), held)) == 1
    looking[queue._root.pack(("looked",))] = b""
    looking.commit().wait()


def test_a_batch_learns_it_and_is_settled_by_its_verdicts(db: Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, [b"%d" % n for n in range(20)])
    batch = queue.receive_batch(db, 20)
    assert not any(each.cancelled for each in queue.extend(db, batch))
    for each in ids[:4]:
        queue.cancel(db, each)
    batch = queue.extend(db, batch)
    assert [each.id for each in batch if each.cancelled] == ids[:4]
    queue.settle(
        db,
        batch,
        {ids[0]: Retry(), ids[1]: Reject("bad"), ids[2]: Snooze(1), ids[9]: Retry(seconds=0)},
    )
    depth = queue.depth(db)
    assert (depth.done, depth.purged, depth.ready, depth.dead) == (16, 3, 1, 0)
    assert queue.admin.verify(db).ok


def test_a_receiver_without_a_worker_learns_it(db: Database, queue: Queue) -> None:
    job, delivery = queue.enqueue(db, b"job"), take(db, queue)
    assert not queue.extend(db, delivery).cancelled
    queue.cancel(db, job)
    assert queue.extend(db, delivery).cancelled
    named = queue.admin.delivery(db, delivery.token)
    assert named is not None
    assert named.cancelled


def test_it_gives_its_unique_key_up_at_once(db: Database, queue: Queue) -> None:
    job = queue.enqueue(db, b"job", unique="u")
    delivery = take(db, queue)
    queue.cancel(db, job)
    other = queue.enqueue(db, b"other", unique="u")
    assert other != job
    queue.release(db, delivery)
    assert queue.enqueue(db, b"other", unique="u") == other, "the other one holds it now"
    assert queue.admin.verify(db).ok


# -- handlers ---------------------------------------------------------------------------------


def test_a_handler_that_fails_after_it_is_not_called_again(db: Database, queue: Queue) -> None:
    calls = []

    def handle(message: Message) -> None:
        calls.append(message.id)
        queue.cancel(db, message.id)
        raise Retry(seconds=0)

    queue.enqueue(db, b"job")
    drain(db, queue, handle, failures=True)
    assert len(calls) == 1
    assert queue.depth(db) == Depth(enqueued=1, purged=1)

"""A batch: messages that are received together, and settled whole or each by its verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fdbqueue import Batch, Delivery, Queue, Reject, Retry, Snooze, State
from fdbqueue.errors import InvalidArgument, LeaseLost
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.audit import sound

pytestmark = pytest.mark.queue(lease=60, max_attempts=2, backoff=None, levels=2)


HUNDRED = [b"%02d" % n for n in range(100)]


def rows(db: fdb.Database, queue: Queue[Any], *kinds: Kind) -> int:
    ranges = [
        queue._keys.kind(kind)
        for kind in kinds or (QueueKeys.lease, QueueKeys.until, QueueKeys.expiry)
    ]
    return sum(len(list(db.get_range(every.start, every.stop))) for every in ranges)


def states(db: fdb.Database, queue: Queue[Any], batch: Batch[Any]) -> list[State | None]:
    found = [queue.get(db, each.id) for each in batch]
    return [None if each is None else each.state for each in found]


# -- what it is -----------------------------------------------------------------------------------


def test_a_batch_is_a_sequence_of_deliveries(db: fdb.Database, queue: Queue[bytes]) -> None:
    ids = queue.enqueue_many(db, HUNDRED)
    batch = queue.receive_batch(db, 70, consumer="me")
    assert len(batch) == 70
    assert [each.id for each in batch] == ids[:70]
    assert [batch[n] for n in range(70)] == list(batch)
    assert (batch[-1].payload, batch[69].attempt) == (b"69", 1)
    assert batch.payloads == batch.values == HUNDRED[:70]
    assert batch[1] in batch
    with pytest.raises(IndexError):
        batch[70]
    some = batch[10:20]
    assert isinstance(some, Batch)
    assert some.payloads == HUNDRED[10:20]
    assert batch.expires_at_ms == batch[0].expires_at_ms
    assert repr(batch) == "<Batch of 70 messages of orders>"
    found = queue.admin.delivery(db, batch[3].token)
    assert found is not None
    assert found.message == batch[3].message
    queue.ack(db, [*batch])
    assert rows(db, queue) == 0


def test_an_empty_queue_gives_an_empty_batch(db: fdb.Database, queue: Queue[bytes]) -> None:
    batch = queue.receive_batch(db, 5)
    assert not batch
    assert (batch.payloads, batch.expires_at_ms) == ([], None)
    queue.ack(db, batch)
    queue.release(db, batch)
    with batch:
        pass


def test_values_are_decoded_by_the_serializer(db: fdb.Database, space: fdb.Subspace) -> None:
    queue = Queue.create(db, "numbers", root=space)
    queue.enqueue_many(db, [*range(20)])
    assert queue.receive_batch(db, 15).values == [*range(15)]


# -- settled whole --------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_a_hundred_messages_are_taken_and_settled_by_a_dozen_writes(
    db: fdb.Database,
    queue: Queue[bytes],
    mutations: Callable[[Callable[[], Any]], int],
    own: bool,
) -> None:
    held: list[Batch[bytes]] = []

    def take(tr: Any) -> None:
        held.append(queue.receive_batch(tr, 100))

    def settle(tr: Any) -> None:
        queue.ack(tr, held.pop())

    for counted in (False, True):
        queue.enqueue_many(db, HUNDRED)
        count = 0
        for act in (take, settle):
            run = fdb.transactional(act) if own else act
            count += mutations(lambda run=run: run(db))  # type: ignore[misc]
        assert not counted or count <= 12
    assert queue.depth(db).done == 200
    assert rows(db, queue) == 0


def test_a_batch_is_acknowledged_with_the_next_request(
    db: fdb.Database, queue: Queue[bytes]
) -> None:
    queue.enqueue_many(db, HUNDRED)
    done: Sequence[Delivery] = ()
    seen = []
    while batch := queue.receive_batch(db, 30, ack=done):
        seen += batch.payloads
        done = batch
    assert seen == HUNDRED
    assert queue.depth(db).done == 100
    assert rows(db, queue) == 0


def test_an_extended_batch_is_settled_by_what_it_was_and_what_it_is(
    db: fdb.Database, queue: Queue[bytes], clock: ManualClock
) -> None:
    for knows in (True, False):
        queue.enqueue_many(db, HUNDRED)
        batch = queue.receive_batch(db, 100)
        longer = queue.extend(db, batch, 600)
        assert longer.expires_at_ms is not None
        assert batch.expires_at_ms is not None
        assert longer.expires_at_ms > batch.expires_at_ms
        clock.seconds += 100
        queue.admin.sweep(db)
        queue.ack(db, longer if knows else batch)
        # What the holder does not know of is removed when it falls due.
        clock.seconds += 0 if knows else 1_000
        queue.admin.sweep(db)
        assert rows(db, queue) == 0
        sound(db, queue)
    assert queue.depth(db).done == 200


@pytest.mark.parametrize("how", ["ack", "release", "reject", "settle", "extend"])
def test_what_is_lost_is_named_and_nothing_is_written(
    db: fdb.Database, queue: Queue[bytes], clock: ManualClock, how: str
) -> None:
    queue.enqueue_many(db, HUNDRED)
    batch = queue.receive_batch(db, 50)
    queue.ack(db, batch[7])
    queue.reject(db, batch[20:23], "bad")
    settle: dict[str, Callable[[Batch[bytes]], object]] = {
        "ack": lambda some: queue.ack(db, some),
        "release": lambda some: queue.release(db, some),
        "reject": lambda some: queue.reject(db, some, "no", drop=True),
        "settle": lambda some: queue.settle(db, some, {some[0].id: Snooze(5)}),
        "extend": lambda some: queue.extend(db, some),
    }
    before = queue.depth(db)
    with pytest.raises(LeaseLost) as raised:
        settle[how](batch)
    gone = [batch[n].id for n in (7, 20, 21, 22)]
    assert [*raised.value.lost] == gone
    assert raised.value.message_id == gone[0]
    assert queue.depth(db) == before
    rest = batch.without(raised.value.lost)
    assert len(rest) == 46
    settle[how](rest)
    sound(db, queue)
    if how == "extend":
        queue.ack(db, rest)
    clock.seconds += 1_000
    queue.admin.sweep(db)
    assert rows(db, queue) == 0


def test_nothing_is_settled_twice_at_once(db: fdb.Database, queue: Queue[bytes]) -> None:
    queue.enqueue_many(db, HUNDRED)
    batch = queue.receive_batch(db, 50)

    @fdb.transactional
    def twice(tr: fdb.Transaction) -> None:
        queue.ack(tr, batch)
        queue.ack(tr, batch[3])

    with pytest.raises(LeaseLost):
        twice(db)
    assert queue.depth(db).leased == 50
    queue.ack(db, batch)
    with pytest.raises(LeaseLost) as raised:
        queue.ack(db, batch)
    assert len(raised.value.lost) == 50
    sound(db, queue)


# -- by verdicts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settles",
    [
        lambda queue, db, batch: queue.ack(db, batch),
        lambda queue, db, batch: queue.release(db, batch),
        lambda queue, db, batch: queue.settle(db, batch, {batch[0].id: Reject("no")}),
        lambda queue, db, batch: queue.receive_batch(db, 1, ack=batch),
        lambda queue, db, batch: queue.extend(db, batch, 60),
    ],
    ids=["ack", "release", "settle", "ack with the next", "extend"],
)
def test_the_batch_of_another_queue_is_lost_here_and_stays_there(
    db: fdb.Database, queue: Queue[bytes], space: fdb.Subspace, settles: Callable[..., object]
) -> None:
    other = Queue.create(db, "other", root=space)
    queue.enqueue_many(db, HUNDRED)
    batch = queue.receive_batch(db, 70)
    with pytest.raises(LeaseLost) as lost:
        settles(other, db, batch)
    assert len(lost.value.lost) == 70
    for each in (queue, other):
        sound(db, each)
    queue.ack(db, batch)
    assert queue.depth(db).done == 70


@pytest.mark.parametrize("own", [False, True])
def test_each_message_is_settled_by_its_verdict(
    db: fdb.Database, queue: Queue[bytes], own: bool
) -> None:
    queue.enqueue_many(db, HUNDRED)
    batch = queue.receive_batch(db, 80)
    verdicts: dict[int, BaseException] = {
        0: Reject("no address"),
        1: Reject("twice", drop=True),
        2: Retry("busy", seconds=30),
        3: Retry("again"),
        4: Snooze(40),
        5: Snooze(0),
        6: ValueError("broken"),
    }
    named = {batch[n].id: verdict for n, verdict in verdicts.items()}

    def settle(tr: Any) -> None:
        queue.settle(tr, batch, named)

    (fdb.transactional(settle) if own else settle)(db)
    failed, later, ready = State.RETRYING, State.SCHEDULED, State.READY
    found = states(db, queue, batch)
    assert found[:8] == [State.DEAD, None, failed, ready, later, ready, ready, None]
    assert set(found[8:]) == {None}
    depth = queue.depth(db)
    assert (depth.done, depth.dead, depth.purged) == (73, 1, 1)
    assert (depth.retrying, depth.scheduled) == (1, 1)
    (letter,) = queue.dead.list(db)
    assert letter.death.reason == "Reject: no address"
    again = [queue.get(db, batch[n].id) for n in (3, 5, 6)]
    kept = [(each.message.attempts, each.message.last_error) for each in again if each]
    assert kept == [(1, "Retry: again"), (0, None), (1, "ValueError: broken")]
    assert rows(db, queue) == 0
    sound(db, queue)


def test_a_failure_at_the_last_attempt_makes_a_dead_letter(
    db: fdb.Database, queue: Queue[bytes]
) -> None:
    queue.enqueue_many(db, HUNDRED[:10])
    for _ in range(2):
        batch = queue.receive_batch(db, 10)
        queue.settle(
            db, batch, {each.id: RuntimeError("down") for each in batch if each.payload == b"03"}
        )
    assert [letter.message.payload for letter in queue.dead.list(db)] == [b"03"]
    assert queue.depth(db).done == 9


def test_only_exceptions_for_its_own_messages_are_verdicts(
    db: fdb.Database, queue: Queue[bytes]
) -> None:
    queue.enqueue_many(db, HUNDRED)
    batch = queue.receive_batch(db, 20)
    wrong: list[dict[str, Any]] = [
        {"somebody else's": Reject()},
        {batch[0].id: "reject"},
    ]
    for verdicts in wrong:
        with pytest.raises(InvalidArgument, match="verdicts"):
            queue.settle(db, batch, verdicts)
    assert queue.depth(db).leased == 20


# -- the with-statement ---------------------------------------------------------------------------


def test_a_block_that_raises_gives_back_what_is_not_settled(
    db: fdb.Database, queue: Queue[bytes]
) -> None:
    queue.enqueue_many(db, HUNDRED)
    batch = queue.receive_batch(db, 10)
    queue.ack(db, batch[4])
    with pytest.raises(ZeroDivisionError), batch:
        raise ZeroDivisionError
    depth = queue.depth(db)
    assert (depth.done, depth.ready) == (1, 99)
    assert [each.attempt for each in queue.receive_many(db, 9)] == [1] * 9


def test_a_block_that_settles_itself_is_left_alone(db: fdb.Database, queue: Queue[bytes]) -> None:
    queue.enqueue_many(db, HUNDRED)
    with queue.receive_batch(db, 10) as batch:
        queue.settle(db, batch, {batch[0].id: Snooze(0)})
    assert queue.depth(db).done == 9
    tr = db.create_transaction()
    with pytest.raises(InvalidArgument, match="transaction of yours"), queue.receive_batch(tr, 9):
        pass

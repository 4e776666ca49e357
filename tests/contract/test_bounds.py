"""Bounded queues: what happens to a message that there is no room for."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Bounds, Depth, NewMessage, Queue, Then
from fdbqueue.consumers import sessions
from fdbqueue.errors import InvalidArgument, InvalidOptions, OptionsMismatch, QueueFull
from fdbqueue.messages.enqueue import admission
from fdbqueue.queue.bulk import back_pressure
from fdbqueue.schema.consumers import WaitingCalls
from fdbqueue.store.binding import fdb
from tests.audit import sound
from tests.patience import DEADLINE, eventually
from tests.taking import ready, take

Database = fdb.Database
Subspace = fdb.Subspace

DROPPING = {"bounds": Bounds(messages=3, when_full="drop-oldest")}
BLOCKING = {"bounds": Bounds(messages=4, when_full="block", resume_at=0.5)}


def bounded(db: Database, space: Subspace, **options: Any) -> Queue:
    return Queue.create(db, "bounded", root=space, **options)


# -- reject -----------------------------------------------------------------------------------


def test_a_full_queue_rejects_and_writes_nothing(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=3))
    queue.enqueue_many(db, [b"a", b"b"])
    with pytest.raises(
        QueueFull, match=r"holds 2 messages .*at most 3 messages.*take 2 more of 2 bytes"
    ):
        queue.enqueue_many(db, [b"c", b"d"])
    queue.enqueue(db, b"c")
    with pytest.raises(QueueFull):
        queue.enqueue(db, bytes(200_000), priority=9)
    assert ready(db, queue) == [b"a", b"b", b"c"]
    assert queue.admin.verify(db).ok


def test_a_leased_message_takes_up_room_until_it_is_settled(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=1))
    queue.enqueue(db, b"a")
    delivery = take(db, queue)
    with pytest.raises(QueueFull):
        queue.enqueue(db, b"b")
    queue.ack(db, delivery)
    queue.enqueue(db, b"b")


def test_bytes_are_bounded_as_they_were_enqueued(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, bounds=Bounds(bytes=100_000), compression="zlib")
    queue.enqueue_many(db, [bytes(50_000), bytes(40_000)])
    with pytest.raises(QueueFull, match=r"90,000 ready bytes .at most 100,000 bytes"):
        queue.enqueue(db, bytes(10_001))
    queue.enqueue(db, bytes(10_000))
    assert queue.receive(db) is not None
    queue.enqueue(db, bytes(50_000))


def test_enqueues_of_one_transaction_count_together(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=2))

    @fdb.transactional
    def three(tr: fdb.Transaction) -> None:
        for payload in (b"a", b"b", b"c"):
            queue.enqueue(tr, payload)

    with pytest.raises(QueueFull):
        three(db)
    assert queue.depth(db) == Depth()


@pytest.mark.parametrize(
    "options",
    [{"bounds": Bounds(messages=100)}, {"bounds": Bounds(messages=100, when_full="block")}],
)
def test_producers_below_the_bound_do_not_conflict(
    db: Database, space: Subspace, options: dict[str, Any]
) -> None:
    queue = bounded(db, space, **options)
    transactions = [db.create_transaction() for _ in range(5)]
    for tr in transactions:
        queue.enqueue(tr, b"a")
    for tr in transactions:
        tr.commit().wait()
    assert queue.depth(db).ready == 5


def test_the_bound_is_exceeded_by_those_that_commit_at_once_and_no_more(
    db: Database, space: Subspace
) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=4))
    queue.enqueue_many(db, [b"a"] * 3)
    transactions = [db.create_transaction() for _ in range(3)]
    for tr in transactions:
        queue.enqueue(tr, b"b")
    for tr in transactions:
        tr.commit().wait()
    assert queue.depth(db).ready == 6
    with pytest.raises(QueueFull):
        queue.enqueue(db, b"c")


# -- drop-oldest ------------------------------------------------------------------------------


def test_dropped_messages_become_dead_letters_where_the_queue_says_so(
    db: Database, space: Subspace
) -> None:
    queue = bounded(db, space, **DROPPING)
    queue.set_options(db, bounds=Bounds(dropped="dead"))
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    queue.enqueue(db, b"d")
    assert ready(db, queue) == [b"b", b"c", b"d"]
    assert [(it.message.payload, it.death.reason) for it in queue.dead.list(db)] == [
        (b"a", "the queue was full")
    ]
    assert queue.admin.verify(db).ok


def test_what_exceeds_the_bound_by_itself_drops_nothing(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, **DROPPING)
    queue.enqueue_many(db, [b"a", b"b"])
    with pytest.raises(QueueFull):
        queue.enqueue_many(db, [b"x"] * 4)
    assert ready(db, queue) == [b"a", b"b"]


def test_a_bound_that_was_lowered_by_far_is_come_down_to(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=2_000, when_full="drop-oldest"))
    queue.enqueue_many(db, [b"%d" % n for n in range(1_300)])
    queue.set_options(db, bounds=Bounds(messages=10))
    for n in range(4):
        queue.enqueue(db, b"new %d" % n)
    assert queue.depth(db).ready == 10
    assert ready(db, queue)[-4:] == [b"new %d" % n for n in range(4)]


def test_producers_at_the_bound_do_not_choose_the_same_message_again(
    db: Database, space: Subspace
) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=200, when_full="drop-oldest"))
    queue.enqueue_many(db, [b""] * 200)
    # Given transactions that were all begun at once, and none of which sees the others
    trs = [db.create_transaction() for _ in range(16)]
    rounds = 0
    while trs:
        rounds += 1
        assert rounds <= 12, "each round lets one of them through"
        for tr in trs:
            queue.enqueue(tr, b"new")
        failed = []
        for tr in trs:
            try:
                tr.commit().wait()
            except fdb.FDBError as error:
                tr.on_error(error).wait()
                failed.append(tr)
        trs = failed
    assert queue.depth(db).enqueued == 216


# -- block ------------------------------------------------------------------------------------


PRODUCERS: dict[str, Callable[[Database, Queue], object]] = {
    "one": lambda db, queue: queue.enqueue(db, b"e", room=DEADLINE),
    "several": lambda db, queue: queue.enqueue_many(db, [b"e"], room=DEADLINE),
    "group": lambda db, queue: queue.enqueue_many(
        db, [b"e"], room=DEADLINE, group=Then(NewMessage(b"then", delay=3600))
    ),
    "import": lambda db, queue: queue.streams.importer("i").enqueue(
        db, [b"e"], since=b"", until=b"1", room=DEADLINE
    ),
}


@pytest.mark.parametrize("produces", PRODUCERS.values(), ids=PRODUCERS)
def test_a_blocked_producer_goes_on_at_the_low_water_mark(
    db: Database,
    space: Subspace,
    monkeypatch: pytest.MonkeyPatch,
    produces: Callable[[Database, Queue], object],
) -> None:
    queue = bounded(db, space, **BLOCKING)
    queue.enqueue_many(db, [b"a", b"b", b"c", b"d"])
    refused = threading.Event()
    done = threading.Event()

    admit = admission.admit

    def watched(*arguments: Any) -> Any:
        try:
            return admit(*arguments)
        except QueueFull:
            refused.set()
            raise

    monkeypatch.setattr(admission, "admit", watched)

    def produce() -> None:
        produces(db, queue)
        done.set()

    producer = threading.Thread(target=produce)
    producer.start()
    assert refused.wait(DEADLINE)
    queue.receive(db, at_most_once=True)
    for _ in range(2):
        refused.clear()
        assert refused.wait(DEADLINE), "one message less is above the mark of two"
    assert not done.is_set()
    queue.receive(db, at_most_once=True)
    assert done.wait(DEADLINE)
    producer.join()
    assert ready(db, queue) == [b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        (Bounds(when_full="drop-oldest"), [b"b", b"c", b"d", b"ee"]),
        (Bounds(when_full="reject"), [b"a", b"b", b"c", b"d"]),
        (Bounds(messages=None, bytes=1), [b"a", b"b", b"c", b"d"]),
    ],
    ids=["drops", "rejects", "has no room for it"],
)
def test_a_blocked_producer_sees_that_the_queue_lets_nobody_wait_any_more(
    db: Database,
    space: Subspace,
    monkeypatch: pytest.MonkeyPatch,
    changes: Bounds,
    holds: list[bytes],
) -> None:
    queue = bounded(db, space, **BLOCKING)
    queue.enqueue_many(db, [b"a", b"b", b"c", b"d"])
    refused: list[object] = []
    admit = admission.admit

    def watched(*arguments: Any) -> Any:
        try:
            return admit(*arguments)
        except QueueFull as full:
            refused.append(full)
            if len(refused) == 1:
                queue.set_options(db, bounds=changes)
            raise

    monkeypatch.setattr(admission, "admit", watched)
    with contextlib.suppress(QueueFull):
        queue.enqueue(db, b"ee", room=0.5)
    assert ready(db, queue) == holds
    assert len(refused) == (1 if b"ee" in holds else 2)


def test_a_producer_that_was_not_refused_fills_the_queue(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, **BLOCKING)
    for _ in range(4):
        queue.enqueue(db, b"a", room=0)


def test_back_pressure_has_an_end(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, **BLOCKING)
    queue.enqueue_many(db, [b"a"] * 4)
    for room in (0, 0.1):
        with pytest.raises(QueueFull):
            queue.enqueue(db, b"b", room=room)
    assert queue.depth(db).enqueued == 4


def test_a_producer_that_waits_for_long_gives_a_sign_of_life_until_it_has_room(
    db: Database, space: Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bounded(db, space, **BLOCKING)
    queue.enqueue_many(db, [b"a"] * 4)

    def waiting() -> list[WaitingCalls | None]:
        return [each.waits for _, each in sessions.listed(db, queue._root_keys)]

    with pytest.raises(QueueFull):
        queue.enqueue(db, b"b", room=0.1)
    assert waiting() == []
    monkeypatch.setattr(back_pressure, "SIGN_SECONDS", 0.0)
    producer = threading.Thread(target=queue.enqueue, args=(db, b"b"), daemon=True)
    producer.start()
    eventually(lambda: len(waiting()) == 1)
    (seen,) = waiting()
    assert seen is not None
    assert (seen.queue, seen.calls) == (queue.name, 1)
    for delivery in queue.receive_many(db, 4):
        queue.ack(db, delivery)
    producer.join(DEADLINE)
    assert queue.depth(db).ready == 1
    assert waiting() == []


def test_a_transaction_does_not_wait(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, **BLOCKING)
    queue.enqueue_many(db, [b"a"] * 4)
    with pytest.raises(QueueFull):
        queue.enqueue(db.create_transaction(), b"b", room=10**6)


def test_waiting_for_what_can_never_fit_is_not_begun(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, **BLOCKING)
    with pytest.raises(QueueFull):
        queue.enqueue_many(db, [b"a"] * 5, room=10**6)


@pytest.mark.parametrize("room", [-1, float("inf"), float("nan"), "soon", None])
def test_a_room_out_of_range_is_refused(db: Database, queue: Queue, room: Any) -> None:
    with pytest.raises(InvalidArgument, match="room"):
        queue.enqueue(db, b"a", room=room)
    assert queue.depth(db) == Depth()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"bounds": Bounds(messages=0)}, "bounds.messages"),
        ({"bounds": Bounds(bytes=-1)}, "bounds.bytes"),
        (
            {"bounds": Bounds(messages=1, when_full="explode")},
            "not one of reject, drop-oldest, block",
        ),
        ({"bounds": Bounds(when_full="drop-oldest")}, "needs bounds.messages or bounds.bytes"),
        ({"bounds": {"mesages": 1}}, "did you mean 'bounds.messages'"),
        ({"bounds": 10}, r"write bounds=Bounds"),
        ({"bounds": Bounds(resume_at=1.01)}, "resume_at"),
        ({"bounds": {"resume_at": "half"}}, "resume_at"),
    ],
)
def test_contradictory_bounds_are_refused(
    db: Database, space: Subspace, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidOptions, match=problem):
        bounded(db, space, **options)


def test_bounds_can_be_changed_and_lifted(db: Database, space: Subspace) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=1))
    queue.enqueue(db, b"a")
    queue.set_options(db, bounds=Bounds(messages=2))
    queue.enqueue(db, b"b")
    queue.set_options(db, bounds=Bounds(messages=None))
    queue.enqueue(db, b"c")
    assert len(ready(db, queue)) == 3


@pytest.mark.parametrize("carried", [lambda bounds: bounds, copy.deepcopy])
def test_a_change_of_bounds_leaves_those_that_it_does_not_name(
    db: Database, space: Subspace, carried: Callable[[Bounds], Bounds]
) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=4, when_full="block", resume_at=0.5))
    changed = queue.set_options(db, bounds=carried(Bounds(messages=10)))
    assert changed == queue.options(db)
    assert changed.bounds == Bounds(messages=10, when_full="block", resume_at=0.5)
    Queue.open(db, queue.name, root=space, bounds=Bounds(resume_at=0.5))
    with pytest.raises(OptionsMismatch, match="bounds"):
        Queue.open(db, queue.name, root=space, bounds=Bounds(messages=4))


@pytest.mark.parametrize("together", [False, True])
def test_who_was_known_by_what_is_dropped_is_new(
    db: Database, space: Subspace, together: bool
) -> None:
    queue = bounded(db, space, bounds=Bounds(messages=2, when_full="drop-oldest"))
    queue.enqueue(db, b"old", unique="u")
    queue.enqueue(db, b"other")
    some = [NewMessage(b"new"), NewMessage(b"again", unique="u")]
    for each in [some] if together else [[one] for one in some]:
        queue.enqueue_many(db, each)
    assert ready(db, queue) == [b"new", b"again"]
    assert queue.admin.verify(db).ok


def test_what_a_consumer_takes_meanwhile_is_not_dropped(db: Database, space: Subspace) -> None:
    # Given a full queue, and a transaction that drops its oldest message for another
    queue = bounded(db, space, **DROPPING)
    queue.enqueue_many(db, [b"0", b"1", b"2"])
    tr = db.create_transaction()
    queue.enqueue(tr, b"3")
    # When a consumer takes that message first
    held = queue.receive_many(db, 1)
    # Then the transaction fails, and nothing is lost
    with pytest.raises(fdb.FDBError) as failed:
        tr.commit().wait()
    assert failed.value.code == 1020
    queue.ack(db, held)
    assert sound(db, queue)

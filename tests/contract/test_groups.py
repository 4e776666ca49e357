"""Groups: the callback comes exactly once, when the last message of a group has ended."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, get_args
from zlib import crc32

import pytest

from fdbqueue import Bounds, Message, NewMessage, Queue, Then
from fdbqueue.errors import (
    InvalidArgument,
    InvalidPayload,
    OwnWritesUnseen,
    QueueFull,
    QueueNotFound,
)
from fdbqueue.queue.continuations import groups as grouping
from fdbqueue.store import world
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock, drain
from fdbqueue.values.groups import Group, ThenOn
from tests.flaky import (
    FlakyDatabase,
)
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace
WEEK = 7 * 24 * 3600


@pytest.fixture
def parts(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return Queue.create(
        db, "parts", root=space, clock=clock, backoff=None, max_attempts=1, max_deaths=1
    )


@pytest.fixture
def wholes(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "wholes", root=space, clock=clock)


def group(db: Database, queue: Queue, name: str) -> Group:
    found = queue.groups.get(db, name)
    assert found is not None
    return found


def came(db: Database, queue: Queue) -> list[bytes]:
    """The payloads of the callbacks that have come, taken."""
    found = []
    while (delivery := queue.receive(db)) is not None:
        queue.ack(db, delivery)
        found.append(delivery.message.payload)
    return found


def test_the_callback_comes_with_the_last_acknowledgement(
    db: Database, parts: Queue, wholes: Queue
) -> None:
    grouped = parts.enqueue_many(db, [b"a", b"b", b"c"], group=Then(b"sum", queue=wholes))
    name = grouped.group
    assert [each.id for each in parts.peek(db, 9)] == grouped
    kept = pickle.loads(pickle.dumps(grouped))
    assert (kept, kept.group) == (grouped, name)
    for left in (3, 2, 1):
        assert (group(db, parts, name).state, group(db, parts, name).left) == ("running", left)
        assert wholes.depth(db).enqueued == 0
        delivery = take(db, parts)
        parts.ack(db, delivery)
    ended = group(db, parts, name)
    assert (ended.state, ended.total, ended.left, ended.done) == ("complete", 3, 0, 3)
    delivery = take(db, wholes)
    assert delivery.id == ended.callback_id
    assert delivery.message.payload == b"sum"
    assert delivery.message.headers == {"group": name, "group_total": 3, "group_undone": 0}
    assert wholes.receive(db) is None
    assert parts.admin.verify(db).ok
    assert wholes.admin.verify(db).ok


Ending = Callable[[Database, Queue, str, ManualClock], object]


def acknowledged_in_a_batch(db: Database, queue: Queue) -> None:
    batch = queue.receive_batch(db, 10)
    assert batch is not None
    queue.ack(db, batch)


def handle(tr: fdb.Transaction, message: Message) -> None:
    tr[b"handled"] = message.payload


def taken_by_a_plan(db: Database, queue: Queue) -> None:
    planner = queue.streams.plans.planner("stream")
    planner.acknowledge(db, planner.next(db, planner.begin(db), messages=10))
    queue.streams.plans.forget(db, "stream")


def rejected(db: Database, queue: Queue) -> object:
    return queue.reject(db, take(db, queue), "bad")


def redriven(db: Database, queue: Queue, message_id: str) -> object:
    rejected(db, queue)
    return queue.retry(db, [message_id])


def cancelled(db: Database, queue: Queue, message_id: str) -> Any:
    delivery = take(db, queue)
    queue.cancel(db, message_id)
    return delivery


def moved_away(db: Database, queue: Queue) -> None:
    other = Queue.open(db, "other", root=queue._root)
    queue.move(db, other)
    assert other.admin.verify(db).ok


def forwarded_as_a_dead_letter(db: Database, queue: Queue) -> None:
    other = Queue.open(db, "other", root=queue._root)
    queue.set_options(db, dead_letter_queue="other")
    rejected(db, queue)
    assert other.admin.verify(db).ok
    queue.set_options(db, dead_letter_queue=None)


def later(db: Database, queue: Queue, clock: ManualClock, seconds: float) -> object:
    clock.seconds += seconds
    return queue.admin.sweep(db)


DONE: dict[str, Ending] = {
    "acknowledged": lambda db, q, _, __: q.ack(db, take(db, q)),
    "acknowledged in a batch": lambda db, q, _, __: acknowledged_in_a_batch(db, q),
    "dequeued": lambda db, q, _, __: fdb.transactional(lambda tr: q.dequeue(tr))(db),
    "at most once": lambda db, q, _, __: q.receive(db, at_most_once=True),
    "many at most once": lambda db, q, _, __: q.receive_many(db, 10, at_most_once=True),
    "though cancelled": lambda db, q, i, _: q.ack(db, cancelled(db, q, i)),
    "redriven": lambda db, q, i, _: [redriven(db, q, i), q.ack(db, take(db, q))],
    "handled in a transaction": lambda db, q, _, __: drain(db, q, handle),
    "handled in a batch": lambda db, q, _, __: drain(db, q, lambda messages: None, batch=10),
    "matching": lambda db, q, _, __: q.receive(db, match="priority = 4", at_most_once=True),
    "of a subscription": lambda db, q, _, __: q.ack(db, take(db, q.subscriptions.open(db, "s"))),
    "of a plan": lambda db, q, _, __: taken_by_a_plan(db, q),
}
DEAD: dict[str, Ending] = {
    "rejected": lambda db, q, _, __: rejected(db, q),
    "failed": lambda db, q, _, __: q.release(db, take(db, q), error="no"),
    "lapsed": lambda db, q, _, clock: [take(db, q), later(db, q, clock, 100)],
    "dead twice": lambda db, q, i, _: [redriven(db, q, i), rejected(db, q)],
}
FAILED: dict[str, Ending] = {
    "cancelled": lambda db, q, i, _: q.cancel(db, i),
    "cancelled while leased": lambda db, q, i, _: q.release(db, cancelled(db, q, i)),
    "dropped": lambda db, q, _, __: q.reject(db, take(db, q), "bad", drop=True),
    "purged": lambda db, q, _, __: q.purge(db),
    "removed": lambda db, q, _, __: q.purge(db, match="priority >= 0"),
    "moved away": lambda db, q, _, __: moved_away(db, q),
    "forwarded": lambda db, q, _, __: forwarded_as_a_dead_letter(db, q),
    "expired": lambda db, q, _, clock: later(db, q, clock, 4000),
    "purged when dead": lambda db, q, _, __: [rejected(db, q), q.purge(db, states="dead")],
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("ending", DONE | DEAD | FAILED)
def test_what_an_end_of_a_message_means_for_its_group(
    db: Database, parts: Queue, wholes: Queue, clock: ManualClock, ending: str
) -> None:
    for then_on in get_args(ThenOn):
        _, message_id = parts.enqueue_many(
            db,
            [b"1", NewMessage(b"2", ttl=3600)],
            group=Then(b"all", queue=wholes, on=then_on, name=then_on),
        )
        parts.ack(db, take(db, parts))
        (DONE | DEAD | FAILED)[ending](db, parts, message_id, clock)
        found = group(db, parts, then_on)
        if then_on == "settled":
            assert came(db, wholes) == [b"all"]
            assert (found.state, found.left, found.total) == ("complete", 0, 2)
            counted = found.done, found.dead, found.failed
            early = ending in ("redriven", "purged when dead")
            expected = (2, 0, 0) if ending in DONE else (1, 0, 1) if ending in FAILED else (1, 1, 0)
            assert counted == ((1, 1, 0) if early else expected)
        elif ending in DONE:
            assert came(db, wholes) == [b"all"]
            assert (found.state, found.done) == ("complete", 2)
        elif ending in DEAD:
            assert came(db, wholes) == []
            assert (found.state, found.left, found.dead) == ("running", 1, 1)
            parts.retry(db)
            assert group(db, parts, then_on).dead == 0
            parts.ack(db, take(db, parts))
            assert came(db, wholes) == [b"all"]
        else:
            assert came(db, wholes) == []
            assert (found.state, found.left, found.failed) == ("failed", 0, 1)
        assert came(db, wholes) == []
        assert parts.admin.verify(db).ok
        assert wholes.admin.verify(db).ok
        parts.purge(db)
        parts.purge(db, states="dead")


# -- exactly once -----------------------------------------------------------------------------


class Stopped(Exception):
    """Raised in place of a commit."""


def stop_after(lent: FlakyDatabase, commits: int) -> None:
    if lent.commits > commits:
        raise Stopped


def test_ends_of_different_messages_do_not_conflict_while_others_are_left(
    db: Database, parts: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.enqueue_many(db, [b"x"] * 20, group=Then(b"all"))
    held = parts.receive_many(db, 20)
    first, *others = sorted(held, key=lambda each: crc32(each.id.encode()))
    monkeypatch.setattr(world.random, "randrange", lambda most: 0)
    open_ones = [db.create_transaction() for _ in range(10)]
    for tr, delivery in zip(open_ones, others, strict=False):
        parts.ack(tr, delivery)
    for tr in open_ones:
        tr.commit().wait()
    assert group(db, parts, parts.groups.list(db)[0].name).left == 10
    # All of them relied on the one with the least hash: whoever ends that conflicts.
    relying, ending = db.create_transaction(), db.create_transaction()
    parts.ack(relying, others[10])
    parts.ack(ending, first)
    ending.commit().wait()
    with pytest.raises(fdb.FDBError):
        relying.commit().wait()


def test_a_transaction_that_does_not_see_its_own_writes_ends_no_message_of_a_group(
    db: Database, parts: Queue
) -> None:
    parts.enqueue_many(db, [b"1", b"2"], group=Then(b"all"))
    one, two = parts.receive_many(db, 2)
    tr = db.create_transaction()
    tr.options.set_snapshot_ryw_disable()
    with pytest.raises(OwnWritesUnseen):
        parts.ack(tr, one)
    tr = db.create_transaction()
    parts.ack(tr, one)
    parts.ack(tr, two)
    tr.commit().wait()
    assert came(db, parts) == [b"all"]


# -- enqueuing --------------------------------------------------------------------------------


def test_a_large_group_is_enqueued_step_by_step_and_continued_after_a_crash(
    db: Database, parts: Queue, wholes: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "STEP", 3)
    payloads = [str(n).encode() for n in range(10)]
    for crashes in range(1, 4):
        lent: Any = FlakyDatabase(db, ())
        lent._before = lambda lent=lent: stop_after(lent, 1)
        with pytest.raises(Stopped):
            parts.enqueue_many(lent, payloads, group=Then(b"all", queue=wholes, name="load"))
        assert group(db, parts, "load").state == "open"
        assert group(db, parts, "load").total == 3 * crashes
        drain(db, parts, lambda message: None)  # The callback must not come yet.
        assert wholes.depth(db).enqueued == 0
        assert parts.admin.verify(db).ok
    for _ in range(2):
        parts.enqueue_many(db, payloads, group=Then(b"all", queue=wholes, name="load"))
    assert parts.depth(db).enqueued == 10
    assert group(db, parts, "load").state == "running"
    assert [each.payload for each in parts.peek(db)] == [b"9"]
    drain(db, parts, lambda message: None)
    assert came(db, wholes) == [b"all"]
    parts.enqueue_many(db, payloads, group=Then(b"all", queue=wholes, name="load"))
    assert parts.depth(db).enqueued == 10


def test_a_group_of_the_same_name_must_be_the_same(db: Database, parts: Queue) -> None:
    def enqueue(count: int = 2, then: Any = b"all", then_on: Any = "done") -> list[str]:
        return parts.enqueue_many(db, [b"x"] * count, group=Then(then, on=then_on, name="g"))

    enqueue()
    for other in ({"count": 3}, {"count": 1}, {"then": b"other"}, {"then_on": "settled"}):
        with pytest.raises(InvalidArgument):
            enqueue(**other)
    assert parts.depth(db).enqueued == 2


def test_a_group_is_part_of_the_callers_transaction(db: Database, parts: Queue) -> None:
    tr = db.create_transaction()
    name = parts.enqueue_many(tr, [b"1", b"2"], group=Then(b"all")).group
    assert parts.depth(db).enqueued == 0
    tr.commit().wait()
    assert group(db, parts, name).total == 2
    dropped = db.create_transaction()
    parts.enqueue_many(dropped, [b"3"], group=Then(b"all", name="gone"))
    assert parts.groups.get(db, "gone") is None


def test_members_may_have_what_other_messages_have(
    db: Database, parts: Queue, wholes: Queue, clock: ManualClock
) -> None:
    grouped = parts.enqueue_many(
        db,
        [
            NewMessage(b"a" * 200_000),
            NewMessage(b"b", key="k"),
            NewMessage(b"c", key="k"),
            NewMessage(b"d", delay=60),
            NewMessage(b"e", priority=9, keep_result=60),
            NewMessage(b"f", limits={"api": "one"}),
        ],
        group=Then(b"all", queue=wholes),
    )
    drain(db, parts, lambda message: None)
    assert group(db, parts, grouped.group).left == 1
    clock.seconds += 100
    drain(db, parts, lambda message: None)
    assert came(db, wholes) == [b"all"]
    assert parts.admin.verify(db).ok


def test_the_callback_may_have_what_other_messages_have(
    db: Database, space: Subspace, clock: ManualClock, parts: Queue
) -> None:
    elsewhere = Queue.create(
        db, "elsewhere", root=space.subspace(("other",)), clock=clock,
        bounds=Bounds(messages=1), levels=3,
    )  # fmt: skip
    elsewhere.enqueue(db, "full")
    parts.enqueue_many(
        db,
        [b"x"],
        group=Then(
            NewMessage(
                {"sum": 1}, priority=9, headers={"a": 1}, delay=30, ttl=60, key="k", keep_result=60
            ),
            queue=elsewhere,
            name="g",
        ),
    )
    drain(db, parts, lambda message: None)
    assert elsewhere.depth(db).scheduled == 1
    clock.seconds += 40
    delivery = take(db, elsewhere)
    assert elsewhere.value(delivery) == {"sum": 1}
    assert delivery.message.headers == {"a": 1, "group": "g", "group_total": 1, "group_undone": 0}
    elsewhere.ack(db, delivery, result=7)
    assert elsewhere.result(db, delivery.id) == 7
    assert elsewhere.admin.verify(db).ok
    limited = NewMessage("limited", limits={"api": "one"})
    parts.enqueue_many(db, [b"x"], group=Then(limited, queue=elsewhere))
    drain(db, parts, lambda message: None)
    elsewhere.ack(db, take(db, elsewhere))
    assert elsewhere.admin.verify(db).ok
    again = parts.enqueue_many(db, [b"x"], group=Then(NewMessage("late", ttl=60), queue=elsewhere))
    drain(db, parts, lambda message: None)
    clock.seconds += 100
    assert group(db, parts, again.group).state == "complete"
    elsewhere.ack(db, take(db, elsewhere))
    assert elsewhere.receive(db) is None, "it has expired"


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (InvalidArgument, {"messages": []}),
        (InvalidArgument, {"messages": [NewMessage(b"x", dedup_id="d")]}),
        (InvalidArgument, {"messages": [NewMessage(b"x", unique="u")]}),
        (InvalidPayload, {"messages": [{"text"}]}),
        (InvalidArgument, {"messages": [NewMessage(b"x", priority=10)]}),
        (InvalidArgument, {"group": Then(NewMessage(b"x", priority=10))}),
        (InvalidArgument, {"group": Then(NewMessage(b"x", unique="u"))}),
        (InvalidArgument, {"group": Then(NewMessage(b"x", dedup_id="d"))}),
        (InvalidArgument, {"group": Then(NewMessage(b"x" * 90_501))}),
        (InvalidArgument, {"group": Then(NewMessage(b"x", headers={"group": "g"}))}),
        (InvalidPayload, {"group": Then({7})}),
        (InvalidArgument, {"group": Then(b"all", on="dead")}),  # type: ignore[arg-type]
        (InvalidArgument, {"group": Then(b"all", queue="wholes")}),
        (InvalidArgument, {"group": Then(b"all", name="")}),
        (InvalidArgument, {"group": b"all"}),
        (InvalidArgument, {"messages": [b"x"] * 1_001}),
        (QueueNotFound, {"group": Then(b"all", queue=Queue("nowhere"))}),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    db: Database, parts: Queue, error: type[Exception], given: dict[str, Any]
) -> None:
    terms: dict[str, Any] = {"messages": [b"x"], "group": Then(b"all"), **given}
    with pytest.raises(error):
        parts.enqueue_many(db, **terms)
    assert parts.depth(db).enqueued == 0
    assert parts.groups.list(db) == []


def test_a_group_that_does_not_fit_into_a_full_queue_is_continued(
    db: Database, parts: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "STEP", 2)
    parts.set_options(db, bounds=Bounds(messages=3))
    for _ in range(2):
        with pytest.raises(QueueFull):
            parts.enqueue_many(db, [b"x"] * 4, group=Then(b"all", name="g"))
    drain(db, parts, lambda message: None)
    parts.enqueue_many(db, [b"x"] * 4, group=Then(b"all", name="g"))
    drain(db, parts, lambda message: None)
    assert group(db, parts, "g").state == "complete"


def test_copies_of_messages_are_in_no_group(db: Database, parts: Queue, wholes: Queue) -> None:
    parts.enqueue_many(db, [b"x"], group=Then(b"all", queue=wholes, name="g"))
    other = Queue.create(db, "other", root=parts._root)
    parts.copy(db, other)
    drain(db, other, lambda message: None)
    assert group(db, parts, "g").left == 1
    assert other.depth(db).done == 1
    assert other.admin.verify(db).ok


# -- what becomes of a group ------------------------------------------------------------------


def test_a_group_whose_queue_of_the_callback_is_gone_is_blocked_until_it_is_there(
    db: Database, parts: Queue, wholes: Queue, clock: ManualClock
) -> None:
    parts.enqueue_many(db, [b"x"], group=Then(b"all", queue=wholes, name="g"))
    wholes.delete(db)
    drain(db, parts, lambda message: None)
    assert group(db, parts, "g").state == "blocked"
    clock.seconds += 100
    parts.admin.sweep(db)
    assert group(db, parts, "g").state == "blocked"
    assert parts.admin.verify(db).ok
    Queue.create(db, "wholes", root=parts._root, clock=clock)
    clock.seconds += 200
    parts.admin.sweep(db)
    assert group(db, parts, "g").state == "complete"
    assert came(db, wholes) == [b"all"]
    clock.seconds += 100
    parts.admin.sweep(db)
    assert came(db, wholes) == []


def test_a_group_is_known_for_a_week_after_its_end(
    db: Database, parts: Queue, clock: ManualClock
) -> None:
    parts.enqueue_many(db, [b"x"], group=Then(b"all", name="g"))
    drain(db, parts, lambda message: None)
    clock.seconds += WEEK - 100
    parts.admin.sweep(db)
    assert group(db, parts, "g").state == "complete"
    clock.seconds += 200
    parts.admin.sweep(db)
    assert parts.groups.get(db, "g") is None
    every = parts._keys.group.rows
    assert db.create_transaction().get_range(every.start, every.stop).to_list() == []


def test_a_group_that_is_forgotten_has_no_callback(db: Database, parts: Queue) -> None:
    for name in "abc":
        parts.enqueue_many(db, [b"x", b"y"], group=Then(b"all", name=name))
    assert parts.groups.forget(db, "b")
    assert not parts.groups.forget(db, "b")
    assert [each.name for each in parts.groups.list(db)] == ["a", "c"]
    assert [each.name for each in parts.groups.list(db, 1, after="a")] == ["c"]
    drain(db, parts, lambda message: None)
    assert parts.depth(db).done == 2 * 3 + 2
    assert parts.groups.get(db, "b") is None
    assert parts.admin.verify(db).ok


# -- verify -----------------------------------------------------------------------------------


def test_verify_finds_what_keeps_a_group_from_its_end(
    db: Database, parts: Queue, wholes: Queue
) -> None:
    keys = parts._keys

    def enqueue(name: str) -> str:
        return parts.enqueue_many(db, [b"x"], group=Then(b"all", queue=wholes, name=name))[0]

    gone, lost, _, _ = (enqueue(name) for name in ("gone", "lost", "bare", "unreadable"))
    tr = db.create_transaction()
    del tr[keys.member("lost", lost)]
    del tr[keys.group("bare")]
    tr[keys.group("unreadable")] = b"\x01\x90"
    tr[keys.member("gone", "05-00000000012c-00112233445566ff")] = b""
    tr.commit().wait()
    parts.cancel(db, gone)
    found = {(each.kind, each.subject) for each in parts.admin.verify(db).deviations}
    assert found == {
        ("group waits for nothing", "gone"), ("group miscounted", "gone"),
        ("group waits for nothing", "lost"), ("group miscounted", "lost"),
        ("group astray", "bare"), ("unreadable", "unreadable"),
    }  # fmt: skip
    parts.admin.repair(db)
    assert {each.kind for each in parts.admin.verify(db).deviations} == {"unreadable"}
    assert group(db, parts, "lost").state == "complete"
    assert group(db, parts, "gone").state == "failed"
    drain(db, parts, lambda message: None)
    assert parts.depth(db).ready == 0

"""Limits that queues share: as many of their messages are out as one allows, and others wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue
from fdbqueue.errors import (
    InvalidArgument,
    InvalidOptions,
    QueueNotFound,
    TransactionTooLarge,
)
from fdbqueue.messages.slots import shared_release
from fdbqueue.queue.keys.shared_limits import Limits, SharedLimit
from fdbqueue.schema import due
from fdbqueue.schema.keys import WORK, QueueKeys, What
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.limits import LimitSummary
from tests.audit import sound
from tests.contract.test_slots import conflicts
from tests.taking import payloads, take

Database = fdb.Database
STRIPE = {"api": "stripe"}


@pytest.fixture
def stripe(db: Database, queues: tuple[Queue, Queue]) -> SharedLimit:
    limit = queues[0].limits["api", "stripe"]
    limit.set(db, concurrency=3)
    return limit


def some(count: int, begin: int = 0, **terms: Any) -> list[NewMessage]:
    return [NewMessage(b"%d" % n, limits=STRIPE, **terms) for n in range(begin, begin + count)]


def counts(db: Database, limit: SharedLimit) -> tuple[int, int]:
    """How many messages of a limit are out, and how many wait."""
    state = limit.state(db)
    return len(state.out), state.waiting


def left(db: Database, *queues: Queue) -> int:
    """How many rows there are of what is stored about limits, these themselves excepted."""
    root = queues[0]._root_keys.limits
    ranges = [of.rows for of in (root.waiting, root.slot, root.backlog)]
    ranges += [q._keys.kind(kind) for q in queues for kind in (QueueKeys.waiting, QueueKeys.slot)]
    return sum(len(db.get_range(every.start, every.stop)) for every in ranges)


def test_a_limit_that_is_not_set_limits_nothing(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    stripe.delete(db)
    queues[0].enqueue_many(db, some(9))
    assert len(queues[0].receive_many(db, 10)) == 9
    assert left(db, *queues) == 0


def test_a_message_that_waits_says_so(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    one, two = queues
    one.enqueue_many(db, some(3))
    message_id = two.enqueue(db, b"last", limits=STRIPE)
    state = two.get(db, message_id)
    assert state is not None
    assert (state.state.value, state.waits_for) == ("waiting", *STRIPE.items())
    assert (two.depth(db).ready, two.depth(db).waiting) == (0, 1)
    assert two.peek(db) == []
    assert [each.id for each in two.messages(db, "waiting")] == [message_id]


def test_what_waits_for_whom_can_be_seen(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit, clock: ManualClock
) -> None:
    one, two = queues
    ids = [*one.enqueue_many(db, some(4)), *two.enqueue_many(db, some(2))]
    state = stripe.state(db)
    assert sorted(state.out.values()) == sorted(("one", each) for each in ids[:3])
    assert (state.concurrency, state.paused, state.waiting) == (3, False, 3)
    assert state.next == [("one", ids[3]), ("two", ids[4]), ("two", ids[5])]
    assert state.waiting_in == {"one": 1, "two": 2}
    assert state.since_ms is not None
    one.limits["api", "paypal"].pause(db)
    one.limits["tenant", "7"].set(db, concurrency=1)
    assert two.limits.list(db) == [
        LimitSummary("api", "paypal", None, True, 0),
        LimitSummary("api", "stripe", 3, False, 3, state.since_ms),
        LimitSummary("tenant", "7", 1, False, 0),
    ]
    (listed,) = two.limits.list(db, 1, after=("api", "paypal"))
    assert listed.name == "stripe"
    assert Limits(one._root).list(db) == one.limits.list(db)


# -- every way out ----------------------------------------------------------------------------


def test_a_dead_letter_in_another_queue_waits_for_no_slot_and_counts_again_when_it_returns(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    one, two = queues
    one.set_options(db, dead_letter_queue="two")
    one.enqueue_many(db, some(3))
    one.reject(db, one.receive_many(db, 1)[0], "bad")
    assert counts(db, stripe) == (2, 0)
    (dead,) = two.peek(db)
    assert dead.limits is None
    one.enqueue_many(db, some(1, 10))
    assert two.move(db, one).taken == 1
    assert counts(db, stripe) == (3, 1)
    sound(db, *queues)


def test_a_move_to_another_queue_keeps_the_limit(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    one, two = queues
    one.enqueue_many(db, some(7))
    assert one.move(db, two).taken == 7
    assert counts(db, stripe) == (3, 4)
    got = []
    while found := two.receive_many(db, 10):
        assert len(found) <= 3
        got += payloads(found)
        two.ack(db, found)
    assert got == [b"%d" % n for n in range(7)]
    assert left(db, *queues) == 0
    sound(db, *queues)


# -- deletion ---------------------------------------------------------------------------------


def test_a_queue_that_is_deleted_hands_its_slots_over(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    one, two = queues
    one.enqueue_many(db, some(5))
    two.enqueue_many(db, some(4, 10))
    assert one.receive(db) is not None
    one.delete(db)
    assert counts(db, stripe) == (3, 1)
    assert payloads(two.receive_many(db, 10)) == [b"10", b"11", b"12"]
    sound(db, two)
    two.delete(db)
    assert left(db, one, two) == 0


def test_a_queue_of_which_much_waits_is_purged_before_it_is_deleted(
    db: Database,
    queues: tuple[Queue, Queue],
    stripe: SharedLimit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_release, "MAX_LEAVING", 5)
    one, two = queues
    one.enqueue_many(db, some(9))
    two.enqueue_many(db, some(4, 10))
    with pytest.raises(TransactionTooLarge, match="purge"):
        one.delete(db.create_transaction())
    one.delete(db)
    with pytest.raises(QueueNotFound):
        one.options(db)
    assert counts(db, stripe) == (3, 1)
    sound(db, two)


# -- changes ----------------------------------------------------------------------------------


def test_a_change_in_ones_own_transaction_is_finished_by_a_sweep_of_any_queue(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    one, two = queues
    two.enqueue_many(db, some(130))
    one.cancel(db, one.enqueue(db, b"", limits=STRIPE))
    tr = db.create_transaction()
    stripe.set(tr, concurrency=120)
    tr.commit().wait()
    assert counts(db, stripe) == (103, 27)
    one.admin.sweep(db)
    assert counts(db, stripe) == (120, 10)
    sound(db, *queues)


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({}, InvalidArgument),
        ("stripe", InvalidArgument),
        ({"api": ""}, InvalidArgument),
        ({"": "stripe"}, InvalidArgument),
        ({"api": 7}, InvalidArgument),
    ],
)
def test_what_is_no_limit_is_refused(
    db: Database, queues: tuple[Queue, Queue], limits: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        queues[0].enqueue(db, b"", limits=limits)
    with pytest.raises(error):
        queues[0].enqueue_many(db, [NewMessage(b"", limits=limits)])
    assert queues[0].depth(db).enqueued == 0


@pytest.mark.parametrize("order", ["sort", "last_value"])
def test_an_ordered_queue_refuses_limits(db: Database, space: fdb.Subspace, order: Any) -> None:
    terms: dict[str, Any] = {order: "n"}
    queue = Queue.create(db, "ordered", root=space, **terms)
    with pytest.raises(InvalidArgument, match="limit"):
        queue.enqueue(db, b"", limits=STRIPE)


def test_limits_that_make_no_sense_are_refused(db: Database, queues: tuple[Queue, Queue]) -> None:
    limits = queues[0].limits
    given: Any
    for given in (
        *({"concurrency": 0}, {"concurrency": 1_001}, {"concurrency": "5"}),
        *({"rate": "5"}, {"rate": "0/s"}, {"rate": 5}, {"rate": "5/s, burst 0"}),
    ):
        with pytest.raises(InvalidOptions):
            limits["api", "stripe"].set(db, **given)
    for given in ({}, {"paused": "yes"}, {"weight": 2}, {"window": 3}):
        with pytest.raises(InvalidArgument):
            limits["api", "stripe"].set(db, **given)
    given = {"speed": 5}
    with pytest.raises(TypeError):
        limits["api", "stripe"].set(db, **given)
    for given in ("api", ("api",), ("api", "a", "b")):
        with pytest.raises(InvalidArgument):
            limits[given]
    with pytest.raises(InvalidArgument):
        limits["api", ""]
    assert limits.list(db) == []


# -- conflicts --------------------------------------------------------------------------------


def enqueuing(queue: Queue, payload: bytes) -> Callable[[Any], Any]:
    return lambda tr: queue.enqueue(tr, payload, limits=STRIPE)


def test_producers_of_a_limit_with_a_backlog_conflict_with_nobody(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    one, two = queues
    one.enqueue_many(db, some(5))
    two.enqueue_many(db, some(5))
    held = take(db, one)
    assert not conflicts(
        db,
        [
            *(enqueuing(queue, b"%d" % n) for n in range(10) for queue in queues),
            lambda tr: one.ack(tr, held),
            one.receive,
            two.receive,
            *(enqueuing(queue, b"%d" % n) for n in range(10, 13) for queue in queues),
        ],
    )
    assert counts(db, stripe) == (3, 6 + 26)
    sound(db, *queues)


@pytest.mark.parametrize("concurrency", [1, 5, None])
def test_a_change_of_a_limit_conflicts_with_the_begin_of_a_backlog(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit, concurrency: int | None
) -> None:
    one, two = queues
    two.cancel(db, two.enqueue(db, b"", limits=STRIPE))
    one.enqueue_many(db, some(3))
    change = lambda tr: stripe.set(tr, concurrency=concurrency)  # noqa: E731
    assert conflicts(db, [enqueuing(two, b"x"), change]) == 1
    assert counts(db, stripe) == (3, 1)
    assert conflicts(db, [change]) == 0
    assert counts(db, stripe)[1] == (1 if concurrency == 1 else 0)
    sound(db, *queues)


def test_a_queue_whose_messages_have_no_limits_reads_nothing_more(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    before = [queues[1].enqueue(db, b"") for _ in range(2)]
    queues[0].enqueue_many(db, some(9))
    assert payloads(queues[1].receive_many(db, 10)) == [b"", b""]
    assert before
    shared = fdb.transactional(due.shared)
    assert [shared(db, queue._keys) for queue in queues] == [True, False]


# -- checks -----------------------------------------------------------------------------------


def damage(db: Database, name: str, one: Queue, two: Queue) -> None:
    root = one._root_keys.limits
    ranges = root.slot.rows, root.waiting.rows
    found = (list(db.get_range(each.start, each.stop)) for each in ranges)
    # Those of the first queue
    slots, line = ([kv for kv in rows if b"one" in kv.value] for rows in found)
    match name:
        case "a slot is free below the root":
            del db[slots[0].key]
        case "a slot is held by a message that is gone":
            db[root.slot(("api", "stripe"), 7)] = slots[0].value
        case "a message is not in line":
            del db[line[0].key]
        case "the line has a message that is gone":
            db[root.waiting(("api", "stripe"), 99, b"12345678")] = line[0].value
        case "the backlog is not known":
            del db[root.backlog(("api", "stripe"))]
        case "the backlog is miscounted":
            db[root.backlog_count(("api", "stripe"), 0)] = (77).to_bytes(8, "little")
        case "no timer looks at the rate":
            del db[root.delayed.rows]
        case "a timer is that of no rate":
            due_at_1 = root.entry(WORK, 1, What.GATE, ("api", "gone"))
            fdb.transactional(due.add)(db, root, due_at_1)
        case "a queue was removed by hand":
            whole = two._keys.all()
            del db[whole.start : whole.stop]
            del db[one._root_keys.name("two")]


DAMAGES = {
    "a slot is free below the root": "slot astray",
    "a slot is held by a message that is gone": "slot astray",
    "a message is not in line": "line astray",
    "the line has a message that is gone": "line astray",
    "the backlog is not known": "backlog astray",
    "the backlog is miscounted": "backlog miscounted",
    "no timer looks at the rate": "rate astray",
    "a timer is that of no rate": "timer astray",
    "a queue was removed by hand": "line astray",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_finds_and_repairs_what_is_wrong(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit, name: str
) -> None:
    one, two = queues
    two.enqueue_many(db, some(1))
    one.enqueue_many(db, some(4))
    two.enqueue_many(db, some(1))
    one.limits["api", "other"].set(db, rate="1/hour")
    one.enqueue(db, b"", limits={"api": "other"})
    sound(db, *queues)
    damage(db, name, one, two)
    assert DAMAGES[name] in {each.kind for each in one.admin.verify(db).deviations}
    one.admin.repair(db)
    sound(db, one)
    state = stripe.state(db)
    assert not state.waiting or len(state.out) >= 3
    rest = [queue for queue in queues if queue is one or not name.startswith("a queue")]
    sound(db, *rest)
    while found := [(queue, each) for queue in rest if (each := queue.receive(db))]:
        for queue, each in found:
            queue.ack(db, each)
    assert counts(db, stripe) == (0, 0)


def test_the_end_of_a_message_passes_over_those_whose_queue_is_gone(
    db: Database, queues: tuple[Queue, Queue], stripe: SharedLimit
) -> None:
    one, two = queues
    one.enqueue_many(db, some(3))
    two.enqueue_many(db, some(2))
    one.enqueue_many(db, some(2, 10))
    damage(db, "a queue was removed by hand", one, two)
    one.ack(db, one.receive_many(db, 2))
    assert payloads(one.receive_many(db, 10)) == [b"2", b"10", b"11"]
    assert counts(db, stripe) == (3, 0)
    sound(db, one)

"""Plans: a batch has the same messages until it is done, whatever happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from fdbqueue import Depth, KeyLimits, NewMessage, Queue
from fdbqueue.errors import (
    BatchLost,
    Held,
    InvalidArgument,
    MessagePlanned,
    NotFound,
    QueueReplaced,
    TakenOver,
)
from fdbqueue.messages import run as runs
from fdbqueue.messages.streams import planning
from fdbqueue.queue.streams.planner import Mark, Planner
from fdbqueue.schema.envelope import VALUE_LIMIT
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import Position, parse_id
from tests.audit import sound
from tests.flaky import FlakyDatabase
from tests.progress import Steps
from tests.taking import ready

Database = fdb.Database
Subspace = fdb.Subspace

pytestmark = pytest.mark.queue(max_attempts=2, lease=60)


@pytest.fixture(autouse=True, params=["alone", "in small blocks"])
def rows(request: pytest.FixtureRequest) -> None:
    """Every plan is of messages that stand alone, and of messages that share rows."""
    if request.param == "in small blocks":
        request.getfixturevalue("small_blocks")


def payloads(db: Database, run: Planner, since: Mark, until: Mark, parts: int = 2) -> list[bytes]:
    """What a batch consists of, in the order of its pieces."""
    found = []
    for piece in run.pieces(db, since, until, parts):
        rows = [message for page in run.read(db, piece) for message in page]
        assert len(rows) == piece.messages
        found += [row.opened.payload for row in rows]
    return found


@pytest.fixture
def small_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few messages are several claims, each planned in a transaction of its own."""
    monkeypatch.setattr(planning, "CLAIM_MESSAGES", 3)
    monkeypatch.setattr("fdbqueue.queue.streams.planner.MIN_FILL", 2)


def test_batches_come_in_order_and_are_acknowledged_by_the_next_one(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c", NewMessage(b"urgent", priority=9)])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    first = run.next(db, start, messages=3)
    assert payloads(db, run, start, first) == [b"urgent", b"a", b"b"]
    assert queue.depth(db).leased == 3
    second = run.next(db, first, messages=3)
    assert queue.depth(db).done == 3
    assert payloads(db, run, first, second) == [b"c"]
    assert run.next(db, second) == second
    assert queue.depth(db) == Depth(enqueued=4, done=4)
    assert sound(db, queue)


@pytest.mark.promise(8)
def test_the_same_mark_gives_the_same_batch_to_the_next_run(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    first = run.next(db, start, messages=1)
    queue.enqueue(db, b"urgent", priority=9)
    again = queue.streams.plans.planner("stream")
    assert again.begin(db) == start
    assert again.next(db, start, messages=10) == first
    assert payloads(db, again, start, first) == [b"a"]


def test_a_batch_ends_at_its_bytes_and_has_one_message_in_any_case(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [bytes(40_000), bytes(40_000), bytes(300_000), b"small"])
    run = queue.streams.plans.planner("stream")
    mark, sizes = run.begin(db), []
    while (following := run.next(db, mark, size=100_000)) != mark:
        sizes.append([len(each) for each in payloads(db, run, mark, following)])
        mark = following
    assert sizes == [[40_000, 40_000], [300_000], [5]]
    assert queue.depth(db).done == 4
    assert sound(db, queue)


def test_what_comes_later_is_left_where_the_ends_were_taken_before(
    db: Database, queue: Queue, clock: ManualClock, small_claims: None
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in range(8)])
    queue.enqueue(db, b"due", delay=5)
    clock.seconds += 6
    run = queue.streams.plans.planner("stream")
    ends = run.ends(db)
    queue.enqueue_many(db, [NewMessage(b"late", priority=n) for n in (0, 4, 9)])
    queue.enqueue(db, b"due later", delay=1)
    clock.seconds += 2
    mark, seen = run.begin(db), []
    while (following := run.next(db, mark, messages=4, ends=ends)) != mark:
        seen += payloads(db, run, mark, following)
        mark = following
    assert seen == [b"7", b"6", b"5", b"4", b"due", b"3", b"2", b"1", b"0"]
    assert sorted(ready(db, queue)) == [b"due later", b"late", b"late", b"late"]
    assert run.next(db, mark) != mark


def test_a_planned_message_never_lapses(db: Database, queue: Queue, clock: ManualClock) -> None:
    queue.enqueue(db, b"a", ttl=10)
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(db, start)
    clock.seconds += 10**7
    queue.admin.sweep(db)
    assert queue.receive(db) is None
    assert payloads(db, run, start, until) == [b"a"]
    assert run.next(db, until) == until
    assert queue.depth(db) == Depth(enqueued=1, done=1)
    assert sound(db, queue)


def test_a_planned_message_is_settled_with_its_plan_alone(db: Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, [b"%d" % n for n in range(9)])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(db, start)
    every = queue.admin.leases(db)
    assert [held.delivery.id for held in every] == ids
    for held in every:
        assert (held.planned, held.expired, held.consumer) == (True, False, "stream")
        for settle in (queue.ack, queue.release, queue.extend):
            with pytest.raises(MessagePlanned, match="stream"):
                settle(db, held.delivery)
        with pytest.raises(MessagePlanned):
            queue.reject(db, held.delivery, "bad")
    for settle_many in (queue.ack, queue.release, queue.extend):
        with pytest.raises(MessagePlanned):
            settle_many(db, [held.delivery for held in every])
    for n, message_id in enumerate(ids):
        assert not queue.cancel(db, message_id)
        assert not queue.edit(db, message_id, priority=9)
        again = queue.admin.delivery(db, every[n].delivery.token)
        assert again is not None
        assert (again.id, again.payload) == (message_id, b"%d" % n)
        found = queue.get(db, message_id)
        assert found is not None
        assert (found.state.value, found.lease_expires_at_ms) == ("leased", None)
        assert (found.consumer, found.message.payload) == ("stream", b"%d" % n)
    assert payloads(db, run, start, until) == [b"%d" % n for n in range(9)]
    assert queue.depth(db).leased == 9
    assert sound(db, queue)


def test_a_released_plan_returns_to_its_places_and_its_batch_is_lost(
    db: Database, queue: Queue, small_claims: None
) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(8)])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(db, start, messages=7)
    (piece,) = run.pieces(db, start, until, 1)
    told = Steps()
    assert queue.streams.plans.release(db, "stream", progress=told) == 7
    assert told == [1, 4, 7]
    assert ready(db, queue) == [b"%d" % n for n in range(8)]
    assert all(message.attempts == 0 for message in queue.peek(db, 10))
    with pytest.raises(BatchLost, match="given back"):
        run.next(db, until)
    with pytest.raises(BatchLost, match="given back"):
        run.pieces(db, start, until, 1)
    with pytest.raises(BatchLost, match="given back"):
        list(run.read(db, piece))
    assert queue.streams.plans.release(db, "stream") == 0
    fresh = run.next(db, start)
    assert fresh.batch > until.batch
    assert len(payloads(db, run, start, fresh)) == 8
    assert sound(db, queue)


@pytest.mark.promise(8)
def test_the_newest_run_takes_over_and_the_one_before_fails(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    old, new = queue.streams.plans.planner("stream"), queue.streams.plans.planner("stream")
    start = old.begin(db)
    first = old.next(db, start, messages=1)
    assert new.next(db, start, messages=1) == first
    for call in (
        lambda: old.next(db, first),
        lambda: old.acknowledge(db, first),
        lambda: old.pieces(db, start, first, 1),
    ):
        with pytest.raises(TakenOver, match="stream"):
            call()
    assert queue.depth(db).leased == 1
    second = new.next(db, first)
    assert payloads(db, new, first, second) == [b"b"]


def test_consumers_do_not_share_messages(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    one, two = queue.streams.plans.planner("one"), queue.streams.plans.planner("two")
    first = one.next(db, one.begin(db), messages=2)
    second = two.next(db, two.begin(db), messages=2)
    assert payloads(db, one, one.begin(db), first) == [b"a", b"b"]
    assert payloads(db, two, two.begin(db), second) == [b"c"]
    told = queue.streams.plans.list(db)
    assert [(each.name, each.plans[0].messages) for each in told] == [("one", 2), ("two", 1)]
    assert [message.level for message in queue.streams.plans.messages(db, "one", 1)] == [5]


def test_a_mark_of_another_queue_or_of_before_is_refused(
    db: Database, queue: Queue, space: Subspace
) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    first = run.next(db, start, messages=1)
    second = run.next(db, first, messages=1)
    third = run.next(db, second, messages=1)
    with pytest.raises(BatchLost, match="another run"):
        run.next(db, first)
    with pytest.raises(BatchLost, match="another run"):
        run.pieces(db, start, first, 1)
    with pytest.raises(BatchLost, match="older state"):
        run.next(db, third._replace(batch=99))
    run.acknowledge(db, third)
    queue.streams.plans.forget(db, "stream")
    with pytest.raises(BatchLost, match="forgotten"):
        queue.streams.plans.planner("stream").next(db, third)
    lenient = queue.streams.plans.planner("stream", lenient=True)
    assert lenient.next(db, third) == third
    queue.enqueue(db, b"d")
    until = lenient.next(db, third)
    assert payloads(db, lenient, third, until) == [b"d"]
    assert lenient.pieces(db, start, first, 1) == []


@pytest.mark.parametrize("lenient", [False, True])
def test_a_mark_of_a_queue_that_was_made_anew_is_refused(
    db: Database, queue: Queue, space: Subspace, lenient: bool
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    run = queue.streams.plans.planner("stream", lenient=lenient)
    start = run.begin(db)
    first = run.next(db, start, messages=1)
    queue.set_options(db, lease=5.0)
    assert run.next(db, start) == first
    queue.delete(db)
    Queue.create(db, queue.name, root=space)
    queue.enqueue_many(db, [b"c", b"d", b"e"])
    for again in (run, queue.streams.plans.planner("stream", lenient=lenient)):
        with pytest.raises(QueueReplaced):
            again.next(db, first)
        with pytest.raises(QueueReplaced):
            again.pieces(db, start, first, 1)
        with pytest.raises(QueueReplaced):
            again.acknowledge(db, first)
    assert queue.depth(db) == Depth(enqueued=3, ready=3, ready_bytes=3)


def test_a_lenient_run_goes_on_behind_a_plan_that_was_given_back(
    db: Database, queue: Queue
) -> None:
    queue.enqueue(db, b"a")
    run = queue.streams.plans.planner("stream", lenient=True)
    start = run.begin(db)
    until = run.next(db, start)
    queue.streams.plans.release(db, "stream")
    assert run.pieces(db, start, until, 1) == []
    following = run.next(db, until)
    assert following.batch > until.batch
    assert payloads(db, run, until, following) == [b"a"]


def test_an_acknowledgement_again_does_no_harm(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    first = run.next(db, start, messages=1)
    second = run.next(db, first, messages=1)
    run.acknowledge(db, first)
    run.acknowledge(db, start)
    assert queue.depth(db).leased == 1
    run.acknowledge(db, second)
    run.acknowledge(db, second)
    assert queue.depth(db).done == 2


def test_a_paused_queue_gives_no_batch(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    queue.admin.pause(db)
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    assert run.next(db, start) == start
    queue.admin.resume(db)
    assert run.next(db, start) != start


def test_messages_whose_time_is_over_are_not_planned(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, ttl=5 if n % 2 else None) for n in range(6)])
    clock.seconds += 6
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    assert payloads(db, run, start, run.next(db, start)) == [b"0", b"2", b"4"]
    assert queue.depth(db) == Depth(enqueued=6, leased=3, expired=3)
    assert sound(db, queue)


@pytest.mark.parametrize("watched", [2, 3, 100])
def test_messages_of_one_ordering_key_are_planned_in_a_run(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch, watched: int
) -> None:
    # Given three keys, in claims of a few messages, and others between them
    monkeypatch.setattr(planning, "CLAIM_WATCHED", watched * planning.WEIGHT)
    for n in range(7):
        keyed = [NewMessage(b"%s%d" % (key.encode(), n), key=key) for key in "kl"]
        queue.enqueue_many(db, [*keyed, b"%d" % n])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(db, start)

    # Then each of them is there in its order, one behind the other
    seen = payloads(db, run, start, until)
    assert len(seen) == 21
    assert b"k0k1k2k3k4k5k6" in b"".join(seen)
    assert b"l0l1l2l3l4l5l6" in b"".join(seen)
    assert [each for each in seen if each.isdigit()] == [b"%d" % n for n in range(7)]
    assert sound(db, queue)
    # in one part, however many there are
    for parts in (1, 2, 5, 100):
        pieces = run.pieces(db, start, until, parts)
        found = [
            [message.envelope.payload for page in run.read(db, piece) for message in page]
            for piece in pieces
        ]
        assert list(itertools.chain.from_iterable(found)) == seen
        for key in (b"k", b"l"):
            assert sum(any(each.startswith(key) for each in part) for part in found) == 1
    # What comes meanwhile waits for all of them
    queue.enqueue(db, b"k7", key="k")
    assert queue.receive(db, at_most_once=True) is None
    run.acknowledge(db, until)
    assert queue.depth(db).done == 21
    assert sound(db, queue)
    assert [message.payload for message in queue.peek(db)] == [b"k7"]


def test_a_run_that_does_not_fit_goes_on_in_the_next_batch(db: Database, queue: Queue) -> None:
    queue.enqueue_many(
        db, [NewMessage(b"%s%d" % (key.encode(), n), key=key) for n in range(5) for key in "kl"]
    )
    run = queue.streams.plans.planner("stream")
    mark, seen = run.begin(db), []
    while (following := run.next(db, mark, messages=3)) != mark:
        seen.append(b"".join(payloads(db, run, mark, following)))
        mark = following
        assert sound(db, queue)
    assert seen == [b"k0k1k2", b"l0l1l2", b"k3k4l3", b"l4"]
    assert queue.depth(db) == Depth(enqueued=10, done=10)


def test_messages_that_have_more_to_end_with_are_planned_in_smaller_claims(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "CLAIM_WATCHED", 2 * planning.WEIGHT)
    queue.enqueue_many(db, [NewMessage(b"%d" % n, key=f"{n}", ttl=100) for n in range(5)])
    flaky = FlakyDatabase(db, [])
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(cast("Database", flaky), start)
    assert flaky.commits == 3
    assert payloads(db, run, start, until) == [b"%d" % n for n in range(5)]
    flaky = FlakyDatabase(db, [])
    run.acknowledge(cast("Database", flaky), until)
    assert flaky.commits == 3
    assert queue.depth(db) == Depth(enqueued=5, done=5)
    assert sound(db, queue)


def test_a_consumer_without_plans_is_told_from_one_that_is_not_there(
    db: Database, queue: Queue
) -> None:
    for call in (
        queue.streams.plans.show,
        queue.streams.plans.messages,
        queue.streams.plans.forget,
    ):
        with pytest.raises(NotFound, match="nobody"):
            call(db, "nobody")
    with pytest.raises(NotFound):
        queue.streams.plans.release(db, "nobody")
    with pytest.raises(InvalidArgument):
        queue.streams.plans.planner("")
    run = queue.streams.plans.planner("stream")
    run.begin(db)
    assert queue.streams.plans.show(db, "stream").plans == ()
    queue.enqueue(db, b"a")
    run.next(db, run.begin(db))
    with pytest.raises(Held):
        queue.streams.plans.forget(db, "stream")


def test_a_queue_that_deletes_itself_stays_while_a_consumer_plans(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "temporary", root=space, auto_delete=1, clock=clock)
    run = queue.streams.plans.planner("stream")
    mark = run.begin(db)
    for _ in range(2):
        clock.seconds += 5
        assert not queue.admin.sweep(db).deleted
    assert run.next(db, mark) == mark
    queue.streams.plans.forget(db, "stream")
    queue.admin.sweep(db)
    clock.seconds += 5
    assert queue.admin.sweep(db).deleted


def test_a_lease_that_no_plan_has_is_found_and_lapses_when_it_is_repaired(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    run = queue.streams.plans.planner("stream")
    until = run.next(db, run.begin(db))
    plan, keys = queue._keys.plan("stream", until.batch), queue._keys
    # Of leases that share a row, the last one names it.
    lease = queue.admin.leases(db)[-1].delivery.token
    stored = db[runs.token_key(keys, lease)] or b""
    del db[runs.token_key(keys, lease)]
    assert "plan incomplete" in {found.kind for found in queue.admin.verify(db).deviations}
    db[runs.token_key(keys, lease)] = stored
    assert queue.admin.verify(db).ok
    del db[plan]
    found = queue.admin.repair(db)
    assert [each.kind for each in found.deviations] == ["lease without plan"] * 2
    clock.seconds += 1
    taken = [queue.receive(db), queue.receive(db)]
    assert {delivery.payload for delivery in taken if delivery} == {b"a", b"b"}
    assert sound(db, queue)


def test_an_enqueue_at_the_same_time_does_not_disturb_a_plan(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    flaky = FlakyDatabase(db, [], before=lambda: queue.enqueue(db, b"late"))
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(cast("Database", flaky), start)
    assert flaky.commits == 1
    assert payloads(db, run, start, until) == [b"a"]
    assert ready(db, queue) == [b"late"]


# -- rows ---------------------------------------------------------------------------------------


def test_a_plan_of_blocks_is_written_and_ended_by_rows(
    db: Database, queue: Queue, mutations: Callable[[Callable[[], Any]], int]
) -> None:
    for _ in range(5):
        queue.enqueue_many(db, [b"x"] * 100)
    blocks_of = -(-100 // runs.MAX_MESSAGES)
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    run.next(db, start, messages=1)
    run.acknowledge(db, Mark(start.line, 1))
    written = mutations(lambda: run.next(db, Mark(start.line, 1), messages=450))
    assert written <= 5 * blocks_of + 10
    assert mutations(lambda: run.acknowledge(db, Mark(start.line, 2))) <= 10
    assert queue.depth(db).done == 451
    assert sound(db, queue)


def leased_rows(db: Database, queue: Queue) -> list[fdb.KeyValue]:
    every = queue._keys.lease.rows
    return list(db.get_range(every.start, every.stop))


def test_a_row_never_outgrows_a_value(db: Database, queue: Queue) -> None:
    # Given messages of one block that fail one by one, and so grow
    queue.enqueue_many(db, [bytes(8_000)] * 11)
    for held in queue.receive_many(db, 11):
        queue.release(db, held, error="e" * 500, delay=0)
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(db, start)
    assert payloads(db, run, start, until) == [bytes(8_000)] * 11
    assert all(len(kv.value) <= VALUE_LIMIT for kv in leased_rows(db, queue))
    assert sound(db, queue)


@pytest.mark.parametrize("ttl", [None, 5])
def test_what_waits_for_a_key_is_planned_once_behind_several_of_it(
    db: Database, space: Subspace, clock: ManualClock, ttl: float | None
) -> None:
    # Given two of a key that are ready, though now it lets out one at a time, and others that wait
    # for it, of which some expire
    queue = Queue.create(db, "pair", root=space, keys=KeyLimits(concurrency=2), clock=clock)
    sent = [NewMessage(b"%d" % n, key="k", ttl=ttl if n > 3 else None) for n in range(6)]
    queue.enqueue_many(db, sent)
    queue.set_options(db, keys=KeyLimits(concurrency=1))
    clock.seconds += 10
    # When they are planned
    run = queue.streams.plans.planner("stream")
    begin = run.begin(db)
    until = run.next(db, begin)
    # Then each comes once
    live = sorted(each.payload for each in sent if each.ttl is None)
    assert sorted(payloads(db, run, begin, until)) == live
    assert sound(db, queue)
    run.acknowledge(db, until)
    assert queue.depth(db).done == len(live)
    assert sound(db, queue)


def test_of_a_run_what_has_expired_goes(db: Database, queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(
        db, [NewMessage(b"%d" % n, key="k", ttl=[5, 50, None][n % 3]) for n in range(1, 8)]
    )
    clock.seconds += 6
    run = queue.streams.plans.planner("stream")
    start = run.begin(db)
    until = run.next(db, start)
    assert payloads(db, run, start, until) == [b"1", b"2", b"4", b"5", b"7"]
    assert queue.depth(db).expired == 2
    assert sound(db, queue)
    clock.seconds += 50
    queue.streams.plans.release(db, "stream")
    assert queue.depth(db) == Depth(enqueued=7, ready=1, waiting=1, ready_bytes=2, expired=5)
    assert sound(db, queue)
    assert [message.payload for message in queue.peek(db)] == [b"2"]


def test_a_message_is_looked_for_beside_claims_of_which_all_continue_a_key(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a key of which one claim has the first messages, and others the rest
    monkeypatch.setattr(planning, "CLAIM_WATCHED", 2 * planning.WEIGHT)
    gone = queue.enqueue(db, b"gone")
    queue.ack(db, queue.receive_many(db, 1))
    held = queue.enqueue_many(db, [NewMessage(b"%d" % n, key="k") for n in range(9)])
    run = queue.streams.plans.planner("stream")
    run.next(db, run.begin(db))
    # When messages are looked for by their ids, then those are found that are there
    assert queue.get(db, gone) is None
    assert [each is not None for each in (queue.get(db, one) for one in held)] == [True] * 9


def test_what_needs_a_shared_limit_is_not_planned_behind_its_key(
    db: Database, queue: Queue
) -> None:
    # Given three of a key, of which the second needs a slot that another message has
    queue.limits["api", "one"].set(db, concurrency=1)
    queue.enqueue(db, b"holds", limits={"api": "one"})
    held = queue.receive_many(db, 1)
    second = NewMessage(b"1", key="k", limits={"api": "one"})
    queue.enqueue_many(db, [NewMessage(b"0", key="k"), second, NewMessage(b"2", key="k")])
    # When they are planned, then it waits, and the third does not overtake it
    run = queue.streams.plans.planner("stream")
    mark = run.begin(db)
    until = run.next(db, mark)
    assert payloads(db, run, mark, until) == [b"0"]
    assert run.next(db, until) == until
    # until it has its slot
    queue.ack(db, held)
    after = run.next(db, until)
    assert payloads(db, run, until, after) == [b"1", b"2"]
    assert sound(db, queue)


def test_a_plan_that_begins_within_a_row_leaves_what_stands_before(
    db: Database, queue: Queue
) -> None:
    # Given two rows, and a consumer that begins within the first
    ids = queue.enqueue_many(db, [b"%02d" % n for n in range(8)])
    queue.enqueue_many(db, [b"%02d" % n for n in range(8, 16)])
    first = parse_id(ids[3])
    assert isinstance(first, Position)
    begins = {first.level: queue._keys.place(first)}
    run = queue.streams.plans.planner("stream", begins=lambda: begins)
    mark = run.begin(db)
    # When both are planned, then the first of the first row stay
    until = run.next(db, mark)
    assert payloads(db, run, mark, until) == [b"%02d" % n for n in range(3, 16)]
    assert ready(db, queue) == [b"00", b"01", b"02"]
    assert sound(db, queue)


@pytest.mark.parametrize("key", [None, "k"])
def test_what_has_expired_ends_where_more_is_due_than_one_transaction_tidies(
    db: Database, queue: Queue, clock: ManualClock, key: str | None
) -> None:
    expired = [NewMessage(b"expired", key=key, ttl=5)] * 1_500
    queue.enqueue_many(db, [NewMessage(b"first", key=key), *expired, NewMessage(b"last", key=key)])
    clock.seconds += 6
    run = queue.streams.plans.planner("stream")
    mark = run.begin(db)
    assert payloads(db, run, mark, run.next(db, mark)) == [b"first", b"last"]
    assert queue.depth(db) == Depth(enqueued=1_502, leased=2, expired=1_500)
    assert sound(db, queue)

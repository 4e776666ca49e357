"""The line of consumers: staged dequeue, hand-over, withdrawal, dead leaders, honest empties."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from fdbqueue import Delivery, Depth, Queue, Ticket
from fdbqueue.consumers import fulfilment, line
from fdbqueue.consumers.leader import LeaderStage
from fdbqueue.consumers.receiving import returning_leader, waiting
from fdbqueue.errors import InvalidArgument, LeaseLost
from fdbqueue.schema.consumers import Request
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import VERSIONS_PER_SECOND
from fdbqueue.testing import ManualClock
from tests.flaky import CONFLICT, PLANS, FlakyDatabase
from tests.patience import DEADLINE
from tests.schemes import forced
from tests.taking import payloads, take

Database = fdb.Database
Subspace = fdb.Subspace


@pytest.fixture
def queue(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return forced(Queue.create(db, "orders", root=space, clock=clock), "staged")


@pytest.fixture
def quiet(db: Database, queue: Queue) -> Callable[[], bool]:
    """Whether no trace of a line is left."""

    def no_trace() -> bool:
        kinds = [
            queue._keys.kind(kind) for kind in (QueueKeys.led, QueueKeys.state, QueueKeys.sleeper)
        ]
        return not any(db.get_range(kind.start, kind.stop) for kind in kinds)

    return no_trace


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


# -- the way it is meant to go --------------------------------------------------------------------


def test_one_consumer_alone_is_served_in_order_and_leaves_no_trace(
    db: Database, queue: Queue, quiet: Callable[[], bool]
) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    assert [d.payload for d in queue.consume(db)] == [b"a", b"b", b"c"]
    assert queue.receive(db) is None
    assert queue.depth(db) == Depth(enqueued=3, done=3)
    assert quiet()


@pytest.mark.promise(3)
def test_requests_are_served_in_the_order_in_which_they_came(db: Database, queue: Queue) -> None:
    tickets = [queue.line.request(db) for _ in range(5)]
    queue.enqueue_many(db, [b"%d" % n for n in range(5)])
    found = [queue.line.collect(db, ticket) for ticket in tickets]
    assert [payloads(one) for one in found] == [[b"%d" % n] for n in range(5)]


def test_one_round_serves_all_who_stand_in_line(db: Database, queue: Queue) -> None:
    leader, *others = [queue.line.request(db) for _ in range(20)]
    queue.enqueue_many(db, [b"%d" % n for n in range(20)])
    queue.line.collect(db, leader)
    assert queue.depth(db).leased == 20
    found = [payloads(queue.line.collect(db, ticket)) for ticket in others]
    assert found == [[b"%d" % n] for n in range(1, 20)]


def test_a_request_for_many_gets_what_is_there(db: Database, queue: Queue) -> None:
    first, second, third = (queue.line.request(db, max_messages=3) for _ in range(3))
    queue.enqueue_many(db, [b"%d" % n for n in range(5)])
    assert payloads(queue.line.collect(db, first)) == [b"0", b"1", b"2"]
    assert payloads(queue.line.collect(db, second)) == [b"3", b"4"]
    assert queue.line.collect(db, third, wait=0) == []


def test_large_messages_are_served_in_several_rounds(db: Database, queue: Queue) -> None:
    for n in range(3):
        queue.enqueue_many(db, [b"%d" % n * 80_000 for _ in range(10)])
    first, second = queue.line.request(db, max_messages=20), queue.line.request(db, max_messages=20)
    found = queue.line.collect(db, first) + queue.line.collect(db, second)
    assert 20 <= len(found) <= 30
    assert payloads(found) == sorted(payloads(found))


def test_the_effect_the_ack_and_the_next_request_are_one_commit(
    db: Database, queue: Queue, space: Subspace
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    delivery = take(db, queue)

    @fdb.transactional
    def step(tr: fdb.Transaction) -> Ticket:
        tr[space.pack(("effect",))] = delivery.payload
        queue.ack(tr, delivery)
        return queue.line.request(tr)

    ticket = step(db)
    assert db[space.pack(("effect",))] == b"a"
    assert payloads(queue.line.collect(db, ticket)) == [b"b"]
    assert queue.depth(db) == Depth(enqueued=2, leased=1, done=1)


def test_a_lost_lease_acknowledged_with_a_request_asks_for_nothing(
    db: Database, queue: Queue, quiet: Callable[[], bool]
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    delivery = take(db, queue)
    queue.ack(db, delivery)
    with pytest.raises(LeaseLost):
        queue.receive(db, ack=[delivery])
    assert queue.depth(db).ready == 1
    assert quiet()


def test_a_ticket_can_be_pickled(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    queue.line.request(db)
    ticket = pickle.loads(pickle.dumps(queue.line.request(db)))
    assert queue.line.withdraw(db, ticket) == []


# -- conflicts ------------------------------------------------------------------------------------


def test_requests_conflict_neither_with_each_other_nor_with_enqueues_nor_with_a_round(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    leader = queue.line.request(db)
    open_transactions = [db.create_transaction() for _ in range(6)]
    for tr in open_transactions:
        queue.line.request(tr)
        queue.enqueue(tr, b"x")
    round_ = db.create_transaction()
    waiter = waiting._Waiter(db, queue._access, leader, None)
    waiter._round(round_, LeaderStage.UNANSWERED)
    for tr in open_transactions[:3]:
        tr.commit().wait()
    round_.commit().wait()
    for tr in open_transactions[3:]:
        tr.commit().wait()
    assert queue.depth(db).leased == 1


# -- leaving --------------------------------------------------------------------------------------


def test_a_withdrawn_request_is_served_no_more(
    db: Database, queue: Queue, quiet: Callable[[], bool]
) -> None:
    first, second = queue.line.request(db), queue.line.request(db)
    assert queue.line.withdraw(db, first) == []
    queue.enqueue(db, b"a")
    assert payloads(queue.line.collect(db, second)) == [b"a"]
    assert queue.line.withdraw(db, first) == []
    assert quiet()


def test_time_ends_for_a_leader_and_for_those_who_wait_and_no_trace_is_left(
    db: Database, queue: Queue, quiet: Callable[[], bool]
) -> None:
    found: list[Delivery | None] = []
    in_threads(6, lambda n: found.append(queue.receive(db, wait=0.01 * n)))
    assert found == [None] * 6
    assert quiet()


def test_an_interrupted_wait_gives_back_what_it_was_given(
    db: Database, queue: Queue, quiet: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, ticket = queue.line.request(db), queue.line.request(db)
    queue.enqueue_many(db, [b"a", b"b"])
    assert payloads(queue.line.collect(db, leader)) == [b"a"]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting._Waiter, "_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        queue.line.collect(db, ticket)
    assert queue.depth(db).ready == 1
    assert quiet()


# -- consumers that die ---------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers look by themselves at once, since the clocks are moved by hand."""
    for name in ("FIRST_PATIENCE", "SECOND_PATIENCE", "LATER_PATIENCE"):
        monkeypatch.setattr(waiting, name, -1.0)


def test_what_a_dead_consumer_was_given_comes_back_in_seconds_and_has_lost_no_attempt(
    db: Database, queue: Queue, clock: ManualClock, impatient: None
) -> None:
    queue.set_options(db, max_attempts=1, lease=3600)
    queue.line.request(db)
    second = queue.line.request(db)
    queue.enqueue_many(db, [b"a", b"b"])
    clock.seconds += 3
    assert payloads(queue.line.collect(db, second)) == [b"b"]
    clock.seconds += 11
    delivery = take(db, queue)
    assert (delivery.payload, delivery.attempt) == (b"a", 1)
    assert queue.dead.list(db) == []


def test_from_its_collection_on_a_message_is_leased_in_full_and_begun(
    db: Database, queue: Queue, clock: ManualClock, impatient: None
) -> None:
    queue.set_options(db, max_deaths=1, lease=60)
    first, second = queue.line.request(db), queue.line.request(db)
    queue.enqueue_many(db, [b"a", b"b"])
    clock.seconds += 3
    assert payloads(queue.line.collect(db, second)) == [b"b"]
    clock.seconds += 5
    (delivery,) = queue.line.collect(db, first)
    assert delivery.payload == b"a"
    clock.seconds += 50
    (again,) = queue.line.collect(db, first)  # It lasts no longer for that.
    assert again.expires_at_ms == delivery.expires_at_ms
    assert queue.receive(db) is None
    clock.seconds += 11
    assert queue.receive(db) is None
    assert sorted(each.message.payload for each in queue.dead.list(db)) == [b"a", b"b"]


def looking(db: Database, queue: Queue) -> Ticket:
    """The request of a consumer that asks in a loop, and looks for its answer at once."""

    @fdb.transactional
    def ask(tr: fdb.Transaction) -> Ticket:
        access = queue._access
        led, scope = tr[access.line.led].value, queue._scope(tr)
        requests = line.claimed([Request(1, waits=True)])
        asked = line.asking(tr, scope, requests, line.Asks.IN_A_LOOP)
        return line.join(tr, scope, access.line, led, asked)[0]

    return ask(db)


@pytest.mark.parametrize(("late", "lasts", "deaths"), [(0.0, 70, 1), (6.0, 10, 0)])
def test_who_dies_within_a_moment_of_asking_has_begun(
    db: Database,
    queue: Queue,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    late: float,
    lasts: int,
    deaths: int,
) -> None:
    monkeypatch.setattr(line, "_PRESENT_VERSIONS", 5 * VERSIONS_PER_SECOND)
    queue.set_options(db, lease=60, backoff=None)
    first = queue.line.request(db)
    looking(db, queue)
    queue.enqueue_many(db, [b"a", b"b"])
    clock.seconds += late
    (held,) = queue.line.collect(db, first)
    queue.ack(db, held)
    clock.seconds += lasts - 1
    assert queue.receive(db) is None
    clock.seconds += 2
    again = take(db, queue)
    assert (again.payload, again.message.deaths) == (b"b", deaths)


def test_a_request_that_cannot_be_read_stops_nobody(
    db: Database, queue: Queue, quiet: Callable[[], bool]
) -> None:
    unreadable = queue.line.request(db)
    db[queue._keys.line.request(unreadable.index, unreadable.claim)] = b"?"
    queue.enqueue_many(db, [b"a", b"b"])
    assert len(queue.admin.verify(db).deviations) > 0
    queue.admin.consumers(db)
    assert payloads([*queue.consume(db)]) == [b"a", b"b"]
    assert quiet()
    assert queue.admin.verify(db).ok


@pytest.mark.parametrize("waits", [True, False])
def test_a_consumer_that_was_taken_for_dead_asks_again(
    db: Database, queue: Queue, clock: ManualClock, waits: bool
) -> None:
    paused = queue.line.request(db, wait=waits)
    clock.seconds += 11
    assert queue.receive(db) is None
    queue.enqueue(db, b"a")
    assert payloads(queue.line.collect(db, paused)) == [b"a"]


# -- a leader that is away ------------------------------------------------------------------------


@pytest.fixture
def away(db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Delivery:
    """What a leader of the line holds that is expected to ask again soon; five messages follow."""
    monkeypatch.setattr(returning_leader, "RETURN_SECONDS", float("inf"))
    monkeypatch.setattr(returning_leader, "SERVE_SECONDS", 0.0)
    queue.enqueue_many(db, [b"%d" % n for n in range(7)])
    first = take(db, queue)
    held = take(db, queue, ack=[first])
    assert held.payload == b"1"
    return held


@pytest.mark.parametrize("plan", [[], *PLANS], ids=", ".join)
def test_a_leader_that_returns_serves_the_line_and_itself_in_one_commit(
    db: Database, queue: Queue, away: Delivery, plan: Sequence[str | None]
) -> None:
    waiting = [queue.line.request(db) for _ in range(3)]
    flaky = FlakyDatabase(db, plan)
    delivery = take(cast("Database", flaky), queue, ack=[away])
    assert delivery.payload == b"5"
    if all(fault == CONFLICT for fault in plan):
        assert flaky.commits == 1 + len(plan)
    assert queue.depth(db) == Depth(enqueued=7, ready=1, leased=4, done=2, ready_bytes=1)
    found = [payloads(queue.line.collect(db, ticket)) for ticket in waiting]
    assert found == [[b"2"], [b"3"], [b"4"]]


def test_a_leader_that_is_alone_makes_one_commit_for_each_message(
    db: Database, queue: Queue, away: Delivery, quiet: Callable[[], bool]
) -> None:
    flaky = FlakyDatabase(db, [])
    held = away
    for n in range(2, 7):
        found = take(cast("Database", flaky), queue, ack=[held])
        assert found.payload == b"%d" % n
        held = found
    assert flaky.commits == 5
    # And an empty queue needs no leader.
    assert queue.receive(cast("Database", flaky), ack=[held]) is None
    assert flaky.commits == 6
    assert quiet()


def test_a_leader_that_has_just_served_the_line_takes_a_message_for_itself_alone(
    db: Database, queue: Queue, away: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returning_leader, "SERVE_SECONDS", float("inf"))
    waiting = queue.line.request(db)
    flaky = FlakyDatabase(db, [])
    second = take(cast("Database", flaky), queue, ack=[away])
    assert (second.payload, flaky.commits) == (b"2", 1)
    # And serves it the next time.
    monkeypatch.setattr(returning_leader, "SERVE_SECONDS", 0.0)
    third = take(cast("Database", flaky), queue, ack=[second])
    assert (third.payload, flaky.commits) == (b"4", 2)
    assert payloads(queue.line.collect(db, waiting)) == [b"3"]


def test_a_consumer_whose_answer_is_late_is_woken(
    db: Database, queue: Queue, away: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a consumer that asks again soon, in an empty line, and looks only once
    queue.ack(db, queue.receive_many(db, 5, ack=[away]))
    assert queue.receive(db) is None
    monkeypatch.setattr(waiting, "LOOKS", 1)
    for name in ("FIRST_PATIENCE", "SECOND_PATIENCE", "LATER_PATIENCE"):
        monkeypatch.setattr(waiting, name, 10 * DEADLINE)
    leader = queue.line.request(db)
    assert leader.leads
    watches, stay = threading.Event(), line.stay

    def watching(*terms: Any, **options: Any) -> Any:
        watches.set()
        return stay(*terms, **options)

    monkeypatch.setattr(line, "stay", watching)

    def take() -> None:
        assert payloads(queue.receive_many(db, 1, wait=DEADLINE)) == [b"late"]

    other = threading.Thread(target=take)
    other.start()
    assert watches.wait(DEADLINE)
    # When the leader serves it later
    queue.enqueue_many(db, [b"first", b"late"])
    assert payloads(queue.line.collect(db, leader)) == [b"first"]
    # Then it is woken, long before it would look by itself
    other.join(DEADLINE)
    assert not other.is_alive()


def test_a_leader_that_does_not_return_delays_and_does_not_block(
    db: Database, queue: Queue, away: Delivery
) -> None:
    second, third = queue.line.request(db), queue.line.request(db)
    assert payloads(queue.line.collect(db, third)) == [b"3"]
    assert payloads(queue.line.collect(db, second)) == [b"2"]
    # And when it returns after all, it joins the line.
    delivery = take(db, queue, ack=[away])
    assert delivery.payload == b"4"


def test_a_lead_that_nobody_returns_with_ends(
    db: Database,
    space: Subspace,
    queue: Queue,
    away: Delivery,
    clock: ManualClock,
    quiet: Callable[[], bool],
) -> None:
    clock.seconds += 3
    forced(queue, "auto")
    other = Queue(queue.name, space, clock=clock)
    delivery = take(db, other)
    assert delivery.payload == b"2"
    assert quiet()


# -- many at once, and faults ---------------------------------------------------------------------


@pytest.mark.parametrize("plan", PLANS, ids=", ".join)
def test_collecting_and_withdrawing_take_effect_once(
    db: Database, queue: Queue, quiet: Callable[[], bool], plan: Sequence[str | None]
) -> None:
    def flaky() -> Database:
        return cast("Database", FlakyDatabase(db, plan))

    queue.enqueue_many(db, [b"a", b"b"])
    tickets = [queue.line.request(flaky()) for _ in range(4)]
    assert payloads(queue.line.collect(flaky(), tickets[1], wait=0)) == [b"b"]
    assert payloads(queue.line.withdraw(flaky(), tickets[0])) == [b"a"]
    assert queue.line.withdraw(flaky(), tickets[2]) == []
    assert queue.line.collect(flaky(), tickets[3], wait=0) == []
    assert queue.depth(db) == Depth(enqueued=2, leased=2)
    assert quiet()


# -- the modes ------------------------------------------------------------------------------------


def test_auto_stands_in_line_behind_others(db: Database, queue: Queue) -> None:
    forced(queue, "auto")
    leader = queue.line.request(db)
    queue.enqueue_many(db, [b"a", b"b"])
    found: list[Delivery | None] = []
    late = threading.Thread(target=lambda: found.append(queue.receive(db)))
    late.start()
    late.join(0.1)
    assert payloads(queue.line.collect(db, leader)) == [b"a"]
    late.join(DEADLINE)
    assert found[0] is not None
    assert found[0].payload == b"b"


def test_auto_without_contention_stands_in_no_line(
    db: Database, queue: Queue, quiet: Callable[[], bool]
) -> None:
    forced(queue, "auto")
    queue.enqueue(db, b"a")
    flaky = FlakyDatabase(db, [])
    delivery = take(cast("Database", flaky), queue)
    assert flaky.commits == 1
    assert queue.receive(cast("Database", flaky), ack=[delivery]) is None
    assert flaky.commits == 2, "the ack and the empty answer are one commit"


def rows(db: Database, space: Subspace) -> list[tuple[bytes, bytes]]:
    within = space.range()
    return [(kv.key, kv.value) for kv in db.get_range(within.start, within.stop)]


def test_a_round_hands_out_a_few_hundred_messages_and_leaves_the_rest_of_the_line_to_the_next(
    db: Database, queue: Queue
) -> None:
    # Given a line that asks for more than a round hands out, and enough messages
    sizes = [fulfilment.MAX_MESSAGES + 50, 150, 150, 1]
    tickets = [queue.line.request(db, max_messages=size) for size in sizes]
    queue.enqueue_many(db, [b"%04d" % n for n in range(sum(sizes) - 100)])
    # When the leader leads
    found = payloads(queue.line.collect(db, tickets[0]))
    # Then every request gets what it asks for, the oldest first, as far as there are messages
    assert len(found) == sizes[0]
    rest = [payloads(queue.line.collect(db, ticket, wait=0)) for ticket in tickets[1:]]
    assert [len(one) for one in rest] == [150, 51, 0]
    found += [payload for one in rest for payload in one]
    assert found == [b"%04d" % n for n in range(sum(sizes) - 100)]


def test_waiting_in_line_is_refused_inside_a_transaction(db: Database, queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="with a database"):
        queue.receive(db.create_transaction(), wait=1)


def test_whoever_joins_while_the_leader_leaves_looks_again(db: Database, queue: Queue) -> None:
    leader = queue.line.request(db)
    joining = db.create_transaction()
    queue.line.request(joining)
    queue.line.withdraw(db, leader)
    with pytest.raises(fdb.FDBError) as caught:
        joining.commit().wait()
    assert caught.value.code == 1020


def test_a_withdrawal_that_comes_too_late_returns_the_message(db: Database, queue: Queue) -> None:
    leader, other = queue.line.request(db), queue.line.request(db)
    queue.enqueue_many(db, [b"a", b"b"])
    queue.line.collect(db, leader)
    (taken,) = queue.line.withdraw(db, other)
    queue.ack(db, taken)
    assert queue.depth(db) == Depth(enqueued=2, leased=1, done=1)


def test_a_leader_that_withdraws_hands_over_to_the_oldest(
    db: Database, queue: Queue, quiet: Callable[[], bool]
) -> None:
    leader, second, third = (queue.line.request(db) for _ in range(3))
    queue.line.withdraw(db, leader)
    queue.enqueue_many(db, [b"a", b"b"])
    assert payloads(queue.line.collect(db, second)) == [b"a"]
    assert payloads(queue.line.collect(db, third)) == [b"b"]
    assert quiet()


def test_time_that_ends_while_messages_are_there_ends_with_a_message(
    db: Database, queue: Queue
) -> None:
    first, second = queue.line.request(db), queue.line.request(db)
    queue.enqueue_many(db, [b"a", b"b"])
    assert payloads(queue.line.collect(db, second, wait=0)) == [b"b"], "the older one comes first"
    assert payloads(queue.line.collect(db, first, wait=0)) == [b"a"]


def test_who_looks_for_its_answer_collects_it_without_a_commit(
    db: Database, queue: Queue, space: Subspace, impatient: None
) -> None:
    first = queue.line.request(db)
    second = looking(db, queue)
    queue.enqueue_many(db, [b"a", b"b"])
    assert payloads(queue.line.collect(db, first)) == [b"a"]
    stored = rows(db, space)
    (held,) = queue.line.collect(db, second)
    assert rows(db, space) == stored
    queue.ack(db, held)


def test_a_leader_that_lost_the_lead_while_it_paused_is_served_all_the_same(
    db: Database, queue: Queue, clock: ManualClock, impatient: None
) -> None:
    paused, second = queue.line.request(db), queue.line.request(db)
    clock.seconds += 3
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    assert payloads(queue.line.collect(db, second)) == [b"b"]
    assert payloads(queue.line.collect(db, paused)) == [b"a"]


def test_a_leader_that_finds_no_message_for_itself_alone_serves_the_line(
    db: Database,
    queue: Queue,
    away: Delivery,
    monkeypatch: pytest.MonkeyPatch,
    quiet: Callable[[], bool],
) -> None:
    queue.ack(db, queue.receive_many(db, 5, ack=[away]))
    monkeypatch.setattr(returning_leader, "SERVE_SECONDS", float("inf"))
    waiting = queue.line.request(db, wait=False)
    assert queue.receive(db) is None
    assert quiet()
    assert queue.line.collect(db, waiting) == []


def test_a_leader_that_is_interrupted_gives_its_own_message_back(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a leader that has its message, and goes on for others
    leader, other = queue.line.request(db), queue.line.request(db)
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    rounds, play = iter((True,)), waiting._Waiter._round

    def interrupted(*terms: Any, **options: Any) -> Any:
        if next(rounds, False):
            return play(*terms, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting._Waiter, "_round", interrupted)
    # When it is interrupted
    with pytest.raises(KeyboardInterrupt):
        queue.line.collect(db, leader)
    monkeypatch.undo()
    # Then the next consumer gets that at once
    assert payloads(queue.line.collect(db, other)) == [b"b"]
    assert payloads(queue.receive_many(db, 9)) == [b"a", b"c"]

"""The lines of subscriptions: their consumers are served by one that leads, as those of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fdbqueue import Credit, Delivery, NewMessage, Queue, Ticket
from fdbqueue.consumers import line, receiving
from fdbqueue.consumers.leader import LeaderStage
from fdbqueue.consumers.receiving import returning_leader, waiting
from fdbqueue.errors import Held, LeaseLost, NotFound
from fdbqueue.queue.subscription import Subscription
from fdbqueue.schema import once
from fdbqueue.schema.consumers import Request
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.worker.consumer import QueueConsumer, SubscriptionConsumer
from fdbqueue.worker.stock.states import Event
from tests.schemes import forced

Database = fdb.Database
Subspace = fdb.Subspace


@pytest.fixture
def queue(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return forced(Queue.create(db, "orders", root=space, clock=clock, levels=2), "staged")


@pytest.fixture
def europe(db: Database, queue: Queue) -> Subscription:
    return queue.subscriptions.open(db, "europe", selector="region = 'eu'")


def put(db: Database, queue: Queue, *texts: str, priority: int = 0) -> None:
    messages = [NewMessage(t.encode(), priority, {"region": t.rstrip("0123456789")}) for t in texts]
    for message in messages:
        queue.enqueue(db, message.payload, priority=message.priority, headers=message.headers)


def texts(found: Sequence[Delivery] | None) -> list[str]:
    assert found is not None
    return [one.payload.decode() for one in found]


def ask(
    db: Database, one: Subscription, wanted: Request | None = None, *, waits: bool = True
) -> Ticket:
    """Stand in the line of a subscription."""
    access = one._access

    def join(tr: fdb.Transaction) -> Ticket:
        led, scope = tr.snapshot.get(access.line.led), access.scope(tr)
        access.supply.enter(tr, scope)
        requests = [replace(wanted or Request(1), waits=waits)]
        asked = line.asking(tr, scope, line.claimed(requests))
        return line.join(tr, scope, access.line, led.value, asked)[0]

    return once.run(db, access.once, join)


def answer(db: Database, one: Subscription, ticket: Ticket, seconds: float = 0.0) -> list[str]:
    return texts(receiving.collect(db, one._access, ticket, seconds))


def stored(db: Database, queue: Queue, kind: Kind = QueueKeys.led) -> int:
    within = queue._keys.kind(kind)
    return len(list(db.get_range(within.start, within.stop)))


def test_requests_are_served_in_the_order_in_which_they_came_with_what_they_want(
    db: Database, queue: Queue, europe: Subscription
) -> None:
    tickets = [ask(db, europe) for _ in range(3)]
    assert [one.leads for one in tickets] == [True, False, False]
    own = queue._keys.line.all
    assert not list(db.get_range(own.start, own.stop)), "the queue's own line is another"
    put(db, queue, "us1", "eu1", "us2", "eu2", "eu3")
    put(db, queue, "eu9", priority=9)
    answers = [answer(db, europe, one) for one in tickets]
    assert answers == [["eu9"], ["eu1"], ["eu2"]]
    assert texts(queue.receive_many(db, 9)) == ["us1", "us2", "eu3"]
    assert queue.admin.verify(db).ok


def test_a_leader_that_returns_says_empty_only_when_nothing_is_due(
    db: Database,
    queue: Queue,
    europe: Subscription,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a leader that is away, and more messages due than one step makes ready, the match last
    monkeypatch.setattr(returning_leader, "RETURN_SECONDS", float("inf"))
    monkeypatch.setattr(returning_leader, "SERVE_SECONDS", 0.0)
    monkeypatch.setattr("fdbqueue.messages.agenda.MAX_ENTRIES", 2)
    put(db, queue, "eu1", "eu2")
    held = europe.receive_many(db, 1)
    held = europe.receive_many(db, 1, ack=held)
    assert texts(held) == ["eu2"]
    assert europe._access.hints.lead is not None
    for n, region in enumerate(["us", "us", "us", "us", "eu"]):
        queue.enqueue(db, b"%d" % n, headers={"region": region}, delay=1 + n)
    clock.seconds += 60
    # When it asks for the next one, then it gets that
    assert texts(europe.receive_many(db, 1, ack=held)) == ["4"]


def test_an_acknowledgement_that_comes_too_late_takes_nothing(
    db: Database, queue: Queue, europe: Subscription, clock: ManualClock
) -> None:
    put(db, queue, "eu1", "eu2")
    held = europe.receive_many(db, 1)
    queue.ack(db, held)
    with pytest.raises(LeaseLost):
        europe.receive_many(db, 1, ack=held)
    with pytest.raises(LeaseLost):
        europe.receive_many(db.create_transaction(), 1, ack=held)
    assert queue.depth(db).ready == 1


def test_a_selector_that_matches_rarely_is_followed_through_several_rounds(
    db: Database, queue: Queue, europe: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdbqueue.subscriptions.cursors.MAX_SCANNED", 10)
    put(db, queue, *(f"us{n}" for n in range(35)), "eu1", *(f"us{n}" for n in range(15)))
    first, second = ask(db, europe), ask(db, europe)
    assert answer(db, europe, first) == ["eu1"]
    assert europe.positions(db)[1] >= 30, "the next round does not begin at the front"
    assert answer(db, europe, second) == []
    assert queue.admin.verify(db).ok


def test_a_higher_priority_is_served_before_those_that_came_earlier(
    db: Database, queue: Queue, europe: Subscription
) -> None:
    low = ask(db, europe, Request(1, priority=0))
    high = ask(db, europe, Request(1, priority=7))
    put(db, queue, "eu1")
    assert answer(db, europe, low) == []
    assert answer(db, europe, high) == ["eu1"]


def test_requests_end_with_their_subscription(
    db: Database, queue: Queue, europe: Subscription
) -> None:
    leader, other = ask(db, europe), ask(db, europe, waits=False)
    put(db, queue, "eu1")
    europe.remove(db)
    assert stored(db, queue) == 0
    for ticket in (leader, other):
        with pytest.raises(NotFound):
            answer(db, europe, ticket)
    again = queue.subscriptions.open(db, "europe", selector="region = 'us'")
    assert again.receive(db) is None
    assert stored(db, queue) == 0
    assert queue.admin.verify(db).ok


def test_a_subscription_closes_itself_through_its_line(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    once_ = queue.subscriptions.open(db, "once", selector="region = 'eu'", auto_close=True)
    other = ask(db, once_)
    put(db, queue, "eu1", "us1")
    assert answer(db, once_, other) == ["eu1"]
    asked, behind = ask(db, once_), ask(db, once_)
    assert answer(db, once_, asked) == []
    with pytest.raises(NotFound):
        answer(db, once_, behind)
    assert queue.subscriptions.list(db) == []
    for kind in (
        QueueKeys.led,
        QueueKeys.guard,
        QueueKeys.state,
        QueueKeys.sleeper,
        QueueKeys.consumer,
    ):
        assert stored(db, queue, kind) == 0, kind


def test_an_exclusive_subscription_lets_only_its_holder_into_its_line(
    db: Database, queue: Queue
) -> None:
    ledger = queue.subscriptions.open(db, "ledger", exclusive=True)
    rival = queue.subscriptions.open(db, "ledger")
    put(db, queue, "eu1", "eu2")
    asked = ask(db, ledger)
    with pytest.raises(Held):
        rival.receive(db)
    assert answer(db, ledger, asked) == ["eu1"]
    ledger.close(db)
    assert texts(rival.receive_many(db, 1)) == ["eu2"]
    with pytest.raises(Held):
        ledger.receive(db)


def test_those_in_line_are_listed_and_evicted(
    db: Database, queue: Queue, europe: Subscription, clock: ManualClock
) -> None:
    ask(db, europe, Request(1, None, "billing", priority=3))
    ask(db, europe, Request(1, None, "stock"))
    queue.line.request(db, consumer="any")
    listed = [(one.name, one.subscription, one.priority) for one in queue.admin.consumers(db)]
    assert sorted(listed) == [("any", "", 0), ("billing", "europe", 3), ("stock", "europe", 0)]
    clock.seconds += 3_600
    assert {one.name for one in queue.admin.consumers(db)} <= {"any", "billing", "stock"}


def test_a_line_without_its_subscription_is_found_and_removed(
    db: Database, queue: Queue, europe: Subscription
) -> None:
    ask(db, europe)
    db.clear(queue._keys.subscription("europe"))
    other = Queue(queue.name, queue._root, clock=queue._clock)
    found = other.admin.repair(db)
    assert {one.kind for one in found.deviations} >= {"line orphaned"}
    assert stored(db, queue) == 0


# -- workers --------------------------------------------------------------------------------------


def worker(
    db: Database, queue: Queue, one: Subscription, name: str, priority: int = 0
) -> SubscriptionConsumer:
    consumer = SubscriptionConsumer(db, queue, one, name, priority, None)
    consumer.join()
    return consumer


def test_a_worker_of_lower_priority_leaves_the_line_to_one_that_waits_above(
    db: Database, queue: Queue, europe: Subscription
) -> None:
    high = worker(db, queue, europe, "high", 5)
    assert high.fetch(Credit(), 1).left == Event.LEFT_NOTHING
    low = worker(db, queue, europe, "low", 0)
    put(db, queue, "eu1")
    assert low.fetch(Credit(), 1).deliveries == []
    assert texts(high.fetch(Credit(), 1).deliveries) == ["eu1"]
    for one in (low, high):
        one.leave()


def test_who_closes_itself_in_a_round_relies_on_no_arrival(db: Database, queue: Queue) -> None:
    # Given a leader that finds nothing, so that its subscription closes itself
    once_only = queue.subscriptions.open(db, "once", selector="region = 'eu'", auto_close=True)
    ticket = ask(db, once_only)
    waiter = waiting._Waiter(db, once_only._access, ticket, None)
    round_ = db.create_transaction()
    waiter._round(round_, LeaderStage.UNANSWERED)
    # When a message comes meanwhile
    put(db, queue, "eu1")
    # Then it stays open for that
    with pytest.raises(fdb.FDBError) as caught:
        round_.commit().wait()
    assert caught.value.code == 1020
    assert answer(db, once_only, ticket) == ["eu1"]


def test_a_selector_that_reads_the_age_comes_to_the_end_and_to_what_came_meanwhile(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more messages than a transaction looks through, none old enough, and a leader that has
    # looked through some of them
    monkeypatch.setattr("fdbqueue.subscriptions.cursors.MAX_SCANNED", 10)
    old = queue.subscriptions.open(db, "old", selector="age > 3600000 OR region = 'eu'")
    put(db, queue, *(f"us{n}" for n in range(25)))
    early = ask(db, old, waits=False)
    waiter = waiting._Waiter(db, old._access, early, None)
    half = waiter._run(lambda tr: waiter._round(tr, LeaderStage.UNANSWERED), lambda _: False)
    waiter.resume = half.resume
    assert half.resume is not None
    # When an urgent match comes
    put(db, queue, "eu1", priority=9)
    late = ask(db, old, waits=False)
    # Then the first gets it, and the other is told that there are no more
    assert texts(waiter.collect()) == ["eu1"]
    assert answer(db, old, late) == []


def test_who_asks_during_a_scan_is_not_told_its_end(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a leader that has looked through some messages, while somebody had the match before them
    monkeypatch.setattr("fdbqueue.subscriptions.cursors.MAX_SCANNED", 10)
    old = queue.subscriptions.open(db, "old", selector="age > 3600000 OR region = 'eu'")
    put(db, queue, "eu0", *(f"us{n}" for n in range(25)))
    held = queue.receive_many(db, 1)
    early = ask(db, old, waits=False)
    waiter = waiting._Waiter(db, old._access, early, None)
    for _ in range(2):
        half = waiter._run(lambda tr: waiter._round(tr, LeaderStage.UNANSWERED), lambda _: False)
        waiter.resume = half.resume
    # When the match returns, and another consumer asks
    queue.release(db, held)
    late = ask(db, old, waits=False)
    last = waiter._run(lambda tr: waiter._round(tr, LeaderStage.UNANSWERED), lambda _: False)
    # Then the end of the scan is an answer only for the request that was there when it began
    assert last.answer == []
    assert last.resume is None
    assert answer(db, old, late) == ["eu0"]


def test_nothing_that_a_request_refuses_keeps_its_consumer(
    db: Database, queue: Queue, europe: Subscription, clock: ManualClock
) -> None:
    # Given a match for which no credit is left, and one that wants no suspects at another
    put(db, queue, "eu123456")
    asked = ask(db, europe, Request(5, max_bytes=3), waits=False)
    assert answer(db, europe, asked) == []
    larger = ask(db, europe, Request(5, max_bytes=3, above=3), waits=False)
    assert answer(db, europe, larger) == ["eu123456"]


@pytest.mark.parametrize("subscribed", [False, True])
def test_a_consumer_that_refuses_suspects_does_not_wait_for_one_to_go(
    db: Database, queue: Queue, europe: Subscription, clock: ManualClock, subscribed: bool
) -> None:
    # Given a message that was in the hands of two consumers that vanished, beside others
    access = europe._access if subscribed else queue._access
    put(db, queue, "eu1")

    def ask_and_wait(request: Request) -> list[str]:
        def join(tr: fdb.Transaction) -> Ticket:
            led, scope = tr.snapshot.get(access.line.led), access.scope(tr)
            asked = line.asking(tr, scope, line.claimed([request]))
            return line.join(tr, scope, access.line, led.value, asked)[0]

        ticket = once.run(db, access.once, join)
        return texts(receiving.collect(db, access, ticket, None))

    for _ in range(2):
        assert ask_and_wait(Request(2, begins=False)) == ["eu1"]
        clock.seconds += 1_000
    # Then one that has no room for such a message is told so at once
    assert ask_and_wait(Request(1, suspects=False)) == []
    assert ask_and_wait(Request(1)) == ["eu1"]


def test_a_message_in_hand_stays_when_the_subscription_goes_while_its_consumer_leads(
    db: Database, queue: Queue, europe: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(db, queue, "eu1")
    play = waiting._Waiter._round

    def remove_then_play(
        self: waiting._Waiter, tr: fdb.Transaction, stage: LeaderStage
    ) -> waiting._Round:
        if stage:
            with_other = Queue(queue.name, queue._root, clock=queue._clock)
            if any(one.name == "europe" for one in with_other.subscriptions.list(db)):
                with_other.subscriptions.remove(db, "europe")
        return play(self, tr, stage)

    monkeypatch.setattr(waiting._Waiter, "_round", remove_then_play)
    found = europe.receive_many(db, 1)
    assert texts(found) == ["eu1"]
    queue.ack(db, found)


def test_a_leader_that_finds_nothing_for_others_keeps_what_another_gave_it(
    db: Database, queue: Queue
) -> None:
    # Given a leader whose request was answered by the last call of another
    closing = queue.subscriptions.open(db, "once", selector="region = 'eu'", auto_close=True)
    leader, other = ask(db, closing), ask(db, closing)
    put(db, queue, "eu1")
    assert answer(db, closing, other) == []
    # When it serves one that came later, and the subscription closes itself
    later = ask(db, closing)
    assert answer(db, closing, leader) == ["eu1"]
    # Then that one is told
    with pytest.raises(NotFound):
        answer(db, closing, later)


def test_a_paused_queue_gives_its_subscriptions_nothing(
    db: Database, queue: Queue, europe: Subscription
) -> None:
    put(db, queue, "eu1")
    queue.admin.pause(db)
    assert europe.receive(db) is None
    asked = ask(db, europe)
    assert answer(db, europe, asked) == []
    queue.admin.resume(db)
    assert texts(europe.receive_many(db, 1)) == ["eu1"]


@pytest.mark.parametrize("subscribed", [True, False])
def test_a_worker_stands_in_line_with_its_credit_in_messages_and_bytes(
    db: Database,
    queue: Queue,
    europe: Subscription,
    monkeypatch: pytest.MonkeyPatch,
    subscribed: bool,
) -> None:
    put(db, queue, *["us1"] * subscribed, "eu1", "eu2", "eu3", "eu1234567890")
    asked: list[Request] = []
    join = line.join

    def noted(*terms: Any, **others: Any) -> Any:
        asked.extend(each.request for each in terms[-1])
        return join(*terms, **others)

    monkeypatch.setattr(line, "join", noted)
    billing = QueueConsumer(db, queue, "billing", 2, None)
    if subscribed:
        billing = worker(db, queue, europe, "billing", 2)
    found = billing.fetch(Credit(bytes=8), 10)
    assert texts(found.deliveries) == ["eu1", "eu2"]
    assert found.left == Event.LEFT_LARGE
    (demand,) = asked
    assert (demand.priority, demand.max_bytes, demand.above) == (2, 8, 0)
    queue.ack(db, found.deliveries)
    third = billing.fetch(Credit(messages=1), 10)
    assert texts(third.deliveries) == ["eu3"]
    queue.ack(db, third.deliveries)
    # One that is larger than the whole credit comes alone
    assert texts(billing.fetch(Credit(bytes=6), 10).deliveries) == ["eu1234567890"]
    billing.leave()
    assert queue.admin.verify(db).ok


def test_a_worker_that_prefetches_exchanges_what_it_holds_for_something_urgent(
    db: Database, queue: Queue, europe: Subscription
) -> None:
    put(db, queue, "eu1", "eu2")
    one = worker(db, queue, europe, "one")
    held = one.fetch(Credit(), 2).deliveries
    assert texts(held) == ["eu1", "eu2"]
    put(db, queue, "eu9", priority=9)
    assert one.waits_behind(1)
    exchanged = one.fetch(Credit(messages=2, used_messages=2, held=2), 0, held)
    assert texts(exchanged.deliveries) == ["eu9"]
    assert texts(exchanged.returned) == ["eu2"]
    one.leave()

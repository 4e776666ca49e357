"""What a worker holds of a queue: its states, each event, and all of them in any order."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from fdbqueue import Credit, Delivery, Message
from fdbqueue.queue.continuations.successors import Successors
from fdbqueue.worker.decisions import REFRESH_SECONDS, outranked
from fdbqueue.worker.handlers import Handler
from fdbqueue.worker.policy import Policy
from fdbqueue.worker.stock import events
from fdbqueue.worker.stock.actions import (
    Action,
    Begin,
    Check,
    Fetch,
    GiveBack,
    Look,
    Released,
    Settle,
    Took,
)
from fdbqueue.worker.stock.held import LINGER_SECONDS, MAX_AHEAD_BYTES, Finished, Stock
from fdbqueue.worker.stock.states import NEXT, ORDER, SUPPLY, Event, Order, Supply

MORE, NOTHING = Event.LEFT_MORE, Event.LEFT_NOTHING


# -- the tables -----------------------------------------------------------------------------------


def test_what_follows_an_event_is_said_once_and_every_event_has_something_to_say() -> None:
    assert len(NEXT) == len(SUPPLY + ORDER)
    assert {event for _, event in NEXT} == {*Event}


def _reached(start: Enum, without: Event | None = None) -> set[Enum]:
    found = {start}
    edges = [each for each in SUPPLY + ORDER if each.event is not without]
    while more := {each.target for each in edges if each.source in found} - found:
        found |= more
    return found


def test_every_state_is_reached_and_left_again() -> None:
    assert _reached(Supply.MORE) == {*Supply}
    assert _reached(Order.KNOWN) == {*Order}
    running = {*Supply} - {Supply.LEFT}
    assert all(_reached(each, without=Event.STOPS) == running for each in running)
    assert all(Order.KNOWN in _reached(each) for each in Order)


def test_one_fetch_is_under_way_at_a_time_and_a_stop_is_for_good() -> None:
    for state in (Supply.FETCHING, Supply.ISOLATING, Supply.LEFT):
        assert (state, Event.FETCHES) not in NEXT
    assert not [each for each in SUPPLY if each.source is Supply.LEFT]


# -- events ---------------------------------------------------------------------------------------


def policy(**terms: Any) -> Policy:
    batch = terms.pop("batch", None)
    usual = {"lease": 60.0, "window": 4, "run": 10}
    unset = dict.fromkeys(("refresh_after", "max_attempts", "backoff"))
    return Policy(Handler(print, False, batch), **{**usual, **unset, **terms})


def empty(**terms: Any) -> Stock:
    """What a worker holds at first; it is told of cancellations."""
    return Stock(policy(**terms), watched=-math.inf)


def message(n: int, level: int = 5, *, redelivered: bool = False, **lease: Any) -> Delivery:
    found = Message(f"id {n}", b"%d" % n, {}, 9 - level, level, 0, 0, redelivered=redelivered)
    return Delivery(found, b"token %d" % n, 1, 0, **lease)


def messages(count: int, level: int = 5) -> list[Delivery]:
    return [message(n, level) for n in range(count)]


def turn(stock: Stock, now: float = 0.0, *, free: bool = True, **credit: Any) -> Action | float:
    """What the fetcher does, if it is its turn to fetch; or until when it waits."""
    credit = credit or {"messages": stock.policy.window}
    outside = now, free, Credit(**credit), True
    at = stock.acts_at(*outside)
    if at > now:
        return at
    (action,) = events.turn(stock, *outside)[1]
    return action


def fetching(stock: Stock, now: float = 0.0) -> Stock:
    stock, (action,) = events.turn(stock, now, True, Credit(messages=99), first=True)
    assert isinstance(action, Fetch)
    return stock


def fetched(
    stock: Stock, found: list[Delivery], left: Event = MORE, now: float = 0.0, **more: Any
) -> Stock:
    terms = {"returned": [], "first": None, "until": math.inf, **more}
    return events.fetched(fetching(stock, now), found, left=left, now=now, **terms)[0]


def holding(found: list[Delivery], **terms: Any) -> Stock:
    return fetched(empty(**terms), found)


def begun(stock: Stock, now: float = 0.0) -> tuple[Stock, list[Delivery]]:
    stock, (action,) = events.next_wanted(stock, now, looks=True)
    assert isinstance(action, Begin)
    return stock, action.deliveries


def finished(found: list[Delivery], at: float = 0.0) -> Finished:
    return Finished(found, 0.1, at, Successors())


def back(actions: Any) -> list[Delivery]:
    return [one for each in actions if isinstance(each, GiveBack) for one in each.deliveries]


def test_what_is_most_urgent_begins_first_and_a_suspect_before_all() -> None:
    stock = holding([message(1, 5), message(2, 3)])
    stock = fetched(stock, [message(3, 3), message(4, 9, begun=True)])
    order = []
    while stock.waiting:
        stock, (one,) = begun(stock)
        order.append(one.payload)
    assert order == [b"4", b"2", b"3", b"1"]


@pytest.mark.parametrize(
    ("found", "sizes"),
    [
        (messages(5), [3, 2]),
        ([message(1), message(2, redelivered=True), message(3)], [1, 1, 1]),
        ([message(1, begun=True), *messages(2)], [1, 2]),
    ],
)
def test_a_batch_has_neither_redelivered_messages_nor_suspects(
    found: list[Delivery], sizes: list[int]
) -> None:
    stock, seen = holding(found, batch=3), []
    while stock.waiting:
        stock, some = begun(stock)
        seen.append(len(some))
    assert seen == sizes


def test_a_worker_asks_for_whole_batches() -> None:
    action = turn(empty(batch=3, window=8))
    assert isinstance(action, Fetch)
    assert action.most == 6


def test_a_window_grows_with_fast_handlers_up_to_so_many_bytes() -> None:
    fast, _ = events.freed(empty(window=4, handlers=2, adapts=True), 0.001)
    few = Credit(messages=100, used_messages=1)
    assert fast.window == 100
    assert fast.room(few) == 99
    assert fast.room(replace(few, used_bytes=MAX_AHEAD_BYTES)) == 3
    slow, _ = events.freed(fast, 10.0)
    assert slow.window == 4
    assert events.freed(fast, 0.009)[0].pace == pytest.approx(0.002), "an average"
    assert empty(window=4, handlers=2).window == 4


def test_granted_credit_holds_no_more_than_the_window() -> None:
    stock, _ = begun(holding(messages(3)))
    stock, _ = events.returned(stock, finished([*stock.running.values()]))
    assert stock.room(Credit(messages=50, window=False)) == 1


def test_acknowledgements_wait_for_each_other_only_while_handlers_run() -> None:
    stock, one = begun(holding(messages(2)))
    stock, two = begun(stock)
    stock, _ = events.returned(stock, finished(one, at=7.0))
    assert turn(stock, 7.0, messages=1, used_messages=1) == 7.0 + LINGER_SECONDS
    assert isinstance(turn(stock, 7.0 + LINGER_SECONDS, messages=1, used_messages=1), Settle)
    stock, _ = events.returned(stock, finished(two, at=7.0))
    assert isinstance(turn(stock, 7.0, messages=1, used_messages=1), Settle)


def test_what_is_acknowledged_goes_along_with_a_fetch_and_is_taken_once() -> None:
    stock, some = begun(holding(messages(1)))
    job = finished(some)
    stock, (released,) = events.returned(stock, job)
    assert released == Released(some, (), began=True), "before it is acknowledged"
    stock, (action,) = events.turn(stock, 0.0, True, Credit(messages=4), first=True)
    assert isinstance(action, Fetch)
    assert [*action.finished] == [job]
    assert stock.finished == ()
    assert stock.tokens == {some[0].token}, "its lease is kept until then"
    stock, _ = events.unsettled(stock, action.finished)
    assert stock.finished == (job,)


def test_one_transaction_acknowledges_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_ACKNOWLEDGED", 2)
    stock = holding(messages(3))
    for _ in range(3):
        stock, some = begun(stock)
        stock, _ = events.returned(stock, finished(some))
    stock, (action,) = events.turn(stock, 1.0, True, Credit(messages=4), first=False)
    assert isinstance(action, Settle)
    assert [each.deliveries[0].payload for each in action.finished] == [b"0", b"1"]
    assert [each.deliveries[0].payload for each in stock.finished] == [b"2"]


def test_a_batch_larger_than_that_is_acknowledged_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "MAX_ACKNOWLEDGED", 2)
    stock, some = begun(holding(messages(3), batch=3))
    stock, _ = events.returned(stock, finished(some))
    action = turn(stock, 1.0, messages=3, used_messages=3)
    assert isinstance(action, Settle)
    assert [each.deliveries for each in action.finished] == [some]


@pytest.mark.parametrize(
    ("left", "until_fetched"),
    [
        (Event.LEFT_MORE, []),
        (Event.LEFT_NOTHING, [lambda stock: events.rung(stock, 0.0)]),
        (Event.LEFT_LARGE, [events.credited]),
        (Event.LEFT_SUSPECT, [events.freed]),
    ],
)
def test_what_a_fetch_left_says_when_the_next_one_is(left: Event, until_fetched: list[Any]) -> None:
    # Given a worker with room, and a handler that runs
    stock = fetched(empty(), [], left)
    assert isinstance(turn(stock, free=False), float) == bool(until_fetched)
    for event in until_fetched:
        stock, _ = event(stock)
    assert isinstance(turn(stock, free=True), Fetch)


def test_nothing_else_begins_while_a_suspect_is_fetched() -> None:
    stock = fetched(empty(), [], Event.LEFT_SUSPECT)
    assert stock.isolates
    stock = fetching(stock)
    assert stock.isolates
    assert not events.failed(stock, 0.0, 1.0)[0].isolates


def test_a_failed_fetch_waits_and_no_watch_of_an_earlier_fetch_hurries_it() -> None:
    stock, actions = events.failed(fetching(empty()), 0.0, 5.0)
    assert actions == (Took((), None),)
    assert turn(stock) == 5.0
    assert turn(events.rung(stock, 0.0, number=stock.fetches - 1)[0]) == 5.0
    assert turn(events.rung(stock, 2.0, number=stock.fetches)[0]) == 2.0
    assert isinstance(turn(stock, 5.0), Fetch)


def test_what_rings_during_a_fetch_is_heard_after_it() -> None:
    stock, _ = events.rung(fetching(empty()), 1.0)
    stock, _ = events.fetched(stock, [], [], NOTHING, None, 2.0, 25.0)
    assert isinstance(turn(stock, 2.0), Fetch)


def test_nothing_is_fetched_before_the_turn_of_the_queue_comes() -> None:
    assert empty().acts_at(0.0, True, Credit(messages=4), first=False) == math.inf


# -- what is more urgent --------------------------------------------------------------------------


def stale(**terms: Any) -> Stock:
    return replace(holding(messages(4), refreshes=True, **terms), looked_at=0.0)


def looking(**terms: Any) -> Stock:
    """A handler would begin with a message, but a look is due."""
    stock, actions = events.next_wanted(stale(**terms), 1.0, looks=True)
    assert (stock.order, actions) == (Order.LOOKING, ())
    return stock


def test_a_look_comes_before_a_message_that_may_be_outranked() -> None:
    now = REFRESH_SECONDS
    assert events.next_wanted(stale(), now, looks=True)[1] == ()
    assert turn(looking(), 1.0, messages=4, used_messages=4) == Look(5)
    for stock in (replace(stale(), looked_at=now), holding(messages(4, level=0), refreshes=True)):
        assert isinstance(events.next_wanted(stock, now, looks=True)[1][0], Begin)


def test_nobody_waits_for_a_look_while_the_store_is_away() -> None:
    for stock in (stale(), looking()):
        assert isinstance(events.next_wanted(stock, 1.0, looks=False)[1][0], Begin)


def test_a_number_of_messages_is_agreed_between_two_looks() -> None:
    stock = replace(holding(messages(4), refresh_after=2), begun=0)
    stock, _ = begun(stock, 9.0)
    stock, _ = begun(stock, 9.0)
    stock, actions = events.next_wanted(stock, 9.0, looks=True)
    assert (turn(stock, 9.0), actions) == (Look(5), ())
    stock, _ = begun(events.looked(stock, False, 9.0)[0], 9.0)
    assert stock.begun == 1


@pytest.mark.parametrize(
    ("left", "first", "known"),
    [(NOTHING, None, True), (MORE, 5, True), (MORE, 4, False), (MORE, None, False)],
)
def test_a_fetch_tells_whether_it_left_something_more_urgent(
    left: Event, first: int | None, known: bool
) -> None:
    stock = fetching(empty(refreshes=True), 3.0)
    stock, _ = events.fetched(stock, messages(2), [], left, first, 4.0, 25.0)
    # As of its begin: what became ready during the fetch, it may not have seen.
    assert stock.looked_at == (3.0 if known else -math.inf)


def test_nothing_begins_until_what_is_less_urgent_has_been_exchanged() -> None:
    assert events.next_wanted(looking(), 1.0, looks=True)[1] == ()
    stock, _ = events.looked(looking(), True, 1.0)
    assert events.next_wanted(stock, 1.0, looks=True)[1] == ()
    # It fetches although it has no room, and offers what waits, the least urgent last
    stock = replace(stock, waiting=(message(7, 9, begun=True), *stock.waiting))
    stock, (action,) = events.turn(stock, 1.0, False, Credit(messages=4, used_messages=4), True)
    assert isinstance(action, Fetch)
    assert [each.message.level for each in action.offered] == [5, 5, 5, 5, 9]
    assert events.next_wanted(stock, 1.0, looks=True)[1] == ()
    gone = action.offered[-1:]
    stock, actions = events.fetched(stock, [message(8, 1)], gone, MORE, 5, 1.0, 9.0)
    assert actions[0] == Released(gone, {gone[0].token}, began=False)
    assert begun(stock, 1.0)[1][0].payload == b"8"


def test_a_fetch_under_way_is_as_good_as_a_look() -> None:
    stock, actions = events.next_wanted(fetching(stale(), 1.0), 1.0, looks=True)
    assert (stock.order, actions) == (Order.LOOKING, ())
    for ended in (
        events.failed(stock, 1.0, 2.0)[0],
        events.fetched(stock, [], [], NOTHING, None, 1.0, 9.0)[0],
    ):
        assert isinstance(events.next_wanted(ended, 1.0, looks=True)[1][0], Begin)
    # Unless it may have left something more urgent
    left, _ = events.fetched(stock, [], [], MORE, 4, 1.0, 9.0)
    assert events.next_wanted(left, 1.0, looks=True)[1] == ()


def test_a_store_that_fails_an_exchange_keeps_nothing_back() -> None:
    stock, _ = events.looked(looking(), True, 1.0)
    failed, _ = events.failed(fetching(stock), 1.0, 2.0)
    assert isinstance(events.next_wanted(failed, 1.0, looks=True)[1][0], Begin)
    # But if one of those that were to go back is lost, the rest is offered again
    lost, actions = events.failed(fetching(stock), 1.0, 1.0, ["id 2"])
    assert actions[0] == Released([message(2)], {message(2).token}, began=False)
    action = turn(lost, 1.0)
    assert isinstance(action, Fetch)
    assert [each.payload for each in action.offered] == [b"0", b"1", b"3"]


# -- leases ---------------------------------------------------------------------------------------


def test_a_lost_lease_is_neither_extended_nor_held_and_its_credit_comes_back_once() -> None:
    stock, some = begun(holding(messages(2)))
    stock, actions = events.lost(stock, {each.token for each in [*some, *stock.waiting]})
    assert actions == (Released([message(1)], {message(1).token}, began=False),)
    assert (stock.held, stock.holds(some[0]), stock.waiting) == ([], False, ())
    stock, actions = events.ended(stock, some)
    assert actions == (Released(some, {some[0].token}, began=True),)
    assert stock.lost == frozenset()


def test_what_is_cancelled_stays_so_and_goes_back_unless_it_runs() -> None:
    stock, some = begun(holding(messages(3)))
    assert not stock.cancelled(some)
    stock, actions = events.cancelled(stock, {some[0].token, message(1).token})
    assert [each.id for each in back(actions)] == ["id 1"]
    # When an extension from before that is told of later
    later = [replace(each, expires_at_ms=9) for each in [*some, message(2)]]
    stock, actions = events.renewed(stock, later)
    assert stock.cancelled(some)
    assert stock.running[some[0].token].expires_at_ms == 9
    assert (back(actions), [each.expires_at_ms for each in stock.waiting]) == ([], [9])


def test_what_is_cancelled_is_looked_for_once_it_may_have_been_missed() -> None:
    # Given messages of a fetch that began before a watch was armed
    held = fetched(replace(empty(), watched=math.inf), messages(2))
    stock, (action,) = events.turn(held, 1.0, True, Credit(messages=4), first=True)
    assert action == Check([*held.waiting], watches=True)
    assert isinstance(turn(stock, 1.0), Fetch)
    stock, _ = events.watched(stock, 1.0)
    # Then those of the next fetch need no look, until the watch fires
    stock = fetched(stock, [message(7)], NOTHING, now=2.0)
    assert turn(stock, 2.0, messages=3, used_messages=3) == math.inf
    stock, _ = events.unwatched(stock, 5.0)
    (action,) = events.turn(stock, 5.0, True, Credit(messages=4), first=True)[1]
    assert action == Check([*stock.waiting], watches=True)
    # Not too often, later after a failure, and never while nothing is held
    often, _ = events.unwatched(events.watched(stock, 5.0)[0], 5.0)
    assert often.checks_at == 5.0 + events.PACE_SECONDS
    failed, _ = events.unchecked(stock, 9.0)
    assert fetched(events.rung(failed, 6.0)[0], [], NOTHING, now=6.0).checks_at == 9.0
    assert events.stopped(failed)[0].checks_at == math.inf


def test_what_no_handler_comes_to_goes_back_and_nothing_is_taken_ahead_until_one_is_free() -> None:
    # Given what was taken at 1, and at 2, more than the least number of messages
    stock, _ = events.freed(empty(adapts=True, handlers=9), 0.0)
    stock = fetched(fetched(stock, messages(3), now=1.0), [message(n) for n in (7, 8)], now=2.0)
    stock, _ = begun(stock, 2.0)
    same, actions = events.waited(stock, 1.0, 2.0)
    assert (same, actions) == (stock, ())
    assert events.waited(fetching(stock, 2.0), 9.0, 9.0)[1] == (), "it may be giving them back"
    stock, actions = events.waited(stock, 1.0, 3.0)
    assert [each.id for each in back(actions)] == ["id 8"], "it was held ahead of fast handlers"
    stock, actions = events.waited(stock, 1.5, 1.5)
    assert [each.id for each in back(actions)] == ["id 1", "id 2"]
    assert (stock.window, turn(stock)) == (4, math.inf)
    assert isinstance(turn(events.freed(stock)[0]), Fetch)


def test_what_stops_gives_back_what_waits_and_acknowledges_the_rest() -> None:
    stock, some = begun(holding(messages(3)))
    stock, more = begun(stock)
    stock, _ = events.returned(stock, finished(some))
    stock, actions = events.stopped(stock)
    assert [each.id for each in back(actions)] == ["id 2"]
    assert isinstance(turn(stock), Settle), "it waits for no other"
    assert not stock.settles(more), "its own thread acknowledges it"
    stock, actions = events.abandoned(stock)
    assert back(actions) == more
    assert not stock.holds(more[0])
    assert [each.deliveries for each in stock.finished] == [some]


# -- all of them, in any order --------------------------------------------------------------------


class Holding(RuleBasedStateMachine):
    """A worker of one queue, and a store that may lose, cancel and refuse."""

    @initialize(
        terms=st.fixed_dictionaries(
            {
                "window": st.integers(1, 6),
                "batch": st.sampled_from([None, 3]),
                "refreshes": st.booleans(),
                "refresh_after": st.sampled_from([None, 2]),
                "adapts": st.booleans(),
            }
        )
    )
    def begin(self, terms: dict[str, Any]) -> None:
        self.stock = empty(handlers=2, **terms)
        self.credit = Credit(messages=terms["window"])
        self.now, self.number = 1.0, 0
        self.ready: list[Delivery] = []
        self.leased: dict[bytes, Delivery] = {}
        self.gone: set[bytes] = set()
        self.fetch: Fetch | None = None
        self.outranked = False

    def happen(self, event: Any, *of: Any, **named: Any) -> list[Action]:
        self.now += 0.001
        self.stock, actions = event(self.stock, *of, **named)
        if self.stock.policy.adapts:
            self.credit = replace(self.credit, messages=self.stock.window)
        for each in actions:
            if isinstance(each, Took):
                self.credit = self.credit.taken(*(0 for _ in each.deliveries))
            elif isinstance(each, Released) and each.deliveries:
                self.credit = self.credit.returned(*(0 for _ in each.deliveries))
        self.release(back(actions))
        return [*actions]

    def release(self, found: Any) -> None:
        for each in found:
            one = self.leased.pop(each.token, None)
            if one is not None and not each.cancelled:
                self.put(one.message.level, one.begun)

    @rule(level=st.integers(0, 3), suspect=st.booleans())
    def put(self, level: int, suspect: bool) -> None:
        self.number += 1
        self.ready.append(message(self.number, level, begun=suspect))
        self.ready.sort(key=lambda each: each.message.level)

    @property
    def free(self) -> bool:
        return not self.stock.running

    @rule(wait=st.sampled_from([0.0, 0.01, 30.0]), first=st.booleans())
    def turn(self, wait: float, first: bool) -> None:
        self.now += wait
        outside = self.now, self.free, self.credit, first
        if self.stock.acts_at(*outside) > self.now:
            return
        (action,) = self.happen(events.turn, *outside)
        if isinstance(action, Look):
            self.outranked = any(each.message.level < action.level for each in self.ready)
            self.happen(events.looked, self.outranked, self.now)
        elif isinstance(action, Fetch):
            assert self.fetch is None, "one fetch at a time"
            self.fetch = action
            self.settled(action.finished)
        elif isinstance(action, Settle):
            self.settled(action.finished)
        elif isinstance(action, Check):
            assert {each.token for each in action.deliveries} == {*self.leased}
            self.happen(events.watched if action.watches else events.unchecked, self.now)

    def settled(self, jobs: Any) -> None:
        for job in jobs:
            for each in job.deliveries:
                assert each.token in self.stock.settling
                self.leased.pop(each.token, None)
            self.happen(events.ended, job.deliveries)

    @precondition(lambda self: self.fetch)
    @rule()
    def fetch_ends(self) -> None:
        fetch, self.fetch = self.fetch, None
        assert fetch is not None
        lost = [each.id for each in fetch.offered if each.token not in self.leased]
        if lost:
            self.happen(events.failed, self.now, self.now, lost)
            return
        levels = [each.message.level for each in self.ready]
        room = fetch.credit.room(fetch.most)
        count = outranked(levels, [each.message.level for each in fetch.offered], room)
        returned = fetch.offered[len(fetch.offered) - count :]
        found: list[Delivery] = []
        left = NOTHING
        while self.ready and len(found) < room + count:
            if self.ready[0].begun and not fetch.begins:
                left = Event.LEFT_SUSPECT
                break
            found.append(self.ready.pop(0))
        if left is NOTHING and len(found) == room + count:
            left = MORE
        first = self.ready[0].message.level if self.ready else None
        self.leased |= {each.token: each for each in found}
        for each in returned:
            self.release([each])
        self.outranked = False
        self.happen(events.fetched, found, returned, left, first, self.now, self.now + 25)

    @precondition(lambda self: self.fetch)
    @rule()
    def fetch_fails(self) -> None:
        self.fetch, self.outranked = None, False
        self.happen(events.failed, self.now, self.now + 5)

    @precondition(lambda self: not (self.stock.isolates or (self.stock.suspect and not self.free)))
    @rule(wait=st.sampled_from([0.0, 1.0]), looks=st.booleans())
    def a_handler_is_free(self, wait: float, looks: bool) -> None:
        self.now += wait
        for action in self.happen(events.next_wanted, self.now, looks):
            if isinstance(action, Begin):
                assert not self.outranked, "what is more urgent comes first"
                assert len(action.deliveries) == 1 or not any(x.begun for x in action.deliveries)

    @precondition(lambda self: self.stock.running)
    @rule(data=st.data(), itself=st.booleans())
    def a_handler_ends(self, data: st.DataObject, itself: bool) -> None:
        one = data.draw(st.sampled_from([*self.stock.running.values()]))
        if itself or not self.stock.settles([one]):
            if self.stock.holds(one):
                del self.leased[one.token]
            self.happen(events.ended, [one])
        else:
            self.happen(events.returned, finished([one], self.now))
        self.happen(events.freed, 0.001)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), cancels=st.booleans())
    def a_lease_is_lost_or_its_message_cancelled(self, data: st.DataObject, cancels: bool) -> None:
        token = data.draw(st.sampled_from([*self.leased]))
        if cancels:
            self.happen(events.cancelled, {token})
        else:
            self.gone.add(token)
            del self.leased[token]
            self.happen(events.lost, {token})

    @rule(seconds=st.sampled_from([0.0, 1.0]))
    def nobody_comes(self, seconds: float) -> None:
        self.happen(events.waited, self.now - 2 * seconds, self.now - seconds)

    @rule()
    def the_watch_fires(self) -> None:
        self.happen(events.unwatched, self.now)

    @rule()
    def it_rings(self) -> None:
        self.happen(events.rung, self.now)

    @precondition(lambda self: hasattr(self, "stock"))
    @invariant()
    def each_message_is_at_one_place_and_no_lease_is_forgotten(self) -> None:
        stock = self.stock
        waiting = [each.token for each in stock.waiting]
        held = [*waiting, *stock.running, *stock.settling]
        assert len(held) == len({*held})
        assert self.leased.keys() <= {*held}
        assert {*held} - self.leased.keys() <= self.gone
        assert {each.token for each in stock.held} == {*self.leased}

    @precondition(lambda self: hasattr(self, "stock"))
    @invariant()
    def credit_is_what_waits_or_runs(self) -> None:
        used = self.credit.used_messages
        assert used == len(self.stock.waiting) + len(self.stock.running)

    @precondition(lambda self: hasattr(self, "stock"))
    @invariant()
    def something_comes_next(self) -> None:
        stock = self.stock
        busy = self.fetch or stock.running or stock.can_begin(True)
        assert busy or stock.acts_at(self.now, self.free, self.credit, True) < math.inf

    def teardown(self) -> None:
        if not hasattr(self, "stock"):
            return
        if self.fetch:
            self.fetch_ends()
        self.happen(events.stopped)
        self.stock = replace(self.stock, check_at=math.inf)
        while self.stock.finished:
            self.turn(0.0, True)
        assert self.stock.acts_at(self.now, True, self.credit, True) == math.inf
        self.happen(events.abandoned)
        assert (self.leased, self.stock.tokens, self.credit.used_messages) == ({}, set(), 0)


def test_whatever_happens_no_message_is_forgotten_and_no_credit_either() -> None:
    chosen = settings(max_examples=100, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Holding, settings=chosen)

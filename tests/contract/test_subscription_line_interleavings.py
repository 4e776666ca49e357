"""The line of a subscription in all interleavings of two or three operations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from fdbqueue import Delivery, NewMessage, Queue, Ticket
from fdbqueue.consumers import line, receiving
from fdbqueue.consumers.line import Demand
from fdbqueue.consumers.receiving import attempt, returning_leader, waiting
from fdbqueue.consumers.receiving.access import Outcome
from fdbqueue.errors import NotFound
from fdbqueue.queue.subscription import Subscription
from fdbqueue.schema import once
from fdbqueue.schema.codec.leases import new_claim
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import fdb
from tests.interleaving import Operation, explore
from tests.schemes import forced

Start = tuple[Sequence[Operation], Callable[[list[Any]], None]]

pytestmark = pytest.mark.long
EU = "region = 'eu'"
all_or_two = pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
"""How many of the operations: all interleavings of three take too long for every day."""


@pytest.fixture
def fresh(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Queue, Subscription]]:
    """Makes a queue with a subscription for every interleaving. Cursors move for one message."""
    monkeypatch.setattr("fdbqueue.subscriptions.acquire.MIN_SKIPPED", 1)
    numbers = itertools.count()

    def make(**terms: Any) -> tuple[Queue, Subscription]:
        name = f"q{next(numbers)}"
        queue = forced(Queue.create(db, name, root=space, levels=2), "staged")
        return queue, queue.subscriptions.open(db, "europe", selector=EU, **terms)

    return make


def put(db: Any, queue: Queue, *texts: str, priority: int = 0) -> None:
    queue.enqueue_many(
        db, [NewMessage(one.encode(), priority, {"region": one[:2]}) for one in texts]
    )


def own(queue: Queue, name: str = "europe") -> Subscription:
    """A handle of another process."""
    return Subscription(Queue(queue.name, queue._root), name)


def ask(db: Any, one: Subscription, waits: bool = True) -> Ticket:
    access = one._access

    def join(tr: fdb.Transaction) -> Ticket:
        led, scope = tr.snapshot.get(access.line.led), access.scope(tr)
        access.supply.enter(tr, scope)
        return line.join(tr, scope, access.line, led.value, Demand(1, None), waits)

    return once.run(db, access.once, join)


def collect(db: Any, one: Subscription, ticket: Ticket) -> list[str]:
    return texts(receiving.collect(db, one._access, ticket, 0.0) or [])


def texts(found: Sequence[Delivery]) -> list[str]:
    return [one.payload.decode() for one in found]


def clean(db: fdb.Database, queue: Queue) -> None:
    queue = Queue(queue.name, queue._root)
    found = queue.admin.verify(db)
    assert found.ok, found.deviations


def in_line(db: fdb.Database, queue: Queue) -> int:
    rows = db.get_range(queue._keys.lines().start, queue._keys.lines().stop)
    return sum(queue._keys.parse_line(kv.key)[1] is not None for kv in rows)


@all_or_two
def test_a_round_against_withdrawal_and_another_subscription_that_takes_the_message(
    db: fdb.Database, fresh: Callable[..., tuple[Queue, Subscription]], count: int
) -> None:
    def start() -> Start:
        # Given two in the line of a subscription, one message, and another subscription
        queue, europe = fresh()
        queue.subscriptions.open(db, "all", selector="region <> 'as'")
        leader, other = ask(db, europe), ask(db, europe)
        put(db, queue, "us1", "eu1")

        def check(results: list[Any]) -> None:
            # Then the match is with one of them, or still there, and nobody is left in line
            served, left, taken = (*results, [])[:3]
            ready = [one.payload.decode() for one in queue.peek(db, 9)]
            assert sorted(served + texts(left) + texts(taken) + ready) == ["eu1", "us1"]
            assert in_line(db, queue) == 0
            clean(db, queue)

        return [
            lambda db: collect(db, europe, leader),
            lambda db: receiving.withdraw(db, europe._access, other),
            lambda db: once.run(
                db, queue._keys.once, lambda tr: own(queue, "all").receive_many(tr, 2)
            ),
        ][:count], check

    assert explore(db, start) >= 2 * count


@all_or_two
def test_a_round_that_moves_the_cursor_while_matches_come_and_return(
    db: fdb.Database, fresh: Callable[..., tuple[Queue, Subscription]], count: int
) -> None:
    def start() -> Start:
        # Given a leader in line, a match that somebody holds, behind the cursor, and others
        queue, europe = fresh()
        put(db, queue, "eu0", "us1")
        held = europe.receive_many(db, 1)
        assert europe.receive_many(db, 1) == []
        assert europe.positions(db)[1] == 2
        put(db, queue, "us2")
        leader = ask(db, europe)

        def check(results: list[Any]) -> None:
            # Then no match is skipped
            found = results[0] + texts(own(queue).receive_many(db, 9))
            assert sorted(found) == ["eu0", "eu3"][: count - 1]
            assert in_line(db, queue) == 0
            clean(db, queue)

        return [
            lambda db: collect(db, europe, leader),
            lambda db: queue.release(db, held, delay=0),
            lambda db: put(db, Queue(queue.name, queue._root), "eu3"),
        ][:count], check

    assert explore(db, start) >= 2 * count


@all_or_two
def test_a_round_while_its_subscription_is_removed(
    db: fdb.Database, fresh: Callable[..., tuple[Queue, Subscription]], count: int
) -> None:
    def start() -> Start:
        # Given two in line, and a match
        queue, europe = fresh()
        leader, other = ask(db, europe), ask(db, europe)
        put(db, queue, "eu1")

        def check(results: list[Any]) -> None:
            # Then the match is with the first, or still there, and nothing is left of the line
            served, _, late = (*results, [])[:3]
            ready = [one.payload.decode() for one in queue.peek(db, 9)]
            if isinstance(served, NotFound):
                assert ready == ["eu1"]
            else:
                assert served == ["eu1"]
                assert ready == []
            assert late == [] or isinstance(late, NotFound)
            rows = queue._keys.lines()
            assert not db.get_range(rows.start, rows.stop)
            clean(db, queue)

        return [
            lambda db: collect(db, europe, leader),
            lambda db: own(queue).remove(db),
            lambda db: collect(db, own(queue), other),
        ][:count], check

    assert explore(db, start) >= 2 * count


@all_or_two
def test_a_subscription_that_closes_itself_while_one_joins_and_a_match_comes(
    db: fdb.Database, fresh: Callable[..., tuple[Queue, Subscription]], count: int
) -> None:
    def start() -> Start:
        # Given a leader in the line of a subscription that closes itself
        queue, europe = fresh(auto_close=True)
        put(db, queue, "us1")
        leader = ask(db, europe)

        def check(results: list[Any]) -> None:
            # Then the match is given to one of them, or came to a subscription that was gone
            first, second, _ = (*results, None)[:3]
            found = [
                one for each in (first, second) if not isinstance(each, Exception) for one in each
            ]
            ready = [one.payload.decode() for one in queue.peek(db, 9)]
            assert sorted(found + ready) == ["eu1", "us1"][3 - count :]
            gone = not Queue(queue.name, queue._root).subscriptions.list(db)
            assert gone or "eu1" in found
            if gone:
                for kind in (Kind.LINE, Kind.GUARD, Kind.STATE, Kind.SLEEPER):
                    rows = queue._keys.kind(kind)
                    assert not db.get_range(rows.start, rows.stop), kind
            clean(db, queue)

        def join(db: Any) -> list[str]:
            one = own(queue)
            return collect(db, one, ask(db, one))

        return [
            lambda db: collect(db, europe, leader),
            join,
            lambda db: put(db, Queue(queue.name, queue._root), "eu1"),
        ][:count], check

    assert explore(db, start) >= 2 * count


@pytest.fixture
def away(
    db: fdb.Database,
    fresh: Callable[..., tuple[Queue, Subscription]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], tuple[Queue, Subscription, Operation]]:
    """Makes a queue with four matches, of which a consumer has one while it leads the line; and the
    transaction in which it returns."""
    monkeypatch.setattr(returning_leader, "RETURN_SECONDS", float("inf"))
    monkeypatch.setattr(returning_leader, "SERVE_SECONDS", 0.0)

    def make() -> tuple[Queue, Subscription, Operation]:
        queue, europe = fresh()
        put(db, queue, "eu0", "eu1", "us0", "eu2", "eu3", "eu4")
        held = europe.receive_many(db, 1, ack=europe.receive_many(db, 1))
        access = europe._access
        lead = access.lead
        assert texts(held) == ["eu1"]
        assert lead is not None
        demand, claim = Demand(1, None), new_claim()

        def come_back(tr: fdb.Transaction) -> Outcome:
            access.lead, access.returns = lead, True
            return attempt.attempt(tr, access, demand, claim, waits=False, crowded=True, ack=held)

        return queue, europe, lambda db: once.run(db, access.once, come_back)

    return make


def lead_in_line(db: Any, one: Subscription, ticket: Ticket) -> Outcome:
    """Look for the answer of a ticket, and serve the line if nobody does."""
    waiter = waiting._Waiter(db, one._access, ticket, None)
    found = waiter._run(waiter._check, wrote=lambda _: False)
    if waiter.leads:
        body = partial(waiter._round, answered=False, done=False)
        found = waiter._run(body, wrote=lambda played: played.wrote).answer
    return found or ticket


def served(db: fdb.Database, one: Subscription, result: Outcome) -> list[str]:
    """What a consumer has, or gets if it waits."""
    if isinstance(result, Ticket):
        return collect(db, one, result)
    return texts(result or [])


def test_a_leader_that_returns_while_another_takes_the_lead(
    db: fdb.Database, away: Callable[[], tuple[Queue, Subscription, Operation]]
) -> None:
    def start() -> Start:
        # Given a leader that is away, and two consumers in line
        queue, europe, come_back = away()
        first, second = ask(db, europe), ask(db, europe)

        def check(results: list[Any]) -> None:
            # Then each has one of the first matches, and those that waited have the first two
            returned, taken = results
            found = [served(db, europe, each) for each in (first, taken, returned)]
            assert found == [["eu2"], ["eu3"], ["eu4"]]
            assert in_line(db, queue) == 0
            assert [one.payload for one in queue.peek(db, 9)] == [b"us0"]
            assert queue.depth(db).done == 2
            clean(db, queue)

        return [come_back, partial(lead_in_line, one=own(queue), ticket=second)], check

    assert explore(db, start) >= 4

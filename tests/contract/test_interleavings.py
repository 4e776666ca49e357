"""The delicate algorithms in all interleavings of two or three operations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from fdbqueue import Delivery, Queue, Ticket
from fdbqueue.consumers import line, wakeups, watching
from fdbqueue.consumers.receiving import attempt, returning_leader, waiting
from fdbqueue.consumers.receiving.access import Outcome
from fdbqueue.errors import LeaseLost
from fdbqueue.schema import once
from fdbqueue.schema.codec.consumers import ConsumerRef
from fdbqueue.schema.codec.leases import new_claim
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.interleaving import ALL, Operation, explore
from tests.patience import DEADLINE
from tests.schemes import forced

Start = tuple[Sequence[Operation], Callable[[list[Any]], None]]

pytestmark = pytest.mark.long


@pytest.fixture
def fresh(db: fdb.Database, space: fdb.Subspace) -> Callable[..., Queue]:
    """Makes a queue of its own for every interleaving."""
    numbers = itertools.count()

    def make(**options: Any) -> Queue:
        return Queue.create(db, f"q{next(numbers)}", root=space, levels=2, **options)

    return make


def clean(db: fdb.Database, queue: Queue) -> None:
    found = queue.admin.verify(db)
    assert found.ok, found.deviations


def requests(db: fdb.Database, queue: Queue) -> int:
    every = queue._keys.kind(Kind.REQUEST)
    return len(list(db.get_range(every.start, every.stop)))


def left_by_claims(db: fdb.Database, later: Queue, held: Sequence[Delivery]) -> list[str]:
    """Of which kinds keys are left when all messages have been settled and every end is past."""
    later.ack(db, held)
    later.admin.sweep(db)
    while found := later.receive_many(db, 10):
        later.ack(db, found)
    Queue(later.name, later._root, clock=ManualClock(seconds=1_000)).admin.sweep(db)
    ranges = {kind: later._keys.kind(kind) for kind in (Kind.LEASE, Kind.UNTIL, Kind.EXPIRY)}
    return [k.name for k, every in ranges.items() if db.get_range(every.start, every.stop)]


def payloads(found: Sequence[Delivery]) -> list[bytes]:
    return [one.payload for one in found]


def test_the_interleavings_that_are_left_out_differ_in_nothing(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    # Given transactions that see what others wrote, and conflict with nobody
    keys = [space.pack((n,)) for n in range(3)]

    def writes(me: int) -> Operation:
        def body(db: Any) -> None:
            tr = db.create_transaction()
            values = [tr.snapshot.get(key).value for key in keys]
            seen = b"".join(value or b"-" for value in values)
            tr[keys[me]] = b"%d(%b)" % (me, seen)
            tr.commit().wait()

        return body

    found: set[tuple[bytes, ...]] = set()

    def check(results: list[Any]) -> None:
        assert results == [None] * 3
        found.add(tuple(db[key] or b"" for key in keys))

    def start() -> Start:
        db.clear_range_startswith(space.key())
        return [writes(me) for me in range(3)], check

    # When they are explored
    explored = explore(db, start, most=ALL)

    # Then they end in every way in which they can
    possible = set()
    for order in set(itertools.permutations([0, 0, 1, 1, 2, 2])):
        state, seen = [b"-"] * 3, {}
        for me in order:
            if me not in seen:
                seen[me] = b"".join(state)
            else:
                state[me] = b"%d(%b)" % (me, seen[me])
        possible.add(tuple(state))
    assert found == possible
    # And few of the 90 orders are tried for nothing
    assert len(found) <= explored < 60


@pytest.mark.promise(2)
def test_expiry_against_ack_and_another_receiver(
    db: fdb.Database, space: fdb.Subspace, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a message whose lease is over
        queue = forced(fresh(lease=10), "first")
        queue.enqueue(db, b"m")
        held = queue.receive_many(db, 1)
        # (threads that share a handle would take turns)
        first, second = (Queue(queue.name, space, clock=ManualClock(seconds=60)) for _ in range(2))

        def check(results: list[Any]) -> None:
            # Then it is done or delivered again, and never both
            acked, *others = results
            again = [one for found in others for one in found]
            assert len(again) == isinstance(acked, LeaseLost)
            assert all(one.attempt == 2 for one in again)
            depth = queue.depth(db)
            assert (depth.done, depth.leased, depth.ready) == (1 - len(again), len(again), 0)
            clean(db, queue)

        # When its holder acknowledges it while two others look for messages
        return [
            lambda db: queue.ack(db, held),
            lambda db: first.receive_many(db, 1),
            lambda db: second.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 6


def test_an_extension_makes_no_acknowledgement_fail(
    db: fdb.Database, space: fdb.Subspace, fresh: Callable[..., Queue]
) -> None:
    runs: list[int] = []

    def start() -> Start:
        # Given a message that is leased
        queue = forced(fresh(lease=10), "first")
        queue.enqueue(db, b"m")
        held = queue.receive_many(db, 1)
        runs.append(0)

        def handle(tr: fdb.Transaction) -> None:
            runs[-1] += 1
            queue.ack(tr, held)

        def check(results: list[Any]) -> None:
            # Then it is done at the first try, and the extension came before it or failed
            acked, _ = results
            assert (acked, runs[-1], queue.depth(db).done) == (None, 1, 1)
            clean(db, queue)
            # And what the extension left is gone when it falls due
            Queue(queue.name, space, clock=ManualClock(seconds=60)).admin.sweep(db)
            for kind in (Kind.LEASE, Kind.UNTIL, Kind.EXPIRY):
                every = queue._keys.kind(kind)
                assert not db.get_range(every.start, every.stop), kind.name

        # When it is acknowledged while its lease is extended
        return [
            lambda db: once.run(db, queue._keys.once, handle),
            lambda db: queue.extend(db, held, 30),
        ], check

    assert explore(db, start) >= 4


def test_a_lease_is_extended_or_lapses(
    db: fdb.Database, space: fdb.Subspace, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a message whose lease was extended, and is over
        queue = forced(fresh(lease=10), "first")
        queue.enqueue(db, b"m")
        held = queue.extend(db, queue.receive_many(db, 1), 20)
        later = Queue(queue.name, space, clock=ManualClock(seconds=60))

        def check(results: list[Any]) -> None:
            # Then its holder has it, or another receiver, and never both
            *extended, again = results
            lost = [isinstance(each, LeaseLost) for each in extended]
            assert all(lost) if again else not any(lost)
            assert [one.attempt for one in again] == [2] * len(again)
            later.ack(db, again or held)
            clean(db, queue)

        # When it is extended twice at once while another looks for messages
        return [
            lambda db: later.extend(db, held),
            lambda db: later.extend(db, held),
            lambda db: later.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 6


@pytest.mark.parametrize("together", [3, 9])
def test_a_claim_that_is_half_settled_lapses_while_more_of_it_is_settled(
    db: fdb.Database, space: fdb.Subspace, fresh: Callable[..., Queue], together: int
) -> None:
    def start() -> Start:
        # Given a claim that is over, of which one message is done
        queue = forced(fresh(lease=10, backoff=None), "first")
        queue.enqueue_many(db, [b"%d" % n for n in range(together)])
        held = queue.receive_many(db, together)
        queue.ack(db, held[0])
        later = Queue(queue.name, space, clock=ManualClock(seconds=60))

        def check(results: list[Any]) -> None:
            # Then the rest is done or comes back, each message once
            one, many, found = results
            done = 1 + (one is None) + (together - 2) * (many is None)
            assert all(result is None or isinstance(result, LeaseLost) for result in (one, many))
            depth = queue.depth(db)
            assert (depth.done, depth.leased) == (done, len(found))
            assert depth.ready == together - done - len(found)
            clean(db, queue)
            assert left_by_claims(db, later, found) == []

        # When one more is settled, the rest is settled at once, and another looks for messages
        return [
            lambda db: queue.ack(db, held[1]),
            lambda db: queue.ack(db, held[2:]),
            lambda db: later.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 6


@pytest.mark.parametrize("together", [2, 9])
def test_a_claim_is_settled_whole_or_lapses(
    db: fdb.Database, space: fdb.Subspace, fresh: Callable[..., Queue], together: int
) -> None:
    def start() -> Start:
        # Given a claim that is over
        queue = forced(fresh(lease=10, backoff=None), "first")
        queue.enqueue_many(db, [b"%d" % n for n in range(together)])
        held = queue.receive_many(db, together)
        later = Queue(queue.name, space, clock=ManualClock(seconds=60))

        def check(results: list[Any]) -> None:
            # Then all of it is done, or all of it comes back
            settled, found = results
            assert bool(found) == isinstance(settled, LeaseLost)
            assert queue.depth(db).done == (0 if found else together)
            clean(db, queue)
            assert left_by_claims(db, later, found) == []

        # When it is settled whole while another looks for messages
        return [
            lambda db: queue.ack(db, held),
            lambda db: later.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 4


def test_some_of_a_claim_are_extended_while_it_lapses(
    db: fdb.Database, space: fdb.Subspace, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a claim that is over
        queue = forced(fresh(lease=10, backoff=None), "first")
        queue.enqueue_many(db, [b"0", b"1", b"2"])
        held = queue.receive_many(db, 3)
        later = Queue(queue.name, space, clock=ManualClock(seconds=60))
        last = Queue(queue.name, space, clock=ManualClock(seconds=80))

        def check(results: list[Any]) -> None:
            # Then those that were extended are still held, and the others come back
            first, second, found = results
            kept = [
                one
                for one, result in zip(held[:2], (first, second), strict=True)
                if not isinstance(result, LeaseLost)
            ]
            assert [one.delivery.id for one in queue.admin.leases(db)] == sorted(
                one.id for one in (*kept, *found)
            )
            assert queue.depth(db).ready == 3 - len(kept) - len(found)
            clean(db, queue)
            # And come back at their own end
            queue.ack(db, found)
            last.admin.sweep(db)
            assert queue.depth(db).ready == 3 - len(found)
            assert left_by_claims(db, last, []) == []

        # When two are extended, each by itself, while another looks for messages
        return [
            lambda db: later.extend(db, held[0]),
            lambda db: later.extend(db, held[1]),
            lambda db: later.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 6


@pytest.mark.parametrize("whole", [True, False])
def test_an_extension_of_a_claim_makes_no_settlement_of_others_fail(
    db: fdb.Database, space: fdb.Subspace, fresh: Callable[..., Queue], whole: bool
) -> None:
    runs: list[int] = []

    def start() -> Start:
        # Given a claim
        queue = forced(fresh(lease=10), "first")
        queue.enqueue_many(db, [b"%d" % n for n in range(4)])
        held = queue.receive_many(db, 4)
        settled = held if whole else held[:2]
        runs.append(0)

        def handle(tr: fdb.Transaction) -> None:
            runs[-1] += 1
            queue.ack(tr, settled)

        def check(results: list[Any]) -> None:
            # Then they are done at the first try
            assert (results[0], runs[-1], queue.depth(db).done) == (None, 1, len(settled))
            clean(db, queue)
            later = Queue(queue.name, space, clock=ManualClock(seconds=60))
            assert left_by_claims(db, later, []) == []

        # When messages of it are done while others, or all of it, are extended
        return [
            lambda db: once.run(db, queue._keys.once, handle),
            lambda db: queue.extend(db, held[2:], 30),
            lambda db: queue.extend(db, held, 40),
        ], check

    assert explore(db, start) >= 6


def test_a_batch_is_settled_while_another_takes_what_came_back_in_its_middle(
    db: fdb.Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a batch, and a message in its middle that has come back
        queue = forced(fresh(lease=10), "first")
        queue.enqueue_many(db, [b"%d" % n for n in range(9)])
        held = queue.receive_many(db, 9)
        queue.release(db, held.pop(4), delay=0)

        def check(results: list[Any]) -> None:
            # Then both have what they wanted
            settled, found = results
            assert (settled, payloads(found)) == (None, [b"4"])
            depth = queue.depth(db)
            assert (depth.done, depth.leased) == (8, 1)
            clean(db, queue)
            queue.ack(db, found)

        # When it is settled while another takes that one
        return [
            lambda db: queue.ack(db, held),
            lambda db: queue.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 4


def test_fulfilment_against_withdrawal(db: fdb.Database, fresh: Callable[..., Queue]) -> None:
    def start() -> Start:
        # Given a leader and another consumer in line, and one message
        queue = forced(fresh(), "staged")
        leader, other = queue.line.request(db), queue.line.request(db)
        assert leader.leads
        assert not other.leads
        queue.enqueue(db, b"m")

        def check(results: list[Any]) -> None:
            # Then one of them has it, and nobody is left in line
            assert [payloads(found) for found in results] in ([[b"m"], []], [[], [b"m"]])
            assert requests(db, queue) == 0
            assert queue.depth(db).leased == 1
            clean(db, queue)

        # When the leader serves while the other one leaves
        return [
            lambda db: queue.line.collect(db, leader, wait=0),
            lambda db: queue.line.withdraw(db, other),
        ], check

    assert explore(db, start) >= 4


@pytest.mark.slow
def test_two_that_leave_the_line_at_once_while_a_message_comes(
    db: fdb.Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a leader and another consumer in an empty line
        queue = forced(fresh(), "staged")
        leader, other = queue.line.request(db), queue.line.request(db)

        def check(results: list[Any]) -> None:
            # Then the message is with one of them, or still there
            identity, *found = results
            taken = [one.id for each in found for one in each]
            ready = [message.id for message in queue.peek(db, 2)]
            assert taken + ready == [identity]
            assert requests(db, queue) == 0
            clean(db, queue)

        # When a message comes while both give up
        return [
            lambda db: queue.enqueue(db, b"m"),
            lambda db: queue.line.collect(db, other, wait=0),
            lambda db: queue.line.withdraw(db, leader),
        ], check

    assert explore(db, start) >= 6


@pytest.fixture
def away(
    db: fdb.Database, fresh: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[Queue, list[Delivery], Operation]]:
    """Makes a queue with four messages, of which a consumer has the first while it leads the line;
    and the transaction in which it returns."""
    monkeypatch.setattr(returning_leader, "RETURN_SECONDS", float("inf"))
    monkeypatch.setattr(returning_leader, "SERVE_SECONDS", 0.0)

    def make() -> tuple[Queue, list[Delivery], Operation]:
        queue = forced(fresh(), "staged")
        queue.enqueue_many(db, [b"0", b"1", b"2", b"3", b"4"])
        held = queue.receive_many(db, 1, ack=queue.receive_many(db, 1))
        access = queue._access
        lead = access.lead
        assert payloads(held) == [b"1"]
        assert lead is not None
        demand, claim = line.Demand(1, None), new_claim()

        def come_back(tr: fdb.Transaction) -> Outcome:
            access.lead, access.returns = lead, True
            return attempt.attempt(tr, access, demand, claim, waits=False, crowded=True, ack=held)

        return queue, held, lambda db: once.run(db, queue._keys.once, come_back)

    return make


def lead_in_line(db: Any, queue: Queue, ticket: Ticket) -> Sequence[Delivery] | Ticket:
    """Look for the answer of a ticket, and serve the line if nobody does."""
    waiter = waiting._Waiter(db, queue._access, ticket, None)
    found = waiter._run(waiter._check, wrote=lambda _: False)
    if waiter.leads:
        body = partial(waiter._round, answered=False, done=False)
        found = waiter._run(body, wrote=lambda played: played.wrote).answer
    return found or ticket


def served(db: fdb.Database, queue: Queue, result: Sequence[Delivery] | Ticket) -> list[bytes]:
    """What a consumer has, or gets if it waits."""
    if isinstance(result, Ticket):
        result = queue.line.collect(db, result, wait=0)
    return payloads(result)


def served_all(db: fdb.Database, queue: Queue, *, leased: int, done: int) -> None:
    """Nobody waits in line, and the queue is clean, with so many messages leased and done."""
    assert requests(db, queue) == 0
    depth = queue.depth(db)
    assert (depth.leased, depth.done) == (leased, done)
    clean(db, queue)


def test_a_leader_that_returns_while_others_join_and_leave(
    db: fdb.Database, away: Callable[[], tuple[Queue, list[Delivery], Operation]]
) -> None:
    def start() -> Start:
        # Given a leader that is away, and a consumer in line
        queue, _, come_back = away()
        waiter = queue.line.request(db)
        assert not waiter.leads

        def check(results: list[Any]) -> None:
            # Then each has another one of the first messages, and the one that waited the first
            returned, joined, withdrawn = results
            assert payloads(withdrawn) in ([b"2"], [])
            taken = payloads(withdrawn) + served(db, queue, returned) + served(db, queue, joined)
            assert sorted(taken) == [b"2", b"3", b"4"][: 2 + len(withdrawn)]
            # And nobody is left in line
            served_all(db, queue, leased=len(taken), done=2)

        # When it returns while one joins and the other leaves
        return [come_back, queue.line.request, lambda db: queue.line.withdraw(db, waiter)], check

    assert explore(db, start) >= 6


def test_a_leader_that_returns_while_another_takes_the_lead(
    db: fdb.Database, away: Callable[[], tuple[Queue, list[Delivery], Operation]]
) -> None:
    def start() -> Start:
        # Given a leader that is away, and two consumers in line
        queue, _, come_back = away()
        first, second = queue.line.request(db), queue.line.request(db)

        def check(results: list[Any]) -> None:
            # Then each has one of the first messages, and those that waited have the first two
            returned, taken = results
            found = [served(db, queue, each) for each in (first, taken, returned)]
            assert found == [[b"2"], [b"3"], [b"4"]]
            served_all(db, queue, leased=3, done=2)

        # When it returns while one of them is tired of waiting
        return [come_back, partial(lead_in_line, queue=queue, ticket=second)], check

    assert explore(db, start) >= 6


def test_a_leader_that_returns_while_messages_come_and_go_beside_the_line(
    db: fdb.Database, away: Callable[[], tuple[Queue, list[Delivery], Operation]]
) -> None:
    def start() -> Start:
        # Given a leader that is away, and a consumer in line
        queue, _, come_back = away()
        waiter = queue.line.request(db)

        def check(results: list[Any]) -> None:
            # Then each has another one of the first messages
            returned, taken, _ = results
            found = [
                *served(db, queue, waiter),
                *served(db, queue, returned),
                *served(db, queue, taken),
            ]
            ready = [message.payload for message in queue.peek(db, 5)]
            assert sorted(found + ready) == [b"2", b"3", b"4", b"urgent"]
            assert ready in ([b"4"], [b"urgent"])
            assert requests(db, queue) == 0
            clean(db, queue)

        # When it returns while one takes a message without the line, and an urgent one comes
        return [
            come_back,
            lambda db: once.run(db, queue._keys.once, lambda tr: queue.receive_many(tr, 1)),
            lambda db: queue.enqueue(db, b"urgent", priority=9),
        ], check

    assert explore(db, start) >= 6


def test_a_leader_that_takes_for_itself_alone_while_another_takes_the_lead(
    db: fdb.Database,
    away: Callable[[], tuple[Queue, list[Delivery], Operation]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start() -> Start:
        # Given a leader that has just served the line, and a consumer in line
        queue, held, _ = away()
        lead = queue._access.lead
        waiter = queue.line.request(db)

        def take_alone(db: Any) -> list[Delivery]:
            access = queue._access
            access.common, access.lead, access.served = False, lead, float("inf")
            return queue.receive_many(db, 1, ack=held)

        def check(results: list[Any]) -> None:
            # Then each has one of the first messages
            alone, taken = results
            found = [served(db, queue, each) for each in (alone, taken)]
            assert sorted(found) == [[b"2"], [b"3"]]
            served_all(db, queue, leased=2, done=2)

        # When it takes a message for itself while the other one is tired of waiting
        return [take_alone, partial(lead_in_line, queue=queue, ticket=waiter)], check

    assert explore(db, start) >= 4


def test_threads_that_ask_together_while_another_process_takes_a_message(
    db: fdb.Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given three messages, one of which a thread has done
        queue = fresh()
        queue.enqueue_many(db, [b"0", b"1", b"2", b"3"])
        held = queue.receive_many(db, 1)
        other = Queue(queue.name, queue._root)
        asked = [attempt.Asked(new_claim(), line.Demand(1, None), False) for _ in range(2)]

        def ask(tr: fdb.Transaction) -> list[Outcome] | None:
            return attempt.attempt_all(tr, queue._access, asked, held, crowded=False)

        def check(results: list[Any]) -> None:
            # Then each has another one
            (one, two), taken = results
            found = [served(db, queue, one), served(db, queue, two), payloads(taken)]
            assert sorted(found) == [[b"1"], [b"2"], [b"3"]]
            assert found[0] < found[1]
            depth = queue.depth(db)
            assert (depth.leased, depth.done) == (3, 1)
            clean(db, queue)

        # When two threads ask together while another process takes a message
        return [
            lambda db: once.run(db, queue._keys.once, ask),
            lambda db: other.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 4


def sleeper(queue: Queue, name: bytes) -> Operation:
    """Takes what is there, or goes to sleep."""

    def sleep(db: Any) -> Any:
        def body(tr: fdb.Transaction) -> Any:
            found = queue.receive_many(tr, 1)
            return found or wakeups.register(tr, queue._scope(tr), ConsumerRef(name))

        return once.run(db, queue._keys.once, body)

    return sleep


def leaver(queue: Queue, name: bytes) -> Operation:
    """Stops to sleep."""
    return lambda db: once.run(
        db, queue._keys.once, lambda tr: wakeups.withdraw(tr, queue._keys, ConsumerRef(name))
    )


@pytest.mark.promise(4)
def test_no_wakeup_is_lost_by_who_falls_asleep_as_a_message_comes(
    db: fdb.Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        queue = forced(fresh(), "first")

        def check(results: list[Any]) -> None:
            # Then somebody has it, or somebody was woken for it
            _, *outcomes = results
            signals = [each for each in outcomes if isinstance(each, tuple)]
            taken = [each for each in outcomes if isinstance(each, list)]
            assert len(taken) <= 1
            if not taken:
                assert watching.wait(watching.arm(db, sum(signals, ())), DEADLINE)

        # When a message comes while two fall asleep
        return [
            lambda db: queue.enqueue(db, b"m"),
            sleeper(queue, b"a" * 16),
            sleeper(queue, b"b" * 16),
        ], check

    assert explore(db, start) >= 6


def test_no_wakeup_is_lost_by_a_guard_that_leaves(
    db: fdb.Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a guard that sleeps
        queue = forced(fresh(), "first")
        sleeper(queue, b"a" * 16)(db)

        def check(results: list[Any]) -> None:
            # Then the other one has the message, or was woken for it
            _, _, other = results
            taken = isinstance(other, list)
            assert taken or watching.wait(watching.arm(db, other), DEADLINE)

        # When it leaves while a message comes, and another one falls asleep
        return [
            lambda db: queue.enqueue(db, b"m"),
            leaver(queue, b"a" * 16),
            sleeper(queue, b"b" * 16),
        ], check

    assert explore(db, start) >= 6


@pytest.mark.promise(7)
def test_a_cursor_that_moves_misses_no_late_enqueue(
    db: fdb.Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a browser before one message
        queue = fresh()
        browser = queue.subscriptions.open(db, "browser", mode="browse")
        first = queue.enqueue(db, b"first")

        def check(results: list[Any]) -> None:
            # Then in the end it has seen every message once, in order
            one, two, seen = results
            ids = [message.id for message in [*seen, *browser.browse(db)]]
            assert sorted(ids) == sorted([first, one, two])
            assert ids == sorted(ids)
            clean(db, queue)

        # When it moves on while two more come
        return [
            lambda db: queue.enqueue(db, b"a"),
            lambda db: queue.enqueue(db, b"b"),
            browser.browse,
        ], check

    assert explore(db, start) >= 6


@pytest.mark.promise(7)
def test_a_cursor_that_passes_finds_what_comes_back_behind_it(
    db: fdb.Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a subscription whose match is in somebody's hands, before many that do not match
        queue = forced(fresh(), "first")
        taker = queue.subscriptions.open(db, "eu", selector="region = 'eu'")
        queue.enqueue(db, b"m", headers={"region": "eu"})
        held = queue.receive_many(db, 1)
        for _ in range(20):
            queue.enqueue(db, b"x", headers={"region": "us"})

        def check(results: list[Any]) -> None:
            # Then the match is found, by this look or by the next
            _, found = results
            assert payloads([*found, *taker.receive_many(db, 1)]) == [b"m"]
            clean(db, queue)

        # When it is given back while the cursor passes the others
        return [
            lambda db: queue.release(db, held),
            lambda db: taker.receive_many(db, 1),
        ], check

    assert explore(db, start) >= 4

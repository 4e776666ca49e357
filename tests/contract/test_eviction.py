"""The leases of a consumer that is gone end at once, and nobody else's do."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Delivery, Queue, Worker
from fdbqueue.consumers import eviction, sessions
from fdbqueue.consumers.credit import Credit
from fdbqueue.errors import LeaseLost, TransactionTooLarge
from fdbqueue.messages.delivery import lease_shortening
from fdbqueue.schema.keys import QueueKeys, RootKeys
from fdbqueue.schema.leases import holder_of
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import VERSIONS_PER_SECOND, Moment
from fdbqueue.testing import ManualClock
from fdbqueue.worker import lease_extender, process_session
from fdbqueue.worker.consumer import QueueConsumer
from fdbqueue.worker.process_session import ProcessSession
from tests.audit import sound
from tests.consumers import register
from tests.patience import DEADLINE, eventually
from tests.schemes import forced
from tests.taking import payloads

Database = fdb.Database

pytestmark = pytest.mark.queue()

LEASE = 3_600.0
DEAD, RETURNED = 16.0, 21.0
"""When a process counts as dead, and when its messages are there again at the latest."""


@pytest.fixture
def root(space: fdb.Subspace) -> RootKeys:
    return RootKeys(space)


def consumer(db: Database, queue: Queue, lease: float = LEASE, handlers: int = 1) -> QueueConsumer:
    """A consumer of a process of its own."""
    made = QueueConsumer(db, queue, "worker", 0, lease, handlers)
    made.session = ProcessSession(db, queue._root_keys, queue._clock)
    made.join()
    return made


def filled(db: Database, queue: Queue, count: int) -> list[bytes]:
    payloads = [b"%d" % n for n in range(count)]
    for payload in payloads:
        queue.enqueue(db, payload)
    return payloads


def evict_all(db: Database, queue: Queue) -> None:
    while queue.admin.evict(db):
        pass


def received(db: Database, queue: Queue) -> list[Delivery]:
    """All that can be received: what returned comes one by one."""
    found: list[Delivery] = []
    while more := queue.receive_many(db, 10):
        found += more
    return found


# -- what returns ------------------------------------------------------------------------------


def together(member: QueueConsumer) -> list[Delivery]:
    return member.fetch(Credit(), 5).deliveries


def one_by_one(member: QueueConsumer) -> list[Delivery]:
    return [each for _ in range(5) for each in member.fetch(Credit(), 1).deliveries]


def with_acknowledgements(member: QueueConsumer) -> list[Delivery]:
    done = member.fetch(Credit(), 1).deliveries
    fetched = member.settle_and_fetch(Credit(), 5, done)
    if fetched is None:  # through the line, both are done by themselves
        member.queue.ack(member.db, done)
        fetched = member.fetch(Credit(), 5)
    return fetched.deliveries


def extended(member: QueueConsumer) -> list[Delivery]:
    found = member.fetch(Credit(), 5).deliveries
    return [*member.queue.extend(member.db, found, 2 * LEASE)]


def partly_extended(member: QueueConsumer) -> list[Delivery]:
    found = member.fetch(Credit(), 5).deliveries
    member.queue.extend(member.db, found[1:3], 2 * LEASE)
    member.queue.extend(member.db, found[2:3], 3 * LEASE)
    return found


def partly_settled(member: QueueConsumer) -> list[Delivery]:
    found = member.fetch(Credit(), 7).deliveries
    member.queue.ack(member.db, found[::3])
    return [one for n, one in enumerate(found) if n % 3]


WAYS = [together, one_by_one, with_acknowledgements, extended, partly_extended, partly_settled]


@pytest.mark.sample(6)
@pytest.mark.parametrize("scheme", ["auto", "first", "staged"])
@pytest.mark.parametrize("take", WAYS)
def test_what_a_dead_worker_held_is_ready_again_soon_after_its_session_ends(
    db: Database,
    space: fdb.Subspace,
    clock: ManualClock,
    scheme: str,
    take: Callable[[QueueConsumer], list[Delivery]],
) -> None:
    queue = forced(Queue.create(db, "orders", root=space, clock=clock), scheme)
    # Given what a worker holds, one of many, for an hour
    filled(db, queue, 10)
    dead = consumer(db, queue, handlers=8)
    held = take(dead)
    assert held
    # When it dies
    clock.seconds += DEAD
    assert queue.admin.evict(db) == [dead.ref.id]
    sound(db, queue)
    clock.seconds += RETURNED - DEAD
    # Then all of it is delivered again, in order and with no attempt lost, and nothing else was
    left = queue.depth(db).ready
    found = received(db, queue)
    assert payloads(found)[: len(held)] == payloads(held)
    assert len(found) == len(held) + left
    assert {one.attempt for one in found} == {1}
    # And its late acknowledgement finds nothing
    with pytest.raises(LeaseLost) as lost:
        queue.ack(db, held)
    assert len(lost.value.lost) == len(held)
    sound(db, queue)
    # And nothing stays behind
    queue.ack(db, found)
    clock.seconds += 4 * LEASE
    queue.admin.sweep(db)
    for kind in (QueueKeys.lease, QueueKeys.until, QueueKeys.expiry):
        every = queue._keys.kind(kind)
        assert not list(db.get_range(every.start, every.stop)), kind.name


@pytest.mark.promise(5)
def test_only_the_message_that_was_begun_counts_the_death(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    filled(db, queue, 3)
    dead = consumer(db, queue)
    (begun,) = dead.fetch(Credit(), 1, begins=True).deliveries
    prefetched = dead.fetch(Credit(), 2, begins=False).deliveries
    assert (begun.begun, [one.begun for one in prefetched]) == (True, [False, False])
    clock.seconds += DEAD
    evict_all(db, queue)
    clock.seconds += RETURNED - DEAD
    deaths: dict[bytes, int] = {}
    for _ in range(6):
        found = queue.receive_many(db, 3, lease=LEASE)
        assert all(one.attempt == 1 for one in found)
        deaths |= {one.payload: one.message.deaths for one in found}
        clock.seconds += 60  # the one that was begun rests
    assert deaths == {b"0": 1, b"1": 0, b"2": 0}


# -- what does not return ----------------------------------------------------------------------


def test_a_worker_that_stands_still_for_less_than_fifteen_seconds_keeps_its_leases(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    # Given a worker that is stopped just before its next sign of life is due
    filled(db, queue, 4)
    paused = consumer(db, queue)
    held = paused.fetch(Credit(), 3).deliveries
    clock.seconds += sessions.BEAT_SECONDS - 0.1
    # When it goes on after 14 seconds, and others have taken it for dead
    clock.seconds += 14
    assert queue.admin.evict(db) == [paused.ref.id]
    queue.admin.sweep(db)
    assert queue.depth(db).leased == 3
    # Then it returns, extends what it holds, and can settle it long after that
    paused.session.beat(always=True)
    assert paused.evicted
    assert len(paused.fetch(Credit(), 1).deliveries) == 1
    held = queue.extend(db, held, LEASE)
    clock.seconds += 100
    queue.admin.sweep(db)
    queue.ack(db, held)
    sound(db, queue)


# -- how much at once --------------------------------------------------------------------------


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "MAX_READ", 20)
    monkeypatch.setattr(lease_shortening, "MAX_SHORTENED", 7)


@pytest.mark.usefixtures("small_steps")
def test_many_leases_of_many_dead_consumers_return_in_bounded_steps(
    db: Database, queue: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given many messages, each leased by itself, some of them by who lives
    filled(db, queue, 150)
    alive, dead = consumer(db, queue), [consumer(db, queue) for _ in range(6)]
    for member in itertools.islice(itertools.cycle([alive, *dead]), 140):
        member.fetch(Credit(), 1)
    steps: list[lease_shortening.Shortened] = []
    shorten = lease_shortening.shorten

    def counted(*given: Any) -> lease_shortening.Shortened:
        steps.append(shorten(*given))
        return steps[-1]

    monkeypatch.setattr(lease_shortening, "shorten", counted)
    # When they die, and the first of who look for the dead dies on the way
    clock.seconds += 10
    alive.session.beat(always=True)
    clock.seconds += DEAD - 10
    scope = queue._scope(db.create_transaction())
    first = eviction.evict_expired(db, scope.root, clock)
    assert first.leaving is not None
    eviction.evict_expired(db, scope.root, clock, None, first.leaving)
    assert len(queue.admin.consumers(db)) == 7
    # Then another process finds all
    beating = consumer(db, queue)
    for _ in range(40):
        beating.session.beat(always=True)
        if len(queue.admin.consumers(db)) == 2:
            break
    clock.seconds += RETURNED - DEAD
    alive.session.beat(always=True)
    queue.admin.sweep(db)
    assert queue.depth(db).leased == 20
    assert max(step.read for step in steps) <= 20
    assert max(step.claims for step in steps) <= 7
    sound(db, queue)


@pytest.mark.usefixtures("small_steps")
def test_a_consumer_with_many_leases_is_evicted_by_a_person(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    filled(db, queue, 30)
    member, other = consumer(db, queue), consumer(db, queue)
    for _ in range(15):
        member.fetch(Credit(), 1)
        other.fetch(Credit(), 1)
    (chosen,) = [one for one in queue.admin.consumers(db) if one.id == member.ref.id]
    # A transaction of the caller cannot carry it
    with pytest.raises(TransactionTooLarge, match="call it with a database"):
        queue.admin.evict(db.create_transaction(), chosen)
    assert queue.admin.evict(db, chosen) == [member.ref.id]
    # All are there at once, and the others' are not
    queue.admin.sweep(db)
    assert queue.depth(db).leased == 15
    assert [one.id for one in queue.admin.consumers(db)] == [other.ref.id]
    sound(db, queue)


def held_by(db: Database, queue: Queue) -> int:
    return queue.depth(db).leased


def ends_before(db: Database, queue: Queue, seconds: float) -> bool:
    """Whether any lease ends within so many seconds."""
    tr = db.create_transaction()
    every, keys = queue._keys.expiry.rows, queue._keys
    last = queue._scope(tr).version(tr) + int(seconds * VERSIONS_PER_SECOND)
    return any(keys.expiry.parse(kv.key)[0] < last for kv in tr.get_range(every.start, every.stop))


def test_leases_of_others_and_of_plans_stay(
    db: Database, queue: Queue, clock: ManualClock, root: RootKeys
) -> None:
    # Given leases of a living worker, of a process without a session, and of a stream
    filled(db, queue, 40)
    run = queue.streams.plans.planner("stream")
    begin = run.begin(db)
    end = run.next(db, begin, messages=10)
    alive, dead = consumer(db, queue), consumer(db, queue)
    lives, plain = alive.fetch(Credit(), 5).deliveries, queue.receive_many(db, 5, lease=LEASE)
    for _ in range(3):
        dead.fetch(Credit(), 3)
    # When another process dies
    clock.seconds += 10
    alive.session.beat(always=True)
    clock.seconds += DEAD - 10
    assert queue.admin.evict(db) == [dead.ref.id]
    clock.seconds += RETURNED - DEAD
    queue.admin.sweep(db)
    # Then they can still be settled
    assert queue.depth(db).leased == 10 + 5 + 5
    queue.ack(db, [*lives, *plain])
    run.acknowledge(db, end)
    assert queue.depth(db).done == 20
    sound(db, queue)


@pytest.mark.parametrize("beside", [0, 1])
def test_a_new_end_that_is_the_original_one_of_other_leases_of_a_claim_keeps_these(
    db: Database, queue: Queue, clock: ManualClock, beside: int
) -> None:
    # Given a claim with leases that end at different times
    filled(db, queue, 3)
    member = consumer(db, queue, lease=60)
    held = member.fetch(Credit(), 3).deliveries
    queue.extend(db, held[:1], 600)
    every, keys = queue._keys.expiry.rows, queue._keys
    (first, _) = [keys.expiry.parse(kv.key) for kv in db.get_range(every.start, every.stop)]
    # When the later ones are to end with the others, or a moment before
    wall_ms = queue._clock.wall_ms() + 60_000
    end = Moment(first[0] - beside, wall_ms)
    lease_shortening.shorten(db, keys, {holder_of(member.ref.id): end}, b"")
    # Then each still has its end
    sound(db, queue)
    queue.extend(db, held[:2], 300)
    sound(db, queue)
    clock.seconds += 61
    assert payloads(queue.receive_many(db, 3)) == [b"2"]


def test_a_handler_whose_worker_was_evicted_commits_nothing(
    db: Database, space: fdb.Subspace
) -> None:
    # Given a transactional handler at work
    queue = Queue.create(db, "orders", root=space, lease=LEASE)
    queue.enqueue(db, b"a")
    begun, go_on, runs = threading.Event(), threading.Event(), []

    def handle(tr: fdb.Transaction, payload: bytes) -> None:
        runs.append(payload)
        tr.add(space.pack(("effects",)), (1).to_bytes(8, "little"))
        if len(runs) == 1:
            begun.set()
            assert go_on.wait(DEADLINE)

    with Worker(db, 1, prefetch=0).add(queue, handle):
        assert begun.wait(DEADLINE)
        # When a person evicts its worker, and somebody else handles the message
        queue.admin.evict(db, *queue.admin.consumers(db))
        queue.admin.sweep(db)
        queue.retry(db, states="retrying")  # It would rest for a while.
        (found,) = [queue.receive(db)]
        assert found is not None
        queue.ack(db, found)
        go_on.set()
        eventually(lambda: held_by(db, queue) == 0)
    # Then its effect is not there
    assert db[space.pack(("effects",))] is None
    assert queue.depth(db).done == 1


def test_a_worker_that_returns_keeps_what_has_not_returned(
    db: Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (process_session, lease_extender):
        monkeypatch.setattr(module, "BEAT_SECONDS", 0.1)
    # Given a worker that handles one message, and holds others
    clock = ManualClock()
    queue = Queue.create(db, "orders", root=space, lease=LEASE, clock=clock)
    filled(db, queue, 4)
    gate, handled = threading.Event(), []

    def handle(payload: bytes) -> None:
        handled.append(payload)
        assert gate.wait(DEADLINE)

    with Worker(db, 1, prefetch=3).add(queue, handle):
        eventually(lambda: held_by(db, queue) == 4 and len(handled) == 1)
        (before,) = queue.admin.consumers(db)
        # When it is taken for dead before its leases end
        later = Queue.open(db, "orders", root=space, clock=ManualClock(seconds=DEAD))
        assert later.admin.evict(db) == [before.id]
        # Then it registers anew, and its leases are extended
        eventually(lambda: [one.id != before.id for one in queue.admin.consumers(db)] == [True])
        eventually(lambda: not ends_before(db, queue, 60))
        clock.seconds += 60
        queue.admin.sweep(db)
        assert held_by(db, queue) == 4
        gate.set()
        eventually(lambda: queue.depth(db).done == 4)
    # And each is handled once
    assert handled == [b"0", b"1", b"2", b"3"]


def test_a_worker_that_could_not_unregister_gives_signs_of_life_while_it_finishes(
    db: Database, queue: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, leaving = register(db, queue, "other"), consumer(db, queue)
    session = leaving.session

    def fail(*given: object) -> None:
        raise fdb.FDBError(1031)

    with monkeypatch.context() as broken:
        broken.setattr("fdbqueue.consumers.registry.unregister", fail)
        with pytest.raises(Exception, match=r"1031|did not end"):
            leaving.leave()
    # Then its session stays until the consumer has left after all
    clock.seconds += 14
    session.beat(always=True)
    assert [one.id for one in queue.admin.consumers(db)] == [other.id]

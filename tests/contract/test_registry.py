from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Message, Queue, Worker
from fdbqueue.consumers import eviction, registry, sessions, wakeups, watching
from fdbqueue.consumers.consumer_states import ConsumerState
from fdbqueue.consumers.credit import Credit
from fdbqueue.schema.consumers import ConsumerRef
from fdbqueue.schema.keys import RootKeys
from fdbqueue.schema.scope import Scope
from fdbqueue.store import client
from fdbqueue.store.binding import DEFAULT, Engine, fdb
from fdbqueue.testing import ManualClock
from fdbqueue.worker.consumer import QueueConsumer
from tests.consumers import process, register

Database = fdb.Database

pytestmark = pytest.mark.queue()
DEADLINE = 30.0


@pytest.fixture
def root(space: fdb.Subspace) -> RootKeys:
    return RootKeys(space)


@pytest.fixture
def scope(db: Database, queue: Queue) -> Scope:
    return queue._scope(db.create_transaction())


@pytest.fixture
def beat(db: Database, root: RootKeys, clock: ManualClock) -> Callable[[bytes], bool]:
    """Gives a sign of life of another process; whether it is still taken for alive."""
    return lambda session: sessions.beat(db, root, clock, session)[0]


def sessions_left(db: Database, root: RootKeys) -> int:
    return sum(
        len(list(db.get_range(each.start, each.stop)))
        for each in (root.session.under(), root.session_expiry.under())
    )


def test_consumers_are_listed_with_their_state_and_process_the_urgent_first(
    db: Database, queue: Queue, scope: Scope
) -> None:
    session = process(db, queue)
    for name, priority, acquiring in (("billing", 0, True), ("audit", 0, False), ("vip", 3, True)):
        consumer = register(db, queue, name, priority, session=session, acquiring=acquiring)
        if name == "vip":
            wakeups.register(db, scope, consumer)
    listed = [(one.name, one.state, one.guard) for one in queue.admin.consumers(db)]
    assert listed[0] == ("vip", ConsumerState.INTERESTED, True)
    assert set(listed[1:]) == {
        ("billing", ConsumerState.NOT_INTERESTED, False),
        ("audit", ConsumerState.NON_ACQUIRING, False),
    }
    assert {one.process for one in queue.admin.consumers(db)} == {os.getpid()}
    assert {one.session for one in queue.admin.consumers(db)} == {session}


def test_the_consumers_of_a_process_without_a_sign_of_life_are_removed_from_all_queues(
    db: Database, queue: Queue, space: fdb.Subspace, clock: ManualClock, beat: Callable[..., bool]
) -> None:
    other = Queue.create(db, "other", root=space, clock=clock)
    dead, alive = process(db, queue), process(db, queue)
    for each in (queue, other):
        register(db, each, "dead", session=dead)
        register(db, each, "alive", session=alive)
    clock.seconds += 14
    assert beat(alive)
    clock.seconds += 2
    assert len(queue.admin.evict(db)) == 1
    assert [one.name for one in queue.admin.consumers(db)] == ["alive"]
    assert [one.name for one in other.admin.consumers(db)] == ["alive"]
    assert not beat(dead)


def test_a_process_that_was_declared_dead_can_register_nobody(
    db: Database, queue: Queue, root: RootKeys, clock: ManualClock, beat: Callable[..., bool]
) -> None:
    session = process(db, queue)
    clock.seconds += 16
    sessions.expired(db, root, clock)
    assert not beat(session)
    with pytest.raises(sessions.SessionExpired):
        register(db, queue, "late", session=session)
    assert queue.admin.consumers(db) == []


@pytest.mark.parametrize("seconds", [-86_400, 86_400])
def test_a_process_whose_wall_clock_is_wrong_is_found_dead_as_soon_as_any(
    db: Database, space: fdb.Subspace, queue: Queue, clock: ManualClock, seconds: float
) -> None:
    wrong = ManualClock(wall_only=seconds)
    register(db, Queue.open(db, "orders", root=space, clock=wrong), "wrong")
    clock.seconds += 14
    assert queue.admin.evict(db) == []
    clock.seconds += 2 + 60  # a clock is believed to a minute
    assert len(queue.admin.evict(db)) == 1


@pytest.mark.parametrize("stale", [False, True])
def test_who_unregisters_leaves_nothing_behind_nor_does_a_wake_up_that_comes_late(
    db: Database, queue: Queue, scope: Scope, stale: bool
) -> None:
    keys = scope.keys
    wakeups.register(db, scope, ConsumerRef(b"the guard"))
    everything = keys.all()
    before = {kv.key for kv in db.get_range(everything.start, everything.stop)}
    consumer = register(db, queue, "brief", 7)
    wakeups.register(db, scope, consumer)
    tr = db.create_transaction()
    assert wakeups.wake(tr, keys, wakeups.reads(tr, keys, 2)) == 1
    if not stale:
        tr.commit().wait()
    registry.unregister(db, keys, consumer)
    if stale:
        tr.commit().wait()
    assert {kv.key for kv in db.get_range(everything.start, everything.stop)} == before


# -- the session of this process ---------------------------------------------------------------


class Counter:
    """Counts rows that are read, and mutations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.mutations = 0
        arrive = client._Rows.wait

        def arrived(future: Any) -> Any:
            found = arrive(future)
            self.rows += found[1]
            return found

        monkeypatch.setattr(client._Rows, "wait", arrived)
        self._count(monkeypatch, "get", "rows")
        for name in ("set", "clear", "clear_range", "atomic_op"):
            self._count(monkeypatch, name, "mutations")

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> None:
        capi: Any = fdb.impl._FDBBase.capi
        function = getattr(capi, f"fdb_transaction_{name}")

        def counted(*args: Any) -> Any:
            setattr(self, what, getattr(self, what) + 1)
            return function(*args)

        monkeypatch.setattr(capi, f"fdb_transaction_{name}", counted)

    def of(self, work: Callable[[], object]) -> tuple[int, int]:
        before = self.rows, self.mutations
        work()
        return self.rows - before[0], self.mutations - before[1]


@pytest.mark.parametrize("own", [True, False], ids=["in one process", "in many processes"])
def test_a_beat_costs_the_same_with_ten_consumers_and_with_a_thousand(
    db: Database, queue: Queue, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = QueueConsumer(db, queue, "beating", 0, None)
    member.join()
    member.session.beat(always=True)
    costs = []
    for others in (10, 990):

        def add(tr: fdb.Transaction, others: int = others) -> None:
            scope, session = queue._scope(tr), member.ref.session
            for _ in range(others):
                if not own:
                    session = sessions.start(tr, scope.root, scope.clock)
                registry.register(tr, scope, session, "beside")

        queue._run(db, add)
        counter = Counter(monkeypatch)
        costs.append(counter.of(lambda: member.session.beat(always=True)))
    assert costs[0] == costs[1]
    rows, mutations = costs[0]
    assert rows <= 3
    assert mutations == 3


def test_all_consumers_of_a_process_share_one_session(
    db: Database, queue: Queue, space: fdb.Subspace, root: RootKeys, clock: ManualClock
) -> None:
    other = Queue.create(db, "other", root=space, clock=clock)
    with (
        Worker(db, 1).add(queue, ignore).add(other, ignore),
        Worker(db, 1, name="second").add(queue, ignore),
    ):
        wait_until(
            lambda: len(queue.admin.consumers(db)) == 2 and len(other.admin.consumers(db)) == 1
        )
        (session,) = {one.session for each in (queue, other) for one in each.admin.consumers(db)}
        assert sessions_left(db, root) == 2
    assert queue.admin.consumers(db) == other.admin.consumers(db) == []
    assert sessions_left(db, root) == 0
    assert session


def test_a_process_that_was_taken_for_dead_notices_and_registers_anew(
    db: Database, queue: Queue, space: fdb.Subspace, clock: ManualClock
) -> None:
    member = QueueConsumer(db, queue, "slow", 0, None)
    signal = member.fetch(Credit(), 1).signal
    former = member.ref
    # When another process declares it dead
    clock.seconds += 16
    assert queue.admin.evict(db) == [former.id]
    # Then it is woken, and what comes next finds it
    assert watching.wait(signal, DEADLINE)
    queue.enqueue(db, b"a")
    assert len(member.fetch(Credit(), 1).deliveries) == 1
    assert member.ref.session != former.session
    assert [one.id for one in queue.admin.consumers(db)] == [member.ref.id]
    member.leave()
    assert queue.admin.consumers(db) == []


@pytest.mark.parametrize("what", ["session", "consumer", "guard"])
def test_an_unreadable_record_keeps_nobody_from_sleeping_and_being_evicted(
    db: Database, queue: Queue, root: RootKeys, scope: Scope, clock: ManualClock, what: str
) -> None:
    # Given a consumer of higher priority that sleeps as the guard, and a record that is broken
    broken, other = register(db, queue, "broken", 5), register(db, queue, "other")
    wakeups.register(db, scope, broken)
    records = {
        "session": root.session(broken.session),
        "consumer": scope.keys.consumer(broken.session, broken.id),
        "guard": scope.keys.guard(""),
    }
    db[records[what]] = b"\x01broken"
    clock.seconds += 16
    # When all are dead, and a process starts
    member = QueueConsumer(db, queue, "alive", 0, None)
    queue.enqueue(db, b"a")
    assert len(member.fetch(Credit(), 1).deliveries) == 1
    member.session.beat(always=True)
    # Then it is the only one left, and what it waits for wakes it
    assert [one.id for one in queue.admin.consumers(db) if one.name] == [member.ref.id]
    assert other.id not in {one.id for one in queue.admin.consumers(db)}
    signal = member.fetch(Credit(), 1).signal
    queue.enqueue(db, b"b")
    assert watching.wait(signal, DEADLINE)


def test_a_fork_has_a_session_of_its_own(db: Database, queue: Queue) -> None:
    if DEFAULT.engine is not Engine.EMBEDDED:
        pytest.skip("a cluster's client does not outlive a fork")
    member = QueueConsumer(db, queue, "parent", 0, None)
    member.join()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        mine = QueueConsumer(db, queue, "child", 0, None)
        mine.join()
        os.write(writing, pickle.dumps((mine.ref, os.getpid())))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        forked, number = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    assert forked.session != member.ref.session
    processes = {one.name: one.process for one in queue.admin.consumers(db)}
    assert processes == {"parent": os.getpid(), "child": number}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ignore(message: Message) -> None:
    """Handle a message by doing nothing."""


def changed(db: Database, signal: watching.Signal) -> bool:
    return any(db[key] != seen for key, seen in signal)


def test_a_guard_that_is_evicted_hands_its_role_to_one_that_sleeps(
    db: Database, queue: Queue, scope: Scope, clock: ManualClock, beat: Callable[..., bool]
) -> None:
    guard, sleeper = register(db, queue, "guard"), register(db, queue, "sleeper")
    wakeups.register(db, scope, guard)
    signal = wakeups.register(db, scope, sleeper)
    clock.seconds += 16
    assert beat(sleeper.session)
    assert queue.admin.evict(db) == [guard.id]
    assert watching.wait(watching.arm(db, signal), DEADLINE)
    (left,) = queue.admin.consumers(db)
    assert left.guard


def test_a_consumer_that_a_person_evicted_returns_in_the_same_session(
    db: Database, queue: Queue
) -> None:
    member, other = (
        QueueConsumer(db, queue, "one", 0, None),
        QueueConsumer(db, queue, "two", 0, None),
    )
    for each in (member, other):
        each.fetch(Credit(), 1)
    session = other.ref.session
    queue.admin.evict(db, next(one for one in queue.admin.consumers(db) if one.id == member.ref.id))
    member.fetch(Credit(), 1)
    assert {one.session for one in queue.admin.consumers(db)} == {session}
    assert len(queue.admin.consumers(db)) == 2


def test_a_consumer_that_could_not_leave_is_removed_at_the_next_beat(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    staying, leaving = (
        QueueConsumer(db, queue, "staying", 0, None),
        QueueConsumer(db, queue, "leaving", 0, None),
    )
    for each in (staying, leaving):
        each.fetch(Credit(), 1)

    def fail(*given: object) -> None:
        raise fdb.FDBError(1031)

    with monkeypatch.context() as broken:
        broken.setattr(registry, "unregister", fail)
        with pytest.raises(Exception, match=r"1031|did not end"):
            leaving.leave()
    assert len(queue.admin.consumers(db)) == 2
    staying.session.beat(always=True)
    assert [one.name for one in queue.admin.consumers(db)] == ["staying"]


def test_thousands_of_consumers_of_a_dead_process_are_removed_in_bounded_steps(
    db: Database, queue: Queue, root: RootKeys, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2_000
    # Given a process that died with many consumers, some of them asleep
    session = process(db, queue)

    def add(tr: fdb.Transaction) -> None:
        scope = queue._scope(tr)
        for n in range(500):
            consumer = registry.register(tr, scope, session, "gone", n % 3)
            if n % 50 == 0:
                wakeups.register(tr, scope, consumer)

    for _ in range(count // 500):
        queue._run(db, add)
    clock.seconds += 16
    # When another process beats
    member = QueueConsumer(db, queue, "alive", 0, None)
    member.join()
    most, steps = 0, eviction.evict_expired

    def step(*given: Any) -> eviction.Evicted:
        nonlocal most
        evicted = steps(*given)
        most = max(most, len(evicted.consumers))
        return evicted

    monkeypatch.setattr(eviction, "evict_expired", step)
    for _ in range(count):
        member.session.beat(always=True)
        if sessions_left(db, root) == 2:
            break
    # Then it is the only one left, and no transaction removed many
    assert [one.id for one in queue.admin.consumers(db)] == [member.ref.id]
    assert most == eviction.MAX_EVICTED
    assert not queue.admin.verify(db).deviations


def test_the_first_beat_of_a_process_finds_sessions_that_died_without_consumers(
    db: Database, queue: Queue, root: RootKeys, clock: ManualClock
) -> None:
    for _ in range(50):
        process(db, queue)
    clock.seconds += 16
    member = QueueConsumer(db, queue, "alive", 0, None)
    member.join()
    member.session.beat(always=True)
    assert sessions_left(db, root) == 2


def test_a_queue_that_was_deleted_does_not_keep_the_session_of_a_dead_process(
    db: Database, queue: Queue, space: fdb.Subspace, root: RootKeys, clock: ManualClock
) -> None:
    other = Queue.create(db, "other", root=space, clock=clock)
    register(db, other, "gone")
    other.delete(db)
    clock.seconds += 16
    assert queue.admin.evict(db) == []
    assert sessions_left(db, root) == 0


def test_who_dies_after_a_wake_up_leaves_it_to_another_of_its_subscription(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    # Given the guard of a subscription and another consumer of it, both asleep
    queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    scope = queue._scope(db.create_transaction())
    ours = process(db, queue)
    doomed, other = (
        registry.register(db, scope, session, name, subscription="europe")
        for session, name in ((process(db, queue), "doomed"), (ours, "other"))
    )
    told, untold = (wakeups.register(db, scope, one) for one in (doomed, other))
    # When a message wakes the guard, which then dies
    queue.enqueue(db, b"", headers={"region": "eu"})
    assert (changed(db, told), changed(db, untold)) == (True, False)
    clock.seconds += 10
    sessions.beat(db, scope.root, clock, ours)
    clock.seconds += 6
    assert eviction.evict_expired(db, scope.root, clock).consumers == [(queue.name, doomed.id)]
    # Then the other one is the guard, and looks
    assert changed(db, untold)
    (left,) = queue.admin.consumers(db)
    assert (left.id, left.guard, left.subscription) == (other.id, True, "europe")

from __future__ import annotations

from typing import Any

import pytest

from fdbqueue import Queue
from fdbqueue.consumers import registry, wakeups
from fdbqueue.consumers.states import ConsumerState
from fdbqueue.schema.keys import QueueKeys, RootKeys
from fdbqueue.schema.scope import Scope
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.worker.consumer import Member

Database = fdb.Database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(db: Database, space: fdb.Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "orders", root=space, clock=clock)


@pytest.fixture
def keys(space: fdb.Subspace) -> QueueKeys:
    return RootKeys(space).queue("orders")


@pytest.fixture
def scope(db: Database, queue: Queue) -> Scope:
    return queue._scope(db.create_transaction())


def test_consumers_are_listed_with_their_state_the_urgent_first(
    db: Database, keys: QueueKeys, scope: Scope
) -> None:
    for name, priority, acquiring in (("billing", 0, True), ("audit", 0, False), ("vip", 3, True)):
        consumer, record = registry.new(scope, name, priority)
        registry.register(db, scope, consumer, record, acquiring=acquiring)
        if name == "vip":
            wakeups.register(db, keys, consumer, priority)
    listed = [(one.name, one.state, one.guard) for one in registry.consumers(db, keys)]
    assert listed[0] == ("vip", ConsumerState.INTERESTED, True)
    assert set(listed[1:]) == {
        ("billing", ConsumerState.NOT_INTERESTED, False),
        ("audit", ConsumerState.NON_ACQUIRING, False),
    }


def test_a_consumer_that_gives_no_sign_of_life_is_removed_and_told_so(
    db: Database, keys: QueueKeys, scope: Scope, clock: ManualClock
) -> None:
    dead, dead_record = registry.new(scope, "dead", 0)
    alive, alive_record = registry.new(scope, "alive", 0)
    registry.register(db, scope, dead, dead_record, acquiring=True)
    registry.register(db, scope, alive, alive_record, acquiring=True)
    clock.seconds += 14
    assert registry.heartbeat(db, scope, alive, alive_record)
    clock.seconds += 2
    assert registry.evict_dead(db, scope) == [dead]
    assert [one.name for one in registry.consumers(db, keys)] == ["alive"]
    assert not registry.heartbeat(db, scope, dead, dead_record)


def test_a_wall_clock_that_is_ahead_takes_nobody_for_dead(
    db: Database, scope: Scope, clock: ManualClock
) -> None:
    consumer, record = registry.new(scope, "alive", 0)
    registry.register(db, scope, consumer, record, acquiring=True)
    clock.wall_only = 3600
    assert registry.evict_dead(db, scope) == []


def test_a_sign_of_life_and_an_eviction_at_the_same_time_do_not_both_succeed(
    db: Database, scope: Scope, clock: ManualClock
) -> None:
    consumer, record = registry.new(scope, "slow", 0)
    registry.register(db, scope, consumer, record, acquiring=True)
    clock.seconds += 16
    evict, beat = db.create_transaction(), db.create_transaction()
    assert registry.evict_dead(evict, scope) == [consumer]
    assert registry.heartbeat(beat, scope, consumer, record)
    beat.commit().wait()
    with pytest.raises(fdb.FDBError):
        evict.commit().wait()


def test_the_role_of_a_dead_guard_goes_to_the_next_sleeper(
    db: Database, keys: QueueKeys, scope: Scope, clock: ManualClock
) -> None:
    guard, record = registry.new(scope, "guard", 0)
    registry.register(db, scope, guard, record, acquiring=True)
    wakeups.register(db, keys, guard, clock=clock)
    clock.seconds += 16
    sleeper, record = registry.new(scope, "sleeper", 0)
    registry.register(db, scope, sleeper, record, acquiring=True)
    wakeups.register(db, keys, sleeper, clock=clock)
    registry.evict_dead(db, scope)
    (left,) = registry.consumers(db, keys)
    assert (left.name, left.guard) == ("sleeper", True)


@pytest.mark.parametrize("stale", [False, True])
def test_who_unregisters_leaves_nothing_behind_nor_does_a_wake_up_that_comes_late(
    db: Database, keys: QueueKeys, scope: Scope, space: fdb.Subspace, stale: bool
) -> None:
    wakeups.register(db, keys, b"the guard")
    before = {kv.key for kv in db.get_range(space.range().start, space.range().stop)}
    consumer, record = registry.new(scope, "brief", 7)
    registry.register(db, scope, consumer, record, acquiring=True)
    wakeups.register(db, keys, consumer, 7)
    tr = db.create_transaction()
    assert wakeups.wake(tr, keys, wakeups.look(tr, keys, 2)) == 1
    if not stale:
        tr.commit().wait()
    registry.unregister(db, scope, consumer, 7)
    if stale:
        tr.commit().wait()
    assert {kv.key for kv in db.get_range(space.range().start, space.range().stop)} == before


def test_a_sign_of_life_reads_as_much_beside_few_as_beside_many(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a consumer beside others, first few and then many
    read = 0
    arrive = fdb.impl.FutureKeyValueArray.wait

    def count(future: Any) -> Any:
        nonlocal read
        found = arrive(future)
        read += found[1]
        return found

    monkeypatch.setattr(fdb.impl.FutureKeyValueArray, "wait", count)
    member = Member(db, queue, "beating", 0, None)
    member.join()
    most = []
    for others in (10, 600):

        def register(tr: fdb.Transaction, others: int = others) -> None:
            scope = queue._scope(tr)
            for _ in range(others):
                registry.register(tr, scope, *registry.new(scope, "beside", 0))

        queue._run(db, register)
        most.append(0)
        for _ in range(5):
            read = 0
            assert member.beat()
            most[-1] = max(most[-1], read)
    assert most[0] <= registry.LOOKED_AT + 5
    assert most[1] <= most[0] + 5


def test_all_that_are_dead_are_found_a_few_at_a_time(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    # Given many that give no sign of life any more, and some that sleep
    scope = queue._scope(db.create_transaction())

    def register(tr: fdb.Transaction) -> None:
        for n in range(150):
            consumer, record = registry.new(scope, "gone", n % 10)
            registry.register(tr, scope, consumer, record)
            if n % 3 == 0:
                wakeups.register(tr, queue._keys, consumer, record.priority, clock)

    queue._run(db, register)
    clock.seconds += 20
    # When one that is alive beats
    member = Member(db, queue, "alive", 0, None)
    member.join()
    for _ in range(4):
        assert member.beat()
    # Then it is the only one
    assert [one.id for one in queue.consumers(db)] == [member.id]

"""No wake-up is lost, whoever holds which transaction open for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fdbqueue import Queue, Subscription
from fdbqueue.consumers import eviction, registry, wakeups
from fdbqueue.queue.internals import SubscriptionInternals
from fdbqueue.schema.consumers import ConsumerRef
from fdbqueue.schema.keys import QueueKeys, RootKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.patience import DEADLINE

Database = fdb.Database

pytestmark = pytest.mark.queue(max_attempts=None)


@dataclass
class Sleeper:
    """A consumer whose transactions are begun and committed by hand, and whose watches are what
    watches promise: fired once the key is not what the transaction saw. It takes any message, or
    those that its subscription wants."""

    db: Database
    queue: Queue
    keys: QueueKeys
    id: bytes
    priority: int = 0
    capacity: int = 1
    subscription: Subscription | None = None
    taken: int = 0
    open: fdb.Transaction | None = None
    watched: dict[bytes, bytes | None] | None = None
    """What it waits for; None while it is awake."""
    then: Callable[[], None] = field(default=lambda: None)

    @property
    def ref(self) -> ConsumerRef:
        name = self.subscription.name if self.subscription else ""
        return ConsumerRef(self.id, self.priority, subscription=name)

    @property
    def awake(self) -> bool:
        if self.watched is None:
            return True
        return any(self.db[key] != seen for key, seen in self.watched.items())

    def begin(self) -> None:
        """Look at the queue: take what there is room for, sleep if there was less."""
        tr = self.open = self.db.create_transaction()
        scope = self.queue._scope(tr)
        above = registry.superior(tr, scope, self.priority, self.ref.subscription)
        source = self.subscription or self.queue
        room = self.capacity - self.taken
        if above is not None:
            signal = wakeups.defer(tr, scope, self.ref, above)
            found = 0
        else:
            found = len(source.receive_many(tr, room)) if room else 0
            if found < room:
                signal = wakeups.register(tr, scope, self.ref, served=bool(found))
            else:
                more = bool(
                    [*SubscriptionInternals(self.subscription).levels(tr, scope, 1)]
                    if self.subscription
                    else self.queue.peek(tr)
                )
                signal = wakeups.suspend(tr, scope, self.ref, more=more)
        watched = dict(signal)

        def done() -> None:
            self.taken += found
            self.watched = watched

        self.then = done

    def leave(self) -> None:
        """Take no more, for ever."""
        self.open = self.db.create_transaction()
        wakeups.withdraw(self.open, self.keys, self.ref)

        def done() -> None:
            self.watched = {}
            self.capacity = self.taken

        self.then = done

    def commit(self) -> bool:
        """Commit what is open; a conflict means to look again."""
        assert self.open is not None
        tr, self.open = self.open, None
        try:
            tr.commit().wait()
        except fdb.FDBError as error:
            if error.code != 1020:
                raise
            return False
        self.then()
        return True


def settle(db: Database, sleepers: list[Sleeper]) -> None:
    """Let everybody who is awake act, until all sleep."""
    for _ in range(200):
        awake = [one for one in sleepers if one.awake]
        if not awake:
            return
        for one in awake:
            one.begin()
            one.commit()
    raise AssertionError("they never come to rest")


@pytest.fixture
def keys(queue: Queue, space: fdb.Subspace) -> QueueKeys:
    return RootKeys(space).queue(queue.name)


@pytest.fixture(params=["any message", "what a selector matches"])
def subscription(request: pytest.FixtureRequest, db: Database, queue: Queue) -> Subscription | None:
    """What the sleepers of a test consume: the queue, or a subscription."""
    wanted = request.param == "what a selector matches"
    return queue.subscriptions.open(db, "wanted", selector="priority < 9") if wanted else None


@pytest.fixture
def sleeper(
    db: Database, queue: Queue, keys: QueueKeys, subscription: Subscription | None
) -> Callable[..., Sleeper]:
    def make(name: str, priority: int = 0, capacity: int = 1) -> Sleeper:
        return Sleeper(db, queue, keys, name.encode(), priority, capacity, subscription)

    return make


def test_one_enqueue_wakes_one_of_64_sleepers_and_two_messages_wake_no_more_than_two(
    db: Database,
    queue: Queue,
    subscription: Subscription | None,
    sleeper: Callable[..., Sleeper],
) -> None:
    sleepers = [sleeper(f"{n:02}", capacity=2) for n in range(64)]
    settle(db, sleepers)
    queue.enqueue(db, b"1")
    assert sum(one.awake for one in sleepers) == 1
    settle(db, sleepers)
    queue.enqueue_many(db, [b"1", b"2"])
    # The second one of a subscription is woken by the first if that leaves anything.
    assert sum(one.awake for one in sleepers) == (2 if subscription is None else 1)


def test_enqueues_do_not_conflict_with_consumers_that_fall_asleep(
    db: Database, queue: Queue, sleeper: Callable[..., Sleeper]
) -> None:
    slow = db.create_transaction()
    queue.enqueue_many(slow, [b"a", b"b"])
    one, two = sleeper("one"), sleeper("two")
    settle(db, [one, two])
    one.leave()
    assert one.commit()
    slow.commit().wait()


def test_a_lower_priority_sleeps_while_a_higher_can_take(
    db: Database, queue: Queue, sleeper: Callable[..., Sleeper]
) -> None:
    low, high = sleeper("a low", capacity=9), sleeper("z high", priority=5)
    settle(db, [low, high])
    queue.enqueue_many(db, [b"1", b"2"])
    settle(db, [low, high])
    assert (low.taken, high.taken) == (1, 1), "the low one gets what the high one cannot take"
    high.capacity = 2
    queue.enqueue(db, b"3")
    assert low.awake or high.awake
    low.watched, high.watched = {}, None
    settle(db, [high])
    assert (low.taken, high.taken) == (1, 2)


def test_equal_consumers_are_served_in_turns_when_messages_come_one_by_one(
    db: Database, queue: Queue, sleeper: Callable[..., Sleeper]
) -> None:
    sleepers = [sleeper(name, capacity=100) for name in "cadb"]
    settle(db, sleepers)
    for _ in range(12):
        queue.enqueue(db, b"single")
        settle(db, sleepers)
    assert [one.taken for one in sleepers] == [3, 3, 3, 3]


REGIONS = {"eu": "region = 'eu'", "not us": "region <> 'us'", "any": None}


@pytest.fixture
def sources(db: Database, queue: Queue) -> list[Subscription | None]:
    """The queue, and subscriptions that want some of the same messages."""
    names = REGIONS.items()
    return [None, *(queue.subscriptions.open(db, name, selector=text) for name, text in names)]


def test_an_enqueue_wakes_one_sleeper_of_each_subscription_that_wants_the_message(
    db: Database, queue: Queue, keys: QueueKeys, sources: list[Subscription | None]
) -> None:
    sleepers = [
        Sleeper(db, queue, keys, b"%d" % n, subscription=source)
        for n, source in enumerate(sources * 3)
    ]
    settle(db, sleepers)
    for region, woken in (("us", {"", "any"}), ("eu", {"", "any", "eu", "not us"})):
        queue.enqueue(db, b"", headers={"region": region})
        assert sorted(one.ref.subscription for one in sleepers if one.awake) == sorted(woken)
        assert queue.receive(db, at_most_once=True) is not None
        for one in sleepers:
            one.watched = None
        settle(db, sleepers)


def test_a_sleeper_looks_again_when_its_selector_changes_and_when_it_is_removed(
    db: Database, queue: Queue, keys: QueueKeys, sources: list[Subscription | None]
) -> None:
    sleepers = [Sleeper(db, queue, keys, b"%d" % n, subscription=sources[1]) for n in range(3)]
    queue.enqueue(db, b"", headers={"region": "us"})
    settle(db, sleepers)
    assert sum(one.taken for one in sleepers) == 0
    europe = sources[1]
    assert europe is not None
    europe.set_selector(db, "region = 'us'")
    settle(db, sleepers)
    assert sum(one.taken for one in sleepers) == 1
    europe.remove(db)
    assert all(one.awake for one in sleepers), "they learn that it is gone"
    again = queue.subscriptions.open(db, "eu", selector="region = 'eu'")
    late = Sleeper(db, queue, keys, b"late", subscription=again)
    settle(db, [late])
    queue.enqueue(db, b"", headers={"region": "eu"})
    assert late.awake, "it relies on no guard of the one before"


def test_sleepers_look_again_when_a_change_of_options_ends_a_pause(
    db: Database, queue: Queue, sleeper: Callable[..., Sleeper]
) -> None:
    queue.enqueue_many(db, [b"", b""])
    queue.set_options(db, paused=True)
    sleepers = [sleeper(name) for name in ("one", "two")]
    settle(db, sleepers)
    assert [one.taken for one in sleepers] == [0, 0]
    queue.set_options(db, paused=False)
    settle(db, sleepers)
    assert [one.taken for one in sleepers] == [1, 1]


def test_a_guard_that_can_take_no_more_wakes_the_next_for_what_it_leaves(
    db: Database, queue: Queue, sleeper: Callable[..., Sleeper]
) -> None:
    guard, other = sleeper("guard"), sleeper("other")
    settle(db, [guard, other])
    queue.enqueue(db, b"1")
    assert (guard.awake, other.awake) == (True, False)
    settle(db, [guard, other])
    assert (guard.taken, other.taken) == (1, 0)
    queue.enqueue(db, b"2")
    assert (guard.awake, other.awake) == (True, False), "a full guard still watches"
    settle(db, [guard, other])
    assert (guard.taken, other.taken) == (1, 1)


def test_a_dead_superior_is_waited_for_no_longer_than_its_sign_of_life_counts(
    db: Database, queue: Queue, clock: ManualClock, sleeper: Callable[..., Sleeper]
) -> None:
    high, low = sleeper("high", priority=1), sleeper("low")
    settle(db, [high, low])
    queue.enqueue(db, b"1")
    low.watched = None
    settle(db, [low])
    assert low.taken == 0
    clock.seconds += 16
    low.watched = None
    settle(db, [low])
    assert low.taken == 1
    scope = queue._scope(db.create_transaction())
    assert eviction.evict_dead(db, scope).consumers == [(queue.name, high.id)]
    assert [one.id for one in registry.consumers(db, scope)] == [low.id]


def test_a_receiver_that_waits_gets_its_turn_beside_idle_consumers(
    db: Database,
    queue: Queue,
    keys: QueueKeys,
    subscription: Subscription | None,
    sleeper: Callable[..., Sleeper],
) -> None:
    asleep = keys.sleeper.under(subscription.name if subscription else "")
    idle = sleeper("idle", capacity=100)
    settle(db, [idle])
    got: list[object] = []
    source = subscription or queue
    receiver = threading.Thread(target=lambda: got.append(source.receive(db, wait=20)))
    receiver.start()
    while len(db.get_range(asleep.start, asleep.stop)) < 2:
        assert receiver.is_alive()
        time.sleep(0.02)
    for _ in range(2):
        queue.enqueue(db, b"single")
        if idle.awake:
            settle(db, [idle])
    receiver.join(DEADLINE)
    assert got[0] is not None
    assert idle.taken == 1


def test_no_sleeper_is_woken_for_what_its_selector_does_not_match(
    db: Database, queue: Queue, keys: QueueKeys, sources: list[Subscription | None]
) -> None:
    sleepers = [Sleeper(db, queue, keys, b"%d" % n, subscription=sources[1]) for n in range(4)]
    settle(db, sleepers)
    queue.enqueue(db, b"", headers={"region": "us"})
    queue.enqueue_many(db, [b""] * 20)
    held = queue.receive(db)
    assert held is not None
    queue.release(db, held)
    assert not any(one.awake for one in sleepers)


def test_who_can_take_no_more_wakes_another_for_what_it_leaves(
    db: Database, queue: Queue, sleeper: Callable[..., Sleeper]
) -> None:
    # Given a guard that took what it can, and made the next one the guard
    guard, heir, third, full = (sleeper(name) for name in ("guard", "heir", "third", "zealous"))
    settle(db, [guard, heir, third])
    for payload in (b"1", b"2", b"3"):
        queue.enqueue(db, payload)
    guard.begin()
    assert guard.commit()
    assert (heir.awake, third.awake) == (True, False)
    # When another takes what it can, then one more is woken for what is left
    full.begin()
    assert full.commit()
    assert (guard.taken, full.taken) == (1, 1)
    assert third.awake


def test_a_guard_that_leaves_overlooks_nobody_who_falls_asleep(
    db: Database, queue: Queue, sleeper: Callable[..., Sleeper]
) -> None:
    # Given a guard that leaves while another goes to sleep, which relies on it
    guard, late = sleeper("guard"), sleeper("late")
    settle(db, [guard])
    late.begin()
    guard.leave()
    # When both commit, then one of them has to look again
    assert [late.commit(), guard.commit()] == [True, False]
    guard.leave()
    assert guard.commit()
    assert late.awake

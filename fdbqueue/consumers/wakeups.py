"""Wake-ups: no wake-up is lost, none wakes a herd, and no enqueue conflicts because of them.

A snapshot read does not tell an enqueue which consumers sleep when it commits, and a read with a
conflict would abort business transactions whenever a consumer goes to sleep. So everything that
becomes ready also adds to one key, CHANGE, blindly, and exactly one sleeping consumer watches that
key: the guard. Each other sleeper watches its own entry on the list of sleepers; to remove the
entry is to wake it. A late wake-up for a consumer that has left therefore leaves nothing behind.

- A consumer that goes to sleep reads GUARD with a conflict, and becomes the guard if there is none.
  So while consumers sleep, there is a guard.
- The guard fetches whenever CHANGE differs from its value at the last fetch. So it notices every
  message that commits after that, however early the message's transaction began.
- A transaction of its own sets the watches, and compares the values with those of the fetch. A
  watch is an ordinary read: within the fetch, every arrival would abort it.
- The list is ordered by priority, then by time waited. A consumer that was served goes to the end.
  If it is the guard, it makes the consumer that has waited longest the guard, and wakes it. So
  equal consumers take turns, even if messages come one by one.
- Otherwise the guard keeps its role, awake or asleep, until it leaves, or can take no more while
  more is ready. Then it makes the next sleeper the guard, and wakes it. It reads the list with a
  conflict, so it overlooks no consumer that falls asleep at the same time.

The consumers of a subscription have a list, a guard and a CHANGE of their own, to which only what
the subscription wants is added; those that take any message share the ones of the name "".

One message for many sleepers wakes only the guard. An operation that makes several messages ready
also wakes one more of those that take any message for each further one; that only saves time, so
stale reads do no harm. A dead guard is replaced when the next consumer goes to sleep, or when it is
evicted; until then, sleepers fetch by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import CorruptData
from ..messages.delivery import queue_limits
from ..schema.change_counters import ONE
from ..schema.consumers import ConsumerRecord, ConsumerRef, Listed
from ..schema.keys import QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from . import sessions
from .consumer_states import ConsumerState
from .watching import Signal, Watched

MAX_WOKEN = 100
"""Consumers that one transaction wakes at most; those wake the next."""


class Sleeper(NamedTuple):
    """A consumer that sleeps, and the version since which it has waited."""

    consumer: ConsumerRef
    since: int

    def key(self, keys: QueueKeys) -> bytes:
        """Its entry on the list."""
        of = self.consumer
        return keys.sleeper(of.subscription, of.priority, self.since, of.id)


class SleeperReads(NamedTuple):
    """The reads of whom to wake, issued and not awaited; None if only the guard wakes."""

    others: int
    sleepers: fdb.FDBRange | None = None
    guard: fdb.Value | None = None


def reads(tr: fdb.Transaction, keys: QueueKeys, count: int) -> SleeperReads:
    """Issue snapshot reads of whom to wake besides the guard for ``count`` messages; nothing for
    one message, for which the guard wakes by itself."""
    others = min(count - 1, MAX_WOKEN)
    if others < 1:
        return SleeperReads(0)
    return SleeperReads(
        # One more than are to be woken, since the guard may be among them, and wakes anyway.
        others,
        _first(tr.snapshot, keys, "", others + 1),
        tr.snapshot.get(keys.guard("")),
    )


@transactional
def wake(tr: fdb.Transaction, keys: QueueKeys, reads: SleeperReads) -> int:
    """Wake the sleepers that were read; returns how many. Writes blindly."""
    if reads.sleepers is None or reads.guard is None:
        return 0
    role = role_of(reads.guard)
    guard = None if role is None else role.id
    chosen = [kv.key for kv in reads.sleepers if keys.sleeper.parse(kv.key)[-1] != guard]
    for key in chosen[: reads.others]:
        # If the sleeper has left or moved meanwhile, this removes nothing.
        del tr[key]
    return len(chosen[: reads.others])


@transactional
def ring(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Let the guards look, for another reason than a message. One round trip at snapshot
    isolation: that of a subscription may come to its role too late to be told."""
    guards = keys.guard.rows
    for kv in tr.snapshot.get_range(guards.start, guards.stop):
        tr.add(keys.changes_of(*keys.guard.parse(kv.key)), ONE)
    tr.add(keys.change, ONE)


@transactional
def wake_all(tr: fdb.Transaction, keys: QueueKeys, subscription: str) -> None:
    """Wake all consumers of a subscription that ends: from now on they are on no list. Writes
    blindly."""
    for listed in (keys.sleeper.under(subscription), keys.state.under(subscription)):
        tr.clear_range(listed.start, listed.stop)
    del tr[keys.guard(subscription)]
    del tr[keys.changes_of(subscription)]


@transactional
def move(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, state: ConsumerState) -> None:
    """Move an acquiring consumer that is awake to one list. One round trip; conflicts with its
    eviction."""
    _leave_lists(tr, scope.keys, consumer, _held(tr, scope.keys, consumer))
    _list(tr, scope, consumer, state)


@transactional
def register(
    tr: fdb.Transaction,
    scope: Scope,
    consumer: ConsumerRef,
    *,
    served: bool = False,
    since: int | None = None,
) -> Signal:
    """Go to sleep as interested, and become the guard if there is none. Returns what to wait for.

    served: whether the consumer takes something in the same transaction; then it goes to the end.
    since: the version since which it has waited; None to keep what the list says.

    The caller has taken, in the same transaction, all that was ready. One round trip, or two to
    check a guard of another process. Conflicts with a change of the guard, and with the moves of a
    successor.
    """
    keys = scope.keys
    key, changes = keys.guard(consumer.subscription), keys.changes_of(consumer.subscription)
    # With a conflict: of two that find no guard, one must see the other, or both would watch and
    # none be the guard.
    guard, held = tr.get(key), _held(tr, keys, consumer)
    # CHANGE at snapshot isolation: every enqueue adds to it. What commits later differs from this
    # value, and fires the watch.
    change, sleepers = tr.snapshot.get(changes), _first(tr.snapshot, keys, consumer.subscription, 2)
    if served:
        since = scope.clock.version(tr)
    asleep = _sleep(tr, scope, consumer, held, since)
    role = role_of(guard)
    mine = role is not None and role.id == consumer.id
    # A dead guard watches nothing: this consumer takes its place.
    if role is not None and not mine and _alive(tr, scope, role, consumer):
        return (asleep,)
    successors = [
        one
        for one in _others(keys, sleepers, consumer)
        if one.consumer.priority >= consumer.priority
    ]
    if served and successors:
        # A sleeper that leaves or is woken meanwhile cannot succeed.
        tr.add_read_conflict_key(successors[0].key(keys))
        _appoint(tr, keys, successors[0])
        return (asleep,)
    if not mine:
        tr[key] = consumer.pack()
    return asleep, Watched(changes, change.value), *_freed(tr, scope)


@transactional
def suspend(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, *, more: bool) -> Signal:
    """Take no more for now; if ``more`` is ready, wake another consumer for it.

    A guard that leaves nothing behind stays the guard, which wakes nobody: it waits for what this
    returns, and then suspends again with ``more``. For any other consumer this returns nothing.
    One round trip. Conflicts with a change of the guard; if the guard hands over, also with
    consumers that go to sleep or leave at the same time.
    """
    keys = scope.keys
    changes = keys.changes_of(consumer.subscription)
    guard = tr.get(keys.guard(consumer.subscription))
    sleepers = _first(tr.snapshot, keys, consumer.subscription, 2)
    change = tr.snapshot.get(changes)
    move(tr, scope, consumer, ConsumerState.NOT_INTERESTED)
    role = role_of(guard)
    guards = role is not None and role.id == consumer.id
    if guards and not more:
        return Watched(changes, change.value), *_freed(tr, scope)
    if guards:
        _hand_over(tr, keys, consumer, sleepers)
    elif more:
        for one in _others(keys, sleepers, consumer)[:1]:
            del tr[one.key(keys)]
    return ()


@transactional
def defer(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, superior: Sleeper) -> Signal:
    """Go to sleep and leave what is ready to a consumer of higher priority.

    superior: that consumer; the caller has read its state with a conflict. It succeeds a guard, so
        that the messages which the guard has noticed are not forgotten.
    """
    guard = tr.get(scope.keys.guard(consumer.subscription))
    held = _held(tr, scope.keys, consumer)
    asleep = _sleep(tr, scope, consumer, held)
    role = role_of(guard)
    if role is None or role.id == consumer.id:
        _appoint(tr, scope.keys, superior)
    return (asleep,)


@transactional
def withdraw(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> None:
    """Leave all lists; a guard hands over to the next sleeper. One round trip; conflicts as
    ``suspend``."""
    guard = tr.get(keys.guard(consumer.subscription))
    sleepers = _first(tr.snapshot, keys, consumer.subscription, 2)
    _leave_lists(tr, keys, consumer, _held(tr, keys, consumer))
    if not consumer.session:
        del tr[keys.consumer(b"", consumer.id)]
    role = role_of(guard)
    if role is not None and role.id == consumer.id:
        _hand_over(tr, keys, consumer, sleepers)


@transactional
def browse(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef) -> Signal:
    """List a consumer that takes nothing, and returns what it waits for: anything that becomes
    ready, and that its subscription wants. It is no guard, and wakes nobody. No conflicts."""
    changes = scope.keys.changes_of(consumer.subscription)
    change = tr.snapshot.get(changes)
    _list(tr, scope, consumer, ConsumerState.NON_ACQUIRING)
    listed = Watched(
        _state(scope.keys, consumer, ConsumerState.NON_ACQUIRING), Listed(consumer.session).pack()
    )
    return listed, Watched(changes, change.value)


def _freed(tr: fdb.Transaction, scope: Scope) -> Signal:
    """What else a guard waits for: the end of a lease, if the queue may have no more in flight.

    The caller has taken what it takes. One round trip, none in a queue without a limit.
    """
    if not queue_limits.crowded(tr, scope):
        return ()
    return (Watched(scope.keys.in_flight, tr.snapshot.get(scope.keys.in_flight).value),)


def role_of(guard: fdb.Value | fdb.KeyValue) -> ConsumerRef | None:
    """Which consumer is the guard; None without one."""
    try:
        return None if guard.value is None else ConsumerRef.unpack(guard.value)
    except CorruptData:
        return None  # The next consumer that goes to sleep becomes the guard.


def _alive(tr: fdb.Transaction, scope: Scope, guard: ConsumerRef, beside: ConsumerRef) -> bool:
    """Whether a guard is alive; one of the own process is."""
    if guard.session and guard.session == beside.session:
        return True
    return sessions.alive(tr, scope.root, scope.keys, scope.clock, [guard])[0]


def _first(tr: fdb.TransactionRead, keys: QueueKeys, subscription: str, limit: int) -> fdb.FDBRange:
    asleep = keys.sleeper.under(subscription)
    return tr.get_range(
        asleep.start, asleep.stop, limit=limit, streaming_mode=fdb.StreamingMode.exact
    )


def _others(keys: QueueKeys, sleepers: fdb.FDBRange, consumer: ConsumerRef) -> list[Sleeper]:
    found = []
    for kv in sleepers:
        subscription, priority, since, other = keys.sleeper.parse(kv.key)
        if other != consumer.id:
            found.append(Sleeper(ConsumerRef(other, priority, kv.value, subscription), since))
    return found


def _hand_over(
    tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef, sleepers: fdb.FDBRange
) -> None:
    """Make the next sleeper the guard. Conflicts on the list as far as it was read."""
    asleep = keys.sleeper.under(consumer.subscription)
    found = sleepers.to_list()
    end = found[-1].key + b"\x00" if len(found) == 2 else asleep.stop
    # A consumer that goes to sleep right now sees the old guard and relies on it: one of the two
    # must fail.
    tr.add_read_conflict_range(asleep.start, end)
    successors = _others(keys, sleepers, consumer)
    if successors:
        _appoint(tr, keys, successors[0])
    else:
        del tr[keys.guard(consumer.subscription)]


def _appoint(tr: fdb.Transaction, keys: QueueKeys, successor: Sleeper) -> None:
    """Make a sleeper the guard and wake it. The caller conflicts with its moves."""
    tr[keys.guard(successor.consumer.subscription)] = successor.consumer.pack()
    del tr[successor.key(keys)]


def _held(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> fdb.Value:
    """Issue the read of a consumer's interested state. Conflicts with its eviction."""
    return tr.get(_state(keys, consumer, ConsumerState.INTERESTED))


def _state(keys: QueueKeys, consumer: ConsumerRef, state: ConsumerState) -> bytes:
    return keys.state(consumer.subscription, state, consumer.priority, consumer.id)


def _sleep(
    tr: fdb.Transaction,
    scope: Scope,
    consumer: ConsumerRef,
    held: fdb.Value,
    since: int | None = None,
) -> Watched:
    """List a consumer as interested and asleep, ``since`` a version (None: as before, or now);
    returns what to wait for."""
    keys = scope.keys
    if since is None:
        since = since_of(held.value)
    if since is None:
        since = scope.clock.version(tr)
    _leave_lists(tr, keys, consumer, held)
    entry = Sleeper(consumer, since).key(keys)
    tr[entry] = consumer.session
    _list(tr, scope, consumer, ConsumerState.INTERESTED, since)
    return Watched(entry, consumer.session)


def _list(
    tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, state: ConsumerState, since: int = 0
) -> None:
    """Add a consumer to a list, with a sign of life if it has no session."""
    tr[_state(scope.keys, consumer, state)] = Listed(consumer.session, since).pack()
    if not consumer.session:
        at = sessions.now(tr, scope.clock)
        record = ConsumerRecord("", consumer.priority, at.wall_ms, *at, consumer.subscription)
        tr[scope.keys.consumer(b"", consumer.id)] = record.pack()


def since_of(listed: bytes | None) -> int | None:
    """The version since which a consumer waits, by its interested state."""
    return None if listed is None else Listed.unpack(listed).since


def _leave_lists(
    tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef, held: fdb.Value
) -> None:
    since = since_of(held.value)
    if since is not None:
        del tr[Sleeper(consumer, since).key(keys)]
    # All lists: a late wake-up may have left it on two.
    for state in ConsumerState:
        del tr[_state(keys, consumer, state)]

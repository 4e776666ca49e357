"""Waking consumers that sleep: no wake-up is lost, no herd, and no enqueue conflicts for it.

An enqueue cannot know by a snapshot read who sleeps when it commits, and reading it with a conflict
would make business transactions fail whenever a consumer goes to sleep. So everything that becomes
ready also adds to one key, CHANGE, blindly, and of the consumers that sleep exactly one watches it:
the guard. Each of the others watches its own place on the list of sleepers, and is woken by its
removal. So a wake-up that comes too late, for a consumer that has left, leaves nothing behind.

- A consumer that goes to sleep reads GUARD with a conflict, and becomes the guard if there is none.
  So while any consumer sleeps there is a guard.
- The guard fetches whenever CHANGE is not what it read at its last fetch, so a message that commits
  at any time after that is noticed, however early its transaction began.
- Watches are set in a transaction of their own, which compares what it finds with what the fetch
  saw: a watch is an ordinary read, and in the fetch itself every arrival would abort it.
- The list is ordered by priority, then by how long a consumer has waited. One that has been served
  goes to the end, and if it is the guard, it makes the one that has waited longest the guard and
  wakes it: so equal consumers are served in turns, also where messages come one by one.
- Else the guard keeps its role, awake or asleep, until it leaves, or can take no more while more is
  ready. Then it makes the next sleeper the guard, and wakes it; it reads the list with a conflict,
  so that it overlooks nobody who falls asleep at the same time.

One message for many sleepers wakes the guard alone. An operation that makes several ready wakes as
many others as there are messages besides; that only saves time, so stale reads do no harm. A guard
that died is replaced by the next consumer that goes to sleep, or when it is evicted: until then,
sleepers fetch by themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ..errors import CorruptData
from ..schema import once
from ..schema.codec.atomic import pack_index
from ..schema.codec.consumers import (
    ConsumerRecord,
    ConsumerRef,
    pack_consumer,
    pack_guard,
    pack_state,
    unpack_guard,
    unpack_state,
)
from ..schema.keys import Kind, OnceKeys, QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from . import sessions
from .states import ACQUIRING, ConsumerState

MAX_WOKEN = 100
"""Consumers that one transaction wakes at most; those wake the next."""


class Watched(NamedTuple):
    """A key to watch, and what it was when the consumer went to sleep."""

    key: bytes
    seen: bytes | None


Signal: TypeAlias = tuple[Watched, ...]
"""What a sleeper waits for: it wakes when one of these is not what it was. To be armed."""


class Watch(Protocol):
    """What is armed: a future of the bindings, or something that has happened already."""

    def on_ready(self, callback: Callable[[Watch], object]) -> object:
        """Call back once it has fired."""

    def cancel(self) -> object:
        """Wait no longer."""


class _Fired:
    """A watch of a key that had changed before it could be watched."""

    def on_ready(self, callback: Callable[[Watch], object]) -> object:
        return callback(self)

    def cancel(self) -> object:
        return None


class Sleeper(NamedTuple):
    """A consumer that waits, and since which version."""

    consumer: ConsumerRef
    since: int

    def key(self, keys: QueueKeys) -> bytes:
        """Its place on the list."""
        return keys.sleeper(self.consumer.priority, self.since, self.consumer.id)


class Reads(NamedTuple):
    """What ``reads`` issued; None where no other is to be woken."""

    others: int
    sleepers: fdb.FDBRange | None = None
    guard: fdb.Value | None = None


def reads(tr: fdb.Transaction, keys: QueueKeys, count: int) -> Reads:
    """Issue snapshot reads of whom to wake, besides the guard, for ``count`` messages.

    Reads nothing for one message: for that the guard wakes by itself.
    """
    others = min(count - 1, MAX_WOKEN)
    if others < 1:
        return Reads(0)
    return Reads(others, _first(tr.snapshot, keys, others + 1), tr.snapshot.get(keys.guard))


@transactional
def wake(tr: fdb.Transaction, keys: QueueKeys, reads: Reads) -> int:
    """Wake the consumers that were read; returns how many. Writes blindly."""
    if reads.sleepers is None or reads.guard is None:
        return 0
    role = role_of(reads.guard)
    guard = None if role is None else role.id
    chosen = [kv.key for kv in reads.sleepers if keys.parse_sleeper(kv.key)[-1] != guard]
    for key in chosen[: reads.others]:
        # If it has left or moved meanwhile, there is nothing to remove.
        del tr[key]
    return len(chosen[: reads.others])


@transactional
def ring(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Let the guard fetch, for another reason than a message. Writes blindly."""
    tr.add(keys.change, pack_index(1))


@transactional
def move(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, state: ConsumerState) -> None:
    """Put an acquiring consumer that is awake on one list, whichever it stands on.

    One round trip; conflicts with its eviction.
    """
    _rise(tr, scope.keys, consumer, _held(tr, scope.keys, consumer))
    _enter(tr, scope, consumer, state)


@transactional
def register(
    tr: fdb.Transaction,
    scope: Scope,
    consumer: ConsumerRef,
    *,
    served: bool = False,
    since: int | None = None,
) -> Signal:
    """Go to sleep on the list of the interested, as the guard if there is none.

    served: whether the consumer takes something in the same transaction: then it goes to the end.
    since: the version since which it has waited, if it knows better.

    The caller has taken, in the same transaction, all that was ready. Returns what to wait for.
    One round trip, or a second one to see whether a guard of another process is alive; conflicts
    with a change of the guard, and where a guard that was served hands over, with the moves of its
    heir.
    """
    keys = scope.keys
    guard, held = tr.get(keys.guard), _held(tr, keys, consumer)
    change, sleepers = tr.snapshot.get(keys.change), _first(tr.snapshot, keys, 2)
    if served:
        since = scope.clock.version(tr)
    asleep = _lie_down(tr, scope, consumer, held, since)
    role = role_of(guard)
    mine = role is not None and role.id == consumer.id
    if role is not None and not mine and _alive(tr, scope, role, consumer):
        return (asleep,)
    heirs = [
        heir
        for heir in _others(keys, sleepers, consumer)
        if heir.consumer.priority >= consumer.priority
    ]
    if served and heirs:
        # One that leaves or is woken meanwhile is no heir.
        tr.add_read_conflict_key(heirs[0].key(keys))
        _call(tr, keys, heirs[0])
        return (asleep,)
    if not mine:
        tr[keys.guard] = pack_guard(consumer)
    return asleep, Watched(keys.change, change.value)


@transactional
def suspend(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, *, more: bool) -> Signal:
    """Take no more for now. With ``more`` left that is ready, somebody else is woken for it.

    A guard that has left nothing stays the guard, so that nobody need be woken to replace it: it
    waits for what is returned here (nothing where it is not the guard) and then suspends again,
    with ``more``. One round trip; conflicts with a change of the guard, and for a guard that gives
    its role away with consumers that go to sleep or leave at the same time.
    """
    keys = scope.keys
    guard, sleepers = tr.get(keys.guard), _first(tr.snapshot, keys, 2)
    change = tr.snapshot.get(keys.change)
    move(tr, scope, consumer, ConsumerState.NOT_INTERESTED)
    role = role_of(guard)
    guards = role is not None and role.id == consumer.id
    if guards and not more:
        return (Watched(keys.change, change.value),)
    if guards:
        _hand_over(tr, keys, consumer, sleepers)
    elif more:
        for heir in _others(keys, sleepers, consumer)[:1]:
            del tr[heir.key(keys)]
    return ()


@transactional
def defer(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, superior: Sleeper) -> Signal:
    """Go to sleep and leave what is ready to a consumer of higher priority.

    superior: that consumer; the caller has read its state with a conflict.

    What a guard knows to be ready must not be forgotten: the superior becomes the guard.
    """
    guard, held = tr.get(scope.keys.guard), _held(tr, scope.keys, consumer)
    asleep = _lie_down(tr, scope, consumer, held)
    role = role_of(guard)
    if role is None or role.id == consumer.id:
        _call(tr, scope.keys, superior)
    return (asleep,)


@transactional
def withdraw(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> None:
    """Leave all lists; a guard hands its role to the next sleeper and wakes it.

    One round trip; conflicts as ``suspend``.
    """
    guard, sleepers = tr.get(keys.guard), _first(tr.snapshot, keys, 2)
    _rise(tr, keys, consumer, _held(tr, keys, consumer))
    if not consumer.session:
        del tr[keys.consumer(b"", consumer.id)]
    role = role_of(guard)
    if role is not None and role.id == consumer.id:
        _hand_over(tr, keys, consumer, sleepers)


@transactional
def changes(tr: fdb.Transaction, keys: QueueKeys) -> Signal:
    """What tells when something becomes ready, for one that stands on no list. No conflicts."""
    return (Watched(keys.change, tr.snapshot.get(keys.change).value),)


def arm(db: fdb.Database, signal: Signal, timeout: float | None = None) -> list[Watch]:
    """Watch what a sleeper waits for, in a transaction of its own; what has changed has fired.

    timeout: seconds that it may take; then ``OperationTimedOut`` is raised.
    """
    if not signal:
        return []
    unrecorded = OnceKeys(b"", timeout)
    return once.run(db, unrecorded, lambda tr: _watch(tr, signal), wrote=lambda _: False)


def _watch(tr: fdb.Transaction, signal: Signal) -> list[Watch]:
    values = [tr.snapshot.get(key) for key, _ in signal]
    return [
        tr.watch(key) if value.value == seen else _Fired()
        for (key, seen), value in zip(signal, values, strict=True)
    ]


def wait(watches: Sequence[Watch], seconds: float) -> bool:
    """Wait until a watch fires, for at most ``seconds``; returns whether one did. An error
    counts as fired: the sleeper then fetches again, and so loses nothing."""
    fired = threading.Event()
    for watch in watches:
        watch.on_ready(lambda _: fired.set())
    woken = fired.wait(seconds)
    for watch in watches:
        watch.cancel()
    return woken


def role_of(guard: fdb.Value) -> ConsumerRef | None:
    """Which consumer is the guard; None without one."""
    try:
        return None if guard.value is None else unpack_guard(guard.value)
    except CorruptData:
        return None  # The next consumer that goes to sleep takes its place.


def _alive(tr: fdb.Transaction, scope: Scope, guard: ConsumerRef, beside: ConsumerRef) -> bool:
    """Whether a guard lives; that of the own process does."""
    if guard.session and guard.session == beside.session:
        return True
    return sessions.alive(tr, scope.root, scope.keys, scope.clock, [guard])[0]


def _first(tr: fdb.TransactionRead, keys: QueueKeys, limit: int) -> fdb.FDBRange:
    asleep = keys.kind(Kind.SLEEPER)
    return tr.get_range(
        asleep.start, asleep.stop, limit=limit, streaming_mode=fdb.StreamingMode.exact
    )


def _others(keys: QueueKeys, sleepers: fdb.FDBRange, consumer: ConsumerRef) -> list[Sleeper]:
    found = []
    for kv in sleepers:
        priority, since, other = keys.parse_sleeper(kv.key)
        if other != consumer.id:
            found.append(Sleeper(ConsumerRef(other, priority, kv.value), since))
    return found


def _hand_over(
    tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef, sleepers: fdb.FDBRange
) -> None:
    """Make the next sleeper the guard. The conflict is on the list as far as it was read."""
    asleep = keys.kind(Kind.SLEEPER)
    found = sleepers.to_list()
    end = found[-1].key + b"\x00" if len(found) == 2 else asleep.stop
    tr.add_read_conflict_range(asleep.start, end)
    heirs = _others(keys, sleepers, consumer)
    if heirs:
        _call(tr, keys, heirs[0])
    else:
        del tr[keys.guard]


def _call(tr: fdb.Transaction, keys: QueueKeys, heir: Sleeper) -> None:
    """Make a sleeper the guard and wake it; the caller conflicts with its moves, so it is there."""
    tr[keys.guard] = pack_guard(heir.consumer)
    del tr[heir.key(keys)]


def _held(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> fdb.Value:
    """Issue the read of where a consumer sleeps, if it does. Conflicts with its eviction."""
    return tr.get(keys.state(ConsumerState.INTERESTED, consumer.priority, consumer.id))


def _lie_down(
    tr: fdb.Transaction,
    scope: Scope,
    consumer: ConsumerRef,
    held: fdb.Value,
    since: int | None = None,
) -> Watched:
    """Stand on the list of the interested, and sleep, since now or where None as before; returns
    what to wait for."""
    keys = scope.keys
    if since is None:
        since = since_of(held.value)
    if since is None:
        since = scope.clock.version(tr)
    _rise(tr, keys, consumer, held)
    place = keys.sleeper(consumer.priority, since, consumer.id)
    tr[place] = consumer.session
    _enter(tr, scope, consumer, ConsumerState.INTERESTED, since)
    return Watched(place, consumer.session)


def _enter(
    tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef, state: ConsumerState, since: int = 0
) -> None:
    """Write a consumer onto a list; one without a session gives its own sign of life with it."""
    listed = scope.keys.state(state, consumer.priority, consumer.id)
    tr[listed] = pack_state(consumer.session, since)
    if not consumer.session:
        at = sessions.now(tr, scope.clock)
        record = ConsumerRecord("", consumer.priority, at.wall_ms, *at)
        tr[scope.keys.consumer(b"", consumer.id)] = pack_consumer(record)


def since_of(listed: bytes | None) -> int | None:
    """Since when a consumer waits, by its entry on the list of the interested."""
    return None if listed is None else unpack_state(listed)[1]


def _rise(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef, held: fdb.Value) -> None:
    """Leave all lists of acquiring consumers."""
    since = since_of(held.value)
    if since is not None:
        del tr[keys.sleeper(consumer.priority, since, consumer.id)]
    for state in ACQUIRING:
        del tr[keys.state(state, consumer.priority, consumer.id)]

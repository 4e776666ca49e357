"""Waking consumers that sleep: no wake-up is lost, no herd, and no enqueue conflicts for it.

An enqueue cannot know by a snapshot read who sleeps when it commits, and reading it with a
conflict would make business transactions fail whenever some consumer goes to sleep. So everything
that becomes ready also adds to one key, CHANGE, blindly (``queue.life``), and of the consumers
that sleep exactly one watches it: the guard. Each of the others watches its own place on the list
of those who sleep, and is woken by its removal. So a wake-up that comes too late, for a consumer
that has left, writes nothing that stays.

- Whoever goes to sleep reads GUARD with a conflict, and becomes the guard if there is none. So as
  long as somebody sleeps there is a guard.
- The guard looks at the queue whenever CHANGE is not what its last look saw, so a message that
  commits at any time after the look is noticed, however early its transaction began.
- Watches are set in a transaction of their own, which compares what it finds with what the look
  saw: a watch is an ordinary read, and in the look's own transaction every arrival would abort it.
- The list is in the order of priority, and then of how long a consumer has waited. One that has
  been served goes to the end, and if it is the guard, makes the one that has waited longest the
  guard and wakes it: so equal consumers are served in turns, also where messages come one by one.
- Else the guard keeps the role, awake or asleep, until it leaves, or can take no more while more is
  ready. Then it makes the next sleeper the guard, and wakes it; it reads the list with a conflict,
  so that nobody who falls asleep at the same time is overlooked.

One message for many sleepers wakes the guard alone. Who makes more than one message ready wakes as
many others as there are messages besides; that only saves time, so stale reads do no harm.
A guard that died is replaced when its sign of life is old: until then, sleepers find messages when
they look by themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ..schema import once
from ..schema.codec.atomic import pack_index, unpack_index
from ..schema.codec.consumers import Beat, pack_beat, unpack_beat
from ..schema.keys import Kind, OnceKeys, QueueKeys
from ..store.binding import fdb, transactional
from ..store.clocks import SYSTEM_CLOCK, VERSIONS_PER_SECOND, Clock
from .states import ACQUIRING, ConsumerState

MAX_WOKEN = 100
"""Consumers that one transaction wakes at most; those wake the next."""
DEAD_SECONDS = 15.0
"""How old, by both clocks, the last sign of life of a consumer is that counts as dead."""


class Watched(NamedTuple):
    """A key to watch, and what it was when somebody went to sleep."""

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
    """A consumer that waits: its place on the list."""

    priority: int
    since: int
    consumer: bytes


class Looked(NamedTuple):
    """The reads of ``look``, issued and not awaited; None where nobody is to be woken."""

    others: int
    waiting: fdb.FDBRange | None = None
    guard: fdb.Value | None = None


def look(tr: fdb.Transaction, keys: QueueKeys, count: int) -> Looked:
    """Issue snapshot reads of whom to wake, besides the guard, for ``count`` messages.

    Reads nothing for one message: for that the guard wakes by itself.
    """
    others = min(count - 1, MAX_WOKEN)
    if others < 1:
        return Looked(0)
    return Looked(others, _first(tr.snapshot, keys, others + 1), tr.snapshot.get(keys.guard))


@transactional
def wake(tr: fdb.Transaction, keys: QueueKeys, looked: Looked) -> int:
    """Wake the consumers that ``look`` found; returns how many. Writes blindly."""
    if looked.waiting is None or looked.guard is None:
        return 0
    guard = _named(looked.guard)
    chosen = [kv.key for kv in looked.waiting if keys.parse_sleeper(kv.key)[-1] != guard]
    for key in chosen[: looked.others]:
        # If it has left or moved meanwhile, there is nothing to remove.
        del tr[key]
    return len(chosen[: looked.others])


@transactional
def ring(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Let the guard look at the queue, for another reason than a message. Writes blindly."""
    tr.add(keys.change, pack_index(1))


@transactional
def move(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int,
    state: ConsumerState,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Put an acquiring consumer that is awake on one list, whichever it stands on.

    One round trip; conflicts with its eviction.
    """
    _rise(tr, keys, consumer, priority, _held(tr, keys, consumer, priority))
    tr[keys.state(state, priority, consumer)] = pack_beat(now(tr, clock))


@transactional
def register(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int = 0,
    clock: Clock = SYSTEM_CLOCK,
    *,
    served: bool = False,
    since: int | None = None,
) -> Signal:
    """Go to sleep: stand on the list of the interested, as the guard if there is none.

    served: whether the consumer takes something in the same transaction: then it goes to the end.
    since: the version since when it has waited, where it knows better.

    The caller has taken, in the same transaction, all that was ready. Returns what to wait for.
    One round trip; conflicts with a change of the guard, and where a guard that was served hands
    over, with the moves of its heir.
    """
    guard, held = tr.get(keys.guard), _held(tr, keys, consumer, priority)
    change, sleepers = tr.snapshot.get(keys.change), _first(tr.snapshot, keys, 2)
    if served:
        since = now(tr, clock).version
    asleep = _lie_down(tr, keys, consumer, priority, held, clock, since)
    value = guard.value
    mine = value is not None and unpack_beat(value)[1] == consumer
    if not (mine or value is None or dead(unpack_beat(value)[0], now(tr, clock))):
        return (asleep,)
    heirs = [heir for heir in _others(keys, sleepers, consumer) if heir.priority >= priority]
    if served and heirs:
        # Whoever leaves, or is woken, meanwhile is no heir.
        tr.add_read_conflict_key(keys.sleeper(*heirs[0]))
        _call(tr, keys, heirs[0], clock)
        return (asleep,)
    if not mine or old(unpack_beat(value or b"")[0], now(tr, clock)):
        _appoint(tr, keys, consumer, clock)
    return asleep, Watched(keys.change, change.value)


@transactional
def suspend(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int = 0,
    *,
    more: bool,
    clock: Clock = SYSTEM_CLOCK,
) -> Signal:
    """Take no more for now. With ``more`` left that is ready, somebody else is woken for it.

    A guard that has left nothing stays the guard, so that nobody need be woken to replace it: it
    waits for what is returned here (nothing where it is not the guard) and then suspends again,
    with ``more``. One round trip; conflicts with a change of the guard, and for a guard that gives
    the role away with whoever goes to sleep or leaves at the same time.
    """
    guard, sleepers = tr.get(keys.guard), _first(tr.snapshot, keys, 2)
    change = tr.snapshot.get(keys.change)
    move(tr, keys, consumer, priority, ConsumerState.NOT_INTERESTED, clock)
    role = guard.value
    leads = role is not None and unpack_beat(role)[1] == consumer
    if role is not None and leads and not more:
        if old(unpack_beat(role)[0], now(tr, clock)):
            _appoint(tr, keys, consumer, clock)
        return (Watched(keys.change, change.value),)
    if leads:
        _hand_over(tr, keys, consumer, sleepers, clock)
    elif more:
        for heir in _others(keys, sleepers, consumer)[:1]:
            del tr[keys.sleeper(*heir)]
    return ()


@transactional
def defer(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int,
    superior: Sleeper,
    clock: Clock = SYSTEM_CLOCK,
) -> Signal:
    """Go to sleep and leave what is ready to a consumer of higher priority.

    superior: who it is; the caller has read its state with a conflict.

    What a guard knows to be ready must not be forgotten: the superior becomes the guard.
    """
    guard, held = tr.get(keys.guard), _held(tr, keys, consumer, priority)
    asleep = _lie_down(tr, keys, consumer, priority, held, clock)
    if _named(guard) in (None, consumer):
        _call(tr, keys, superior, clock)
    return (asleep,)


@transactional
def withdraw(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int = 0,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Leave all lists; a guard hands its role to the next sleeper and wakes it.

    One round trip; conflicts as ``suspend``.
    """
    guard, sleepers = tr.get(keys.guard), _first(tr.snapshot, keys, 2)
    _rise(tr, keys, consumer, priority, _held(tr, keys, consumer, priority))
    if _named(guard) == consumer:
        _hand_over(tr, keys, consumer, sleepers, clock)


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
    """Wait until a watch fires, for at most ``seconds``; returns whether one did. Errors count as
    fired: whoever waits looks again, and so loses nothing."""
    fired = threading.Event()
    for watch in watches:
        watch.on_ready(lambda _: fired.set())
    woken = fired.wait(seconds)
    for watch in watches:
        watch.cancel()
    return woken


def now(tr: fdb.Transaction, clock: Clock) -> Beat:
    """A sign of life, given now."""
    return Beat(clock.version(tr), clock.now_ms(tr))


def dead(beat: Beat, at: Beat, seconds: float = DEAD_SECONDS) -> bool:
    """Whether a consumer whose last sign of life is ``beat`` counts as dead: by both clocks, so
    that neither a wrong clock nor a jump of the versions at a recovery removes a live one. One of
    a version to come was given to another cluster."""
    if beat.version > at.version:
        return True
    versions, wall_ms = int(seconds * VERSIONS_PER_SECOND), int(seconds * 1000)
    return at.version - beat.version > versions and at.wall_ms - beat.wall_ms > wall_ms


def old(beat: Beat, at: Beat) -> bool:
    """Whether a sign of life is to be given anew."""
    return at.version - beat.version > DEAD_SECONDS / 5 * VERSIONS_PER_SECOND


def _named(guard: fdb.Value) -> bytes | None:
    value = guard.value
    return None if value is None else unpack_beat(value)[1]


def _appoint(tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, clock: Clock) -> None:
    tr[keys.guard] = pack_beat(now(tr, clock), consumer)


def _first(tr: fdb.TransactionRead, keys: QueueKeys, limit: int) -> fdb.FDBRange:
    asleep = keys.kind(Kind.SLEEPER)
    return tr.get_range(
        asleep.start, asleep.stop, limit=limit, streaming_mode=fdb.StreamingMode.exact
    )


def _others(keys: QueueKeys, sleepers: fdb.FDBRange, consumer: bytes) -> list[Sleeper]:
    found = (Sleeper(*keys.parse_sleeper(kv.key)) for kv in sleepers)
    return [one for one in found if one.consumer != consumer]


def _hand_over(
    tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, sleepers: fdb.FDBRange, clock: Clock
) -> None:
    """Make the next sleeper the guard. The conflict is on the list as far as it was read."""
    asleep = keys.kind(Kind.SLEEPER)
    found = sleepers.to_list()
    end = found[-1].key + b"\x00" if len(found) == 2 else asleep.stop
    tr.add_read_conflict_range(asleep.start, end)
    heirs = _others(keys, sleepers, consumer)
    if heirs:
        _call(tr, keys, heirs[0], clock)
    else:
        del tr[keys.guard]


def _call(tr: fdb.Transaction, keys: QueueKeys, heir: Sleeper, clock: Clock) -> None:
    """Make a sleeper the guard and wake it; the caller conflicts with its moves, so it is there."""
    _appoint(tr, keys, heir.consumer, clock)
    del tr[keys.sleeper(*heir)]


def _held(tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, priority: int) -> fdb.Value:
    """Issue the read of where a consumer sleeps, if it does. Conflicts with its eviction."""
    return tr.get(keys.state(ConsumerState.INTERESTED, priority, consumer))


def _lie_down(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int,
    held: fdb.Value,
    clock: Clock,
    since: int | None = None,
) -> Watched:
    """Stand on the list of the interested, and sleep, since now or where None as before; returns
    what to wait for."""
    before, beat = since_of(held.value), now(tr, clock)
    if since is None:
        since = beat.version if before is None else before
    _rise(tr, keys, consumer, priority, held)
    place = keys.sleeper(priority, since, consumer)
    tr[place] = b""
    listed = keys.state(ConsumerState.INTERESTED, priority, consumer)
    tr[listed] = pack_beat(beat, pack_index(since))
    return Watched(place, b"")


def since_of(listed: bytes | None) -> int | None:
    """Since when a consumer waits, by its entry on the list of the interested."""
    return None if listed is None else unpack_index(unpack_beat(listed)[1])


def _rise(
    tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, priority: int, held: fdb.Value
) -> None:
    """Stand on no list of those who acquire."""
    since = since_of(held.value)
    if since is not None:
        del tr[keys.sleeper(priority, since, consumer)]
    for state in ACQUIRING:
        del tr[keys.state(state, priority, consumer)]

"""Waking consumers that sleep: no wake-up is lost, no herd, and no enqueue conflicts for it.

An enqueue cannot know by a snapshot read who sleeps when it commits, and reading it with a
conflict would make business transactions fail whenever some consumer goes to sleep. So everything
that becomes ready also adds to one key, CHANGE, blindly (``queue.life``), and of the consumers
that sleep exactly one watches it: the guard. The others watch a WAKE key of their own.

- Whoever goes to sleep reads GUARD with a conflict, and becomes the guard if there is none. So as
  long as somebody sleeps there is a guard.
- The guard looks at the queue whenever CHANGE has changed since its last look: a watch compares
  with what its transaction saw, so a message that commits at any time after the look is noticed,
  however early its transaction began.
- The guard keeps the role, awake or asleep, until it leaves, or can take no more while more is
  ready. Then it makes the next sleeper the guard, and wakes it; it reads the list with a conflict,
  so that nobody who falls asleep at the same time is overlooked.

One message for many sleepers wakes the guard alone. Who makes more than one message ready wakes as
many others as there are messages besides; that only saves time, so stale reads do no harm.
A guard that died is replaced when its sign of life is old: until then, sleepers find messages when
they look by themselves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ..binding import fdb
from ..clock import SYSTEM_CLOCK, VERSIONS_PER_SECOND, Clock
from ..codec import Beat, pack_beat, pack_index, unpack_beat
from ..keys import QueueKeys
from .states import ACQUIRING, ConsumerState

MAX_WOKEN = 100
"""Consumers that one transaction wakes at most; those wake the next."""
DEAD_SECONDS = 15.0
"""How old, by both clocks, the last sign of life of a consumer is that counts as dead."""

Signal: TypeAlias = "tuple[fdb.Future[None], ...]"
"""The watches of a sleeper: it wakes when one of them fires."""


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


@fdb.transactional
def wake(tr: fdb.Transaction, keys: QueueKeys, looked: Looked) -> int:
    """Wake the consumers that ``look`` found; returns how many. Writes blindly."""
    if looked.waiting is None or looked.guard is None:
        return 0
    guard = _named(looked.guard)
    sleepers = [keys.parse_state(kv.key) for kv in looked.waiting]
    chosen = [(priority, one) for _, priority, one in sleepers if one != guard][: looked.others]
    for priority, consumer in chosen:
        notify(tr, keys, consumer, priority)
    return len(chosen)


@fdb.transactional
def ring(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Let the guard look at the queue, for another reason than a message. Writes blindly."""
    tr.add(keys.change, pack_index(1))


@fdb.transactional
def notify(tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, priority: int) -> None:
    """Wake one consumer. Writes blindly."""
    move(tr, keys, consumer, priority, ConsumerState.NOTIFIED)
    tr[keys.wake(consumer)] = os.urandom(8)


@fdb.transactional
def move(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int,
    state: ConsumerState | None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Put an acquiring consumer on one list, whichever it stands on; None: on none. Blind."""
    for other in ACQUIRING:
        if other is not state:
            del tr[keys.state(other, priority, consumer)]
    if state is not None:
        tr[keys.state(state, priority, consumer)] = pack_beat(now(tr, clock))


@fdb.transactional
def register(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int = 0,
    clock: Clock = SYSTEM_CLOCK,
) -> Signal:
    """Go to sleep: stand on the list of the interested, as the guard if there is none.

    The caller has taken, in the same transaction, all that was ready. Returns what to wait for;
    the commit arms it. One round trip; conflicts with a change of the guard.
    """
    value = tr.get(keys.guard).value
    move(tr, keys, consumer, priority, ConsumerState.INTERESTED, clock)
    watches = [tr.watch(keys.wake(consumer))]
    mine = value is not None and unpack_beat(value)[1] == consumer
    if mine or value is None or dead(unpack_beat(value)[0], now(tr, clock)):
        if not mine or old(unpack_beat(value or b"")[0], now(tr, clock)):
            _appoint(tr, keys, consumer, clock)
        watches.append(tr.watch(keys.change))
    return tuple(watches)


@fdb.transactional
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
    move(tr, keys, consumer, priority, ConsumerState.NOT_INTERESTED, clock)
    role = guard.value
    leads = role is not None and unpack_beat(role)[1] == consumer
    if role is not None and leads and not more:
        if old(unpack_beat(role)[0], now(tr, clock)):
            _appoint(tr, keys, consumer, clock)
        return (tr.watch(keys.change),)
    if leads:
        _hand_over(tr, keys, consumer, sleepers, clock)
    elif more:
        for heir, rank in _others(keys, sleepers, consumer)[:1]:
            notify(tr, keys, heir, rank)
    return ()


@fdb.transactional
def defer(
    tr: fdb.Transaction,
    keys: QueueKeys,
    consumer: bytes,
    priority: int,
    superior: tuple[bytes, int],
    clock: Clock = SYSTEM_CLOCK,
) -> Signal:
    """Go to sleep and leave what is ready to a consumer of higher priority.

    superior: its id and priority; the caller has read its state with a conflict.

    What a guard knows to be ready must not be forgotten: the superior becomes the guard.
    """
    value = tr.get(keys.guard).value
    move(tr, keys, consumer, priority, ConsumerState.INTERESTED, clock)
    if value is None or unpack_beat(value)[1] == consumer:
        _appoint(tr, keys, superior[0], clock)
        notify(tr, keys, *superior)
    return (tr.watch(keys.wake(consumer)),)


@fdb.transactional
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
    move(tr, keys, consumer, priority, None)
    del tr[keys.wake(consumer)]
    if _named(guard) == consumer:
        _hand_over(tr, keys, consumer, sleepers, clock)


def wait(signal: Signal, seconds: float) -> bool:
    """Wait until a watch fires, for at most ``seconds``; returns whether one did. Errors count as
    fired: whoever waits looks again, and so loses nothing."""
    fired = threading.Event()
    for watch in signal:
        watch.on_ready(lambda _: fired.set())
    woken = fired.wait(seconds)
    for watch in signal:
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
    interested = keys.in_state(ConsumerState.INTERESTED)
    return tr.get_range(
        interested.start, interested.stop, limit=limit, streaming_mode=fdb.StreamingMode.exact
    )


def _others(
    keys: QueueKeys, sleepers: fdb.FDBRange, consumer: bytes
) -> Sequence[tuple[bytes, int]]:
    parsed = [keys.parse_state(kv.key) for kv in sleepers]
    return [(other, priority) for _, priority, other in parsed if other != consumer]


def _hand_over(
    tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, sleepers: fdb.FDBRange, clock: Clock
) -> None:
    """Make the next sleeper the guard. The conflict is on the list as far as it was read."""
    interested = keys.in_state(ConsumerState.INTERESTED)
    found = sleepers.to_list()
    end = found[-1].key + b"\x00" if len(found) == 2 else interested.stop
    tr.add_read_conflict_range(interested.start, end)
    heirs = _others(keys, sleepers, consumer)
    if not heirs:
        del tr[keys.guard]
        return
    heir, priority = heirs[0]
    _appoint(tr, keys, heir, clock)
    notify(tr, keys, heir, priority)

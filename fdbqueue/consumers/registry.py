"""The registry: consumers of a queue, registered by name and evicted when their process is dead."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

from ..errors import CorruptData, FormatTooNew
from ..schema.codec.consumers import (
    ConsumerRecord,
    ConsumerRef,
    pack_consumer,
    pack_state,
    unpack_consumer,
    unpack_session,
    unpack_state,
)
from ..schema.keys import CLAIM_BYTES, Kind, QueueKeys, RootKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..store.clocks import Clock
from ..values.records import record
from . import line, sessions, wakeups
from .states import ConsumerState

MAX_EVICTED = 100
"""Dead consumers that one transaction removes."""
MAX_WAITERS = 20
"""Consumers without a session that one transaction reads."""


@record
class Consumer:
    """A consumer as a listing shows it.

    ``state`` is None for a consumer on no list. ``name`` is empty for one that only waits in
    ``receive``. Times are in milliseconds since the epoch; ``seen_at_ms`` is the last sign of life
    of the consumer's process.
    """

    id: bytes
    name: str
    priority: int
    state: ConsumerState | None
    host: str
    process: int
    started_at_ms: int
    seen_at_ms: int
    guard: bool
    session: bytes = b""


class Evicted(NamedTuple):
    """Removed consumers, each with its queue, and whether there may be more."""

    consumers: list[tuple[str, bytes]]
    more: bool


@transactional
def register(
    tr: fdb.Transaction,
    scope: Scope,
    session: bytes,
    name: str,
    priority: int = 0,
    *,
    acquiring: bool = True,
    listed: bool = True,
) -> ConsumerRef:
    """Register a consumer of a process. Raises ``SessionExpired``.

    An acquiring consumer is not interested at first; any other never takes a message. A consumer
    that is not ``listed`` is never woken. One round trip; conflicts with a heartbeat of the
    session, and with its end.
    """
    sessions.join(tr, scope.root, session, scope.name)
    consumer = ConsumerRef(os.urandom(CLAIM_BYTES), priority, session)
    record = ConsumerRecord(name, priority, scope.now_ms(tr))
    tr[scope.keys.consumer(session, consumer.id)] = pack_consumer(record)
    if listed:
        state = ConsumerState.NOT_INTERESTED if acquiring else ConsumerState.NON_ACQUIRING
        tr[scope.keys.state(state, priority, consumer.id)] = pack_state(session)
    return consumer


def registered(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> fdb.Value:
    """Issue the read of a consumer's record, which is gone after its eviction. Conflicts with
    that."""
    return tr.get(keys.consumer(consumer.session, consumer.id))


@transactional
def unregister(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> None:
    """Remove a consumer, and its request in line if any. A guard hands over."""
    line.remove_claim(tr, keys, consumer.id)
    _remove(tr, keys, consumer)


@transactional
def superior(tr: fdb.Transaction, scope: Scope, priority: int) -> wakeups.Sleeper | None:
    """A living consumer of a higher priority that sleeps or was notified; None without any.

    One round trip, or two if there are such consumers. Conflicts with their moves.
    """
    keys = scope.keys
    ranges = [
        keys.in_state_above(state, priority)
        for state in (ConsumerState.NOTIFIED, ConsumerState.INTERESTED)
    ]
    above = []
    for read in [tr.get_range(each.start, each.stop, limit=MAX_EVICTED) for each in ranges]:
        for kv in read:
            _, rank, consumer = keys.parse_state(kv.key)
            session, since = unpack_state(kv.value)
            above.append(wakeups.Sleeper(ConsumerRef(consumer, rank, session), since))
    if not above:
        return None
    above.sort(key=lambda one: -one.consumer.priority)
    refs = [one.consumer for one in above]
    alive = sessions.alive(tr, scope.root, keys, scope.clock, refs)
    return next((one for one, lives in zip(above, alive, strict=True) if lives), None)


@transactional
def consumers(tr: fdb.Transaction, scope: Scope) -> list[Consumer]:
    """All consumers that are registered or wait, by descending priority. Snapshot reads."""
    keys = scope.keys
    named, listed = keys.kind(Kind.CONSUMER), keys.kind(Kind.STATE)
    guard = tr.snapshot.get(keys.guard)
    records = tr.snapshot.get_range(named.start, named.stop)
    states = tr.snapshot.get_range(listed.start, listed.stop)
    role = wakeups.role_of(guard)
    guarding = None if role is None else role.id
    parsed = [(*keys.consumer.parse(kv.key), unpack_consumer(kv.value)) for kv in records]
    reads = {
        session: tr.snapshot.get(scope.root.session(session)) for session, _, _ in parsed if session
    }
    found: dict[bytes, Consumer] = {}
    stored = {session: value.value for session, value in reads.items()}
    known = {session: unpack_session(value) for session, value in stored.items() if value}
    for session, consumer, entry in parsed:
        process = known.get(session)
        found[consumer] = Consumer(
            id=consumer,
            name=entry.name,
            priority=entry.priority,
            state=None,
            host=process.host if process else "",
            process=process.process if process else 0,
            started_at_ms=entry.started_at_ms,
            seen_at_ms=process.wall_ms if process else entry.wall_ms,
            guard=consumer == guarding,
            session=session,
        )
    for kv in states:
        state, priority, consumer = keys.parse_state(kv.key)
        session, _ = unpack_state(kv.value)
        lost = Consumer(consumer, "", priority, None, "", 0, 0, 0, consumer == guarding, session)
        one = found.get(consumer, lost)
        # A stale wake-up leaves a consumer on two lists; the state notified counts.
        state = state if one.state is None else max(state, one.state)
        found[consumer] = replace(one, state=ConsumerState(state))
    return sorted(found.values(), key=lambda one: (-one.priority, one.started_at_ms, one.id))


@transactional
def evict_dead(tr: fdb.Transaction, scope: Scope) -> Evicted:
    """Evict dead consumers, up to ``MAX_EVICTED``, those of this queue first, and remove requests
    of dead consumers, whose claims are returned as consumers of this queue.

    Bounded reads; conflicts with signs of life of the consumers it removes.
    """
    requests = line.read_requests(tr, scope.keys)
    gone, more = evict_expired(tr, scope.root, scope.clock, scope.name)
    gone += ((scope.name, consumer) for consumer in evict_waiters(tr, scope))
    known = {consumer for _, consumer in gone}
    claims = line.remove_dead(tr, scope, requests)
    return Evicted([*gone, *((scope.name, each) for each in claims if each not in known)], more)


@transactional
def evict_expired(
    tr: fdb.Transaction, root: RootKeys, clock: Clock, first: str | None = None
) -> Evicted:
    """Evict consumers of dead processes from all queues, up to ``MAX_EVICTED``, and remove each
    session with its last consumer.

    first: the queue to begin with. Conflicts with heartbeats of those sessions, and with changes of
    the queues' guards.
    """
    dead, more = sessions.expired(tr, root, clock)
    gone: list[tuple[str, bytes]] = []
    if first is not None:
        for each in dead:
            if len(gone) < MAX_EVICTED:
                gone += _evict(tr, root, first, each.session, MAX_EVICTED - len(gone))
    left = MAX_EVICTED - len(gone)
    for each in dead:
        queues = root.session_queue.under(each.session)
        for kv in tr.snapshot.get_range(queues.start, queues.stop, limit=MAX_EVICTED):
            if left <= 0:
                break
            removed = _evict(tr, root, root.session_queue.parse(kv.key)[1], each.session, left)
            gone += removed
            left -= max(1, len(removed))
            if left > 0:
                del tr[kv.key]
        if left <= 0:
            return Evicted(gone, True)
        sessions.remove(tr, root, each)
    return Evicted(gone, more)


@transactional
def evict_waiters(tr: fdb.Transaction, scope: Scope) -> list[bytes]:
    """Evict consumers without a session whose own sign of life is too old; returns their ids.

    Only leaders of the line that wait in ``receive`` have no session, so there are few. One round
    trip at snapshot isolation; conflicts with signs of life of the consumers it removes.
    """
    waiting, at = scope.keys.consumer.under(b""), sessions.now(tr, scope.clock)
    gone = []
    for kv in tr.snapshot.get_range(waiting.start, waiting.stop, limit=MAX_WAITERS):
        record = unpack_consumer(kv.value)
        if sessions.is_dead(record.heartbeat, at):
            tr.add_read_conflict_key(kv.key)
            consumer = ConsumerRef(scope.keys.consumer.parse(kv.key)[1], record.priority)
            _remove(tr, scope.keys, consumer)
            gone.append(consumer.id)
    return gone


def _evict(
    tr: fdb.Transaction, root: RootKeys, queue: str, session: bytes, limit: int
) -> list[tuple[str, bytes]]:
    """Evict consumers of a session from one queue, up to ``limit``."""
    keys = root.queue(queue)
    every = keys.consumer.under(session)
    gone = []
    for kv in tr.get_range(every.start, every.stop, limit=limit).to_list():
        consumer = keys.consumer.parse(kv.key)[1]
        try:
            priority = unpack_consumer(kv.value).priority
        except (CorruptData, FormatTooNew):
            priority = 0  # Remove it all the same.
        _remove(tr, keys, ConsumerRef(consumer, priority, session))
        gone.append((queue, consumer))
    return gone


def _remove(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> None:
    del tr[keys.consumer(consumer.session, consumer.id)]
    del tr[keys.state(ConsumerState.NON_ACQUIRING, consumer.priority, consumer.id)]
    wakeups.withdraw(tr, keys, consumer)

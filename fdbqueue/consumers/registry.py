"""The registry: the consumers of a queue, and who of them waits."""

from __future__ import annotations

import os
from dataclasses import replace

from ..schema.codec.consumers import (
    ConsumerRecord,
    ConsumerRef,
    pack_consumer,
    pack_state,
    unpack_consumer,
    unpack_session,
    unpack_state,
)
from ..schema.keys import CLAIM_BYTES, Kind, QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..values.records import record
from . import line, sessions, wakeups
from .states import ConsumerState

MAX_SUPERIORS = 100
"""Consumers of higher priority that one transaction reads."""
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
    remove(tr, keys, consumer)


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
    for read in [tr.get_range(each.start, each.stop, limit=MAX_SUPERIORS) for each in ranges]:
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
            remove(tr, scope.keys, consumer)
            gone.append(consumer.id)
    return gone


def remove(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> None:
    """Remove a consumer; a guard hands over. Conflicts as ``wakeups.withdraw``."""
    del tr[keys.consumer(consumer.session, consumer.id)]
    del tr[keys.state(ConsumerState.NON_ACQUIRING, consumer.priority, consumer.id)]
    wakeups.withdraw(tr, keys, consumer)

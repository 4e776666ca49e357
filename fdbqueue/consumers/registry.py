"""The consumers of a queue: registered under a name, with signs of life, and removed when dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import replace

from ..schema.codec.consumers import (
    ConsumerRecord,
    pack_beat,
    pack_consumer,
    unpack_beat,
    unpack_consumer,
)
from ..schema.keys import CLAIM_BYTES, Kind, QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..values.records import record
from . import line, wakeups
from .states import ConsumerState

LOOKED_AT = 20
"""Rows of other consumers that each looks at, beside its own sign of life."""
MAX_EVICTED = 100
"""Dead consumers that one transaction removes."""


@record
class Consumer:
    """A consumer as a listing shows it.

    ``state`` is None for one that is registered and stands on no list. ``name`` is empty for one
    that only waits in ``receive``. The wall clocks are the consumer's own, in milliseconds.
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


def new(scope: Scope, name: str, priority: int) -> tuple[bytes, ConsumerRecord]:
    """A consumer of this process: its id and its record."""
    return os.urandom(CLAIM_BYTES), ConsumerRecord(
        name, priority, socket.gethostname(), os.getpid(), scope.clock.wall_ms()
    )


@transactional
def register(
    tr: fdb.Transaction,
    scope: Scope,
    consumer: bytes,
    record: ConsumerRecord,
    *,
    acquiring: bool = True,
    listed: bool = True,
) -> None:
    """Register a consumer, or one that was taken for dead again. Writes blindly.

    It takes nothing until it says that it can; a non-acquiring one never does. One that is not
    ``listed`` finds out by itself what is there for it.
    """
    keys, beat = scope.keys, wakeups.now(tr, scope.clock)
    tr[keys.consumer(consumer)] = pack_consumer(record, beat)
    if listed:
        state = ConsumerState.NOT_INTERESTED if acquiring else ConsumerState.NON_ACQUIRING
        tr[keys.state(state, record.priority, consumer)] = pack_beat(beat)


@transactional
def heartbeat(tr: fdb.Transaction, scope: Scope, consumer: bytes, record: ConsumerRecord) -> bool:
    """Give a sign of life; returns false if the consumer was taken for dead and removed.

    One round trip. Conflicts with its eviction.
    """
    key = scope.keys.consumer(consumer)
    if not tr.get(key).present():
        return False
    tr[key] = pack_consumer(record, wakeups.now(tr, scope.clock))
    return True


@transactional
def unregister(tr: fdb.Transaction, scope: Scope, consumer: bytes, priority: int) -> None:
    """Remove a consumer; somebody else is woken in its place if it was the guard. One that stands
    in line leaves it."""
    line.remove_claim(tr, scope.keys, consumer)
    _remove(tr, scope, consumer, priority)


@transactional
def superior(tr: fdb.Transaction, scope: Scope, priority: int) -> wakeups.Sleeper | None:
    """A living consumer that is to be served before those of ``priority``; None without any.

    That is the first of a higher priority that sleeps until it is notified, or is awake. One round
    trip, and a second one if there is any such. Conflicts with the moves of such consumers.
    """
    keys = scope.keys
    ranges = [
        keys.in_state_above(state, priority)
        for state in (ConsumerState.NOTIFIED, ConsumerState.INTERESTED)
    ]
    found = [tr.get_range(looked.start, looked.stop, limit=MAX_EVICTED) for looked in ranges]
    above = [(keys.parse_state(kv.key), kv.value) for r in found for kv in r]
    if not above:
        return None
    above.sort(key=lambda one: -one[0][1])
    records = [tr.snapshot.get(keys.consumer(consumer)) for (_, _, consumer), _ in above]
    at = wakeups.now(tr, scope.clock)
    for ((_, rank, consumer), listed), value in zip(above, records, strict=True):
        packed = value.value
        seen = unpack_beat(listed)[0] if packed is None else unpack_consumer(packed)[1]
        if not wakeups.dead(seen, at):
            return wakeups.Sleeper(rank, wakeups.since_of(listed) or 0, consumer)
    return None


@transactional
def consumers(tr: fdb.Transaction, keys: QueueKeys) -> list[Consumer]:
    """All consumers that are registered or wait, by descending priority. Snapshot reads."""
    named, listed, guard = _issue(tr, keys)
    guarding = None if guard.value is None else unpack_beat(guard.value)[1]
    found: dict[bytes, Consumer] = {}
    for kv in named:
        consumer = keys.parse_consumer(kv.key)
        record, beat = unpack_consumer(kv.value)
        found[consumer] = Consumer(
            id=consumer,
            name=record.name,
            priority=record.priority,
            state=None,
            host=record.host,
            process=record.process,
            started_at_ms=record.started_at_ms,
            seen_at_ms=beat.wall_ms,
            guard=consumer == guarding,
        )
    for kv in listed:
        state, priority, consumer = keys.parse_state(kv.key)
        seen = unpack_beat(kv.value)[0].wall_ms
        waiter = Consumer(consumer, "", priority, None, "", 0, seen, seen, consumer == guarding)
        one = found.get(consumer, waiter)
        # Notified counts before the list that it came from: a stale wake-up leaves it on both.
        state = state if one.state is None else max(state, one.state)
        found[consumer] = replace(one, state=ConsumerState(state))
    return sorted(found.values(), key=lambda one: (-one.priority, one.started_at_ms, one.id))


@transactional
def evict_dead(tr: fdb.Transaction, scope: Scope) -> list[bytes]:
    """Remove consumers whose last sign of life is too old; returns their ids, or claims.

    Reads all consumers: for people and for sweeps. Round trips and conflicts as ``look_around``.
    """
    every = _everybody(scope.keys)
    requests = line.look_at_all(tr, scope.keys)
    gone = _evict(tr, scope, tr.snapshot.get_range(every.start, every.stop))
    left = line.remove_dead(tr, scope, requests)
    return [*gone, *(claim for claim in left if claim not in gone)]


@transactional
def look_around(tr: fdb.Transaction, scope: Scope, place: bytes = b"") -> tuple[bytes, list[bytes]]:
    """Look at the next few consumers from a key on, and remove those whose last sign of life is
    too old; returns the key to go on from, and their ids, or claims.

    Every consumer does that with its own sign of life. So each is looked at by some others in
    every such interval, and nobody reads more however many they are; only where some are dead, it
    goes on at once. Behind the last it begins anew.

    Two round trips, or three around the end, at snapshot isolation; conflicts with a sign of life
    of those it removes. A dead guard's role goes to the next sleeper. Requests of the dead leave
    the line, too.
    """
    keys, every = scope.keys, _everybody(scope.keys)
    requests = line.look_at_all(tr, keys, LOOKED_AT)
    begin = place = max(place, every.start)
    gone: list[bytes] = []
    stop, left = every.stop, LOOKED_AT
    while left > 0 and place < stop:
        rows = tr.snapshot.get_range(
            place, stop, limit=left, streaming_mode=fdb.StreamingMode.exact
        ).to_list()
        dead = _evict(tr, scope, rows)
        gone += dead
        full = len(rows) == left
        left -= len(rows)
        if dead and len(gone) < MAX_EVICTED:
            left = LOOKED_AT
        if full:
            place = rows[-1].key + b"\x00"
        elif stop == every.stop:
            place, stop = every.start, begin
        else:
            break
    claims = line.remove_dead(tr, scope, requests)
    return place, [*gone, *(claim for claim in claims if claim not in gone)]


def _everybody(keys: QueueKeys) -> slice:
    """Who is registered, and behind that who is on a list: neighbours among the kinds."""
    return slice(keys.kind(Kind.CONSUMER).start, keys.kind(Kind.STATE).stop)


def _evict(tr: fdb.Transaction, scope: Scope, rows: Iterable[fdb.KeyValue]) -> list[bytes]:
    """Remove the dead among consumers that were read at snapshot isolation; up to some hundred."""
    keys, at = scope.keys, wakeups.now(tr, scope.clock)
    suspects: dict[bytes, int] = {}
    for kv in rows:
        if kv.key < keys.guard:
            consumer, (record, beat) = keys.parse_consumer(kv.key), unpack_consumer(kv.value)
            priority = record.priority
        elif kv.key > keys.guard:
            _, priority, consumer = keys.parse_state(kv.key)
            beat = unpack_beat(kv.value)[0]
        else:
            continue
        if wakeups.dead(beat, at):
            suspects.setdefault(consumer, priority)
    # Who is registered gives the signs of life there; those that only wait, with their state.
    records = [tr.snapshot.get(keys.consumer(consumer)) for consumer in suspects]
    gone = []
    for (consumer, priority), looked in zip(suspects.items(), records, strict=True):
        value = looked.value
        if value is None or wakeups.dead(unpack_consumer(value)[1], at):
            gone.append(consumer)
            tr.add_read_conflict_key(keys.consumer(consumer))
            for state in ConsumerState:
                tr.add_read_conflict_key(keys.state(state, priority, consumer))
            _remove(tr, scope, consumer, priority)
        if len(gone) == MAX_EVICTED:
            break
    return gone


def _remove(tr: fdb.Transaction, scope: Scope, consumer: bytes, priority: int) -> None:
    del tr[scope.keys.consumer(consumer)]
    del tr[scope.keys.state(ConsumerState.NON_ACQUIRING, priority, consumer)]
    wakeups.withdraw(tr, scope.keys, consumer, priority, scope.clock)


def _issue(tr: fdb.Transaction, keys: QueueKeys) -> tuple[fdb.FDBRange, fdb.FDBRange, fdb.Value]:
    named, listed = keys.kind(Kind.CONSUMER), keys.kind(Kind.STATE)
    return (
        tr.snapshot.get_range(named.start, named.stop),
        tr.snapshot.get_range(listed.start, listed.stop),
        tr.snapshot.get(keys.guard),
    )

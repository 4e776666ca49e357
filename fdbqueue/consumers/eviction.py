"""Eviction: consumers that are gone leave the registry, and their leases end.

A consumer's leases are found before its record goes, in as many transactions as that takes. If who
evicts dies on the way, the record is still there, and another process begins anew. A consumer that
lives after all finds its record gone, registers anew, and extends the leases that it still has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..errors import CorruptData
from ..messages.delivery import lease_shortening
from ..messages.delivery.lease import OVERDUE_MS
from ..messages.delivery.lease_shortening import MAX_READ
from ..schema.consumers import ConsumerRecord, ConsumerRef
from ..schema.keys import QueueKeys, RootKeys
from ..schema.leases import holder_of
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..store.clocks import Clock, Moment
from . import line, registry, sessions, wakeups
from .sessions import Expired

MAX_EVICTED = 100
"""Dead consumers that one transaction removes."""


class LeavingConsumers(Struct, frozen=True):
    """Consumers of one queue that are being evicted: when their leases end, and which have been
    looked at."""

    queue: str
    consumers: Sequence[ConsumerRef]
    ends: Mapping[bytes, Moment]
    begin: bytes = b""


class Evicted(NamedTuple):
    """Removed consumers, each with its queue, whether there may be more, and those whose leases are
    to be looked for in the next transaction."""

    consumers: list[tuple[str, bytes]]
    more: bool
    leaving: LeavingConsumers | None = None


def leaving_now(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef) -> LeavingConsumers:
    """One consumer whose leases are to end now, by every clock that is believed."""
    at = Moment(scope.version(tr), scope.now_ms(tr) - OVERDUE_MS)
    return LeavingConsumers(scope.name, [consumer], {holder_of(consumer.id): at})


@transactional
def evict(
    tr: fdb.Transaction, keys: QueueKeys, leaving: LeavingConsumers
) -> LeavingConsumers | None:
    """Let the leases of consumers end, and then remove these and their requests in line; returns
    what is left to do. Conflicts as ``lease_shortening.shorten``, and with changes of the guard."""
    left, _ = _evict(tr, keys, leaving, MAX_READ)
    if left is None:
        for each in leaving.consumers:
            # Only once no lease is left: while the request stands, another process that evicts
            # begins anew.
            line.remove_claim(tr, keys.line_of(each.subscription), each.id)
    return left


@transactional
def evict_dead(
    tr: fdb.Transaction, scope: Scope, leaving: LeavingConsumers | None = None
) -> Evicted:
    """Evict dead consumers as ``evict_expired``, those of this queue first, and remove requests of
    dead consumers, whose claims are returned as consumers of this queue.

    Bounded reads; conflicts with signs of life of the consumers it removes.
    """
    # Issued before the evictions, and at snapshot isolation: lines change all the time, and a miss
    # is made up for in the next look.
    requests = line.read_all(tr, scope.keys)
    gone, more, left = evict_expired(tr, scope.root, scope.clock, scope.name, leaving)
    gone += ((scope.name, consumer) for consumer in registry.evict_waiters(tr, scope))
    known = {consumer for _, consumer in gone}
    claims = line.remove_dead(tr, scope, requests)
    gone += ((scope.name, each) for each in claims if each not in known)
    return Evicted(gone, more, left)


@transactional
def evict_expired(
    tr: fdb.Transaction,
    root: RootKeys,
    clock: Clock,
    first: str | None = None,
    leaving: LeavingConsumers | None = None,
) -> Evicted:
    """Evict consumers of dead processes from all queues, up to ``MAX_EVICTED``, and remove each
    session with its last consumer. Their leases end as ``sessions.leases_end`` says.

    first: the queue to begin with. leaving: what an earlier transaction has left to do; then it
    does nothing else. Reads up to ``MAX_READ`` claims. Conflicts with heartbeats of those sessions,
    and as ``evict``.
    """
    if leaving is not None:
        keys = root.queue(leaving.queue)
        left, _ = _evict(tr, keys, leaving, MAX_READ)
        return Evicted([] if left else _named(leaving), True, left)
    dead, more = sessions.expired(tr, root, clock)
    at = sessions.now(tr, clock)
    gone: list[tuple[str, bytes]] = []
    most, reads = MAX_EVICTED, MAX_READ
    for queue, members in _queues(tr, root, dead, first).items():
        keys = root.queue(queue)
        found = _members(tr, keys, members, at, most)
        leaving = LeavingConsumers(
            queue, [*found], {holder_of(one.id): end for one, end in found.items()}
        )
        left, read = _evict(tr, keys, leaving, reads)
        if left is not None:
            return Evicted(gone, True, left)
        gone += _named(leaving)
        if len(found) < most:
            for each in members:
                # Row by row as queues are done: a process that goes on after a crash does not begin
                # at the first queue.
                del tr[root.session_queue(each.session, queue)]
        most -= max(len(members), len(found))
        reads -= read
        if most <= 0 or reads <= 0:
            return Evicted(gone, True)
    for each in dead:
        sessions.remove(tr, root, each)
    return Evicted(gone, more)


def _queues(
    tr: fdb.Transaction, root: RootKeys, dead: Sequence[Expired], first: str | None
) -> dict[str, list[Expired]]:
    """The queues in which dead sessions have consumers, each with these sessions. Whoever goes
    through all of them has seen all queues of each session."""
    reads = []
    for each in dead:
        rows = root.session_queue.under(each.session)
        reads.append(tr.snapshot.get_range(rows.start, rows.stop, limit=MAX_EVICTED))
    found: dict[str, list[Expired]] = {} if first is None else {first: []}
    for each, read in zip(dead, reads, strict=True):
        for kv in read:
            found.setdefault(root.session_queue.parse(kv.key)[1], []).append(each)
    return {queue: members for queue, members in found.items() if members}


def _members(
    tr: fdb.Transaction, keys: QueueKeys, members: Sequence[Expired], at: Moment, limit: int
) -> dict[ConsumerRef, Moment]:
    """The consumers of sessions in one queue, up to ``limit``, and when their leases end."""
    ranges = [keys.consumer.under(each.session) for each in members]
    # With a conflict: a consumer that registers in the session meanwhile must not be left behind
    # it.
    reads = [tr.get_range(every.start, every.stop, limit=limit) for every in ranges]
    found: dict[ConsumerRef, Moment] = {}
    for each, read in zip(members, reads, strict=True):
        for kv in read:
            if len(found) == limit:
                return found
            consumer = ConsumerRef(keys.consumer.parse(kv.key)[1], session=each.session)
            # One that cannot be read is removed all the same.
            with contextlib.suppress(CorruptData):
                record = ConsumerRecord.unpack(kv.value)
                consumer = replace(
                    consumer, priority=record.priority, subscription=record.subscription
                )
            found[consumer] = sessions.leases_end(each.record, at)
    return found


def _evict(
    tr: fdb.Transaction, keys: QueueKeys, leaving: LeavingConsumers, limit: int
) -> tuple[LeavingConsumers | None, int]:
    """Look for leases of consumers, and remove these if all are found; returns what is left to do,
    and how many claims were read."""
    if not leaving.consumers:
        return None, 0
    done = lease_shortening.shorten(tr, keys, leaving.ends, leaving.begin, limit)
    if done.claims:
        wakeups.ring(tr, keys)  # A guard knows when a lease ends next.
    if done.following:
        return replace(leaving, begin=done.following), done.read
    for each in leaving.consumers:
        registry.remove(tr, keys, each)
    return None, done.read


def _named(leaving: LeavingConsumers) -> list[tuple[str, bytes]]:
    return [(leaving.queue, each.id) for each in leaving.consumers]

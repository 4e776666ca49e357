"""Leases: messages handed to a consumer until they are settled or lapse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..binding import fdb
from ..clock import VERSIONS_PER_SECOND
from ..codec import Lease, pack_envelope, pack_expiry, pack_lease, unpack_envelope, unpack_lease
from ..errors import LeaseLost, MessagePlanned
from ..keys import Kind, QueueKeys, lease_token
from ..model import Delivery, LeasedMessage
from ..states import LEASE
from . import dequeue, life, payloads
from .scope import Scope, Standing


@dataclass(frozen=True, slots=True)
class Terms:
    """What a consumer is given: for how long (seconds), under which claim, in whose name.

    A claim is 16 random bytes; the tokens of the leases under it begin with it.
    """

    seconds: float
    claim: bytes
    consumer: str


@fdb.transactional
def grant(
    tr: fdb.Transaction, scope: Scope, terms: Terms, messages: Sequence[Standing]
) -> list[Delivery]:
    """Lease ready messages that the caller has read, with a conflict on each.

    Writes blindly; no round trip of its own, but one for payloads in chunks, if there are any.
    """
    if not messages:
        return []
    chunks = payloads.look(tr, scope.keys, messages)
    leases = assign(tr, scope, terms, messages)
    return [
        _delivery(message, token, lease)
        for message, (token, lease) in zip(payloads.load(messages, chunks), leases, strict=True)
    ]


@fdb.transactional
def assign(
    tr: fdb.Transaction, scope: Scope, terms: Terms, messages: Sequence[Standing]
) -> list[tuple[bytes, Lease]]:
    """Lease ready messages to a consumer that will look for itself what it was given.

    As ``grant``, but reads nothing. Returns the leases and their tokens.
    """
    dequeue.remove(tr, scope.keys, messages)
    life.moved(tr, scope, LEASE, [replace(each, consumer=terms.consumer) for each in messages])
    version, wall_ms = _expiry(tr, scope, terms.seconds)
    leases = []
    for n, message in enumerate(messages):
        token = lease_token(terms.claim, n)
        packed = pack_envelope(message.envelope)
        lease = Lease(message.position, version, wall_ms, terms.consumer, packed)
        _store(tr, scope, token, lease)
        leases.append((token, lease))
    return leases


def look(tr: fdb.Transaction, keys: QueueKeys, deliveries: Sequence[Delivery]) -> list[fdb.Value]:
    """Issue the reads of the leases of deliveries, each with a conflict."""
    return [tr.get(keys.lease(delivery.token)) for delivery in deliveries]


@fdb.transactional
def end(
    tr: fdb.Transaction,
    scope: Scope,
    deliveries: Sequence[Delivery],
    looked: Sequence[fdb.Value] | None = None,
) -> list[Standing]:
    """End leases; what becomes of their messages, and to record it, is the caller's.

    looked: their reads, if they have been issued.

    One round trip. Conflicts only with another settlement of the same leases. Raises
    ``LeaseLost`` for the first that is gone, and ``MessagePlanned`` for one of a plan, before
    anything is written.
    """
    leases = _held(deliveries, look(tr, scope.keys, deliveries) if looked is None else looked)
    for delivery, lease in zip(deliveries, leases, strict=True):
        remove(tr, scope, delivery.token, lease)
    return [standing(lease) for lease in leases]


@fdb.transactional
def extend(
    tr: fdb.Transaction, scope: Scope, deliveries: Sequence[Delivery], seconds: float
) -> int:
    """Let leases end ``seconds`` from now; returns the wall clock of that in milliseconds.

    One round trip. Conflicts and errors as in ``end``.
    """
    leases = _held(deliveries, look(tr, scope.keys, deliveries))
    version, wall_ms = _expiry(tr, scope, seconds)
    for delivery, lease in zip(deliveries, leases, strict=True):
        remove(tr, scope, delivery.token, lease)
        extended = replace(lease, expiry_version=version, expiry_ms=wall_ms)
        _store(tr, scope, delivery.token, extended)
    return wall_ms


def standing(lease: Lease) -> Standing:
    """The message that a lease is on."""
    return Standing(lease.position, unpack_envelope(lease.envelope), lease.consumer)


def under(tr: fdb.TransactionRead, keys: QueueKeys, claim: bytes) -> fdb.FDBRange:
    """Issue a read of the leases under a claim; with a conflict, unless on a snapshot."""
    leases = keys.leases(claim)
    return tr.get_range(leases.start, leases.stop, streaming_mode=fdb.StreamingMode.want_all)


def named(tr: fdb.TransactionRead, keys: QueueKeys, token: bytes) -> fdb.FDBRange:
    """Issue a read of one lease; with a conflict, unless on a snapshot."""
    key = keys.lease(token)
    return tr.get_range(key, key + b"\x00")


@fdb.transactional
def listed(
    tr: fdb.Transaction, scope: Scope, limit: int, after: bytes | None
) -> list[LeasedMessage]:
    """Leases in the order of their tokens. Snapshot reads in one round trip, no conflicts."""
    every = scope.keys.kind(Kind.LEASE)
    begin = every.start if after is None else scope.keys.lease(after) + b"\x00"
    found = tr.snapshot.get_range(begin, every.stop, limit=limit)
    version, now_ms = scope.version(tr), scope.clock.wall_ms()
    leases = []
    for kv in found:
        lease = unpack_lease(kv.value)
        envelope = unpack_envelope(lease.envelope)
        delivery = Delivery(
            message=envelope.properties(lease.position),
            token=scope.keys.parse_lease(kv.key),
            attempt=envelope.attempts + 1,
            expires_at_ms=lease.expiry_ms,
        )
        lapsed = lease.expiry_version < version and lease.expiry_ms <= now_ms
        lapsed = lapsed and not lease.planned
        leases.append(LeasedMessage(delivery, lease.consumer, lapsed, lease.planned))
    return leases


def deliveries(tr: fdb.Transaction, keys: QueueKeys, found: fdb.FDBRange) -> list[Delivery]:
    """The deliveries that LEASE keys stand for; one round trip more for payloads in chunks."""
    held = [(keys.parse_lease(kv.key), unpack_lease(kv.value)) for kv in found]
    messages = [standing(lease) for _, lease in held]
    loaded = payloads.load(messages, payloads.look(tr, keys, messages))
    return [
        _delivery(message, token, lease)
        for message, (token, lease) in zip(loaded, held, strict=True)
    ]


def _delivery(message: Standing, token: bytes, lease: Lease) -> Delivery:
    return Delivery(
        message=message.envelope.message(message.position),
        token=token,
        attempt=message.envelope.attempts + 1,
        expires_at_ms=lease.expiry_ms,
    )


def remove(tr: fdb.Transaction, scope: Scope, token: bytes, lease: Lease) -> None:
    """Remove a lease that was read with a conflict."""
    del tr[scope.keys.lease(token)]
    del tr[scope.keys.expiry(lease.expiry_version, token)]


def _store(tr: fdb.Transaction, scope: Scope, token: bytes, lease: Lease) -> None:
    tr[scope.keys.lease(token)] = pack_lease(lease)
    tr[scope.keys.expiry(lease.expiry_version, token)] = pack_expiry(lease.expiry_ms)


def _held(deliveries: Sequence[Delivery], looked: Sequence[fdb.Value]) -> list[Lease]:
    leases = []
    for delivery, value in zip(deliveries, looked, strict=True):
        packed = value.value
        if packed is None:
            raise LeaseLost(message_id=delivery.id)
        lease = unpack_lease(packed)
        if lease.planned:
            raise MessagePlanned(message_id=delivery.id, consumer=lease.consumer)
        leases.append(lease)
    return leases


def _expiry(tr: fdb.Transaction, scope: Scope, seconds: float) -> tuple[int, int]:
    """The database's version and the wall clock in milliseconds, ``seconds`` from now."""
    return (
        scope.version(tr) + int(seconds * VERSIONS_PER_SECOND),
        scope.clock.wall_ms() + int(seconds * 1000),
    )

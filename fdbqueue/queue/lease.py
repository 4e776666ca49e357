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
    (leases,) = assign(tr, scope, [(terms, messages)])
    return answer(messages, chunks, leases)


def assign(
    tr: fdb.Transaction, scope: Scope, given: Sequence[tuple[Terms, Sequence[Standing]]]
) -> list[list[tuple[bytes, Lease]]]:
    """Lease ready messages to consumers that will look for themselves what they were given.

    As ``grant``, but reads nothing. Returns the leases of each with their tokens.
    """
    taken = [
        Standing(message.position, message.envelope, terms.consumer, message.turn)
        for terms, messages in given
        for message in messages
    ]
    dequeue.remove(tr, scope.keys, taken)
    life.moved(tr, scope, LEASE, taken)
    return [_assign(tr, scope, terms, messages) for terms, messages in given]


def _assign(
    tr: fdb.Transaction, scope: Scope, terms: Terms, messages: Sequence[Standing]
) -> list[tuple[bytes, Lease]]:
    version, wall_ms = _expiry(tr, scope, terms.seconds)
    leases = []
    for n, message in enumerate(messages):
        token = lease_token(terms.claim, n)
        packed = pack_envelope(message.envelope)
        lease = Lease(message.position, version, wall_ms, terms.consumer, packed)
        _store(tr, scope, token, lease)
        leases.append((token, lease))
    return leases


def answer(
    messages: Sequence[Standing],
    chunks: Sequence[fdb.FDBRange | None],
    leases: Sequence[tuple[bytes, Lease]],
) -> list[Delivery]:
    """The deliveries of messages, given the reads of their chunks and their leases."""
    return [
        _delivery(message, token, lease)
        for message, (token, lease) in zip(payloads.load(messages, chunks), leases, strict=True)
    ]


def look(tr: fdb.Transaction, keys: QueueKeys, deliveries: Sequence[Delivery]) -> list[fdb.Value]:
    """Issue the reads of the leases of deliveries, each with a conflict."""
    return [tr.get(keys.lease(delivery.token)) for delivery in deliveries]


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


def under(tr: fdb.Transaction, keys: QueueKeys, claim: bytes, at_most: int) -> list[Delivery]:
    """The deliveries under a claim that asked for ``at_most`` messages.

    One round trip, and one more for payloads in chunks. Conflicts with their settlement.
    """
    if at_most == 1:
        return named(tr, tr, keys, lease_token(claim, 0))
    leases = keys.leases(claim)
    found = tr.get_range(leases.start, leases.stop, streaming_mode=fdb.StreamingMode.want_all)
    return _deliveries(tr, keys, [(keys.parse_lease(kv.key), kv.value) for kv in found])


def named(
    tr: fdb.Transaction, reader: fdb.TransactionRead, keys: QueueKeys, token: bytes
) -> list[Delivery]:
    """The delivery that a token names, if there is one.

    reader: the transaction, for a conflict as of ``under``, or its snapshot.
    """
    value = reader.get(keys.lease(token)).value
    return [] if value is None else _deliveries(tr, keys, [(token, value)])


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


def _deliveries(
    tr: fdb.Transaction, keys: QueueKeys, found: Sequence[tuple[bytes, bytes]]
) -> list[Delivery]:
    held = [(token, unpack_lease(value)) for token, value in found]
    messages = [standing(lease) for _, lease in held]
    return answer(messages, payloads.look(tr, keys, messages), held)


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

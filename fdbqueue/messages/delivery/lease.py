"""Leases: a consumer holds a message until it settles the delivery or the lease expires.

LEASE, at the message's position, names the consumer. EXPIRY orders leases by their end. A token is
the lease's claim, random bytes that LEASE repeats, and that position. An extension must not abort a
settlement, which may be part of a long transaction of the user. So it does not touch LEASE, and
writes the new end under UNTIL:

| | LEASE | UNTIL |
|---|---|---|
| settling | reads with a conflict, clears | reads at snapshot if extended, clears |
| extending | reads with a conflict | reads with a conflict, writes |
| expiring | reads with a conflict, clears | reads with a conflict, clears |

A settlement and an expiry conflict, and so do an extension and an expiry. An extension that commits
during a settlement, or is unknown to the settled delivery, leaves an EXPIRY without a lease, which
is removed when it falls due.

A lease that answers a request in line has UNTIL from the start: the consumer finds its messages
there, by its claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from ...errors import CorruptData, FormatTooNew, LeaseLost, MessagePlanned
from ...schema import counters, once
from ...schema.codec.envelopes import open_envelope, pack_envelope
from ...schema.codec.leases import (
    Lease,
    Leasing,
    lease_key,
    leased,
    leasing,
    open_message,
    pack_expiry,
    pack_lease,
    pack_terms,
    pack_until,
    unpack_lease,
)
from ...schema.keys import CLAIM_BYTES, Kind, QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...store.client import pack_int
from ...store.clocks import VERSIONS_PER_SECOND, Moment
from ...values.model import Delivery, LeasedMessage, Message
from ...values.records import record
from ...values.states import LEASE
from .. import payloads, transitions
from . import scan

MIN_SPAN = 8
"""How many leases of one claim and level are read as a range."""


@record
class Terms:
    """The terms of leases: their length in seconds, their claim, the name of the consumer.

    A claim is 16 random bytes, the first ones of each token.
    begins: whether the consumer handles a message that comes alone at once, beside no other.
    in_line: whether the consumer asked in line, and finds its leases by their claim.
    """

    seconds: float
    claim: bytes
    consumer: str
    begins: bool = True
    in_line: bool = False


class Read(Protocol):
    """The read of one key, issued and perhaps not awaited."""

    @property
    def value(self) -> bytes | None:
        """What stands there; None if nothing does."""

    def block_until_ready(self) -> None:
        """Wait for it."""


class Reads(NamedTuple):
    """The claim of a lease, and the reads of the lease and its end, issued and not awaited."""

    claim: bytes
    lease: fdb.Value
    until: fdb.Value


class _Span:
    """One snapshot read of a range instead of one of each key: of some keys that stand together,
    with few others between them. If there are many, the rest of the keys are read one by one."""

    def __init__(self, tr: fdb.TransactionRead, keys: Sequence[bytes]) -> None:
        self._tr = tr
        self._limit = 2 * len(keys)
        mode = fdb.StreamingMode.want_all
        self._range = tr.get_range(min(keys), max(keys) + b"\x00", self._limit, False, mode)

    @cached_property
    def rows(self) -> dict[bytes, bytes]:
        """The rows by their keys."""
        return {kv.key: kv.value for kv in self._range}

    def get(self, key: bytes) -> bytes | None:
        """What stands at a key."""
        rows = self.rows
        if key in rows or len(rows) < self._limit:
            return rows.get(key)
        return self._tr.get(key).value


class _Row(NamedTuple):
    """A key of a span, to be used as a ``Read``."""

    span: _Span
    key: bytes

    @property
    def value(self) -> bytes | None:
        return self.span.get(self.key)

    def block_until_ready(self) -> None:
        self.span.rows  # noqa: B018


class Held(NamedTuple):
    """A lease, and when it ends."""

    lease: Lease
    until: Moment


@transactional
def grant(
    tr: fdb.Transaction, scope: Scope, terms: Terms, messages: Sequence[StoredMessage]
) -> list[Delivery]:
    """Lease ready messages. The caller has read them, with a conflict on each.

    Writes blindly. One round trip if payloads are in chunks, else none.
    """
    if not messages:
        return []
    chunks = payloads.reads(tr, scope.keys, messages)
    (leases,) = assign(tr, scope, [(terms, messages)])
    return answer(messages, chunks, leases)


_LEASED = counters.unit(LEASE)


def take_plain(
    tr: fdb.Transaction, scope: Scope, found: Iterable[fdb.KeyValue], terms: Terms, room: int
) -> list[Delivery] | None:
    """Lease the first ready messages of a snapshot read, the fast way.

    Does what ``scan.conflicting``, ``head.first`` and ``grant`` do, with the same conflicts, but
    opens each envelope once and stores it unchanged. Returns None, with nothing written, if there
    is no message, the queue keeps a history, or ``open_message`` returns None for one.

    room: bytes of messages that the transaction can hold.
    """
    keys, clock, claim, levels = scope.keys, scope.clock, terms.claim, scope.keys.levels
    if scope.options.history_seconds is not None:
        return None
    now_ms, tried = clock.now_ms(tr), once.attempt(tr)
    version = (
        (tried.version or once.version(tr))
        + clock.versions_ahead()
        + int(terms.seconds * VERSIONS_PER_SECOND)
    )
    wall_ms = now_ms + int(terms.seconds * 1000)
    packed = pack_int(version)
    rows: list[tuple[bytes, bytes, Leasing, tuple[Message, bool]]] = []
    for kv in found:
        key, value = kv.key, kv.value
        room -= len(value) + keys.lease_bytes
        if room < 0 and rows:
            break
        needs = leasing(keys, key, claim, packed)
        level, index, random = needs[:3]
        place = f"{levels[level].label}{index:012x}-{random.hex()}"
        opened = open_message(value, place, level, now_ms)
        if opened is None:
            return None
        rows.append((key, value, needs, opened))
    if not rows:
        return None
    begun = terms.begins and len(rows) == 1
    expiry = wall_ms.to_bytes(8, "little") + claim
    totals: dict[int, int] = {}
    tops: dict[int, int] = {}
    deliveries = []
    tr.add_read_conflict_range(keys.ready_begin, rows[-1][0] + b"\x00")
    for key, value, needs, (message, plain) in rows:
        level, index, random, token, leased_key, expiry_key = needs
        if not tried.ours or tried.taken:
            tried.take(tr, keys, key)
        tr.clear(key)
        given = (version, wall_ms, terms.consumer, value, begun, claim, plain)
        tr.set(leased_key, pack_terms(level, index, random, *given))
        tr.set(expiry_key, expiry)
        counted = _LEASED - len(message.payload) * counters.BYTE
        totals[level] = totals[level] + counted if level in totals else counted
        tops[level] = index
        deliveries.append(Delivery(message, token, message.attempts + 1, wall_ms, begun))
    for level, total in totals.items():
        prepared = levels[level]
        # As ``scan.remove``: its index is never used again.
        tr.max(prepared.tail, tops[level].to_bytes(8, "little"))
        operand = (total % counters.MODULUS).to_bytes(counters.OPERAND_BYTES, "little")
        tr.add(prepared.count, operand)
    return deliveries


def assign(
    tr: fdb.Transaction, scope: Scope, given: Sequence[tuple[Terms, Sequence[StoredMessage]]]
) -> list[list[tuple[bytes, Lease]]]:
    """Lease ready messages to several consumers; returns the leases of each, with their tokens.

    As ``grant``, but reads nothing.
    """
    taken = [
        StoredMessage(message.position, message.envelope, terms.consumer, message.turn)
        for terms, messages in given
        for message in messages
    ]
    scan.remove(tr, scope.keys, taken)
    transitions.record(tr, scope, LEASE, taken)
    return [_assign(tr, scope, terms, messages) for terms, messages in given]


def _assign(
    tr: fdb.Transaction, scope: Scope, terms: Terms, messages: Sequence[StoredMessage]
) -> list[tuple[bytes, Lease]]:
    until = _until(tr, scope, terms.seconds)
    alone = len(messages) == 1
    begun = alone and (terms.begins or messages[0].envelope.suspect)
    leases = []
    keys, expiry = scope.keys, pack_expiry(until.wall_ms, terms.claim)
    for message in messages:
        token = keys.token(terms.claim, keys.ready(message.position))
        packed = pack_envelope(message.envelope)
        lease = Lease(
            message.position,
            *until,
            terms.consumer,
            packed,
            begun=begun,
            claim=terms.claim,
            plain=message.envelope.plain,
        )
        tr[lease_key(keys, token)] = pack_lease(lease)
        tr[keys.expiry(until.version, token)] = expiry
        if terms.in_line:
            tr[keys.until(token)] = pack_until(until)
        leases.append((token, lease))
    return leases


def answer(
    messages: Sequence[StoredMessage],
    chunks: Sequence[fdb.FDBRange | None],
    leases: Sequence[tuple[bytes, Lease]],
) -> list[Delivery]:
    """The deliveries of messages, given the reads of their chunks and their leases."""
    return [
        _delivery(message, token, lease)
        for message, (token, lease) in zip(payloads.load(messages, chunks), leases, strict=True)
    ]


def reads(tr: fdb.Transaction, keys: QueueKeys, deliveries: Sequence[Delivery]) -> list[Read]:
    """Issue the reads of leases to settle, with a conflict on each lease, not on its end.

    One read of each; of many that were leased together, one read of all.
    """
    # Not in a transaction of the caller, who may have turned off that snapshots see its own writes.
    if len(deliveries) < MIN_SPAN or not once.is_ours(tr):
        return [tr.get(lease_key(keys, one.token)) for one in deliveries]
    spans, issued = _spans(tr.snapshot, keys, deliveries), list[Read]()
    for one in deliveries:
        lease = lease_key(keys, one.token)
        span = spans.get((one.token[:CLAIM_BYTES], one.message.level))
        if span is None:
            issued.append(tr.get(lease))
        else:
            tr.add_read_conflict_key(lease)
            issued.append(_Row(span, lease))
    return issued


def _spans(
    tr: fdb.TransactionRead, keys: QueueKeys, deliveries: Sequence[Delivery]
) -> dict[tuple[bytes, int], _Span]:
    """The leases by claim and level, where there are ``MIN_SPAN`` or more: one claim has messages
    that stood together."""
    tokens: dict[tuple[bytes, int], list[bytes]] = {}
    for one in deliveries:
        tokens.setdefault((one.token[:CLAIM_BYTES], one.message.level), []).append(one.token)
    return {
        place: _Span(tr, [lease_key(keys, token) for token in some])
        for place, some in tokens.items()
        if len(some) >= MIN_SPAN
    }


def reads_with_end(tr: fdb.TransactionRead, keys: QueueKeys, token: bytes) -> Reads:
    """Issue the reads of a lease and its end, with a conflict on both."""
    return Reads(token[:CLAIM_BYTES], tr.get(lease_key(keys, token)), tr.get(keys.until(token)))


def end(
    tr: fdb.Transaction,
    scope: Scope,
    deliveries: Sequence[Delivery],
    issued: Sequence[Read] | None = None,
) -> list[StoredMessage]:
    """End leases and return their messages; the caller records where these go.

    issued: the reads of the leases, if they have been issued.

    One round trip, two for extended leases. Conflicts with another settlement of the same leases
    and with their expiry, never with an extension. Raises ``LeaseLost`` for the first lease that is
    gone, and ``MessagePlanned`` for one of a plan, before anything is written.
    """
    return [message_of(each) for each in end_unread(tr, scope, deliveries, issued)]


def end_unread(
    tr: fdb.Transaction,
    scope: Scope,
    deliveries: Sequence[Delivery],
    issued: Sequence[Read] | None = None,
) -> list[Lease]:
    """As ``end``, but returns the leases, with their envelopes still packed."""
    keys, leases = scope.keys, []
    extended: dict[bytes, fdb.Value] = {}
    for delivery, read in zip(deliveries, issued or reads(tr, keys, deliveries), strict=True):
        packed, token = read.value, delivery.token
        lease = None if packed is None else unpack_lease(packed)
        if lease is None or lease.claim != token[:CLAIM_BYTES] or lease.expiry_version == 0:
            raise _lost(delivery, lease)
        if lease.expiry_ms != delivery.expires_at_ms:
            extended[token] = tr.snapshot.get(keys.until(token))
        leases.append(lease)
    for delivery, lease in zip(deliveries, leases, strict=True):
        token, version = delivery.token, lease.expiry_version
        if token in extended:
            version = lease.ends(extended[token].value).version
        remove(tr, keys, token, version)
    return leases


@transactional
def extend(
    tr: fdb.Transaction, scope: Scope, deliveries: Sequence[Delivery], seconds: float
) -> int:
    """Let leases end ``seconds`` from now; returns that end in milliseconds of the wall clock.

    One round trip. Fails if one of the leases is settled or expires meanwhile, and aborts only
    their expiry. Raises what ``end`` raises.
    """
    keys = scope.keys
    issued = [reads_with_end(tr, keys, one.token) for one in deliveries]
    ends = []
    for delivery, read in zip(deliveries, issued, strict=True):
        held = holding(read)
        if held is None or held.lease.planned:
            raise _lost(delivery, held and held.lease)
        ends.append(held.until)
    until = _until(tr, scope, seconds)
    for delivery, end in zip(deliveries, ends, strict=True):
        token = delivery.token
        del tr[keys.expiry(end.version, token)]
        tr[keys.until(token)] = pack_until(until)
        tr[keys.expiry(until.version, token)] = pack_expiry(until.wall_ms, token[:CLAIM_BYTES])
    return until.wall_ms


def witness(keys: QueueKeys, deliveries: Any) -> once.Witness:
    """What tells whether a transaction has leased messages: the first LEASE, with the claim.

    If the leases have expired by then, the messages are received again, as they would have been.
    """
    token = deliveries[0].token
    return once.Witness(lease_key(keys, token), token[:CLAIM_BYTES], keys.leased_ready(token))


def message_of(lease: Lease) -> StoredMessage:
    """The message of a lease."""
    return StoredMessage(lease.position, open_envelope(lease.envelope), lease.consumer)


def under(tr: fdb.Transaction, keys: QueueKeys, claim: bytes, at_most: int) -> list[Delivery]:
    """The deliveries under a claim that asked in line for ``at_most`` messages, as granted.

    Two round trips, and one more for payloads in chunks. Conflicts with their grant and their
    settlement.
    """
    ends = keys.until_under(claim)
    found = tr.get_range(ends.start, ends.stop, at_most, streaming_mode=fdb.StreamingMode.want_all)
    tokens = [keys.parse_until(kv.key) for kv in found]
    values = [tr.get(lease_key(keys, token)) for token in tokens]
    held = [
        (token, unpack_lease(value.value))
        for token, value in zip(tokens, values, strict=True)
        if value.value is not None
    ]
    return _deliveries(tr, keys, [(token, lease) for token, lease in held if lease.claim == claim])


def named(tr: fdb.Transaction, keys: QueueKeys, token: bytes) -> list[Delivery]:
    """The delivery that a token names; none if its lease is gone. As ``under``, but at snapshot
    isolation and with the current end of the lease."""
    held = holding(reads_with_end(tr.snapshot, keys, token))
    if held is None:
        return []
    (found,) = _deliveries(tr, keys, [(token, held.lease)])
    return [replace(found, expires_at_ms=held.until.wall_ms)]


@transactional
def listed(
    tr: fdb.Transaction, scope: Scope, limit: int, begin: bytes
) -> tuple[list[LeasedMessage], bytes]:
    """Leases in the order of their keys, as many as one transaction reads.

    begin: the key to continue from; empty for the first. Also returns the next one, empty at the
    end. Snapshot reads, no conflicts.
    """
    every = scope.keys.kind(Kind.LEASE)
    found, size = list[fdb.KeyValue](), 0
    mode = fdb.StreamingMode.want_all
    for kv in tr.snapshot.get_range(
        max(begin, every.start), every.stop, limit=limit, streaming_mode=mode
    ):
        found.append(kv)
        size += len(kv.value)
        if size > scan.BATCH_BYTES:
            break
    more = len(found) == limit or size > scan.BATCH_BYTES
    held: list[tuple[bytes, Lease, fdb.Value]] = []
    for kv in found:
        try:
            lease = unpack_lease(kv.value)
        except (CorruptData, FormatTooNew):
            continue  # verify reports it
        token = scope.keys.leased_token(kv.key, lease.claim)
        held.append((token, lease, tr.snapshot.get(scope.keys.until(token))))
    version, now_ms = scope.version(tr), scope.now_ms(tr)
    leases = []
    for token, lease, until in held:
        ends = lease.ends(until.value)
        envelope = open_envelope(lease.envelope)
        delivery = Delivery(
            message=envelope.properties(lease.position),
            token=token,
            attempt=envelope.attempts + 1,
            expires_at_ms=ends.wall_ms,
        )
        expired = not lease.planned and over(ends, version, now_ms)
        leases.append(LeasedMessage(delivery, lease.consumer, expired, lease.planned))
    return leases, found[-1].key + b"\x00" if more else b""


OVERDUE_MS = 120_000
"""How long after its end, by the wall clock, a lease with a version of another cluster expires:
twice as long as two believed clocks can differ."""


def over(ends: Moment, version: int, now_ms: int) -> bool:
    """Whether a lease that ends then has expired: by both clocks, or long ago by the wall clock."""
    return ends.wall_ms <= (now_ms if ends.version < version else now_ms - OVERDUE_MS)


def _deliveries(
    tr: fdb.Transaction, keys: QueueKeys, held: Sequence[tuple[bytes, Lease]]
) -> list[Delivery]:
    messages = [message_of(lease) for _, lease in held]
    return answer(messages, payloads.reads(tr, keys, messages), held)


def _delivery(message: StoredMessage, token: bytes, lease: Lease) -> Delivery:
    return Delivery(
        message=message.envelope.message(message.position),
        token=token,
        attempt=message.envelope.attempts + 1,
        expires_at_ms=lease.expiry_ms,
        begun=lease.begun,
    )


def remove(tr: fdb.Transaction, keys: QueueKeys, token: bytes, version: int) -> None:
    """Remove a lease that was read with a conflict and expires at a version."""
    lease, until, expiry = leased(keys, token, version)
    tr.clear(lease)
    # Also where there was none: an extension may have committed since.
    tr.clear(until)
    tr.clear(expiry)


def holding(reads: Reads) -> Held | None:
    """The lease that was read, and its end; None if it is gone."""
    packed = reads.lease.value
    if packed is None:
        return None
    lease = unpack_lease(packed)
    return Held(lease, lease.ends(reads.until.value)) if lease.claim == reads.claim else None


def _lost(delivery: Delivery, lease: Lease | None) -> LeaseLost | MessagePlanned:
    """Why a delivery cannot be settled or extended, given the lease at its position."""
    if lease is None or lease.claim != delivery.token[:CLAIM_BYTES]:
        return LeaseLost(message_id=delivery.id)
    return MessagePlanned(message_id=delivery.id, consumer=lease.consumer)


def _until(tr: fdb.Transaction, scope: Scope, seconds: float) -> Moment:
    """The end of a lease of ``seconds``."""
    return Moment(
        scope.version(tr) + int(seconds * VERSIONS_PER_SECOND),
        scope.now_ms(tr) + int(seconds * 1000),
    )

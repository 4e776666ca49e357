"""Leases: a consumer holds a message until it settles the delivery or the lease expires.

LEASE, at the message's place, names the consumer and the claim: random bytes that all leases which
were taken together share. The end belongs to the claim. EXPIRY orders claims by their end, and has
the places of the leases that end then. A token is the claim and the place. An extension must not
abort a settlement, which may be part of a long transaction of the user. So it does not touch LEASE,
and writes the new end under UNTIL, below the claim:

| | LEASE | UNTIL | EXPIRY |
|---|---|---|---|
| settling | reads with a conflict, clears | reads at snapshot if extended | |
| settling a whole claim | as well | clears, too | clears |
| extending | reads with a conflict | reads with a conflict, writes | writes, clears |
| expiring | reads with a conflict, clears | reads with a conflict, writes | clears |

A settlement and an expiry conflict, and so do an extension and an expiry. EXPIRY and UNTIL stay
when only some leases of a claim are settled, or when an extension commits during a settlement, or
is unknown to the settled delivery. They are removed when they fall due.

A claim that answers a request in line has UNTIL from the start: its consumer finds its leases
there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from ...errors import CorruptData, FormatTooNew, LeaseLost, MessagePlanned
from ...schema import counters, once
from ...schema.codec.envelopes import open_envelope, pack_envelope
from ...schema.codec.leases import (
    Lease,
    Leasing,
    claim_keys,
    lease_key,
    leasing,
    open_message,
    pack_expiry,
    pack_lease,
    pack_terms,
    pack_until,
    unpack_lease,
    unpack_until,
)
from ...schema.keys import CLAIM_BYTES, Kind, QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...store.client import pack_bytes, pack_int
from ...store.clocks import VERSIONS_PER_SECOND, Moment
from ...values.model import Delivery, LeasedMessage, Message
from ...values.records import record
from ...values.states import LEASE
from .. import payloads, transitions
from . import scan

T = TypeVar("T")

MAX_TOGETHER = 1_000
"""The most leases of one claim, so that their places fit into one value."""
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


class Span:
    """One read of a range instead of one of each key: of some keys that stand together, with few
    others between them. If there are many, the rest of the keys are read one by one."""

    def __init__(self, tr: fdb.TransactionRead, keys: Sequence[bytes]) -> None:
        self._tr = tr
        self._limit = 2 * len(keys)
        self.begin, self.end = min(keys), max(keys) + b"\x00"
        mode = fdb.StreamingMode.want_all
        self._range = tr.get_range(self.begin, self.end, self._limit, False, mode)

    @cached_property
    def rows(self) -> dict[bytes, bytes]:
        """The rows by their keys."""
        return {kv.key: kv.value for kv in self._range}

    @property
    def alone(self) -> bool:
        """Whether only the keys stand there, given that all of them do."""
        return 2 * len(self.rows) == self._limit

    def get(self, key: bytes) -> bytes | None:
        """What stands at a key."""
        rows = self.rows
        if key in rows or len(rows) < self._limit:
            return rows.get(key)
        return self._tr.get(key).value


class _Row(NamedTuple):
    """A key of a span, to be used as a ``Read``."""

    span: Span
    key: bytes

    @property
    def value(self) -> bytes | None:
        return self.span.get(self.key)

    def block_until_ready(self) -> None:
        self.span.rows  # noqa: B018


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
    keys, clock, levels = scope.keys, scope.clock, scope.keys.levels
    if scope.options.history_seconds is not None:
        return None
    now_ms, tried = clock.now_ms(tr), once.attempt(tr)
    seconds = terms.seconds
    version = tried.version or once.version(tr)
    version += clock.versions_ahead() + int(seconds * VERSIONS_PER_SECOND)
    wall_ms = now_ms + int(seconds * 1000)
    rows: list[tuple[bytes, bytes, Leasing, tuple[Message, bool]]] = []
    for kv in found:
        key, value = kv.key, kv.value
        room -= len(value) + keys.lease_bytes
        if room < 0 and rows:
            break
        needs = leasing(keys, key)
        level, index, random, _ = needs
        message_id = f"{levels[level].label}{index:012x}-{random.hex()}"
        opened = open_message(value, message_id, level, now_ms)
        if opened is None:
            return None
        rows.append((key, value, needs, opened))
    count = len(rows)
    if not count:
        return None
    begun = terms.begins and count == 1
    totals: dict[int, int] = {}
    tops: dict[int, int] = {}
    deliveries = []
    end = rows[-1][0] + b"\x00"
    tr.add_read_conflict_range(keys.ready_begin, end)
    # Nothing else is there. A cursor relies on the gaps between messages: leave these alone then.
    at_once = count > 1 and tried.ours and not tried.taken and not scope.subscriptions
    if at_once:
        tr.clear_range(rows[0][0], end)
    ends, packed = wall_ms.to_bytes(8, "little"), pack_int(version)
    claims = ((terms.claim, rows),) if count <= MAX_TOGETHER else _claims(terms.claim, rows)
    for claim, some in claims:
        expiry = ends
        together = count if some is rows else len(some)
        for key, value, (level, index, random, place), (message, plain) in some:
            if not at_once:
                if not tried.ours or tried.taken:
                    tried.take(tr, keys, key)
                tr.clear(key)
            given = (version, wall_ms, terms.consumer, value, begun, claim, plain, together)
            tr.set(keys.lease_prefix + place, pack_terms(level, index, random, *given))
            expiry += place
            counted = _LEASED - len(message.payload) * counters.BYTE
            totals[level] = totals[level] + counted if level in totals else counted
            tops[level] = index
            token = claim + place
            deliveries.append(Delivery(message, token, message.attempts + 1, wall_ms, begun))
        tr.set(keys.expiry_prefix + packed + pack_bytes(claim), expiry)
    for level in totals:
        total, prepared = totals[level], levels[level]
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
        replace(message, consumer=terms.consumer)
        for terms, messages in given
        for message in messages
    ]
    scan.remove(tr, scope.keys, taken, cut=True)
    transitions.record(tr, scope, LEASE, taken)
    return [_assign(tr, scope, terms, messages) for terms, messages in given]


def _assign(
    tr: fdb.Transaction, scope: Scope, terms: Terms, messages: Sequence[StoredMessage]
) -> list[tuple[bytes, Lease]]:
    until = ending(tr, scope, terms.seconds)
    alone = len(messages) == 1
    begun = alone and (terms.begins or messages[0].envelope.suspect)
    leases = []
    keys = scope.keys
    for claim, some in _claims(terms.claim, messages):
        places = []
        for message in some:
            packed = pack_envelope(message.envelope)
            lease = Lease(
                message.position,
                *until,
                terms.consumer,
                packed,
                begun=begun,
                claim=claim,
                plain=message.envelope.plain,
                together=len(some),
            )
            place = lease.place
            tr[keys.lease_prefix + place] = pack_lease(lease)
            places.append(place)
            leases.append((claim + place, lease))
        tr[keys.expiry(until.version, claim)] = pack_expiry(until.wall_ms, places)
        if terms.in_line:
            tr[keys.until(claim)] = pack_until(dict.fromkeys(places, until))
    return leases


def _claims(claim: bytes, items: Sequence[T]) -> Iterator[tuple[bytes, Sequence[T]]]:
    """What is taken at once, in as many claims as it takes; the first one is given."""
    yield claim, items[:MAX_TOGETHER]
    for begin in range(MAX_TOGETHER, len(items), MAX_TOGETHER):
        yield os.urandom(CLAIM_BYTES), items[begin : begin + MAX_TOGETHER]


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
    """Issue the reads of leases to settle or extend, not of their ends.

    One read of each, with a conflict; of many that were leased together, one snapshot read of all.
    """
    # Not in a transaction of the caller, who may have turned off that snapshots see its own writes.
    if len(deliveries) < MIN_SPAN or not once.is_ours(tr):
        return [tr.get(lease_key(keys, one.token)) for one in deliveries]
    return read_together(tr, keys, [one.token for one in deliveries], tr.snapshot)


def read_together(
    tr: fdb.TransactionRead,
    keys: QueueKeys,
    tokens: Sequence[bytes],
    spans: fdb.TransactionRead | None,
) -> list[Read]:
    """Issue the reads of leases: one of each, or one by ``spans`` of those that were taken
    together, if there are enough of one claim and level.
    """
    together: dict[bytes, list[bytes]] = {}
    for token in () if spans is None else tokens:
        together.setdefault(_neighbours(token), []).append(lease_key(keys, token))
    found = {
        which: Span(spans, some)
        for which, some in together.items()
        if spans is not None and len(some) >= MIN_SPAN
    }
    issued = list[Read]()
    for token in tokens:
        span, key = found.get(_neighbours(token)), lease_key(keys, token)
        issued.append(tr.get(key) if span is None else _Row(span, key))
    return issued


def _neighbours(token: bytes) -> bytes:
    """The claim and the level: leases of one claim stood together."""
    return token[: token[CLAIM_BYTES] + CLAIM_BYTES - 0x13]


def conflict(tr: fdb.Transaction, issued: Iterable[Read | None]) -> None:
    """Make reads of leases conflict that do not yet."""
    for read in issued:
        if isinstance(read, _Row):
            tr.add_read_conflict_key(read.key)


def _spans(
    tr: fdb.TransactionRead, keys: QueueKeys, deliveries: Sequence[Delivery]
) -> dict[tuple[bytes, int], Span]:
    """The leases by claim and level, where there are ``MIN_SPAN`` or more: one claim has messages
    that stood together."""
    tokens: dict[tuple[bytes, int], list[bytes]] = {}
    for one in deliveries:
        tokens.setdefault((one.token[:CLAIM_BYTES], one.message.level), []).append(one.token)
    return {
        place: Span(tr, [lease_key(keys, token) for token in some])
        for place, some in tokens.items()
        if len(some) >= MIN_SPAN
    }


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
    keys = scope.keys
    issued = issued or reads(tr, keys, deliveries)
    leases = held(deliveries, issued)
    claims: dict[bytes, Lease] = {}
    left: dict[bytes, int] = {}
    extended: dict[bytes, fdb.Value] = {}
    for delivery, lease in zip(deliveries, leases, strict=True):
        claim = lease.claim
        if claim not in claims:
            claims[claim] = lease
            left[claim] = lease.together
        left[claim] -= 1
        if lease.expiry_ms != delivery.expires_at_ms and claim not in extended:
            extended[claim] = tr.snapshot.get(keys.until(claim))
    later = {claim: unpack_until(extended[claim].value) for claim in extended} if extended else {}
    single: Sequence[Read | None] = issued
    if len(issued) >= MIN_SPAN:
        single = _clear_together(tr, issued)
    for delivery, read in zip(deliveries, single, strict=True):
        if read is not None:
            tr.clear(lease_key(keys, delivery.token))
    for claim in claims:
        if left[claim]:
            continue
        lease = claims[claim]
        until, expiry = claim_keys(keys, claim, lease.expiry_version)
        # Also where there is none: an extension may have committed since.
        tr.clear(until)
        if claim not in later or len(later[claim]) < lease.together:
            tr.clear(expiry)
        if claim in later:
            for version in {end.version for end in later[claim].values()}:
                tr.clear(keys.expiry(version, claim))
    return leases


def held(deliveries: Sequence[Delivery], issued: Sequence[Read]) -> list[Lease]:
    """The leases of deliveries, given their reads. Raises as ``end``."""
    leases = []
    for delivery, read in zip(deliveries, issued, strict=True):
        packed = read.value
        lease = None if packed is None else unpack_lease(packed)
        if lease is None or lease.claim != delivery.token[:CLAIM_BYTES] or not lease.expiry_version:
            raise _lost(delivery, lease)
        leases.append(lease)
    if len(leases) > 1 and len({each.token for each in deliveries}) < len(leases):
        seen: set[bytes] = set()
        for each in deliveries:
            if each.token in seen:
                raise LeaseLost(message_id=each.id)
            seen.add(each.token)
    return leases


def _clear_together(tr: fdb.Transaction, issued: Sequence[Read]) -> list[Read | None]:
    """Remove leases that are held and stand together with no others between, as a range, with a
    conflict on it. Returns the reads of the others, with a conflict on each, and None for these."""
    at_once = {read.span for read in issued if isinstance(read, _Row) and read.span.alone}
    for span in at_once:
        tr.add_read_conflict_range(span.begin, span.end)
        tr.clear_range(span.begin, span.end)
    left = [None if isinstance(read, _Row) and read.span in at_once else read for read in issued]
    conflict(tr, left)
    return left


def witness(keys: QueueKeys, deliveries: Any) -> once.Witness:
    """What tells whether a transaction has leased messages: the first LEASE, with the claim.

    If the leases have expired by then, the messages are received again, as they would have been.
    """
    token = deliveries[0].token
    return once.Witness(lease_key(keys, token), token[:CLAIM_BYTES], keys.leased_ready(token))


def message_of(lease: Lease) -> StoredMessage:
    """The message of a lease."""
    return StoredMessage(lease.position, open_envelope(lease.envelope), lease.consumer)


def under(tr: fdb.Transaction, keys: QueueKeys, claim: bytes) -> list[Delivery]:
    """The deliveries under a claim that was given in line, as granted.

    Two round trips, and one more for payloads in chunks. Conflicts with their grant and their
    settlement.
    """
    places = unpack_until(tr.get(keys.until(claim)).value)
    values = [tr.get(keys.lease_prefix + place) for place in places]
    found = [
        (claim + place, unpack_lease(value.value))
        for place, value in zip(places, values, strict=True)
        if value.value is not None
    ]
    return _deliveries(tr, keys, [(token, lease) for token, lease in found if lease.claim == claim])


def named(tr: fdb.Transaction, keys: QueueKeys, token: bytes) -> list[Delivery]:
    """The delivery that a token names; none if its lease is gone. As ``under``, but at snapshot
    isolation and with the current end of the lease."""
    claim = token[:CLAIM_BYTES]
    read, until = tr.snapshot.get(lease_key(keys, token)), tr.snapshot.get(keys.until(claim))
    lease = None if read.value is None else unpack_lease(read.value)
    if lease is None or lease.claim != claim:
        return []
    (found,) = _deliveries(tr, keys, [(token, lease)])
    return [replace(found, expires_at_ms=lease.ends(unpack_until(until.value)).wall_ms)]


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
    rows: list[tuple[bytes, Lease]] = []
    for kv in found:
        try:
            lease = unpack_lease(kv.value)
        except (CorruptData, FormatTooNew):
            continue  # verify reports it
        rows.append((scope.keys.leased_token(kv.key, lease.claim), lease))
    others = ends_of(tr.snapshot, scope.keys, {lease.claim for _, lease in rows})
    version, now_ms = scope.version(tr), scope.now_ms(tr)
    leases = []
    for token, lease in rows:
        ends = lease.ends(others[lease.claim] or {})  # verify reports what it cannot read
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


def ends_of(
    tr: fdb.TransactionRead, keys: QueueKeys, claims: Iterable[bytes]
) -> dict[bytes, dict[bytes, Moment] | None]:
    """The ends of leases by claim and place, where they are not the original ones; None if they
    cannot be read. One round trip."""
    found: dict[bytes, dict[bytes, Moment] | None] = {}
    for claim, read in {claim: tr.get(keys.until(claim)) for claim in claims}.items():
        try:
            found[claim] = unpack_until(read.value)
        except (CorruptData, FormatTooNew):
            found[claim] = None
    return found


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


def _lost(delivery: Delivery, lease: Lease | None) -> LeaseLost | MessagePlanned:
    """Why a delivery cannot be settled or extended, given the lease at its position."""
    if lease is None or lease.claim != delivery.token[:CLAIM_BYTES]:
        return LeaseLost(message_id=delivery.id)
    return MessagePlanned(message_id=delivery.id, consumer=lease.consumer)


def ending(tr: fdb.Transaction, scope: Scope, seconds: float) -> Moment:
    """The end of a lease of ``seconds``."""
    return Moment(
        scope.version(tr) + int(seconds * VERSIONS_PER_SECOND),
        scope.now_ms(tr) + int(seconds * 1000),
    )

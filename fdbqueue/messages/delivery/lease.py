"""Leases: a consumer holds a message until it settles the delivery or the lease expires.

LEASE, at the message's place, names the consumer and the claim: bytes that all leases which were
taken together share, and that end as the id of a registered consumer does. The end of the leases
belongs to the claim. EXPIRY orders claims by their end, and has the places of the leases that end
then. A token is the claim and the place. An extension must not abort a settlement, which may be
part of a long transaction of the user. So it does not touch LEASE, and writes the new end under
UNTIL, below the claim:

| | LEASE | UNTIL | EXPIRY |
|---|---|---|---|
| settling | reads with a conflict, clears | reads at snapshot if extended | |
| settling a whole claim | as well | clears, too | clears |
| extending | reads with a conflict | reads with a conflict, writes | writes, clears |
| shortening | | reads with a conflict, writes | writes, clears |
| expiring | reads with a conflict, clears | reads with a conflict, writes | clears |

A settlement and an expiry conflict, and so do an extension and an expiry. EXPIRY and UNTIL stay
when only some leases of a claim are settled, or when an extension commits during a settlement, or
is unknown to the settled delivery. They are removed when they fall due.

A claim that answers a request in line has UNTIL from the start: its consumer finds its leases
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ...errors import CorruptData
from ...schema import counters, once
from ...schema.codec.blocks import SHARED, number, open_block, pack_block
from ...schema.codec.envelopes import open_envelope
from ...schema.codec.leases import (
    Lease,
    holder_of,
    lease_key,
    new_claim,
    pack_expiry,
    pack_until,
    unpack_until,
)
from ...schema.keys import CLAIM_BYTES, Kind, QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...store.client import pack_bytes, pack_int
from ...store.clocks import VERSIONS_PER_SECOND, Moment
from ...values.model import Delivery, LeasedMessage
from ...values.states import LEASE
from .. import payloads, place, transitions
from . import lease_rows, limits, scan

T = TypeVar("T")

GRANT_SECONDS = 10.0
"""How long a lease lasts that was granted in line, until its consumer looks: longer than it
sleeps."""

MAX_TOGETHER = 1_000
"""The most leases of one claim, so that their places fit into one value."""


class Terms(Struct, frozen=True):
    """The terms of leases: their length in seconds, their claim, the name of the consumer.

    A claim is 16 bytes, the first ones of each token.
    begins: whether the consumer handles a message that comes alone at once, beside no other.
    in_line: whether the consumer waits in line, and is to find its leases by their claim: see
        ``collect``.
    """

    seconds: float
    claim: bytes
    consumer: str
    begins: bool = True
    in_line: bool = False


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


def take_one(
    tr: fdb.Transaction, scope: Scope, found: Iterable[fdb.KeyValue], terms: Terms
) -> list[Delivery] | None:
    """Lease the first ready message of a snapshot read, the fast way.

    As ``batch.take``, for one. If it stands in a block, the rest is cut into single messages.
    """
    keys, clock, levels = scope.keys, scope.clock, scope.keys.levels
    if scope.options.history_seconds is not None:
        return None
    kv = next(iter(found), None)
    if kv is None:
        return None
    now_ms, tried = clock.now_ms(tr), once.attempt(tr)
    key, value, block = kv.key, kv.value, None
    if value[:1] == SHARED:
        block = open_block(key, keys.parse_ready(key), value)
        if block is None:
            return None
        key, value = block.key(block.first), block.left[block.first]
    position, where, envelope = keys.parse_ready(key), key[keys.place_begin :], open_envelope(value)
    if not envelope.simple(now_ms):
        return None
    tr.add_read_conflict_range(keys.ready_begin, kv.key + b"\x00")
    if not tried.ours or tried.taken:
        tried.take(tr, keys, key)
    if block is None:
        tr.clear(key)
    else:
        span = block.span()
        tr.clear_range(span.start, span.stop)
        del block.left[block.first]
        for left, rest in block.rows(1):
            tr.set(left, rest)
    seconds, claim, begun = terms.seconds, terms.claim, terms.begins
    version = tried.version or once.version(tr)
    version += clock.versions_ahead() + int(seconds * VERSIONS_PER_SECOND)
    wall_ms = now_ms + int(seconds * 1000)
    given = (version, wall_ms, terms.consumer, value, begun, claim, envelope.plain)
    tr.set(keys.lease_prefix + where, Lease(position, *given).pack())
    expiry = keys.expiry_prefix + pack_int(version) + pack_bytes(claim)
    tr.set(expiry, wall_ms.to_bytes(8, "little") + where)
    prepared, total = levels[position.level], _LEASED - envelope.size * counters.BYTE
    place.leave(tr, prepared, position.index)
    operand = (total % counters.MODULUS).to_bytes(counters.OPERAND_BYTES, "little")
    tr.add(prepared.count, operand)
    message = envelope.message(position, envelope.payload)
    return [Delivery(message, claim + where, message.attempts + 1, wall_ms, begun)]


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
    if taken:
        limits.count(tr, scope, len(taken))
    scan.remove(tr, scope.keys, taken, cut=True)
    transitions.record(tr, scope, LEASE, taken)
    return [_assign(tr, scope, terms, messages) for terms, messages in given]


def _assign(
    tr: fdb.Transaction, scope: Scope, terms: Terms, messages: Sequence[StoredMessage]
) -> list[tuple[bytes, Lease]]:
    until = ending(tr, scope, min(terms.seconds, GRANT_SECONDS) if terms.in_line else terms.seconds)
    alone = len(messages) == 1 and not terms.in_line
    begun = alone and (terms.begins or messages[0].envelope.suspect)
    leases = []
    keys = scope.keys
    for claim, some in _claims(terms.claim, messages):
        places = []
        run: list[bytes] = []
        for n, message in enumerate(some, 1):
            packed, plain = message.envelope.pack(), message.envelope.plain
            given = (*until, terms.consumer, packed, begun, claim, plain, len(some))
            lease = Lease(message.position, *given)
            where = lease.place
            places.append(where)
            leases.append((claim + where, lease))
            run.append(packed)
            if n == len(some) or not _share(message, some[n]):
                row = pack_block(run) if len(run) > 1 else packed
                tr[keys.lease_prefix + where] = replace(lease, envelope=row).pack()
                run = []
        tr[keys.expiry(until.version, claim)] = pack_expiry(until.wall_ms, places)
        if terms.in_line:
            tr[keys.until(claim)] = pack_until(dict.fromkeys(places, until))
    return leases


def _share(one: StoredMessage, other: StoredMessage) -> bool:
    """Whether the leases of two messages, one taken after the other, go into one row."""
    if one.block is None or one.block is not other.block:
        return False
    follows = number(other.position) == number(one.position) + 1
    return follows and one.envelope.plain == other.envelope.plain


def _claims(claim: bytes, items: Sequence[T]) -> Iterator[tuple[bytes, Sequence[T]]]:
    """What is taken at once, in as many claims as it takes; the first one is given."""
    yield claim, items[:MAX_TOGETHER]
    for begin in range(MAX_TOGETHER, len(items), MAX_TOGETHER):
        yield new_claim(holder_of(claim)), items[begin : begin + MAX_TOGETHER]


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


def witness(keys: QueueKeys, deliveries: Any) -> once.Witness:
    """What tells whether a transaction has leased messages: the last LEASE, with the claim.

    If the leases have expired by then, the messages are received again, as they would have been.
    """
    # The last message of a row has its key.
    token = deliveries[-1].token
    return once.Witness(lease_key(keys, token), token[:CLAIM_BYTES], keys.leased_ready(token))


def collect(
    tr: fdb.Transaction, scope: Scope, claim: bytes, seconds: float, *, begins: bool
) -> list[Delivery]:
    """The deliveries under a claim that was given in line, from now on in the hands of their
    consumer.

    Who stood in line may have died: so a lease that is granted there is short, and handling has not
    begun. Once its consumer looks, the lease lasts ``seconds``, and a message that comes alone is
    begun. Looking again changes nothing.

    Two round trips, one more for payloads in chunks, and for one message that shares its row.
    Conflicts with their grant, their expiry and their settlement.
    """
    keys = scope.keys
    ends = unpack_until(tr.get(keys.until(claim)).value)
    tokens = [claim + where for where in ends]
    alone = lease_rows.alone_at(tr, keys, lease_key(keys, tokens[0])) if len(tokens) == 1 else None
    leases: Iterable[Lease | None] = (alone,)
    if alone is None:
        leases = map(lease_rows.leased, lease_rows.read_together(tr, keys, tokens, tr))
    granted = zip(tokens, leases, strict=True)
    held = [(token, one) for token, one in granted if one and one.claim == claim]
    old = {Moment(one.expiry_version, one.expiry_ms) for _, one in held}
    if held and old == set(ends.values()):  # It has not looked before.
        for each in old:
            del tr[keys.expiry(each.version, claim)]
        until, places = ending(tr, scope, seconds), list(ends)
        tr[keys.expiry(until.version, claim)] = pack_expiry(until.wall_ms, places)
        tr[keys.until(claim)] = pack_until(dict.fromkeys(places, until))
        ends = dict.fromkeys(places, until)
        if alone is not None and (begins or open_envelope(alone.envelope).suspect):
            tr[lease_key(keys, tokens[0])] = replace(alone, begun=True).pack()
            held = [(tokens[0], replace(alone, begun=True))]
    held = [(token, replace(one, expiry_ms=one.ends(ends).wall_ms)) for token, one in held]
    return _deliveries(tr, keys, held)


def named(tr: fdb.Transaction, keys: QueueKeys, token: bytes) -> list[Delivery]:
    """The delivery that a token names; none if its lease is gone. As ``under``, but at snapshot
    isolation and with the current end of the lease."""
    claim = token[:CLAIM_BYTES]
    read = lease_rows.read(tr.snapshot, keys, lease_key(keys, token))
    until = tr.snapshot.get(keys.until(claim))
    lease = lease_rows.leased(read)
    if lease is None or lease.claim != claim:
        return []
    (found,) = _deliveries(tr, keys, [(token, lease)])
    return [replace(found, expires_at_ms=lease.ends(unpack_until(until.value)).wall_ms)]


@transactional
def listed(
    tr: fdb.Transaction, scope: Scope, limit: int, begin: bytes, room: int | None = None
) -> tuple[list[LeasedMessage], bytes]:
    """Leases in the order of their keys, as many as one transaction reads.

    begin: the key to continue from; empty for the first. room: after so many bytes no more are
    read; those of a batch by default. Also returns the next key, empty at the end. Snapshot reads,
    no conflicts.
    """
    every, room = scope.keys.kind(Kind.LEASE), scan.BATCH_BYTES if room is None else room
    found, size = list[fdb.KeyValue](), 0
    mode = fdb.StreamingMode.want_all
    for kv in tr.snapshot.get_range(
        max(begin, every.start), every.stop, limit=limit, streaming_mode=mode
    ):
        found.append(kv)
        size += len(kv.value)
        if size > room:
            break
    more = len(found) == limit or size > room
    rows: list[tuple[bytes, Lease]] = []
    for row in lease_rows.alone(scope.keys, found, begin):
        try:
            lease = Lease.unpack(row.value)
        except CorruptData:
            continue  # verify reports it
        rows.append((scope.keys.leased_token(row.key, lease.claim), lease))
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
            cancelled=envelope.cancelled,
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
        except CorruptData:
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
    messages = [lease_rows.message_of(lease) for _, lease in held]
    return answer(messages, payloads.reads(tr, keys, messages), held)


def _delivery(message: StoredMessage, token: bytes, lease: Lease) -> Delivery:
    return Delivery(
        message=message.opened,
        token=token,
        attempt=message.envelope.attempts + 1,
        expires_at_ms=lease.expiry_ms,
        begun=lease.begun,
        cancelled=message.envelope.cancelled,
    )


def ending(tr: fdb.Transaction, scope: Scope, seconds: float) -> Moment:
    """The end of a lease of ``seconds``."""
    return Moment(
        scope.version(tr) + int(seconds * VERSIONS_PER_SECOND),
        scope.now_ms(tr) + int(seconds * 1000),
    )

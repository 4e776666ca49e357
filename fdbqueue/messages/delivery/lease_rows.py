"""Rows of leases: reading leases by their keys, and removing them.

A row holds one lease, or those of messages of a block that were taken together: the row of the
last of them, with their envelopes as a block. Leases that are settled together with their row are
one key to remove. If only some of them are, the others get rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias, final

from msgspec.structs import replace

from ...errors import CorruptData, LeaseLost, MessagePlanned
from ...schema import once
from ...schema.codec import blocks
from ...schema.codec.blocks import AnyRow, Block
from ...schema.codec.envelopes import open_envelope
from ...schema.codec.leases import Lease, claim_keys, lease_key, unpack_until
from ...schema.keys import CLAIM_BYTES, QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.model import Delivery

MIN_SPAN = 8
"""How many leases of one claim and level are read as a range."""


class Shared:
    """Leases that share a row, as one transaction has read and changed it."""

    __slots__ = ("block", "key", "lease")

    def __init__(self, key: bytes, lease: Lease, block: Block) -> None:
        self.key = key
        self.lease = lease
        self.block = block

    def leases(self) -> Iterator[tuple[bytes, Lease]]:
        """The leases that are left, with the keys of their own."""
        block = self.block
        for n, envelope in block.left.items():
            yield block.key(n), replace(self.lease, position=block.place(n), envelope=envelope)

    def alone(self) -> Iterator[blocks.Row]:
        """A row for each lease that is left."""
        return (blocks.Row(key, lease.pack()) for key, lease in self.leases())

    def write(self, tr: fdb.Transaction) -> None:
        """Replace the row by those of the leases that are left."""
        tr.clear(self.key)
        for key, value in self.alone():
            tr.set(key, value)


def shared(keys: QueueKeys, key: bytes, value: bytes) -> Shared | None:
    """The leases in a row; None if it has one, or cannot be read."""
    try:
        lease = Lease.unpack(value)
        block = block_of(keys, key, lease)
    except CorruptData:
        return None
    return None if block is None else Shared(key, lease, block)


def block_of(keys: QueueKeys, key: bytes, lease: Lease) -> Block | None:
    """The block in a row of LEASE; None if it has one lease. Raises ``CorruptData``."""
    if lease.planned:
        return blocks.open_planned(keys, key, lease.position, lease.envelope)
    return blocks.open_block(key, lease.position, lease.envelope)


def alone(keys: QueueKeys, rows: Iterable[AnyRow], begin: bytes = b"") -> Iterator[AnyRow]:
    """Rows of LEASE, with a row for each lease that shares one, from the key ``begin`` on."""
    for kv in rows:
        found = shared(keys, kv.key, kv.value)
        if found is None:
            yield kv
        else:
            yield from (each for each in found.alone() if each.key >= begin)


def opened(
    keys: QueueKeys, rows: Iterable[AnyRow], begin: bytes = b""
) -> Iterator[tuple[bytes, Lease]]:
    """The leases in rows of LEASE with the keys of their own, from the key ``begin`` on.

    Raises ``CorruptData``.
    """
    for kv in rows:
        lease = Lease.unpack(kv.value)
        block = block_of(keys, kv.key, lease)
        each = [(kv.key, lease)] if block is None else Shared(kv.key, lease, block).leases()
        yield from ((own, one) for own, one in each if own >= begin)


class Span:
    """One read of a range instead of one of each key: of some keys that stand together, with few
    others between them. If there are many, the rest of the keys are read one by one."""

    def __init__(self, tr: fdb.TransactionRead, keys: QueueKeys, wanted: Sequence[bytes]) -> None:
        self._tr = tr
        self._keys = keys
        self._wanted = len(wanted)
        # Of one key, the row that has it: another would be one more to conflict with.
        self._limit = 2 * len(wanted) if len(wanted) > 1 else 1
        self.begin = min(wanted)
        end = blocks.rest(keys.lease_prefix, max(wanted)).stop
        mode = fdb.StreamingMode.want_all
        self._range = tr.get_range(self.begin, end, self._limit, False, mode)
        self.shared: dict[bytes, Shared] = {}

    @cached_property
    def stored(self) -> list[fdb.KeyValue]:
        """The rows that were read."""
        return list(self._range)

    @cached_property
    def leases(self) -> dict[bytes, Lease | bytes]:
        """The leases by their own keys; those that share no row are still packed."""
        return self._open(self.stored)

    @property
    def alone(self) -> bool:
        """Whether only the keys stand there, given that all of them do."""
        return len(self.leases) == self._wanted and len(self.stored) < self._limit

    @property
    def end(self) -> bytes:
        """The end of the last row."""
        return self.stored[-1].key + b"\x00"

    def get(self, key: bytes) -> Lease | None:
        """The lease of a key. Raises ``CorruptData``."""
        leases = self.leases
        if key not in leases and 1 < self._limit <= len(self.stored):
            rest = blocks.rest(self._keys.lease_prefix, key)
            leases |= self._open(self._tr.get_range(rest.start, rest.stop, limit=1))
        found = leases.get(key)
        return Lease.unpack(found) if isinstance(found, bytes) else found

    def _open(self, stored: Iterable[fdb.KeyValue]) -> dict[bytes, Lease | bytes]:
        leases: dict[bytes, Lease | bytes] = {}
        for kv in stored:
            found = shared(self._keys, kv.key, kv.value)
            if found is None:
                leases[kv.key] = kv.value
                continue
            for own, lease in found.leases():
                leases[own] = lease
                self.shared[own] = found
        return leases


@final
@final
class InSpan(NamedTuple):
    """A key of a span."""

    span: Span
    key: bytes

    @property
    def shared(self) -> Shared | None:
        """The row that it shares, once it is read."""
        return self.span.shared.get(self.key)

    def block_until_ready(self) -> None:
        """Wait for the span."""
        len(self.span.stored)


Read: TypeAlias = "fdb.Value | InSpan"
"""The read of a lease, issued and perhaps not awaited."""


@final
class WholeRow(NamedTuple):
    """A row as it was written when its messages were taken: unchanged, it has the leases of all.

    expiry_version, expiry_ms: when they end by what the row says. expires_at_ms: when they end, as
    far as the holder knows. of: the deliveries among which are its own, from begin to end.
    """

    key: bytes
    value: bytes
    claim: bytes
    expiry_version: int
    expiry_ms: int
    expires_at_ms: int
    level: int
    plain: bool
    together: int
    of: Sequence[Delivery]
    begin: int
    end: int

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """The deliveries of its messages."""
        return self.of[self.begin : self.end]

    def leases(self, keys: QueueKeys) -> list[Lease]:
        """The leases of its messages."""
        return [lease for _, lease in opened(keys, [blocks.Row(self.key, self.value)])]


Held: TypeAlias = Delivery | WholeRow
"""What is settled at once: a delivery, or all of a row."""


def leased(read: Read) -> Lease | None:
    """The lease that was read; None if there is none. Raises ``CorruptData``."""
    if type(read) is InSpan:
        return read.span.get(read.key)
    value = read.value
    return None if value is None else Lease.unpack(value)


def read(tr: fdb.TransactionRead, keys: QueueKeys, key: bytes) -> Read:
    """Issue the read of the lease with a key."""
    if blocks.may_share(key[len(keys.lease_prefix) :]):
        return InSpan(Span(tr, keys, [key]), key)
    return tr.get(key)


def reads(tr: fdb.Transaction, keys: QueueKeys, held: Sequence[Held]) -> list[Read]:
    """Issue the reads of leases to settle or extend, not of their ends.

    One read of each, with a conflict; of many that were leased together, one snapshot read of all.
    """
    # Not in a transaction of the caller, who may have turned off that snapshots see its own writes.
    if len(held) < MIN_SPAN or not once.is_ours(tr):
        return [
            tr.get(one.key if type(one) is WholeRow else lease_key(keys, one.token)) for one in held
        ]
    singly = iter(
        read_together(tr, keys, [o.token for o in held if type(o) is not WholeRow], tr.snapshot)
    )
    return [tr.get(one.key) if type(one) is WholeRow else next(singly) for one in held]


def single(issued: Sequence[Read]) -> fdb.Value | None:
    """The last of some reads, if it is one of a single key."""
    last = issued[-1] if issued else None
    return None if type(last) is InSpan else last


def alone_at(tr: fdb.TransactionRead, keys: QueueKeys, key: bytes) -> Lease | None:
    """The lease in a row of its own; None if there is none. One round trip. Raises ``CorruptData``
    and ``CorruptData``."""
    value = tr.get(key).value
    lease = None if value is None else Lease.unpack(value)
    return None if lease is None or block_of(keys, key, lease) is not None else lease


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
        which: Span(spans, keys, some)
        for which, some in together.items()
        if spans is not None and len(some) >= MIN_SPAN
    }
    issued = list[Read]()
    for token in tokens:
        span, key = found.get(_neighbours(token)), lease_key(keys, token)
        issued.append(read(tr, keys, key) if span is None else InSpan(span, key))
    return issued


def _neighbours(token: bytes) -> bytes:
    """The claim and the level: leases of one claim stood together."""
    return token[: token[CLAIM_BYTES] + CLAIM_BYTES - 0x13]


def again(
    tr: fdb.TransactionRead, keys: QueueKeys, token: bytes, first: Read, known: dict[bytes, Read]
) -> Read:
    """A read of a lease that was not found in a row of its own: in one that it shares.

    known: the leases of such rows that were read before, by their own keys; adds those of this one.
    """
    key = lease_key(keys, token)
    if isinstance(first, InSpan) or key in known:
        return known.get(key, first)
    second = read(tr, keys, key)
    if isinstance(second, InSpan) and leased(second) is not None:
        known |= {own: InSpan(second.span, own) for own in second.span.shared}
    return second


def conflict(tr: fdb.Transaction, issued: Iterable[Read | None]) -> None:
    """Make reads of leases conflict that do not yet."""
    for one in issued:
        if isinstance(one, InSpan):
            row = one.shared
            tr.add_read_conflict_range(one.key, (row.key if row else one.key) + b"\x00")


def remove(
    tr: fdb.Transaction,
    keys: QueueKeys,
    tokens: Iterable[bytes],
    issued: Sequence[Read],
    *,
    every: bool,
) -> None:
    """Remove leases that were read and are held, with a conflict on each.

    every: whether that is so of all that were read with them.
    """
    left: Sequence[Read | None] = issued
    if not every:
        conflict(tr, issued)
    elif len(issued) >= MIN_SPAN:
        left = _remove_spans(tr, issued)
    changed: dict[bytes, Shared] = {}
    for token, one in zip(tokens, left, strict=True):
        if one is None:
            continue
        row = one.shared if isinstance(one, InSpan) else None
        if row is None:
            tr.clear(lease_key(keys, token))
        else:
            row = changed.setdefault(row.key, row)
            del row.block.left[blocks.number_in(token[CLAIM_BYTES:])]
    for row in changed.values():
        row.write(tr)


def _remove_spans(tr: fdb.Transaction, issued: Sequence[Read]) -> list[Read | None]:
    """Remove leases that stand together with no others between, as a range, with a conflict on it.
    Returns the reads of the others, with a conflict on each, and None for these."""
    spans = {one.span for one in issued if isinstance(one, InSpan)}
    at_once = {span for span in spans if span.alone}
    for span in at_once:
        tr.add_read_conflict_range(span.begin, span.end)
        tr.clear_range(span.begin, span.end)
    left = [None if isinstance(one, InSpan) and one.span in at_once else one for one in issued]
    conflict(tr, left)
    return left


def rewrite(tr: fdb.Transaction, keys: QueueKeys, read: Read, lease: Lease) -> None:
    """Store a lease that was read with a conflict, in a row of its own from now on."""
    token = lease.claim + lease.place
    row = read.shared if isinstance(read, InSpan) else None
    if row is not None:
        conflict(tr, [read])
        del row.block.left[blocks.number_in(lease.place)]
        row.write(tr)
    tr[lease_key(keys, token)] = lease.pack()


# -- ending leases ----------------------------------------------------------------------------


def message_of(lease: Lease) -> StoredMessage:
    """The message of a lease."""
    return StoredMessage(lease.position, open_envelope(lease.envelope), lease.consumer)


def is_cancelled(lease: Lease) -> bool:
    """Whether the message of a lease was cancelled. Nothing else makes a lease less plain than its
    message is; so few are opened."""
    return not lease.plain and message_of(lease).envelope.cancelled


def end(tr: fdb.Transaction, scope: Scope, held: Sequence[Held]) -> list[StoredMessage]:
    """End leases and return their messages; the caller records where these go.

    One round trip, two for extended leases. Conflicts with another settlement of the same leases
    and with their expiry, never with an extension. Raises ``LeaseLost`` that names all leases that
    are gone, and ``MessagePlanned`` for one of a plan, before anything is written.
    """
    leases, rows = end_unread(tr, scope, held, reads(tr, scope.keys, held))
    leases += [lease for row in rows for lease in row.leases(scope.keys)]
    return [message_of(each) for each in leases]


def end_unread(
    tr: fdb.Transaction, scope: Scope, held: Sequence[Held], issued: Sequence[Read]
) -> tuple[list[Lease], Sequence[WholeRow]]:
    """As ``end``, given the issued reads; returns the leases that have ended, with their envelopes
    still packed, but those of whole rows as rows.

    A second round trip if a row has changed: to tell which of its leases are gone.
    """
    keys = scope.keys
    rows: list[WholeRow] = []
    deliveries: Sequence[Delivery]
    for each in held:
        if type(each) is WholeRow:
            deliveries, left_reads = _divided(tr, keys, held, issued, rows)
            break
    else:
        deliveries, left_reads = held, list(issued)  # type: ignore[assignment]
    leases = all_held(tr, keys, deliveries, left_reads)
    claims: dict[bytes, Lease | WholeRow] = {}
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
    for row in rows:
        claim = row.claim
        claims.setdefault(claim, row)
        left[claim] = left.get(claim, row.together) - (row.end - row.begin)
        if row.expiry_ms != row.expires_at_ms and claim not in extended:
            extended[claim] = tr.snapshot.get(keys.until(claim))
    later = {claim: unpack_until(extended[claim].value) for claim in extended} if extended else {}
    remove(tr, keys, [each.token for each in deliveries], left_reads, every=True)
    for row in rows:
        tr.clear(row.key)
    for claim in claims:
        if left[claim]:
            continue
        one = claims[claim]
        until, expiry = claim_keys(keys, claim, one.expiry_version)
        # Also where there is none: an extension may have committed since.
        tr.clear(until)
        if claim not in later or len(later[claim]) < one.together:
            tr.clear(expiry)
        if claim in later:
            for version in {end.version for end in later[claim].values()}:
                tr.clear(keys.expiry(version, claim))
    return leases, rows


def _divided(
    tr: fdb.Transaction,
    keys: QueueKeys,
    held: Sequence[Held],
    issued: Sequence[Read],
    rows: list[WholeRow],
) -> tuple[list[Delivery], list[Read]]:
    """Put the rows that nobody has changed into ``rows``; returns the deliveries that are not of
    them, and the reads of their leases."""
    deliveries: list[Delivery] = []
    left: list[Read] = []
    changed: list[WholeRow] = []
    for one, found in zip(held, issued, strict=True):
        if type(one) is not WholeRow:
            deliveries.append(one)
            left.append(found)
        elif type(found) is not InSpan and found.value == one.value:
            rows.append(one)
        else:
            changed.append(one)
    if changed:
        others = [delivery for row in changed for delivery in row.deliveries]
        deliveries += others
        left += reads(tr, keys, others)
    return deliveries, left


def all_held(
    tr: fdb.Transaction, keys: QueueKeys, deliveries: Sequence[Delivery], issued: list[Read]
) -> list[Lease]:
    """The leases of deliveries, all of them held, given their reads. Raises as ``end``.

    One more round trip for leases that share rows and were not read together; replaces their reads.
    """
    leases: list[Lease] = []
    lost: list[str] = []
    known: dict[bytes, Read] = {}
    for n, delivery in enumerate(deliveries):
        lease = leased(issued[n])
        if lease is None or lease.envelope[:1] == blocks.SHARED:
            issued[n] = again(tr, keys, delivery.token, issued[n], known)
            lease = leased(issued[n])
        if lease is None or lease.claim != delivery.token[:CLAIM_BYTES]:
            lost.append(delivery.id)
        elif not lease.expiry_version:
            raise MessagePlanned(message_id=delivery.id, consumer=lease.consumer)
        else:
            leases.append(lease)
    if lost:
        raise LeaseLost(message_id=lost[0], lost=tuple(lost))
    if len(leases) > 1 and len({each.token for each in deliveries}) < len(leases):
        seen: set[bytes] = set()
        for each in deliveries:
            if each.token in seen:
                raise LeaseLost(message_id=each.id)
            seen.add(each.token)
    return leases

"""Checks of stored data, each in one transaction.

A check that compares a few keys at a time goes through the queue page by page, and reads each page
at one version. A check that needs everything at one version, such as the comparison of a counter
with a scan, is skipped if that takes too long.

With ``fix`` a check reads with conflicts and repairs its findings in the same transaction. Counters
are not read with conflicts, or a busy queue could never be repaired. The error of a counter is
unaffected by concurrent additions, so its difference is added blindly; only two repairs conflict.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial

from ...errors import CorruptData, FormatTooNew
from ...schema import counters
from ...schema.codec.atomic import pack_counters, pack_index, unpack_index
from ...schema.codec.dead_letters import unpack_dead
from ...schema.codec.delayed import unpack_delayed
from ...schema.codec.envelopes import Envelope, unpack_envelope
from ...schema.codec.leases import lease_key, pack_expiry, unpack_expiry, unpack_lease
from ...schema.keys import CLAIM_BYTES, Kind
from ...schema.scope import Scope
from ...store.binding import fdb
from ...store.clocks import VERSIONS_PER_SECOND
from ...values.model import Depth, Deviation, Position
from ...values.options import MAX_LEASE_SECONDS

PAGE_ROWS = 500
PAGE_BYTES = 5_000_000
WHOLE_SECONDS = 4.0
"""How long to read at one version, which stays readable for about five seconds."""

_TOO_OLD = 1007
_COUNTERS = tuple(each.name for each in fields(Depth))


class TooLong(Exception):
    """Raised when something takes too long to be read at one version."""


@dataclass(slots=True)
class Audit:
    """One transaction of a check, and its findings."""

    tr: fdb.Transaction
    scope: Scope
    fix: bool
    found: list[Deviation] = field(default_factory=list)
    rows: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def reads(self) -> fdb.TransactionRead:
        """Reads of keys that may be repaired."""
        return self.tr if self.fix else self.tr.snapshot

    def report(
        self, kind: str, subject: str, detail: str, repair: Callable[[], None] | None = None
    ) -> None:
        """Add a defect, and repair it if ``fix`` asks for that and a repair is known."""
        if repaired := self.fix and repair is not None:
            repair()
        self.found.append(Deviation(kind, subject, detail, repaired))

    def page(self, kind: Kind, begin: bytes) -> tuple[list[fdb.KeyValue], bytes]:
        """A page of rows of a kind, from a key on (empty: the first), and the key to continue
        from."""
        every = self.scope.keys.kind(kind)
        rows: list[fdb.KeyValue] = []
        size = 0
        for kv in self.reads.get_range(begin or every.start, every.stop, limit=PAGE_ROWS):
            rows.append(kv)
            size += len(kv.value)
            if size > PAGE_BYTES:
                break
        more = size > PAGE_BYTES or len(rows) == PAGE_ROWS
        return rows, rows[-1].key + b"\x00" if more else b""

    def whole(self, every: slice, limit: int = 0) -> Iterator[fdb.KeyValue]:
        """All rows of a range at one version, without conflicts; raises ``TooLong``."""
        mode = fdb.StreamingMode.want_all
        try:
            for kv in self.tr.snapshot.get_range(
                every.start, every.stop, limit=limit, streaming_mode=mode
            ):
                if time.monotonic() - self.began > WHOLE_SECONDS:
                    raise TooLong
                yield kv
        except fdb.FDBError as error:
            if error.code == _TOO_OLD:
                raise TooLong from None
            raise

    def envelope(self, kind: Kind, kv: fdb.KeyValue) -> tuple[Position, Envelope] | None:
        """The message in a row; None if it is unreadable, which ``messages`` reports."""
        try:
            found = _READERS[kind](self.scope, kv)
        except (CorruptData, FormatTooNew, ValueError, IndexError, TypeError):
            return None
        # Unreadable messages belong among the dead letters.
        return None if found[1].opaque is not None and kind is not Kind.DEAD else found


def _ready(scope: Scope, kv: fdb.KeyValue) -> tuple[Position, Envelope]:
    return scope.keys.parse_ready(kv.key), unpack_envelope(kv.value)


def _leased(scope: Scope, kv: fdb.KeyValue) -> tuple[Position, Envelope]:
    lease = unpack_lease(kv.value)
    return lease.position, unpack_envelope(lease.envelope)


def _waiting(scope: Scope, kv: fdb.KeyValue) -> tuple[Position, Envelope]:
    return unpack_delayed(kv.value)


def _dead(scope: Scope, kv: fdb.KeyValue) -> tuple[Position, Envelope]:
    position, letter = unpack_dead(kv.value)
    return position, letter.envelope


_READERS: dict[Kind, Callable[[Scope, fdb.KeyValue], tuple[Position, Envelope]]] = {
    Kind.READY: _ready,
    Kind.GROUP: _waiting,
    Kind.LEASE: _leased,
    Kind.DELAYED: _waiting,
    Kind.DEAD: _dead,
}
HOLDERS = tuple(_READERS)
"""The kinds of keys that hold messages."""
COUNTED = {
    Kind.READY: "ready",
    Kind.LEASE: "leased",
    Kind.DELAYED: "delayed",
    Kind.DEAD: "dead",
}
"""The counters of the kinds; messages that wait for their ordering key count as ready."""
_IN_PLACE = (Kind.READY, Kind.GROUP)
"""Kinds of messages that were not removed from their positions."""


# -- page by page -----------------------------------------------------------------------------


def messages(audit: Audit, kind: Kind, begin: bytes) -> bytes:
    """Every envelope is readable, its chunks exist, and its index is not beyond TAIL."""
    keys = audit.scope.keys
    rows, following = audit.page(kind, begin)
    tails: dict[int, fdb.Value] = {}
    reads = []
    left = PAGE_BYTES
    for n, kv in enumerate(rows):
        read = audit.envelope(kind, kv)
        if read is None:
            audit.report("unreadable", kv.key.hex(), f"a value of kind {kind.name.lower()}")
            continue
        position, envelope = read
        left -= envelope.chunk_bytes
        if left < 0 and n:
            following = kv.key
            break
        tail = keys.tail(position.level)
        if position.level not in tails:
            tails[position.level] = audit.reads.get(tail)
        every = keys.chunk.under(envelope.chunks)
        chunks = audit.reads.get_range(every.start, every.stop) if envelope.chunks else None
        reads.append((position, envelope, chunks))
    audit.rows = len(reads)
    for position, envelope, chunks in reads:
        subject = envelope.id or position.to_id()
        if kind not in _IN_PLACE and unpack_index(tails[position.level].value) < position.index:
            audit.report(
                "tail too low",
                subject,
                f"its index {position.index} could be used again",
                partial(audit.tr.max, keys.tail(position.level), pack_index(position.index)),
            )
        if chunks is not None:
            stored = sum(len(kv.value) for kv in chunks)
            if stored != envelope.chunk_bytes:
                wanted = f"only {stored:,} of {envelope.chunk_bytes:,} bytes exist"
                audit.report("chunks missing", subject, wanted)
    return following


def leases(audit: Audit, begin: bytes) -> bytes:
    """Every lease but those of plans has its expiry, and its message is not ready as well."""
    keys = audit.scope.keys
    rows, following = audit.page(Kind.LEASE, begin)
    reads = []
    for kv in rows:
        if audit.envelope(Kind.LEASE, kv) is None:
            continue
        lease = unpack_lease(kv.value)
        token = keys.leased_token(kv.key, lease.claim)
        ready = audit.reads.get(keys.ready(lease.position))
        reads.append((lease, token, audit.reads.get(keys.until(token)), ready))
    ended = []
    for lease, token, extended, ready in reads:
        until = lease.ends(extended.value)
        expiry = keys.expiry(until.version, token)
        ended.append((lease, until, expiry, audit.reads.get(expiry), ready))
    for lease, until, expiry, value, ready in ended:
        subject = lease.position.to_id()
        stored = None if lease.planned else value.value
        wanted = pack_expiry(until.wall_ms, lease.claim)
        if not lease.planned and stored != wanted:
            what = "no expiry" if stored is None else f"one at {unpack_expiry(stored)[0]} ms"
            audit.report(
                "lease without expiry",
                subject,
                f"leased until {until.wall_ms} ms, but has {what}",
                partial(audit.tr.set, expiry, wanted),
            )
        if ready.present():
            audit.report("ready and leased", subject, "it would be delivered twice")
    return following


def expiries(audit: Audit, begin: bytes) -> bytes:
    """Every expiry belongs to a lease, or is the remainder of an extension and will fall due."""
    keys = audit.scope.keys
    rows, following = audit.page(Kind.EXPIRY, begin)
    latest = audit.scope.version(audit.tr) + int(MAX_LEASE_SECONDS * VERSIONS_PER_SECOND)
    reads = []
    for kv in rows:
        version, token = keys.leased_until(kv.key, unpack_expiry(kv.value)[1])
        extended = audit.reads.get(keys.until(token))
        reads.append((kv.key, version, audit.reads.get(lease_key(keys, token)), extended, token))
    for key, version, value, extended, token in reads:
        stored = value.value
        try:
            lease = None if stored is None else unpack_lease(stored)
            agrees = (
                version <= latest
                if lease is None or lease.claim != token[:CLAIM_BYTES]
                else lease.ends(extended.value).version == version
            )
        except (CorruptData, FormatTooNew):
            continue
        if not agrees:
            audit.report(
                "expiry without lease",
                token.hex(),
                "no lease ends then",
                partial(audit.tr.clear, key),
            )
    return following


# -- at one version ---------------------------------------------------------------------------


def counted(audit: Audit, kind: Kind, level: int | None) -> None:
    """The counters of a state equal a scan, in one level, or in all (None)."""
    keys = audit.scope.keys
    sources = [(kind, keys.kind(kind) if level is None else keys.ready_level(level))]
    if kind is Kind.READY:
        sources.append((Kind.GROUP, keys.kind(Kind.GROUP)))
    stored = {lv: depth for lv, depth in _depths(audit).items() if level in (None, lv)}
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    places: Counter[Position] = Counter()
    for source, every in sources:
        for kv in audit.whole(every):
            read = audit.envelope(source, kv)
            if read is None:
                return  # reported as unreadable, and its level is unknown
            position, envelope = read
            if level not in (None, position.level):
                continue
            counts[position.level] += 1
            sizes[position.level] += envelope.size
            places[position] += kind is Kind.LEASE
    for position, count in places.items():
        if count > 1:
            audit.report("leased twice", position.to_id(), f"it has {count} leases")
    name = COUNTED[kind]
    for lv in sorted({*stored, *counts}):
        depth = stored.get(lv, Depth())
        _compare(audit, lv, name, getattr(depth, name), counts[lv])
        if kind is Kind.READY:
            _compare(audit, lv, "ready_bytes", depth.ready_bytes, sizes[lv])


def conserved(audit: Audit) -> None:
    """The number of enqueued messages is the sum of the states."""
    for level, depth in _depths(audit).items():
        states = (name for name in _COUNTERS if name not in ("enqueued", "ready_bytes"))
        _compare(audit, level, "enqueued", depth.enqueued, sum(getattr(depth, n) for n in states))


def _depths(audit: Audit) -> dict[int, Depth]:
    keys = audit.scope.keys
    return counters.parse(keys, audit.whole(keys.kind(Kind.COUNT)))


def _compare(audit: Audit, level: int, name: str, counter: int, scan: int) -> None:
    if counter == scan:
        return
    keys = audit.scope.keys

    def repair() -> None:
        deltas = tuple(scan - counter if each == name else 0 for each in _COUNTERS)
        audit.tr.add(keys.count(level), pack_counters(deltas))
        audit.tr.add_read_conflict_key(keys.recount)
        audit.tr.add_write_conflict_key(keys.recount)

    audit.report("counter", f"level {level}: {name}", f"is {counter:,}, but {scan:,} are", repair)

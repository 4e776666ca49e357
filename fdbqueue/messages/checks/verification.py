"""Checks of stored data, each in one transaction.

A check that compares a few keys at a time goes through the queue page by page, and reads each page
at one version. A check that needs everything at one version, such as the comparison of a counter
with a scan, is skipped if that takes too long.

With ``fix`` a check reads with conflicts and repairs its findings in the same transaction. Counters
are not read with conflicts, or a busy queue could never be repaired. The error of a counter is
unaffected by concurrent additions, so its difference is added blindly; only two repairs conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from ...errors import CorruptData
from ...schema import catalogue, counters
from ...schema.codec import MAX_INDEX, pack_counters, unpack_index
from ...schema.envelope import Envelope
from ...schema.key_kinds import Kind
from ...schema.keys import QueueKeys, sorted_by, sorted_length
from ...schema.leases import Lease, pack_expiry, split_places, unpack_expiry, unpack_until
from ...schema.records import DeadLetter, Delayed
from ...schema.scope import Scope
from ...store import world
from ...store.binding import fdb
from ...store.clocks import VERSIONS_PER_SECOND, Moment
from ...values.model import Depth, Deviation, Position
from ...values.options import MAX_LEASE_SECONDS
from ...values.states import State, exactly
from .. import place, run
from ..run import AnyRow, One

PAGE_ROWS = 500
PAGE_BYTES = 5_000_000
WHOLE_SECONDS = 4.0
"""How long to read at one version, which stays readable for about five seconds."""

_TOO_OLD = 1007
_COUNTERS = Depth.__struct_fields__


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
    began: float = field(default_factory=lambda: world.monotonic())

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
        from. Reports those that cannot be read, but of messages, and leaves them out."""
        keys = self.scope.keys
        every = keys.holding(kind)
        rows: list[fdb.KeyValue] = []
        size = 0
        for kv in self.reads.get_range(begin or every.start, every.stop, limit=PAGE_ROWS):
            rows.append(kv)
            size += len(kv.value)
            if size > PAGE_BYTES:
                break
        more = size > PAGE_BYTES or len(rows) == PAGE_ROWS
        following = rows[-1].key + b"\x00" if more else b""
        # Messages have a check of their own, which reports what cannot be read of them.
        return [kv for kv in rows if kind in HOLDERS or self.readable(kind, kv)], following

    def readable(self, kind: Kind, kv: fdb.KeyValue) -> bool:
        """Whether a key and its value are those of a row of the table of keys; reports others."""
        try:
            self.scope.keys.read(kind, kv.key, kv.value)
            return True
        except CorruptData as error:
            self.report("unreadable", self.scope.keys.named(kind, kv.key), str(error))
            return False

    def whole(self, every: slice, limit: int = 0) -> Iterator[fdb.KeyValue]:
        """All rows of a range at one version, without conflicts; raises ``TooLong``."""
        mode = fdb.StreamingMode.want_all
        try:
            for kv in self.tr.snapshot.get_range(
                every.start, every.stop, limit=limit, streaming_mode=mode
            ):
                # Before the store refuses it: an answer about half of the rows would be no answer.
                if world.monotonic() - self.began > WHOLE_SECONDS:
                    raise TooLong
                yield kv
        except fdb.FDBError as error:
            if error.code == _TOO_OLD:
                raise TooLong from None
            raise

    def messages(self, every: slice) -> Iterator[AnyRow]:
        """``whole`` with a row for each message."""
        return self.opened(self.whole(every))

    def leases(self, rows: Iterable[fdb.KeyValue]) -> Iterator[One]:
        """The leases in rows, without those that ``messages`` reports."""
        for kv in rows:
            with suppress(CorruptData):
                yield from run.leases(self.scope.keys, [kv])

    def opened(self, rows: Iterable[fdb.KeyValue]) -> Iterator[AnyRow]:
        """A row for each message of rows."""
        return run.alone(self.scope.keys, rows)

    def envelope(self, kind: Kind, kv: AnyRow) -> tuple[Position, Envelope] | None:
        """The message in a row; None if it is unreadable, which ``messages`` reports."""
        try:
            found = _READERS[kind](self.scope, kv)
        except (CorruptData, ValueError, IndexError, TypeError):
            return None
        # Unreadable messages belong among the dead letters.
        return None if not found[1].readable and kind is not QueueKeys.dead else found


def rows(kind: Kind, audit: Audit, begin: bytes) -> bytes:
    """Every key and value is that of a row of the table of keys."""
    return audit.page(kind, begin)[1]


def strays(audit: Audit) -> None:
    """Somebody else has written below the prefix of the queue. Reports the first of each gap."""
    for gap in audit.scope.keys.strays():
        for kv in audit.whole(gap, limit=1):
            audit.report("stray key", kv.key.hex(), "it is of no kind that a queue has")


def _ready(scope: Scope, kv: AnyRow) -> tuple[Position, Envelope]:
    return scope.keys.parse_ready(kv.key), Envelope.unpack(kv.value)


def _leased(scope: Scope, kv: AnyRow) -> tuple[Position, Envelope]:
    lease = Lease.unpack(kv.value)
    return lease.position, Envelope.unpack(lease.envelope)


def _waiting(scope: Scope, kv: AnyRow) -> tuple[Position, Envelope]:
    delayed = Delayed.unpack(kv.value)
    return delayed.position, delayed.envelope


def _dead(scope: Scope, kv: AnyRow) -> tuple[Position, Envelope]:
    letter = DeadLetter.unpack(kv.value)
    return letter.position, letter.envelope


_READERS: dict[Kind, Callable[[Scope, AnyRow], tuple[Position, Envelope]]] = {
    QueueKeys.ready: _ready,
    QueueKeys.waiting: _waiting,
    QueueKeys.lease: _leased,
    QueueKeys.delayed: _waiting,
    QueueKeys.dead: _dead,
}
HOLDERS = tuple(_READERS)
"""The kinds of keys that hold messages."""
COUNTED: dict[Kind, tuple[State, ...]] = {
    QueueKeys.ready: (State.READY, State.WAITING),
    QueueKeys.lease: (State.LEASED,),
    QueueKeys.delayed: (State.SCHEDULED, State.RETRYING),
    QueueKeys.dead: (State.DEAD,),
}
"""The states that the counters of the kinds tell; those that wait are counted with the ready ones:
their payloads are."""
_IN_PLACE = (QueueKeys.ready, QueueKeys.waiting)
"""Kinds of messages that were not removed from their positions."""


def messages(kind: Kind, audit: Audit, begin: bytes) -> bytes:
    """Every envelope is readable, its chunks exist, and its index is not beyond TAIL. In a sorted
    queue every position has the value of the header, and an arrival not beyond TAIL."""
    keys = audit.scope.keys
    page, following = audit.page(kind, begin)
    rows = list(audit.opened(page))
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
        if envelope.cancelled and kind is not QueueKeys.lease:
            audit.report("cancelled and not leased", subject, "it could be delivered again")
        if audit.scope.options.sort is not None and position.index:
            _sorted(audit, position, envelope, tails[position.level])
        # While a message stands at its index, its key keeps that from being given again; for all
        # others TAIL has to.
        if kind not in _IN_PLACE and unpack_index(tails[position.level].value) < position.index:
            audit.report(
                "tail too low",
                subject,
                f"its index {position.index} could be used again",
                partial(place.leave, audit.tr, keys.levels[position.level], position.index),
            )
        if chunks is not None:
            stored = sum(len(kv.value) for kv in chunks)
            if stored != envelope.chunk_bytes:
                wanted = f"only {stored:,} of {envelope.chunk_bytes:,} bytes exist"
                audit.report("chunks missing", subject, wanted)
    return following


def _sorted(audit: Audit, position: Position, envelope: Envelope, tail: fdb.Value) -> None:
    subject, header = envelope.id or position.to_id(), audit.scope.options.sort or ""
    try:
        value, arrival = sorted_by(position)
    except CorruptData as error:
        audit.report("out of order", subject, str(error))
        return
    wanted = envelope.headers.get(header)
    if sorted_length(value) != sorted_length(wanted) or repr(value) != repr(wanted):
        audit.report("out of order", subject, f"it is sorted by {value!r}, not {wanted!r}")
    if unpack_index(tail.value) < arrival:
        raised = partial(place.leave, audit.tr, audit.scope.keys.levels[position.level], arrival)
        audit.report("tail too low", subject, f"its arrival {arrival} could be used again", raised)


def leases(audit: Audit, begin: bytes) -> bytes:
    """Every lease but those of plans has its expiry, and its message is not ready as well. Who
    extends the lease of a message that was cancelled is told."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.lease, begin)
    reads = []
    untils: dict[bytes, fdb.Value] = {}
    for one in audit.leases(rows):
        lease, message = one.row.lease, one.message
        if not message.envelope.readable:
            continue
        if message.envelope.cancelled and (lease.plain or "cancels" not in audit.scope.noted):
            audit.report(
                "cancellation untold",
                message.id,
                "its consumer would not learn that it was cancelled",
                partial(_tell, audit, one),
            )
        reads.append((one, run.find(audit.reads, keys, one.position)))
        if lease.claim not in untils:
            untils[lease.claim] = audit.reads.get(keys.until(lease.claim))
    others = {claim: _ends(end.value) for claim, end in untils.items()}
    expiries: dict[bytes, fdb.Value] = {}
    ended = []
    for one, ready in reads:
        claim = one.row.lease.claim
        ends = others[claim]
        if ready() is not None:
            audit.report("ready and leased", one.position.to_id(), "it would be delivered twice")
        if one.row.lease.planned or ends is None:
            continue
        until = one.ends(ends)
        expiry = keys.expiry(until.version, claim)
        if expiry not in expiries:
            expiries[expiry] = audit.reads.get(expiry)
        ended.append((one, until, expiry))
    named = {key: _named(read.value) for key, read in expiries.items()}
    for one, until, expiry in ended:
        wall_ms, places = named[expiry]
        if wall_ms != until.wall_ms or one.place not in places:
            what = "no expiry" if one.place not in places else f"one at {wall_ms} ms"
            audit.report(
                "lease without expiry",
                one.position.to_id(),
                f"leased until {until.wall_ms} ms, but has {what}",
                partial(_expire, audit, expiry, until, one.place),
            )
    return following


def _expire(audit: Audit, expiry: bytes, until: Moment, place: bytes) -> None:
    # Read again, with this transaction's writes: an earlier repair of the page may have added to
    # it.
    _, places = _named(audit.tr.get(expiry).value)
    audit.tr[expiry] = pack_expiry(until.wall_ms, dict.fromkeys((*places, place)))


def _tell(audit: Audit, one: One) -> None:
    """Let who extends a lease look whether its message was cancelled."""
    catalogue.note_use(audit.tr, audit.scope, "cancels")
    run.rewrite(audit.tr, one, replace(one.lease, plain=False))


def _named(expiry: bytes | None) -> tuple[int, frozenset[bytes]]:
    """The wall clock and the places that an expiry names; nothing if it cannot be read."""
    try:
        wall_ms, places = unpack_expiry(expiry or pack_expiry(0, ()))
        return wall_ms, frozenset(split_places(places))
    except CorruptData:
        return 0, frozenset()


def _ends(until: bytes | None) -> dict[bytes, Moment] | None:
    """The ends of a claim's leases by place; None if they cannot be read."""
    try:
        return unpack_until(until)
    except CorruptData:
        return None


def expiries(audit: Audit, begin: bytes) -> bytes:
    """Every expiry names leases, and falls due. Leases may be gone, or end later."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.expiry, begin)
    latest = _latest(audit)
    for kv in rows:
        version, claim = keys.expiry.parse(kv.key)
        if not _named(kv.value)[1]:
            audit.report("unreadable", kv.key.hex(), "a value of kind expiry")
        # Not before: an expiry whose leases are gone is removed when it falls due, and does no harm
        # until then.
        elif version > latest:
            clear = partial(audit.tr.clear, kv.key)
            audit.report("expiry without lease", claim.hex(), "no lease ends then", clear)
    return following


def ends(audit: Audit, begin: bytes) -> bytes:
    """Every end of a claim has an expiry, with which it is removed; some of its leases may have
    expired before."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.until, begin)
    reads: list[tuple[bytes, bytes, list[bytes], Moment, fdb.Value]] = []
    for kv in rows:
        (claim,), found = keys.until.parse(kv.key), _ends(kv.value)
        if not found:
            audit.report("unreadable", kv.key.hex(), "a value of kind until")
            continue
        for end in dict.fromkeys(found.values()):
            expiry = keys.expiry(end.version, claim)
            places = [place for place, other in found.items() if other == end]
            reads.append((claim, expiry, places, end, audit.reads.get(expiry)))
    for claim, expiry, places, end, read in reads:
        if not _named(read.value)[1]:
            repair = partial(audit.tr.set, expiry, pack_expiry(end.wall_ms, places))
            audit.report("end without expiry", claim.hex(), "it would stay for ever", repair)
    return following


def _latest(audit: Audit) -> int:
    """No lease ends after this version."""
    return audit.scope.version(audit.tr) + int(MAX_LEASE_SECONDS * VERSIONS_PER_SECOND)


def tails(audit: Audit, begin: bytes) -> bytes:
    """Every level has an index to give."""
    rows, following = audit.page(QueueKeys.tail, begin)
    for kv in rows:
        if unpack_index(kv.value) > MAX_INDEX:
            audit.report("unreadable", kv.key.hex(), "a value of kind tail")
    return following


def counted(audit: Audit, kind: Kind, level: int | None) -> None:
    """The counters of the states of a kind equal a scan, in one level, or in all (None)."""
    keys = audit.scope.keys
    sources = [(kind, keys.holding(kind) if level is None else keys.ready.under(level))]
    if kind is QueueKeys.ready:
        sources.append((QueueKeys.waiting, keys.waiting.rows))
    stored = {lv: depth for lv, depth in _depths(audit).items() if level in (None, lv)}
    counts: Counter[tuple[int, State]] = Counter()
    sizes: Counter[int] = Counter()
    places: Counter[Position] = Counter()
    for source, every in sources:
        for kv in audit.messages(every):
            read = audit.envelope(source, kv)
            if read is None:
                return  # reported as unreadable, and its level is unknown
            position, envelope = read
            if level not in (None, position.level):
                continue
            waits, failed = source is QueueKeys.waiting, envelope.has_failed
            state = exactly(COUNTED[kind][0], waits=waits, failed=failed)
            counts[position.level, state] += 1
            sizes[position.level] += envelope.size
            places[position] += kind is QueueKeys.lease
    for position, count in places.items():
        if count > 1:
            audit.report("leased twice", position.to_id(), f"it has {count} leases")
    for lv in sorted({*stored, *(level for level, _ in counts)}):
        depth = stored.get(lv, Depth())
        for state in COUNTED[kind]:
            name = state.value
            _compare(audit, lv, name, getattr(depth, name), counts[lv, state])
        if kind is QueueKeys.ready:
            _compare(audit, lv, "ready_bytes", depth.ready_bytes, sizes[lv])


def conserved(audit: Audit) -> None:
    """The number of enqueued messages is the sum of the states."""
    for level, depth in _depths(audit).items():
        states = (name for name in _COUNTERS if name not in ("enqueued", "ready_bytes"))
        _compare(audit, level, "enqueued", depth.enqueued, sum(getattr(depth, n) for n in states))


def _depths(audit: Audit) -> dict[int, Depth]:
    keys = audit.scope.keys
    return counters.parse(keys, audit.whole(keys.count.rows))


def _compare(audit: Audit, level: int, name: str, counter: int, scan: int) -> None:
    if counter == scan:
        return
    keys = audit.scope.keys

    def repair() -> None:
        deltas = tuple(scan - counter if each == name else 0 for each in _COUNTERS)
        # The difference, and not the number: what others add meanwhile stays.
        audit.tr.add(keys.count(level), pack_counters(deltas))
        # A key of repairs alone: two that add the same difference would correct it twice.
        audit.tr.add_read_conflict_key(keys.recount)
        audit.tr.add_write_conflict_key(keys.recount)

    audit.report("counter", f"level {level}: {name}", f"is {counter:,}, but {scan:,} are", repair)

"""Expired leases: their messages return to their places.

A lease expires when both the database's version and the wall clock are past its expiry, so neither
a worker with a wrong clock nor the jump of versions at a recovery can end a live lease.

Data copied from another cluster may have versions months ahead of this one's. Such a lease expires
by the wall clock alone, once it is overdue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import CorruptData
from ...schema.leases import pack_expiry, pack_until, split_places, unpack_expiry
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...store.clocks import Moment
from ...values.states import State
from .. import run, settle
from ..run import One
from ..settle import Lapse, Leaving
from ..transaction_budget import SIDE_BYTES, Done, weight
from . import lease

MAX_EXPIRED = 100
"""How many claims are read at once."""
_FIRST_READ = 8
MAX_PAGES = 10
"""How many pages of claims that have expired by the version alone to skip."""
MAX_PLACES = 1_000
"""How many leases one transaction looks for, but for the rest of the last claim."""


class ExpiryReads(NamedTuple):
    """The reads of leases that may have expired, issued and not awaited: those past the database's
    version, and now and then the last of the others."""

    expired: fdb.FDBRange
    strays: fdb.FDBRange | None = None


def reads(tr: fdb.Transaction, scope: Scope) -> ExpiryReads:
    """Issue snapshot reads of the leases that may have expired."""
    strays = None
    # Only where the wall clock is known to be right: strays end by it alone.
    if scope.strays is not None and scope.strays.due() and scope.clock.told(tr):
        strays = tr.snapshot.get_range(
            scope.keys.expiry.begin(scope.version(tr)),
            scope.keys.expiry.rows.stop,
            limit=MAX_EXPIRED,
            reverse=True,
            streaming_mode=fdb.StreamingMode.exact,
        )
    return ExpiryReads(_page(tr, scope, scope.keys.expiry.rows.start), strays)


def _page(tr: fdb.Transaction, scope: Scope, begin: bytes) -> fdb.FDBRange:
    return tr.snapshot.get_range(
        begin,
        scope.keys.expiry.begin(scope.version(tr)),
        limit=MAX_EXPIRED,
        streaming_mode=fdb.StreamingMode.exact,
    )


@dataclass(slots=True)
class _Due:
    """An expiry that is over: its key, and the places of the leases that it names."""

    key: bytes
    version: int
    claim: bytes
    wall_ms: int
    places: list[bytes]


class _Held(NamedTuple):
    """A lease that has expired, its message, and the read of it, with its number there."""

    one: One
    message: StoredMessage
    reads: run.Leases
    n: int


@transactional
def return_expired(tr: fdb.Transaction, scope: Scope, reads: ExpiryReads) -> Done:
    """End expired leases, and return their messages to their places.

    These are then delivered one by one. Where handling had begun, that is a death: they rest
    before, or die. ``moved`` counts leases and expiries. One more round
    trip if there are any, another for each three times as many, and further ones behind expiries
    that name no lease any more, or of a consumer whose clock is ahead. What does not fit is left to
    the next transaction. Conflicts with settlements of the same leases, with extensions of the same
    claims, and with others that end them.
    """
    keys, now_ms, over, size = scope.keys, scope.now_ms(tr), 0, 0
    leaving: list[Leaving] = []
    ending: dict[bytes, One] = {}
    claims = _Claims(tr, scope, _over(tr, scope, reads))
    for due, n, held in claims.leases():
        token = due.claim + due.places[n]
        # Two expiries may name a lease, and it is removed only in the end.
        if held is not None and token not in ending:
            more = weight(held.message.envelope)
            if leaving and size + more > SIDE_BYTES:
                if n:
                    tr.add_read_conflict_key(due.key)
                    # The rest stays due under the same key, for whoever comes next.
                    tr[due.key] = pack_expiry(due.wall_ms, due.places[n:])
                break
            size += more
            # Read at snapshot isolation, since most that are named are settled by now: only those
            # that are returned conflict with their settlement.
            held.reads.conflict([held.n])
            # An extension writes UNTIL and leaves LEASE alone: without this, a lease could be
            # extended and returned at once.
            tr.add_read_conflict_key(keys.until(due.claim))
            ending[token] = held.one
            lapse = Lapse(held.one.row.lease.begun, due.wall_ms)
            leaving.append(settle.decide(scope.options, held.message, lapse, now_ms))
        if n == len(due.places) - 1:
            claims.finish(due)
            over += 1
    # All at once, at the end: leases of one row cut it once.
    run.end(tr, ending.values())
    ready = settle.carry_out(tr, scope, State.LEASED, leaving)
    return Done(ready, len(leaving) + over, size=size)


class _Claims:
    """The claims that have expired, as far as one transaction looks at them."""

    def __init__(self, tr: fdb.Transaction, scope: Scope, over: Sequence[_Due]) -> None:
        self._tr = tr
        self._keys = scope.keys
        self._ends: dict[bytes, dict[bytes, Moment] | None] = {}
        self._sought = [(due, n) for due in over for n in range(len(due.places))]

    def leases(self) -> Iterator[tuple[_Due, int, _Held | None]]:
        """The leases that the claims name, each by its number; None for one that is gone, or ends
        elsewhere.

        Reads a few, and then as many as fit by the size of these, up to three times as many. No
        conflicts: a lease that is
        gone does not come back.
        """
        count, read, size = _FIRST_READ, 0, 0
        while read < len(self._sought):
            some = self._sought[read : read + count]
            new = [claim for claim in (due.claim for due, _ in some) if claim not in self._ends]
            tokens = [due.claim + due.places[n] for due, n in some]
            reads = run.Leases(self._tr, self._keys, tokens, looks=True)
            self._ends |= lease.ends_of(self._tr.snapshot, self._keys, new)
            for which, (due, n) in enumerate(some):
                ends = self._ends[due.claim]
                if ends is None:
                    continue  # verify reports it; it must not block the others.
                held = _held(due, reads, which, ends)
                if held is not None:
                    size += weight(held.message.envelope)
                yield due, n, held
            read += len(some)
            # Large ones may follow small ones.
            fits = (SIDE_BYTES - size) * read // max(1, size)
            # The sizes so far foretell the next ones; the factor bounds the error.
            count = min(max(_FIRST_READ, fits), 3 * count)

    def finish(self, due: _Due) -> None:
        """Remove an expiry whose leases have ended or end later."""
        tr, ends = self._tr, self._ends[due.claim] or {}
        # An extension that ends then may be in flight.
        tr.add_read_conflict_key(due.key)
        del tr[due.key]
        left = {place: end for place, end in ends.items() if end.version != due.version}
        if len(left) < len(ends):
            self._ends[due.claim] = left
            until = self._keys.until(due.claim)
            tr.add_read_conflict_key(until)
            if left:
                tr[until] = pack_until(left)
            else:
                del tr[until]


def _held(due: _Due, reads: run.Leases, n: int, ends: dict[bytes, Moment]) -> _Held | None:
    """The lease that was read, with its message, if it belongs to the claim and ends then."""
    try:
        one = reads.get(n)
    except CorruptData:
        return None  # verify reports it; it must not block the others.
    if one is None or one.ends(ends).version != due.version:
        return None
    return _Held(one, one.message, reads, n)


def _over(tr: fdb.Transaction, scope: Scope, reads: ExpiryReads) -> list[_Due]:
    """The expiries that are over, as many as one transaction looks at."""
    now_ms = scope.now_ms(tr)
    over: list[_Due] = []
    places = 0

    def collect(rows: list[fdb.KeyValue], until_ms: int) -> None:
        nonlocal places
        for kv in rows:
            wall_ms, named = unpack_expiry(kv.value)
            if wall_ms > until_ms or places >= MAX_PLACES:
                continue
            try:
                due = _Due(kv.key, *scope.keys.expiry.parse(kv.key), wall_ms, split_places(named))
            except CorruptData:
                continue  # verify reports it
            over.append(due)
            places += len(due.places)

    if reads.strays is not None:
        collect(reads.strays.to_list(), now_ms - lease.OVERDUE_MS)
        if over and scope.strays is not None:
            # There was one: look again at the next chance, until none is left.
            scope.strays.go_on()
    page = reads.expired
    for _ in range(MAX_PAGES):
        rows = page.to_list()
        collect(rows, now_ms)
        if len(rows) < MAX_EXPIRED or len(over) >= MAX_EXPIRED:
            break
        # Leases of a clock that is a little ahead must not block those behind them.
        page = _page(tr, scope, rows[-1].key + b"\x00")
    return over

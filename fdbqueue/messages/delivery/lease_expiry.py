"""Expired leases: their messages return to their places.

A lease expires when both the database's version and the wall clock are past its expiry, so neither
a worker with a wrong clock nor the jump of versions at a recovery can end a live lease.

Data copied from another cluster may have versions months ahead of this one's. Such a lease expires
by the wall clock alone, once it is overdue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...errors import CorruptData, FormatTooNew
from ...schema.codec.envelopes import Envelope
from ...schema.codec.leases import expiries_end, unpack_expiry
from ...schema.keys import Kind
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import RECLAIM
from ..transaction_budget import SIDE_BYTES, fitting, weight
from . import lease, redelivery

MAX_EXPIRED = 100
"""The most expired leases that one transaction ends."""
_FIRST_READ = 8
MAX_PAGES = 10
"""How many pages of leases that have expired by the version alone to skip."""


class Reads(NamedTuple):
    """The reads of leases that may have expired, issued and not awaited: those past the database's
    version, and now and then the last of the others."""

    expired: fdb.FDBRange
    strays: fdb.FDBRange | None = None


def reads(tr: fdb.Transaction, scope: Scope) -> Reads:
    """Issue snapshot reads of the leases that may have expired."""
    strays = None
    if scope.strays is not None and scope.strays.due() and scope.clock.told(tr):
        strays = tr.snapshot.get_range(
            expiries_end(scope.keys, scope.version(tr)),
            scope.keys.kind(Kind.EXPIRY).stop,
            limit=MAX_EXPIRED,
            reverse=True,
            streaming_mode=fdb.StreamingMode.exact,
        )
    return Reads(_page(tr, scope, scope.keys.kind(Kind.EXPIRY).start), strays)


def _page(tr: fdb.Transaction, scope: Scope, begin: bytes) -> fdb.FDBRange:
    return tr.snapshot.get_range(
        begin,
        expiries_end(scope.keys, scope.version(tr)),
        limit=MAX_EXPIRED,
        streaming_mode=fdb.StreamingMode.exact,
    )


@transactional
def return_expired(tr: fdb.Transaction, scope: Scope, reads: Reads) -> tuple[int, int, int]:
    """End expired leases, and return their messages to their places.

    These are then delivered one by one. If handling had begun, the attempt failed, and the
    redelivery policy decides what happens. Returns how many became ready, how many leases ended,
    and the weight of their messages. One more round trip if there are any, and further ones behind
    many leases of a consumer whose clock is ahead. Conflicts with settlements and extensions of the
    same leases, and with others that end them.
    """
    verdicts = []
    now_ms = scope.now_ms(tr)
    for (token, ended, held), _ in fitting(_held(tr, scope, reads), SIDE_BYTES):
        lease.remove(tr, scope.keys, token, ended.until.version)
        verdict = redelivery.after_expiry(
            scope.options, held.envelope, now_ms, begun=ended.lease.begun
        )
        verdicts.append((held, verdict))
    size = sum(weight(held.envelope) for held, _ in verdicts)
    return redelivery.carry_out(tr, scope, RECLAIM, verdicts), len(verdicts), size


def _held(
    tr: fdb.Transaction, scope: Scope, reads: Reads
) -> Iterator[tuple[tuple[bytes, lease.Held, StoredMessage], Envelope]]:
    """The expired leases that still exist, with their messages.

    Reads a few, and then as many as fit by the size of these.
    """
    over, count, read, size = _over(tr, scope, reads), _FIRST_READ, 0, 0
    while read < len(over):
        some = over[read : read + count]
        ends = [lease.reads_with_end(tr, scope.keys, token) for _, token in some]
        for (expiry, token), each in zip(some, ends, strict=True):
            try:
                ended = lease.holding(each)
            except (CorruptData, FormatTooNew):
                ended = None  # verify reports it; it must not block the others.
            if ended is None:  # Or it was extended while being settled.
                del tr[expiry]
                continue
            held = lease.message_of(ended.lease)
            size += weight(held.envelope)
            yield (token, ended, held), held.envelope
        read += len(some)
        count = max(_FIRST_READ, (SIDE_BYTES - size) * read // max(1, size))


def _over(tr: fdb.Transaction, scope: Scope, reads: Reads) -> list[tuple[bytes, bytes]]:
    """The expiries that are over, and the tokens of their leases."""
    now_ms = scope.now_ms(tr)
    over: list[tuple[bytes, bytes]] = []

    def collect(rows: list[fdb.KeyValue], until_ms: int) -> None:
        for kv in rows:
            wall_ms, claim = unpack_expiry(kv.value)
            if wall_ms <= until_ms:
                over.append((kv.key, scope.keys.leased_until(kv.key, claim)[1]))

    if reads.strays is not None:
        collect(reads.strays.to_list(), now_ms - lease.OVERDUE_MS)
        if over and scope.strays is not None:
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

"""Leases that have run out: their messages return to where they stood.

A lease lapses when both the database's version and the reaper's wall clock are past its expiry: a
worker whose clock is wrong cannot steal a live lease alone, and neither can the jump of versions
at a recovery of the database.

Data that was copied from another cluster may have versions that are ahead of this one's, by months:
such a lease lapses by the wall clock alone, once its version is overdue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...errors import CorruptData, FormatTooNew
from ...schema.codec.envelopes import Envelope
from ...schema.codec.leases import unpack_expiry
from ...schema.keys import Kind
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import RECLAIM
from ..transaction_budget import SIDE_BYTES, fitting, weight
from . import lease, redelivery

MAX_LAPSED = 100
"""Lapsed leases that one look returns to the queue."""
_FIRST_READ = 8
MAX_PAGES = 10
"""How often a look goes on behind leases that have lapsed by the version alone."""


class Reads(NamedTuple):
    """The reads of leases that may have lapsed, issued and not awaited: those that have by the
    database's version, and now and then the last ones of those that have not."""

    lapsed: fdb.FDBRange
    strays: fdb.FDBRange | None = None


def reads(tr: fdb.Transaction, scope: Scope) -> Reads:
    """Issue snapshot reads of the leases that may have lapsed."""
    strays = None
    if scope.strays is not None and scope.strays.due() and scope.clock.told(tr):
        strays = tr.snapshot.get_range(
            scope.keys.expiry(scope.version(tr), b""),
            scope.keys.kind(Kind.EXPIRY).stop,
            limit=MAX_LAPSED,
            reverse=True,
            streaming_mode=fdb.StreamingMode.exact,
        )
    return Reads(_page(tr, scope, scope.keys.kind(Kind.EXPIRY).start), strays)


def _page(tr: fdb.Transaction, scope: Scope, begin: bytes) -> fdb.FDBRange:
    return tr.snapshot.get_range(
        begin,
        scope.keys.expiry(scope.version(tr), b""),
        limit=MAX_LAPSED,
        streaming_mode=fdb.StreamingMode.exact,
    )


@transactional
def return_expired(tr: fdb.Transaction, scope: Scope, reads: Reads) -> tuple[int, int, int]:
    """Return messages whose lease has lapsed to their old positions.

    From now on they are delivered one by one. It is a failed attempt of those whose handling had
    begun: the redelivery policy says whether one rests, or becomes a dead letter. Returns
    how many became ready, how many leases have lapsed, and the weight of their messages.
    A second round trip if there are any, and more where a consumer whose clock is ahead has left
    so many leases that they fill what was looked at. Conflicts with a settlement or an extension
    of the same leases and with others who return them.
    """
    verdicts = []
    now_ms = scope.now_ms(tr)
    for (token, ended, held), _ in fitting(_held(tr, scope, reads), SIDE_BYTES):
        lease.remove(tr, scope, token, ended)
        verdict = redelivery.after_expiry(
            scope.options, held.envelope, now_ms, begun=ended.lease.begun
        )
        verdicts.append((held, verdict))
    size = sum(weight(held.envelope) for held, _ in verdicts)
    return redelivery.carry_out(tr, scope, RECLAIM, verdicts), len(verdicts), size


def _held(
    tr: fdb.Transaction, scope: Scope, reads: Reads
) -> Iterator[tuple[tuple[bytes, lease.Held, StoredMessage], Envelope]]:
    """The leases that have lapsed, and their messages, as far as they are still there.

    Reads some, and then as many as there is room for by the size of these.
    """
    over, count, read, size = _over(tr, scope, reads), _FIRST_READ, 0, 0
    while read < len(over):
        some = over[read : read + count]
        ends = [lease.reads_with_end(tr, scope.keys, token) for _, token in some]
        for (expiry, token), each in zip(some, ends, strict=True):
            try:
                ended = lease.holding(each)
            except (CorruptData, FormatTooNew):
                ended = None  # It stays for verify to show, and holds up nobody.
            if ended is None:  # Or it was extended while it was settled.
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
    page = reads.lapsed
    for _ in range(MAX_PAGES):
        rows = page.to_list()
        collect(rows, now_ms)
        if len(rows) < MAX_LAPSED or len(over) >= MAX_LAPSED:
            break
        # Leases of a clock that is a little ahead must not hold up those behind them.
        page = _page(tr, scope, rows[-1].key + b"\x00")
    return over

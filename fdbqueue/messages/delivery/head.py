"""The head: the first messages that may be delivered, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...errors import ExpiredBacklog
from ...schema.consumers import Request
from ...schema.envelope import open_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from .. import run, settle, time_to_live
from ..transaction_budget import PAGE_BYTES, weight
from . import queue_limits, scan
from .shares import Shares

MAX_DISPOSED = 1_000
"""The most expired messages that one transaction removes to reach others."""
_MORE = 200


class Looked(NamedTuple):
    """What was read: those that may not be delivered; how many rows; the end of the last row that
    has one of these messages, or one that was taken, if there is any."""

    unfit: list[StoredMessage]
    rows: int
    stop: bytes


def offer_rows(
    tr: fdb.Transaction, scope: Scope, rows: Iterable[fdb.KeyValue], shares: Shares
) -> Looked:
    """Offer the messages of rows that may be delivered, as long as they are wanted."""
    unfit: list[StoredMessage] = []
    keys, count, last, room, now_ms = scope.keys, 0, b"", PAGE_BYTES, 0
    for kv in rows:
        count += 1
        row = run.row(keys, kv)
        for n, value in enumerate(row.values):
            envelope = open_envelope(value)
            ends_ms = envelope.expires_at_ms
            if ends_ms is not None:
                now_ms = now_ms or scope.now_ms(tr)
            if envelope.readable and (ends_ms is None or ends_ms > now_ms):
                if not shares.offer(row, n, envelope):
                    # Refused at the very first message, the conflict still covers its row: that it
                    # stands there is why nothing was taken.
                    return Looked(unfit, count, (last or row.key) + b"\x00")
            else:
                room -= weight(envelope)
                # Each of these may become a dead letter or be copied to another queue, with its
                # payload.
                if unfit and room < 0:
                    return Looked(unfit, count, last + b"\x00")
                unfit.append(StoredMessage(row.at(n), envelope, row=row))
            last = row.key
            if not shares.left:
                return Looked(unfit, count, last + b"\x00")
    return Looked(unfit, count, last and last + b"\x00")


def first(
    tr: fdb.Transaction,
    scope: Scope,
    rows: Iterable[fdb.KeyValue],
    shares: Shares,
    *,
    relies: bool = True,
) -> Looked:
    """Offer the first messages that may be delivered; the others on the way end.

    rows: a snapshot read of the first ones. relies: whether the caller says that there are none, if
    there are none. One more round trip for every two hundred that end before any may be delivered.
    Conflicts with any change up to the row of the last message, but not with arrivals behind it,
    even if fewer messages exist than were asked for. Only who relies on it conflicts with any
    arrival if there are none. Raises ``ExpiredBacklog``.
    """
    ready, disposed, size = scope.keys.ready.rows, 0, 0
    while True:
        looked = offer_rows(tr, scope, rows, shares)
        # Up to the last row that was looked at, and no further: an enqueue behind it changes
        # nothing about what was taken.
        if looked.stop or relies:
            tr.add_read_conflict_range(ready.start, looked.stop or ready.stop)
        if not looked.unfit:
            return looked
        # In this transaction, or the next receiver would read the same dead rows again.
        time_to_live.remove_undeliverable(tr, scope, looked.unfit)
        # What was taken is enough: others reach the rest in their own transactions.
        if shares.count:
            return looked
        disposed += len(looked.unfit)
        size += sum([weight(each.envelope) for each in looked.unfit])
        # Two of these pages, and what a range read brings beyond them, are all that one reads.
        if disposed > MAX_DISPOSED or size > PAGE_BYTES // 2:
            raise ExpiredBacklog(name=scope.name, count=disposed)
        # The transaction sees its own removals, so this begins behind them.
        rows = scan.first(tr, scope.keys, max(shares.left, _MORE))


@transactional
def pop(tr: fdb.Transaction, scope: Scope, limit: int) -> list[StoredMessage]:
    """Remove and return the first ``limit`` ready messages; fewer if there are no more.

    One round trip. Conflicts with whoever takes or adds a message at or before the last one
    taken, so the order is serializable; with no enqueue behind it, unless there is nothing to
    take. Raises ``ExpiredBacklog``.
    """
    limit = queue_limits.room(tr, scope, limit, leases=False)
    if not limit:
        return []
    shares = Shares([Request(limit)], scan.BATCH_BYTES, scope.keys.lease_bytes, apart=False)
    first(tr, scope, scan.first(tr, scope.keys, limit), shares)
    return settle.dequeue(tr, scope, [each for some in shares.given[0] for each in some.messages()])

"""Taking the first messages, in strict order of priority and arrival."""

from __future__ import annotations

from collections.abc import Iterable

from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from .. import payloads, run

BATCH_BYTES = 8_000_000
"""The most envelopes and payloads of a batch; a transaction takes 10,000,000 bytes."""


def first(
    tr: fdb.Transaction, keys: QueueKeys, limit: int, begin: bytes | None = None
) -> fdb.FDBRange:
    """Issue a snapshot read of as many rows, from the key ``begin`` on; it reads on as it is
    iterated."""
    ready = keys.ready
    return tr.snapshot.get_range(begin or ready.first, ready.last, limit, False, mode(limit))


def mode(limit: int) -> int:
    """How to read rows of messages: one may have 90 kB, so perhaps not all of them at once."""
    return fdb.StreamingMode.exact if limit == 1 else fdb.StreamingMode.want_all


def batch(
    keys: QueueKeys,
    found: Iterable[fdb.KeyValue],
    limit: int,
    room: int = BATCH_BYTES,
    begin: bytes = b"",
) -> list[StoredMessage]:
    """The first messages of rows that one transaction can hold; at least one, at most ``limit``.

    room: bytes of envelopes and payloads; less if the transaction does other things, too. begin: as
    in ``run.ready``.
    """
    messages: list[StoredMessage] = []
    left, each = room, keys.lease_bytes
    for one in run.ready(keys, found, begin):
        opened = one.message
        left -= len(one.value) + opened.envelope.chunk_bytes + each
        if messages and left < 0:
            break
        messages.append(opened)
        if len(messages) == limit:
            break
    return messages


def rely_on_emptiness(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Conflict with any message that becomes ready: the caller relies on there being none."""
    ready = keys.ready.rows
    # Of all levels: "empty" is a promise about each of them.
    tr.add_read_conflict_range(ready.start, ready.stop)


@transactional
def peek(tr: fdb.Transaction, scope: Scope, limit: int) -> list[StoredMessage]:
    """The first ``limit`` ready messages that fit in a batch, left in place.

    Snapshot reads, no conflicts.
    """
    found = batch(scope.keys, first(tr, scope.keys, limit), limit)
    return payloads.load(found, payloads.reads(tr, scope.keys, found))

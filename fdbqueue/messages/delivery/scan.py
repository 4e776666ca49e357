"""Taking the first messages, in strict order of priority and arrival."""

from __future__ import annotations

from collections.abc import Iterable

from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from .. import payloads, run
from ..run import Ready

BATCH_BYTES = 8_000_000
"""The most envelopes and payloads of a batch; a transaction takes 10,000,000 bytes."""


def first(tr: fdb.Transaction, keys: QueueKeys, limit: int) -> fdb.FDBRange:
    """Issue a snapshot read of as many rows; it reads on as it is iterated."""
    ready = keys.ready.rows
    return tr.snapshot.get_range(ready.start, ready.stop, limit, streaming_mode=mode(limit))


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
    """The first messages of rows; as ``fitting``. begin: as in ``run.ready``."""
    return fitting(keys, run.ready(keys, found, begin), limit, room)


def fitting(
    keys: QueueKeys,
    found: Iterable[Ready],
    limit: int,
    room: int = BATCH_BYTES,
    *,
    apart: bool = False,
) -> list[StoredMessage]:
    """The first messages that one transaction can hold; at least one, at most ``limit``.

    room: bytes of envelopes and payloads; less if the transaction does other things, too. apart:
    whether a message that is to be delivered alone comes alone, and none is read behind it.
    """
    messages: list[StoredMessage] = []
    left, each = room, keys.lease_bytes
    for one in found:
        opened = one.message
        left -= len(one.value) + opened.envelope.chunk_bytes + each
        alone = apart and opened.envelope.alone
        if messages and (left < 0 or alone):
            break
        messages.append(opened)
        if len(messages) == limit or alone:
            break
    return messages


def rely_on_emptiness(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Conflict with any message that becomes ready: the caller relies on there being none."""
    ready = keys.ready.rows
    tr.add_read_conflict_range(ready.start, ready.stop)


def conflicting(
    tr: fdb.Transaction,
    keys: QueueKeys,
    found: fdb.FDBRange,
    limit: int,
    room: int = BATCH_BYTES,
    *,
    apart: bool = False,
) -> list[StoredMessage]:
    """The first messages of a snapshot read that one transaction can hold; as ``fitting``.

    Conflicts with any change up to the row of the last of them, but not with arrivals behind it,
    even if fewer messages exist than were asked for. Only if there are none, conflicts with any
    arrival.
    """
    ready = keys.ready.rows
    messages = fitting(keys, run.ready(keys, found), limit, room, apart=apart)
    stop = run.row_of(messages[-1]).span.stop if messages else ready.stop
    tr.add_read_conflict_range(ready.start, stop)
    return messages


@transactional
def peek(tr: fdb.Transaction, scope: Scope, limit: int) -> list[StoredMessage]:
    """The first ``limit`` ready messages that fit in a batch, left in place.

    Snapshot reads, no conflicts.
    """
    found = batch(scope.keys, first(tr, scope.keys, limit), limit)
    return payloads.load(found, payloads.reads(tr, scope.keys, found))

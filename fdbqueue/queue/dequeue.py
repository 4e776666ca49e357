"""Taking the first messages, in strict order of priority and arrival."""

from __future__ import annotations

from collections.abc import Iterable

from ..binding import fdb
from ..codec import pack_index, unpack_envelope
from ..keys import QueueKeys
from . import payloads
from .scope import Scope, Standing

BATCH_BYTES = 8_000_000
"""What a batch may hold of envelopes and payloads: a transaction takes 10,000,000 bytes."""
MESSAGE_OVERHEAD = 600
"""About what a lease adds to that for each message: keys, conflict ranges, counters."""


def first(tr: fdb.TransactionRead, keys: QueueKeys, limit: int) -> fdb.FDBRange:
    """Issue a read of the first ready messages.

    On a transaction it conflicts with whatever changes the keys up to the last one returned, and
    with any arrival at all where fewer than ``limit`` are there; on its snapshot with nothing.
    """
    ready = keys.ready_range()
    return tr.get_range(
        ready.start, ready.stop, limit=limit, streaming_mode=fdb.StreamingMode.exact
    )


def standing(keys: QueueKeys, found: Iterable[fdb.KeyValue]) -> list[Standing]:
    """The messages of READY keys."""
    return [_standing(keys, kv) for kv in found]


def batch(
    keys: QueueKeys, found: Iterable[fdb.KeyValue], room: int = BATCH_BYTES
) -> list[Standing]:
    """The first messages of READY keys that one transaction can hold: one at least.

    room: bytes of envelopes and payloads; less where the transaction does something else, too.

    Reads no further than that, so the rest is not conflicted with either.
    """
    messages: list[Standing] = []
    left = room
    for kv in found:
        message = _standing(keys, kv)
        left -= len(kv.value) + message.envelope.chunk_bytes + MESSAGE_OVERHEAD
        if left < 0 and messages:
            break
        messages.append(message)
    return messages


def _standing(keys: QueueKeys, kv: fdb.KeyValue) -> Standing:
    return Standing(keys.parse_ready(kv.key), unpack_envelope(kv.value))


def conflicting(
    tr: fdb.Transaction,
    keys: QueueKeys,
    found: fdb.FDBRange,
    limit: int,
    room: int = BATCH_BYTES,
) -> list[Standing]:
    """The messages of a snapshot read of the first ``limit``, with the conflicts of an ordinary
    one: for callers that learn only from another read whether they rely on it."""
    ready, rows = keys.ready_range(), found.to_list()
    messages = batch(keys, rows, room)
    everything = len(messages) == len(rows) < limit
    stop = ready.stop if everything else rows[len(messages) - 1].key + b"\0"
    tr.add_read_conflict_range(ready.start, stop)
    return messages


def remove(tr: fdb.Transaction, keys: QueueKeys, messages: Iterable[Standing]) -> None:
    """Remove ready messages. Blind: MAX on TAIL keeps their indexes from being used again."""
    passed: dict[int, int] = {}
    for message in messages:
        position = message.position
        del tr[keys.ready(position)]
        passed[position.level] = max(position.index, passed.get(position.level, 0))
    for level, index in passed.items():
        tr.max(keys.tail(level), pack_index(index))


@fdb.transactional
def peek(tr: fdb.Transaction, scope: Scope, limit: int) -> list[Standing]:
    """The first ``limit`` ready messages, left where they are. One snapshot read, no conflicts."""
    found = batch(scope.keys, first(tr.snapshot, scope.keys, limit))
    return payloads.load(found, payloads.look(tr, scope.keys, found))

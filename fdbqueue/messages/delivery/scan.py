"""Taking the first messages, in strict order of priority and arrival."""

from __future__ import annotations

from collections.abc import Iterable

from ...schema import once
from ...schema.codec.atomic import pack_index
from ...schema.codec.envelopes import open_envelope
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from .. import payloads

BATCH_BYTES = 8_000_000
"""The most envelopes and payloads of a batch; a transaction takes 10,000,000 bytes."""
PAGE = 100
"""How many messages to read at once; a larger read stops at the size of a batch."""


def first(tr: fdb.Transaction, keys: QueueKeys, limit: int) -> fdb.FDBRange:
    """Issue a snapshot read of the first ready messages; it reads on as it is iterated."""
    ready = keys.ready_range()
    mode = fdb.StreamingMode.exact if limit <= PAGE else fdb.StreamingMode.want_all
    return tr.snapshot.get_range(ready.start, ready.stop, limit=limit, streaming_mode=mode)


def parse(keys: QueueKeys, found: Iterable[fdb.KeyValue]) -> list[StoredMessage]:
    """The messages of READY keys."""
    return [_parse(keys, kv) for kv in found]


def batch(
    keys: QueueKeys, found: Iterable[fdb.KeyValue], room: int = BATCH_BYTES
) -> list[StoredMessage]:
    """The first messages of READY keys that one transaction can hold; at least one.

    room: bytes of envelopes and payloads; less if the transaction does other things, too.
    """
    messages: list[StoredMessage] = []
    left, each = room, keys.lease_bytes
    for kv in found:
        message = _parse(keys, kv)
        left -= len(kv.value) + message.envelope.chunk_bytes + each
        if left < 0 and messages:
            break
        messages.append(message)
    return messages


def _parse(keys: QueueKeys, kv: fdb.KeyValue) -> StoredMessage:
    return StoredMessage(keys.parse_ready(kv.key), open_envelope(kv.value))


def conflicting(
    tr: fdb.Transaction, keys: QueueKeys, found: fdb.FDBRange, room: int = BATCH_BYTES
) -> list[StoredMessage]:
    """The first messages of a snapshot read that one transaction can hold; as ``batch``.

    Conflicts with any change up to the last of them, but not with arrivals behind it, even if fewer
    messages exist than were asked for. Only if there are none, conflicts with any arrival.
    """
    ready = keys.ready_range()
    messages = batch(keys, found, room)
    stop = keys.ready(messages[-1].position) + b"\0" if messages else ready.stop
    tr.add_read_conflict_range(ready.start, stop)
    return messages


def remove(tr: fdb.Transaction, keys: QueueKeys, messages: Iterable[StoredMessage]) -> None:
    """Remove ready messages, blindly; MAX on TAIL keeps their indexes from being reused.

    Raises ``OwnWritesUnseen`` if the transaction has removed one of them before.
    """
    passed: dict[int, int] = {}
    tried = once.attempt(tr)
    for message in messages:
        position, key = message.position, keys.ready(message.position)
        tried.take(tr, keys, key)
        del tr[key]
        passed[position.level] = max(position.index, passed.get(position.level, 0))
    for level, index in passed.items():
        tr.max(keys.tail(level), pack_index(index))


@transactional
def peek(tr: fdb.Transaction, scope: Scope, limit: int) -> list[StoredMessage]:
    """The first ``limit`` ready messages that fit in a batch, left in place.

    Snapshot reads, no conflicts.
    """
    found = batch(scope.keys, first(tr, scope.keys, limit))
    return payloads.load(found, payloads.reads(tr, scope.keys, found))

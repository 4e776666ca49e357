"""Taking the first messages, in strict order of priority and arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...schema import once
from ...schema.codec import blocks
from ...schema.codec.blocks import Block, open_block
from ...schema.codec.envelopes import open_envelope
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Position
from .. import payloads, place

BATCH_BYTES = 8_000_000
"""The most envelopes and payloads of a batch; a transaction takes 10,000,000 bytes."""


def first(tr: fdb.Transaction, keys: QueueKeys, limit: int) -> fdb.FDBRange:
    """Issue a snapshot read of as many rows; it reads on as it is iterated."""
    ready = keys.ready_range()
    return tr.snapshot.get_range(ready.start, ready.stop, limit, streaming_mode=mode(limit))


def mode(limit: int) -> int:
    """How to read rows of messages: one may have 90 kB, so perhaps not all of them at once."""
    return fdb.StreamingMode.exact if limit == 1 else fdb.StreamingMode.want_all


class Ready(NamedTuple):
    """A ready message as it is stored: its own key, its envelope, its position, and the block that
    it stands in, if any."""

    key: bytes
    value: bytes
    position: Position
    block: Block | None


def rows(keys: QueueKeys, found: Iterable[fdb.KeyValue], begin: bytes = b"") -> Iterator[Ready]:
    """The messages of rows of READY, in order, without those of a block before the key ``begin``.

    Whoever reads from a place within a block, or from behind it, reads the block's row.
    """
    for kv in found:
        key, value = kv.key, kv.value
        position = keys.parse_ready(key)
        block = open_block(key, position, value)
        if block is None:
            yield Ready(key, value, position, None)
            continue
        for n, envelope in block.left.items():
            own = block.key(n)
            if own >= begin:
                yield Ready(own, envelope, block.place(n), block)


def message(found: Ready) -> StoredMessage:
    """A ready message, opened."""
    return StoredMessage(found.position, open_envelope(found.value), block=found.block)


def batch(
    keys: QueueKeys,
    found: Iterable[fdb.KeyValue],
    limit: int,
    room: int = BATCH_BYTES,
    begin: bytes = b"",
) -> list[StoredMessage]:
    """The first messages of rows; as ``fitting``. begin: as in ``rows``."""
    return fitting(keys, rows(keys, found, begin), limit, room)


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
        opened = message(one)
        left -= len(one.value) + opened.envelope.chunk_bytes + each
        alone = apart and opened.envelope.alone
        if messages and (left < 0 or alone):
            break
        messages.append(opened)
        if len(messages) == limit or alone:
            break
    return messages


def row(keys: QueueKeys, message: StoredMessage) -> slice:
    """The keys of a ready message, and of those that share its row."""
    if message.block is not None:
        return message.block.span()
    key = keys.ready(message.position)
    return slice(key, key + b"\x00")


def watch(tr: fdb.Transaction, keys: QueueKeys, messages: Iterable[StoredMessage]) -> None:
    """Conflict with others that take, change or remove these ready messages, or share a row."""
    for message in messages:
        each = row(keys, message)
        tr.add_read_conflict_range(each.start, each.stop)


def rely_on_emptiness(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Conflict with any message that becomes ready: the caller relies on there being none."""
    ready = keys.ready_range()
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
    ready = keys.ready_range()
    messages = fitting(keys, rows(keys, found), limit, room, apart=apart)
    stop = row(keys, messages[-1]).stop if messages else ready.stop
    tr.add_read_conflict_range(ready.start, stop)
    return messages


def remove(
    tr: fdb.Transaction, keys: QueueKeys, messages: Iterable[StoredMessage], *, cut: bool = False
) -> None:
    """Remove ready messages, blindly; MAX on TAIL keeps their indexes from being reused.

    cut: whether to cut what is left of a block into rows of as many messages as leave it. Others
        are expected to take as many next, and need not write the rest again.

    Raises ``OwnWritesUnseen`` if the transaction has removed one of them before.
    """
    passed: dict[int, int] = {}
    # By their rows: each message that was looked up has read its row for itself.
    shared: dict[bytes, tuple[Block, list[StoredMessage]]] = {}
    tried = once.attempt(tr)
    for message in messages:
        position, key = message.position, keys.ready(message.position)
        tried.take(tr, keys, key)
        if message.block is None:
            del tr[key]
        else:
            block = message.block
            shared.setdefault(block.key(block.last), (block, []))[1].append(message)
        passed[position.level] = max(position.index, passed.get(position.level, 0))
    for block, some in shared.values():
        span = block.span()
        tr.clear_range(span.start, span.stop)
        for message in some:
            del block.left[blocks.number(message.position)]
        for key, value in block.rows(len(some) if cut else blocks.MAX_MESSAGES):
            tr[key] = value
    for level, index in passed.items():
        place.leave(tr, keys.levels[level], index)


@transactional
def peek(tr: fdb.Transaction, scope: Scope, limit: int) -> list[StoredMessage]:
    """The first ``limit`` ready messages that fit in a batch, left in place.

    Snapshot reads, no conflicts.
    """
    found = batch(scope.keys, first(tr, scope.keys, limit), limit)
    return payloads.load(found, payloads.reads(tr, scope.keys, found))

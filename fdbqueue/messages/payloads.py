"""Payloads: compressed if the queue's options say so, in chunks if they exceed one value.

Chunks are stored under a random name that the envelope holds. They are written with the message,
never changed, and removed by the transaction that ends it. So a transaction that has read the
envelope can read them at snapshot isolation.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import CorruptData
from ..schema.envelope import GATED_INLINE_LIMIT, INLINE_LIMIT, Envelope
from ..schema.keys import QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store import world
from ..store.binding import fdb, transactional
from ..values import compression
from ..values.content import MAX_HEADER_BYTES, check_payload
from ..values.options import MAX_PAYLOAD

CHUNK_BYTES = 90_000
NAME_BYTES = 12


@transactional
def store(tr: fdb.Transaction, scope: Scope, envelope: Envelope) -> Envelope:
    """Compress the payload and write its chunks where needed; returns the envelope to store.

    Writes blindly. Raises ``PayloadTooLarge``, before anything is written.
    """
    options = scope.options
    payload = check_payload(envelope.payload, options.max_payload)
    size = len(payload)
    if options.compression != "none" and size >= compression.COMPRESSED_FROM:
        packed = compression.compress(options.compression, payload)
        # Random or compressed payloads grow: they stay as they are, and cost no decompression.
        if len(packed) < size:
            payload = packed
            envelope = replace(
                envelope, payload=packed, compression=options.compression, raw_size=size
            )
    # The queue keeps the header of its last value once more.
    room = INLINE_LIMIT - (0 if options.last_value is None else MAX_HEADER_BYTES)
    if len(payload) <= GATED_INLINE_LIMIT:
        return envelope
    # What waits at a gate is rewritten with its slots and turns, which need room in the same value
    # later.
    if not envelope.gates and len(payload) <= room and len(envelope.pack()) <= room:
        return envelope
    # Random: the message has no place yet, and so no id that could name its chunks.
    name = world.urandom(NAME_BYTES)
    for n, begin in enumerate(range(0, len(payload), CHUNK_BYTES)):
        tr[scope.keys.chunk(name, n)] = payload[begin : begin + CHUNK_BYTES]
    return replace(envelope, payload=b"", raw_size=size, chunks=name, chunk_bytes=len(payload))


def reads(
    tr: fdb.Transaction, keys: QueueKeys, messages: Sequence[StoredMessage]
) -> list[fdb.FDBRange | None]:
    """Issue snapshot reads of the chunks of messages."""
    return [
        tr.snapshot.get_range(
            keys.chunk.under(message.envelope.chunks).start,
            keys.chunk.under(message.envelope.chunks).stop,
            streaming_mode=fdb.StreamingMode.want_all,
        )
        if message.envelope.chunks
        else None
        for message in messages
    ]


def load(
    messages: Sequence[StoredMessage], reads: Sequence[fdb.FDBRange | None]
) -> list[StoredMessage]:
    """The messages with their payloads as they were enqueued; raises ``CorruptData``."""
    return [
        replace(message, payload=_content(message, chunks))
        if chunks is not None or message.envelope.compression
        else message
        for message, chunks in zip(messages, reads, strict=True)
    ]


def plain(message: StoredMessage) -> Envelope:
    """The envelope of a message whose payload was read, as it was before it was stored."""
    if message.payload is None:
        return message.envelope
    return replace(
        message.envelope,
        payload=message.payload,
        compression="",
        raw_size=None,
        chunks=b"",
        chunk_bytes=0,
    )


def remove(tr: fdb.Transaction, keys: QueueKeys, envelope: Envelope) -> None:
    """Remove the chunks of a message that ends. Writes blindly."""
    if envelope.chunks:
        chunks = keys.chunk.under(envelope.chunks)
        tr.clear_range(chunks.start, chunks.stop)


def _content(message: StoredMessage, chunks: fdb.FDBRange | None) -> bytes:
    envelope = message.envelope
    stored = envelope.payload if chunks is None else b"".join(kv.value for kv in chunks)
    # Chunks are read at snapshot isolation by names; a missing one would otherwise shorten the
    # payload without a word.
    if chunks is not None and len(stored) != envelope.chunk_bytes:
        raise CorruptData(
            what=f"the payload of message {envelope.id or message.position.to_id()}",
            problem=f"its chunks have {len(stored):,} bytes, not {envelope.chunk_bytes:,}",
        )
    if not envelope.compression:
        return stored
    # Checked before it is decompressed: a corrupt size would otherwise allocate without bound.
    if envelope.size > MAX_PAYLOAD:
        raise CorruptData(
            what="a compressed payload", problem=f"it claims to have {envelope.size:,} bytes"
        )
    return compression.decompress(envelope.compression, stored, envelope.size)

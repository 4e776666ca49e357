"""Sinks: how far their batches have come, what attempts have staged, and staged rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from ...errors import CorruptData
from . import pack, unpack, unpack_fields


class SinkState(NamedTuple):
    """How far the batches of a sink have come.

    done: the last published batch; -1 before the first. batch: the one being published; -1 if none
    is. rows, published, new: how many rows the latest batch has, how many were published, and how
    many of those were new messages. place: the next row, by attempt, piece and row. changed_at_ms:
    the wall clock.
    """

    done: int = -1
    batch: int = -1
    rows: int = 0
    published: int = 0
    new: int = 0
    place: tuple[int, int, int] = (0, 0, 0)
    changed_at_ms: int = 0


def pack_sink(state: SinkState) -> bytes:
    """The stored form of how far a sink has come."""
    counts = (state.done, state.batch, state.rows, state.published, state.new)
    return pack([*counts, state.changed_at_ms, *state.place])


def unpack_sink(value: bytes | None) -> SinkState:
    """How far a sink has come."""
    if value is None:
        return SinkState()
    return unpack_fields(
        value,
        "a sink",
        lambda done, batch, rows, published, new, changed_at_ms, attempt, piece, row: SinkState(
            done, batch, rows, published, new, (attempt, piece, row), changed_at_ms
        ),
    )


class StagedAttempt(NamedTuple):
    """How many pieces, rows and bytes of payloads an attempt has staged so far, and the wall clock
    of the last piece."""

    pieces: int
    rows: int
    size: int
    changed_at_ms: int


def pack_attempt(attempt: StagedAttempt) -> bytes:
    """The stored form of what an attempt has staged."""
    return pack(list(attempt))


def unpack_attempt(value: bytes) -> StagedAttempt:
    """What ``pack_attempt`` stored."""
    match unpack(value, "an attempt"):
        case [int(pieces), int(rows), int(size), int(changed_at_ms)]:
            return StagedAttempt(pieces, rows, size, changed_at_ms)
    raise CorruptData(what="an attempt", problem="it has other fields")


class Attempt(NamedTuple):
    """An attempt to stage rows: its random name, how many pieces, rows and bytes of payloads it
    has staged, and the identity of the queue."""

    name: bytes
    pieces: int
    rows: int
    size: int
    queue: str


def pack_attempts(attempts: Sequence[Attempt]) -> bytes:
    """The stored form of attempts."""
    return pack([list(attempt) for attempt in attempts])


def unpack_attempts(value: bytes) -> list[Attempt]:
    """What ``pack_attempts`` stored."""
    return unpack_fields(
        value, "attempts", lambda *stored: [Attempt(*attempt) for attempt in stored]
    )


class StagedRow(NamedTuple):
    """A message to enqueue: its packed envelope, with the whole payload in it.

    size: of the payload. due_ms, dedup_id: as in a draft. plain: whether the envelope is all there
    is to write.
    """

    level: int
    size: int
    envelope: bytes
    due_ms: int | None = None
    dedup_id: str | None = None
    plain: bool = True


def pack_staged_row(row: StagedRow) -> bytes:
    """The stored form of a row; those of several can be joined."""
    return bytes(msgpack.packb(row[:3] if row.plain else row))


def unpack_staged_rows(value: bytes) -> list[StagedRow]:
    """Rows from their stored forms, joined; raises ``CorruptData``."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(value)), use_list=False)
    unpacker.feed(value)
    try:
        return [StagedRow(*fields) for fields in unpacker]
    except (ValueError, TypeError) as error:
        raise CorruptData(what="staged rows", problem=repr(error)) from None

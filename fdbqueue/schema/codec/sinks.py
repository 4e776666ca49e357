"""Sinks: how far their batches have come, what attempts have staged, and staged rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from ...errors import CorruptData
from . import blocks, pack, unpack, unpack_fields
from .envelopes import peek_envelope


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
    return pack(list(attempt))


def unpack_attempt(value: bytes) -> StagedAttempt:
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
    return pack([list(attempt) for attempt in attempts])


def unpack_attempts(value: bytes) -> list[Attempt]:
    return unpack_fields(
        value, "attempts", lambda *stored: [Attempt(*attempt) for attempt in stored]
    )


class StagedRun(NamedTuple):
    """Messages of one level to enqueue one behind the other, with their whole payloads.

    size: of the payloads. value: as of a row of READY: the envelope of one message, or a block.
    due_ms, dedup_id: as in a draft, of one message. plain: whether the envelopes are all there is
    to write.
    """

    level: int
    messages: int
    size: int
    value: bytes
    due_ms: int | None = None
    dedup_id: str | None = None
    plain: bool = True

    @property
    def envelopes(self) -> list[bytes]:
        """The stored envelopes; raises ``CorruptData``."""
        return blocks.envelopes(self.value) if self.messages > 1 else [self.value]

    @property
    def alone(self) -> list[StagedRun]:
        """The same messages, one by one; raises ``CorruptData``."""
        if self.messages == 1:
            return [self]
        return [
            self._replace(messages=1, size=peek_envelope(each)[0], value=each)
            for each in self.envelopes
        ]


def pack_staged_run(run: StagedRun) -> bytes:
    return bytes(msgpack.packb(run[:4] if run.plain else run[:6]))


def unpack_staged_runs(value: bytes) -> list[StagedRun]:
    """Runs from their stored forms, joined; raises ``CorruptData``."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(value)), use_list=False)
    unpacker.feed(value)
    try:
        return [_run(*fields) for fields in unpacker]
    except (ValueError, TypeError) as error:
        raise CorruptData(what="staged rows", problem=repr(error)) from None


def _run(level: int, messages: int, size: int, value: bytes, *beside: Any) -> StagedRun:
    if not beside:
        return StagedRun(level, messages, size, value)
    due_ms, dedup_id = beside
    return StagedRun(level, messages, size, value, due_ms, dedup_id, False)

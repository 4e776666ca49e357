"""Sinks: how far their batches have come, what attempts have staged, and staged rows."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from . import Stored
from .envelopes import Envelope


class SinkState(Stored, frozen=True):
    """How far the batches of a sink have come.

    done: the last published batch; -1 before the first. batch: the one being published; -1 if none
    is. rows, published, new: how many rows the latest batch has, how many were published, and how
    many of those were new messages. place: the next row, by attempt, piece and row. changed_at_ms:
    the wall clock.
    """

    kind: ClassVar[str] = "a sink"

    done: int = -1
    batch: int = -1
    rows: int = 0
    published: int = 0
    new: int = 0
    place: tuple[int, int, int] = (0, 0, 0)
    changed_at_ms: int = 0

    @classmethod
    def unpack(cls, value: bytes | None) -> SinkState:
        """How far a sink has come."""
        return cls() if value is None else super().unpack(value)


class StagedAttempt(Stored, frozen=True):
    """How many pieces, rows and bytes of payloads an attempt has staged so far, and the wall clock
    of the last piece."""

    kind: ClassVar[str] = "an attempt"

    pieces: int
    rows: int
    size: int
    changed_at_ms: int


class Attempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt to stage rows: its random name, how many pieces, rows and bytes of payloads it
    has staged, and the identity of the queue."""

    name: bytes
    pieces: int
    rows: int
    size: int
    queue: str


class StagedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages of one level to enqueue one behind the other, with their whole payloads.

    size: of the payloads. due_ms, dedup_id: as in a draft, of one message. plain: whether the
    envelopes are all there is to write.
    """

    level: int
    size: int
    envelopes: Annotated[list[bytes], msgspec.Meta(min_length=1)]
    due_ms: int | None = None
    dedup_id: str | None = None
    plain: bool = True

    @property
    def messages(self) -> int:
        """How many messages these are."""
        return len(self.envelopes)

    @property
    def stored_bytes(self) -> int:
        """The bytes of the envelopes."""
        return sum(map(len, self.envelopes))

    @property
    def alone(self) -> list[StagedRun]:
        """The same messages, one by one; raises ``CorruptData``."""
        if self.messages == 1:
            return [self]
        return [
            replace(self, size=Envelope.unpack(each).size, envelopes=[each])
            for each in self.envelopes
        ]

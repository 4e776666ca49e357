"""What is stored of streams: plans, how far consumers have come by them, sinks and staged rows."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec.structs import replace

from .codec import Part, Stored
from .envelope import Envelope


class PlannerState(Stored, frozen=True):
    """How far the plans of a consumer have come.

    line: names this sequence of batches: the identity of the queue, and random bytes. owner:
    random; names the run that owns the plans. acknowledged: the last batch that is done. last: the
    last one that was planned. begins: the place from which on messages are taken, by level; from
    the first in the others.
    """

    line: bytes
    owner: bytes
    acknowledged: int = 0
    last: int = 0
    begins: dict[int, bytes] = {}  # noqa: RUF012 - msgspec copies it


class Stage(IntEnum):
    """The stage of a plan."""

    OPEN = 0
    """Messages are still added."""
    SEALED = 1
    """The batch is complete."""
    RETURNING = 2
    """Its messages are being given back."""


class Claimed(Part, frozen=True):
    """The leases of a plan under ``claim``, numbered from 0.

    levels: the number of messages by level. plain: whether none has side records, so that they can
    end unread. joined: a bit for each lease, from the lowest of the first byte on: whether it
    continues the ordering key of the one before.
    """

    claim: bytes
    levels: dict[int, int]
    plain: bool
    joined: bytes = b""

    def joins(self, n: int) -> bool:
        """Whether the n-th lease continues the ordering key of the one before it."""
        return n // 8 < len(self.joined) and bool(self.joined[n // 8] >> n % 8 & 1)

    @property
    def messages(self) -> int:
        """The number of leases."""
        return sum(self.levels.values())


class Planned(Stored, frozen=True):
    """A plan: the leases of a batch, in order.

    messages, size: how many messages, and bytes of envelopes and payloads, were planned.
    planned_at_ms: the wall clock when the first one was. key: while the plan is open, the ordering
    key of the last message if more wait for it.
    """

    planned_at_ms: int
    stage: Stage = Stage.OPEN
    messages: int = 0
    size: int = 0
    claims: tuple[Claimed, ...] = ()
    key: str | None = None


class SinkState(Stored, frozen=True):
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

    @classmethod
    def unpack(cls, value: bytes | None) -> SinkState:
        """How far a sink has come."""
        return cls() if value is None else super().unpack(value)


class StagedAttempt(Stored, frozen=True):
    """How many pieces, rows and bytes of payloads an attempt has staged so far, and the wall clock
    of the last piece."""

    pieces: int
    rows: int
    size: int
    changed_at_ms: int


class StagingAttempt(Part, frozen=True):
    """An attempt to stage rows: its random name, how many pieces, rows and bytes of payloads it
    has staged, and the identity of the queue."""

    name: bytes
    pieces: int
    rows: int
    size: int
    queue: str


class StagedPiece(Stored, frozen=True):
    """A piece of what is staged. parts: how many pieces a row has that begins with this one,
    usually 1. rows: the list of runs as a stored value, or a part of that."""

    parts: int
    rows: bytes


class StagedRun(Part, frozen=True):
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

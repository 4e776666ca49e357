"""Plans, and how far the plans of a consumer have come."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

import msgspec

from . import Stored


class PlannerState(Stored, frozen=True):
    """How far the plans of a consumer have come.

    line: names this sequence of batches: the identity of the queue, and random bytes. owner:
    random; names the run that owns the plans. acknowledged: the last batch that is done. last: the
    last one that was planned.
    """

    kind: ClassVar[str] = "a planner"

    line: bytes
    owner: bytes
    acknowledged: int = 0
    last: int = 0


class Stage(IntEnum):
    """The stage of a plan."""

    OPEN = 0
    """Messages are still added."""
    SEALED = 1
    """The batch is complete."""
    RETURNING = 2
    """Its messages are being given back."""


class Claimed(msgspec.Struct, frozen=True, array_like=True, gc=False):
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

    kind: ClassVar[str] = "a plan"

    planned_at_ms: int
    stage: Stage = Stage.OPEN
    messages: int = 0
    size: int = 0
    claims: tuple[Claimed, ...] = ()
    key: str | None = None

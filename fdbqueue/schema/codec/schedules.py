"""Schedules: what each is, and how far it has come."""

from __future__ import annotations

from typing import ClassVar

from ...values.schedules import CatchUp, Overlap, Timing
from . import Stored
from .envelopes import Envelope
from .lookup import check_id


class Definition(Stored, frozen=True):
    """A schedule as it was set. envelope: what its messages have in common. ttl_ms: how long each
    lives after its tick."""

    kind: ClassVar[str] = "a schedule"

    timing: Timing
    overlap: Overlap
    catch_up: CatchUp
    paused: bool
    ttl_ms: int | None
    envelope: Envelope


class Progress(Stored, frozen=True):
    """How far a schedule has come.

    next_ms, next_id: the tick that waits, and its message; None, and empty, if none does. last_ms,
    last_id: the same of what was enqueued last. passed_ms: the last tick that has come or was left
    out, which no other clock brings again. fired, skipped: how many ticks were enqueued, and
    how many were left out.
    """

    kind: ClassVar[str] = "the progress of a schedule"

    next_ms: int | None = None
    next_id: str = ""
    last_ms: int | None = None
    last_id: str = ""
    fired: int = 0
    skipped: int = 0
    passed_ms: int = 0

    @classmethod
    def unpack(cls, value: bytes | None) -> Progress:
        """What ``pack`` stored; raises ``CorruptData``."""
        progress = super().unpack(value)
        if progress.next_id:
            check_id(progress.next_id)
        return progress

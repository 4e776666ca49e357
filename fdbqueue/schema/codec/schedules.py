"""Schedules: what each is, and how far it has come."""

from __future__ import annotations

from typing import NamedTuple

from ...values.schedules import CatchUp, Overlap, Timing
from . import codec, pack, unpack_fields
from .envelopes import Envelope, pack_envelope, unpack_envelope


class Definition(NamedTuple):
    """A schedule as it was set. envelope: what its messages have in common. ttl_ms: how long each
    lives after its tick."""

    timing: Timing
    overlap: Overlap
    catch_up: CatchUp
    paused: bool
    ttl_ms: int | None
    envelope: Envelope


class Progress(NamedTuple):
    """How far a schedule has come.

    next_ms, next_id: the tick that waits, and its message; None, and empty, if none does. last_ms,
    last_id: the same of what was enqueued last. passed_ms: the last tick that has come or was left
    out, which no other clock brings again. fired, skipped: how many ticks were enqueued, and
    how many were left out.
    """

    next_ms: int | None = None
    next_id: str = ""
    last_ms: int | None = None
    last_id: str = ""
    fired: int = 0
    skipped: int = 0
    passed_ms: int = 0


def pack_definition(definition: Definition) -> bytes:
    timing = definition.timing
    return pack(
        [
            *(timing.cron, timing.every_ms, timing.timezone, timing.start_ms),
            *(definition.overlap, definition.catch_up, definition.paused, definition.ttl_ms),
            pack_envelope(definition.envelope),
        ]
    )


def unpack_definition(value: bytes) -> Definition:
    return unpack_fields(
        value,
        "a schedule",
        lambda cron, every_ms, zone, start_ms, overlap, catch_up, paused, ttl_ms, packed: (
            Definition(
                Timing(cron, every_ms, zone, start_ms),
                overlap,
                catch_up,
                paused,
                ttl_ms,
                unpack_envelope(packed),
            )
        ),
    )


pack_progress, unpack_progress = codec("the progress of a schedule", Progress)

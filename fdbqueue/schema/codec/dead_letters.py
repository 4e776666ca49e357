"""Dead letters, and the results of messages that have ended."""

from __future__ import annotations

from typing import NamedTuple

from ...values.model import Death, Position
from ...values.states import State
from . import pack, unpack_fields
from .envelopes import Envelope, open_envelope, pack_envelope


class DeadLetter(NamedTuple):
    """A message that is delivered no more, why, and since when (wall clock)."""

    envelope: Envelope
    reason: str
    died_at_ms: int

    def death(self, queue: str, message_id: str) -> Death:
        attempts = self.envelope.attempts
        return Death(self.reason, self.died_at_ms, attempts, queue, message_id)


def pack_dead(letter: DeadLetter, position: Position) -> bytes:
    packed = pack_envelope(letter.envelope)
    return pack(
        [position.level, position.index, position.random, letter.reason, letter.died_at_ms, packed]
    )


def unpack_dead(value: bytes) -> tuple[Position, DeadLetter]:
    position, reason, died_at_ms, packed = open_dead(value)
    return position, DeadLetter(open_envelope(packed), reason, died_at_ms)


def open_dead(value: bytes) -> tuple[Position, str, int, bytes]:
    """A dead letter's position, reason and time of death, and its envelope, still packed."""
    return unpack_fields(
        value,
        "a dead letter",
        lambda level, index, random, reason, died_at_ms, packed: (
            Position(level, index, random),
            reason,
            died_at_ms,
            packed,
        ),
    )


class Kept(NamedTuple):
    """How a message ended.

    state: DONE, DEAD, EXPIRED or PURGED. until_ms: until when to keep it, by the wall clock.
    content_type, result: what its consumer has given for the message; None if nothing. reason: why
    it is dead.
    """

    state: State
    until_ms: int
    content_type: str | None = None
    result: bytes | None = None
    reason: str = ""


def pack_kept(kept: Kept) -> bytes:
    """The stored form."""
    return pack([kept.state.value, *kept[1:]])


def unpack_kept(value: object) -> Kept:
    return unpack_fields(value, "a result", lambda state, *others: Kept(State(state), *others))

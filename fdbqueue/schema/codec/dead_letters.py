"""Dead letters, and the results of messages that have ended."""

from __future__ import annotations

from typing import ClassVar

from ...errors import CorruptData
from ...values.model import Death, Position
from ...values.states import State
from . import Stored
from .envelopes import Envelope, open_envelope


class DeadLetter(Stored, frozen=True):
    """A message that is delivered no more, why, and since when (wall clock); ``packed`` is its
    envelope."""

    kind: ClassVar[str] = "a dead letter"

    position: Position
    reason: str
    died_at_ms: int
    packed: bytes

    @property
    def envelope(self) -> Envelope:
        """Its envelope."""
        return open_envelope(self.packed)

    def death(self, queue: str, message_id: str) -> Death:
        """How it died, in a queue."""
        attempts = self.envelope.attempts
        return Death(self.reason, self.died_at_ms, attempts, queue, message_id)


def open_letter(value: bytes, otherwise: Position) -> DeadLetter:
    """As ``DeadLetter.unpack``, but a value that cannot be read is kept, as the unreadable envelope
    of a message that is ``otherwise``."""
    try:
        return DeadLetter.unpack(value)
    except CorruptData as error:
        return DeadLetter(otherwise, str(error), 0, value)


class Kept(Stored, frozen=True):
    """How a message ended.

    state: DONE, DEAD, EXPIRED or PURGED. until_ms: until when to keep it, by the wall clock.
    content_type, result: what its consumer has given for the message; None if nothing. reason: why
    it is dead.
    """

    kind: ClassVar[str] = "a result"

    state: State
    until_ms: int
    content_type: str | None = None
    result: bytes | None = None
    reason: str = ""

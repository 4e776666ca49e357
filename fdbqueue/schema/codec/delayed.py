"""Delayed messages, and messages that wait for a slot of their key."""

from __future__ import annotations

from typing import ClassVar

from ...errors import CorruptData
from ...values.model import Position
from . import Stored
from .envelopes import Envelope, open_envelope


class Delayed(Stored, frozen=True):
    """A message that is not ready; ``packed`` is its envelope."""

    kind: ClassVar[str] = "a delayed message"

    position: Position
    packed: bytes

    @property
    def envelope(self) -> Envelope:
        """Its envelope."""
        return open_envelope(self.packed)


def open_delayed(value: bytes, otherwise: Position) -> Delayed:
    """As ``Delayed.unpack``, but a value that cannot be read is kept, as the unreadable envelope of
    a message that is ``otherwise``."""
    try:
        return Delayed.unpack(value)
    except CorruptData:
        return Delayed(otherwise, value)

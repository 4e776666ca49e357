"""Delayed messages, and messages that wait for a slot of their key."""

from __future__ import annotations

from ...values.model import Position
from . import pack, unpack_fields
from .envelopes import Envelope, open_envelope, pack_envelope


def pack_delayed(position: Position, envelope: Envelope) -> bytes:
    return pack_message(position, pack_envelope(envelope))


def pack_message(position: Position, packed: bytes) -> bytes:
    """As ``pack_delayed``, of a stored envelope."""
    return pack([position.level, position.index, position.random, packed])


def unpack_delayed(value: bytes) -> tuple[Position, Envelope]:
    position, packed = open_delayed(value)
    return position, open_envelope(packed)


def open_delayed(value: bytes) -> tuple[Position, bytes]:
    """A delayed message's position, and its envelope, still packed."""
    return unpack_fields(
        value,
        "a delayed message",
        lambda level, index, random, packed: (Position(level, index, random), packed),
    )

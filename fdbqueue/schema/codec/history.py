"""Lines of history."""

from __future__ import annotations

from ...errors import CorruptData
from . import pack, unpack


def pack_event(
    transition: str,
    message_id: str,
    level: int,
    attempt: int,
    consumer: str,
    at_ms: int,
    place: str,
) -> bytes:
    """The stored form of one line of history, without its stamp."""
    fields = (transition, message_id, level, attempt, consumer, at_ms)
    # The id of most messages names their place.
    return pack(fields if place == message_id else (*fields, place))


def unpack_event(value: bytes) -> tuple[str, str, int, int, str, int, str]:
    """What ``pack_event`` stored."""
    fields = unpack(value, "an event")
    if isinstance(fields, list) and len(fields) == 6:
        fields = [*fields, fields[1]]
    match fields:
        case [
            str(transition),
            str(message_id),
            int(level),
            int(attempt),
            str(consumer),
            int(at),
            str(place),
        ]:
            return transition, message_id, level, attempt, consumer, at, place
    raise CorruptData(what="an event", problem="it has other fields")

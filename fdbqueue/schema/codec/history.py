"""Lines of history: a transition of messages, and each of them as an event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...errors import CorruptData
from . import pack, unpack


class Moved(NamedTuple):
    """A message in a line.

    attempt: how many deliveries it had. place: the id that names where it stands; empty while it
    waits for others of its ordering key.
    """

    id: str
    level: int
    attempt: int
    place: str


EventFields = tuple[str, str, int, int, str, int, str]
"""An event without its stamp: transition, id, level, attempt, consumer, at ms, place."""


def pack_line(transition: str, consumer: str, at_ms: int, moved: Iterable[Moved]) -> bytes:
    # The id of most messages names their place.
    each = [one if one.place != one.id else one[:3] for one in moved]
    return pack((transition, consumer, at_ms, each))


def unpack_line(value: bytes) -> list[EventFields]:
    match unpack(value, "a line of history"):
        case [str(transition), str(consumer), int(at), [_, *_] as moved]:
            return [_event(transition, consumer, at, one) for one in moved]
    raise CorruptData(what="a line of history", problem="it has other fields")


def _event(transition: str, consumer: str, at: int, moved: object) -> EventFields:
    match moved:
        case [str(message_id), int(level), int(attempt)]:
            return transition, message_id, level, attempt, consumer, at, message_id
        case [str(message_id), int(level), int(attempt), str(place)]:
            return transition, message_id, level, attempt, consumer, at, place
    raise CorruptData(what="an event", problem="it has other fields")

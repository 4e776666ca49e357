"""Where a message is, and which message has a dedup id."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from ...errors import CorruptData, InvalidArgument
from ...values.limits import Gate
from ...values.model import Due, Position, parse_id
from . import Stored, pack, unpack


class DeadRecord(NamedTuple):
    """The place of a dead letter: the version at which it died, and a random part."""

    version: int
    random: bytes


class Turn(NamedTuple):
    """The place of a message that waits for a slot of its key or its limit: its number in the
    backlog of that, and random bytes, as in a position."""

    gate: Gate
    n: int
    random: bytes


class PlannedPlace(NamedTuple):
    """Where a message is that joined a plan without ever being ready: the n-th of a claim."""

    claim: bytes
    n: int


Place = Position | Due | DeadRecord | Turn | PlannedPlace


def pack_place(place: Place) -> bytes:
    match place:
        case Position():
            return pack(["ready", place.level, place.index, place.random])
        case Due():
            return pack(["delayed", place.due_ms, place.random])
        case DeadRecord():
            return pack(["dead", place.version, place.random])
        case Turn():
            return pack(["turn", *place])
        case PlannedPlace():
            return pack(["plan", place.claim, place.n])


def unpack_place(value: bytes) -> Place:
    match unpack(value, "a place", list[Any]):
        case ["ready", int(level), int(index), bytes(random)]:
            return Position(level, index, random)
        case ["delayed", int(due_ms), bytes(random)]:
            return Due(due_ms, random)
        case ["dead", int(version), bytes(random)]:
            return DeadRecord(version, random)
        case ["turn", str(key), int(n), bytes(random)]:
            return Turn(key, n, random)
        case ["turn", [str(dimension), str(name)], int(n), bytes(random)]:
            return Turn((dimension, name), n, random)
        case ["plan", bytes(claim), int(n)]:
            return PlannedPlace(claim, n)
    raise CorruptData(what="a place", problem="it is of no known kind")


class Known(Stored, frozen=True):
    """Of which message a dedup id is, and until when that is remembered."""

    kind: ClassVar[str] = "a known id"

    id: str
    until_ms: int


def unpack_id(value: bytes) -> str:
    """The id of a message, from a value that is nothing else. Raises ``CorruptData``."""
    try:
        return check_id(value.decode())
    except UnicodeDecodeError as error:
        raise CorruptData(what="an id", problem=str(error)) from None


def check_id(stored: str) -> str:
    """A stored id of a message; raises ``CorruptData`` if it is none."""
    try:
        parse_id(stored)
    except InvalidArgument as error:
        raise CorruptData(what="an id", problem=str(error)) from None
    return stored

"""Positions in a sorted level: what its messages are sorted by stands in them.

All messages of the level have one index. What tells them apart in its place, and so orders them,
is random elsewhere. Here it begins with the value of the header and the number of the arrival,
packed as a tuple, so the order of the keys is that of the values, and of arrival where they are
equal. At least eleven bytes, which no position of an unsorted level has.
"""

from __future__ import annotations

import struct

from ...errors import CorruptData
from ...store import world
from ...store.binding import fdb
from ...store.client import pack_bytes
from ...values.model import RANDOM_BYTES, HeaderValue, Position

INDEX = 1
MAX_BYTES = 56
"""The longest value, as a key has it: the places of a thousand leases go into one value."""


def length(value: HeaderValue) -> int:
    """How many bytes a value takes in a key."""
    return len(pack_bytes(fdb.tuple.pack((value,)))) - len(pack_bytes(b""))


def position(level: int, value: HeaderValue, arrival: int) -> Position:
    """A new position among the messages with a value; ``arrival`` counts from 1."""
    random = bytes(fdb.tuple.pack((value, arrival))) + world.urandom(RANDOM_BYTES)
    return Position(level, INDEX, random)


def sorted_by(position: Position) -> tuple[HeaderValue, int]:
    """The value and the number of arrival in a position. Raises ``CorruptData``."""
    try:
        value, arrival = fdb.tuple.unpack(position.random[:-RANDOM_BYTES])
        if position.index == INDEX and type(arrival) is int and arrival > 0:
            return value, arrival
    except (ValueError, LookupError, TypeError, struct.error):
        pass
    raise CorruptData(what="a position", problem=f"it is not sorted: {position.to_id()}")

"""How values are stored: a version byte, then MessagePack; integers that atomic operations add or
compare have 64 bits, little-endian but for times.

Reading raises ``CorruptData`` for a value of another version, never guessing at it, and for any
other that is not of its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Self, TypeVar

import msgspec

from ..errors import CorruptData

T = TypeVar("T")

VERSION = 1
_VERSION = bytes([VERSION])
_BYTES = 8
COUNTER_BYTES = 6
"""A counter below 2**47: 140 TB, or 100,000 messages a second for 40 years."""
MAX_INDEX = 2**62
"""No queue comes so far: a higher index is damaged."""


_PLAIN: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes.__bytes__),
)
"""How to make a plain value of one whose class is derived: in whatever way that shows itself."""


def _exact(value: object) -> object:
    """A value of a class of the user's, or of numpy's, as one of the class that it is derived
    from."""
    for kind, plain in _PLAIN:
        if isinstance(value, kind):
            return plain(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored")


encode = msgspec.msgpack.Encoder(enc_hook=_exact).encode
"""The only encoder."""
decoder: Callable[[Any], Any] = cache(msgspec.msgpack.Decoder)
"""The decoder of a type."""


def pack(stored: object) -> bytes:
    """The stored form of a value."""
    return _VERSION + encode(stored)


def unpack(value: bytes | None, of: type[T], what: str = "") -> T:
    """What ``pack`` stored, of a type. ``what`` is named in errors: by default the type's name."""
    try:
        # Another version is refused rather than tried: fields that happen to decode would be taken
        # for what they are not.
        if value and value[0] == VERSION:
            made: T = decoder(of).decode(value[1:])
            return made
        problem = f"it has version {value[0]}, not {VERSION}" if value else "it is empty"
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        problem = str(error)
    raise CorruptData(what=what or _words(of), problem=problem)


def _words(of: Any) -> str:
    name = re.sub(r"(?<!^)([A-Z])", r" \1", of.__name__).lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


class Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A value that is stored as the list of its fields."""

    def pack(self) -> bytes:
        """The stored form."""
        return _VERSION + encode(self)

    @classmethod
    def unpack(cls, value: bytes | None) -> Self:
        """What ``pack`` stored; raises ``CorruptData``."""
        return unpack(value, cls)


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of a stored value, as the list of its fields."""


def pack_index(index: int) -> bytes:
    """An index as atomic MAX compares it."""
    return index.to_bytes(_BYTES, "little")


def unpack_index(value: bytes | None) -> int:
    """An index from its stored form; 0 where none is stored."""
    return int.from_bytes(value or b"", "little")


def pack_time(time_ms: int) -> bytes:
    """A time as BYTE_MIN compares it: the highest byte first."""
    return time_ms.to_bytes(_BYTES, "big")


def unpack_time(value: bytes) -> int:
    """A time from its stored form."""
    return int.from_bytes(value, "big")


def pack_counters(deltas: tuple[int, ...]) -> bytes:
    """Several counters as one number for atomic ADD: counter n counts in units of 2**(48 n).

    A borrow from one counter into the next is undone when they are read, so deltas may be
    negative as long as the totals are not.
    """
    size = COUNTER_BYTES * len(deltas)
    total = sum(delta << (8 * COUNTER_BYTES * n) for n, delta in enumerate(deltas))
    return (total % (1 << (8 * size))).to_bytes(size, "little")


def unpack_counters(value: bytes | None, count: int) -> tuple[int, ...]:
    """The counters of a stored sum; zeros where none is stored."""
    total = int.from_bytes(value or b"", "little")
    mask = (1 << (8 * COUNTER_BYTES)) - 1
    sign = 1 << (8 * COUNTER_BYTES - 1)
    counters = []
    for _ in range(count):
        # A counter below zero borrows from the next one: read as signed, it gives that back.
        counter = ((total & mask) ^ sign) - sign
        counters.append(counter)
        total = (total - counter) >> (8 * COUNTER_BYTES)
    return tuple(counters)

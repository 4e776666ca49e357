"""How values are stored: a version byte, then MessagePack; a module for each kind of value.

Each ``unpack_...`` raises ``CorruptData`` for a value of another version, never guessing at it, and
for any other that it cannot read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgpack

from ...errors import CorruptData

T = TypeVar("T")

VERSION = 1
_VERSION = bytes([VERSION])


def pack(stored: object) -> bytes:
    """The stored form of plain values."""
    return _VERSION + bytes(msgpack.packb(stored))


def unpack(value: object, what: str) -> Any:
    """What ``pack`` stored. ``what`` is named in the error."""
    # A value inside another may be of any type.
    if not isinstance(value, bytes):
        raise CorruptData(what=what, problem=f"it is a {type(value).__name__}")
    if not value or value[0] != VERSION:
        found = f"version {value[0]}" if value else "no version"
        raise CorruptData(what=what, problem=f"it has {found}, not {VERSION}")
    try:
        return msgpack.unpackb(memoryview(value)[1:], strict_map_key=False)
    except (ValueError, TypeError) as error:
        raise CorruptData(what=what, problem=repr(error)) from None


def codec(what: str, fields: type[T]) -> tuple[Callable[[T], bytes], Callable[[object], T]]:
    """Two functions, which pack and unpack a NamedTuple as the list of its fields.

    what: its name in errors.
    """
    return pack, lambda stored: unpack_fields(stored, what, fields)


def unpack_fields(value: object, what: str, build: Callable[..., T]) -> T:
    """What ``build`` makes of the fields of a stored list."""
    stored = unpack(value, what)
    try:
        return build(*stored)
    except (TypeError, ValueError) as error:
        raise CorruptData(what=what, problem=repr(error)) from None

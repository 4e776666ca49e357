"""How values are stored: a version byte, then MessagePack; a module for each kind of value.

Reading raises ``CorruptData`` for a value of another version, never guessing at it, and for any
other that is not of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from ...errors import CorruptData

T = TypeVar("T")

VERSION = 1
_VERSION = bytes([VERSION])


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


def unpack(value: bytes | None, what: str, of: type[T]) -> T:
    """What ``pack`` stored, of a type. ``what`` is named in the error."""
    if not value or value[0] != VERSION:
        found = f"version {value[0]}" if value else "no version"
        raise CorruptData(what=what, problem=f"it has {found}, not {VERSION}")
    try:
        made: T = decoder(of).decode(value[1:])
        return made
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptData(what=what, problem=str(error)) from None


class Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A value that is stored as the list of its fields.

    kind: its name in errors.
    """

    kind: ClassVar[str]

    def pack(self) -> bytes:
        """The stored form."""
        return _VERSION + encode(self)

    @classmethod
    def unpack(cls, value: bytes | None) -> Self:
        """What ``pack`` stored; raises ``CorruptData``."""
        return unpack(value, cls.kind, cls)

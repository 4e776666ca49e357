"""The tuple layer's encoding of the two kinds of elements that hot keys are made of.

The same bytes as the bindings' tuple layer writes, which takes any element and so is several
times slower; a key of a message is packed and parsed many times in its life.
"""

from __future__ import annotations

from ..errors import CorruptData

_ZERO = 0x14
_BYTES = b"\x01"
INT_SIZES = tuple(bytes([_ZERO + size]) for size in range(9))


def pack_int(number: int) -> bytes:
    """An integer from 0 to 2**64 - 2."""
    size = (number.bit_length() + 7) >> 3
    return INT_SIZES[size] + number.to_bytes(size, "big")


def pack_bytes(data: bytes) -> bytes:
    """A byte string."""
    return _BYTES + data.replace(b"\x00", b"\x00\xff") + b"\x00"


def parse_int(key: bytes, begin: int) -> tuple[int, int]:
    """The integer that begins there, and where it ends; raises ``CorruptData`` if none does."""
    try:
        end = begin + 1 + key[begin] - _ZERO
    except IndexError:
        raise CorruptData(what="a key", problem="it ends too soon") from None
    return int.from_bytes(key[begin + 1 : end], "big"), end


def parse_last_bytes(key: bytes, begin: int) -> bytes:
    """The byte string that begins there and is the last element."""
    return key[begin + 1 : -1].replace(b"\x00\xff", b"\x00")

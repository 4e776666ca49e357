"""Integers that atomic operations compare and add: 64 bits, little-endian."""

from __future__ import annotations

_BYTES = 8
MAX_INDEX = 2**62
"""No queue comes so far: a higher index is damaged."""


def pack_index(index: int) -> bytes:
    """An index as atomic MAX compares it."""
    return index.to_bytes(_BYTES, "little")


def unpack_index(value: bytes | None) -> int:
    """An index from its stored form; 0 where none is stored."""
    return int.from_bytes(value or b"", "little")


def pack_counters(deltas: tuple[int, ...]) -> bytes:
    """Several counters as one number for atomic ADD: counter n counts in units of 2**(64 n).

    A borrow from one counter into the next is undone when they are read, so deltas may be
    negative as long as the totals are not.
    """
    size = _BYTES * len(deltas)
    total = sum(delta << (8 * _BYTES * n) for n, delta in enumerate(deltas))
    return (total % (1 << (8 * size))).to_bytes(size, "little")


def unpack_counters(value: bytes | None, count: int) -> tuple[int, ...]:
    """The counters of a stored sum; zeros where none is stored."""
    total = int.from_bytes(value or b"", "little")
    mask = (1 << (8 * _BYTES)) - 1
    sign = 1 << (8 * _BYTES - 1)
    counters = []
    for _ in range(count):
        counter = ((total & mask) ^ sign) - sign
        counters.append(counter)
        total = (total - counter) >> (8 * _BYTES)
    return tuple(counters)

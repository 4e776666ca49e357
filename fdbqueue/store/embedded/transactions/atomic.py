"""The atomic mutations: what each does to the value that a key has.

The same functions serve the transaction that reads its own writes and the commit that applies them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..codes import INVALID_OPERATION, Fault

SET = 0
CLEAR_RANGE = 1
ADD = 2
AND = 6
OR = 7
XOR = 8
APPEND_IF_FITS = 9
MAX = 12
MIN = 13
SET_VERSIONSTAMPED_KEY = 14
SET_VERSIONSTAMPED_VALUE = 15
BYTE_MIN = 16
BYTE_MAX = 17
MIN_V2 = 18
AND_V2 = 19
COMPARE_AND_CLEAR = 20

VALUE_LIMIT = 100_000
STAMP_BYTES = 10

Op = tuple[int, bytes | None]
"""A mutation type and its operand; (SET, None) is a key that was cleared."""


def _fitted(old: bytes | None, operand: bytes) -> bytes:
    """The old value cut or zero-filled to the operand's length."""
    return (old or b"")[: len(operand)].ljust(len(operand), b"\0")


def _add(old: bytes | None, operand: bytes) -> bytes:
    if not old:
        return operand
    size = len(operand)
    total = int.from_bytes(old[:size], "little") + int.from_bytes(operand, "little")
    return (total & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _bitwise(
    combine: Callable[[int, int], int],
) -> Callable[[bytes | None, bytes], bytes]:
    def apply(old: bytes | None, operand: bytes) -> bytes:
        left = int.from_bytes(_fitted(old, operand), "little")
        result = combine(left, int.from_bytes(operand, "little"))
        return result.to_bytes(len(operand), "little")

    return apply


_and = _bitwise(int.__and__)
_or = _bitwise(int.__or__)
_xor = _bitwise(int.__xor__)


def _and_v2(old: bytes | None, operand: bytes) -> bytes:
    return operand if old is None else _and(old, operand)


def _append(old: bytes | None, operand: bytes) -> bytes:
    if not old:
        return operand
    # As on a cluster: what would be too long is left as it was, without an error.
    return old if len(old) + len(operand) > VALUE_LIMIT else old + operand


def _max(old: bytes | None, operand: bytes) -> bytes:
    fitted = _fitted(old, operand)
    if int.from_bytes(fitted, "little") > int.from_bytes(operand, "little"):
        return fitted
    return operand


def _min(old: bytes | None, operand: bytes) -> bytes:
    fitted = _fitted(old, operand)
    if int.from_bytes(fitted, "little") < int.from_bytes(operand, "little"):
        return fitted
    return operand


def _min_v2(old: bytes | None, operand: bytes) -> bytes:
    return operand if old is None else _min(old, operand)


def _byte_min(old: bytes | None, operand: bytes) -> bytes:
    return operand if old is None else min(old, operand)


def _byte_max(old: bytes | None, operand: bytes) -> bytes:
    return operand if old is None else max(old, operand)


def _compare_and_clear(old: bytes | None, operand: bytes) -> bytes | None:
    return None if old == operand else old


_FUNCTIONS: dict[int, Callable[[bytes | None, bytes], bytes | None]] = {
    ADD: _add,
    AND: _and,
    OR: _or,
    XOR: _xor,
    APPEND_IF_FITS: _append,
    MAX: _max,
    MIN: _min,
    BYTE_MIN: _byte_min,
    BYTE_MAX: _byte_max,
    MIN_V2: _min_v2,
    AND_V2: _and_v2,
    COMPARE_AND_CLEAR: _compare_and_clear,
}

STAMPED_TYPES = frozenset({SET_VERSIONSTAMPED_KEY, SET_VERSIONSTAMPED_VALUE})
ATOMIC_TYPES = frozenset(_FUNCTIONS) | STAMPED_TYPES
# What needs neither a check nor a versionstamp.
PLAIN_TYPES = ATOMIC_TYPES - STAMPED_TYPES - {AND, MIN}
INDEPENDENT_TYPES = STAMPED_TYPES | {SET}
# Two of these in a row may be merged before the old value is known, whatever their lengths ...
_ASSOCIATIVE = frozenset({AND, AND_V2, APPEND_IF_FITS, BYTE_MIN, BYTE_MAX})
# ... and these only when their operands are equally long.
_ASSOCIATIVE_IF_SAME_SIZE = frozenset({ADD, OR, XOR, MAX, MIN, MIN_V2})


def apply(op: int, old: bytes | None, operand: bytes | None) -> bytes | None:
    """The value after a mutation; None means no value, before and after."""
    if op in INDEPENDENT_TYPES:
        return operand
    assert operand is not None
    return _FUNCTIONS[op](old, operand)


def mergeable(first: Op, second: Op) -> bool:
    """Whether two mutations in a row of the same type can become one."""
    if first[0] != second[0] or first[1] is None or second[1] is None:
        return False
    if first[0] in _ASSOCIATIVE:
        return True
    return first[0] in _ASSOCIATIVE_IF_SAME_SIZE and len(first[1]) == len(second[1])


def modern(op: int) -> int:
    """MIN and AND in the form of API 510 and later: no value before means the operand after."""
    if op == MIN:
        return MIN_V2
    if op == AND:
        return AND_V2
    return op


def stamp_offset(param: bytes) -> int:
    """Where the versionstamp goes in a parameter that ends with a four-byte offset."""
    offset = int.from_bytes(param[-4:], "little", signed=True)
    if len(param) < 4 or offset < 0 or offset + STAMP_BYTES > len(param) - 4:
        raise Fault(INVALID_OPERATION)
    return offset


def stamp(version: int, order: int) -> bytes:
    """The ten bytes of a versionstamp: commit version, then order within the version."""
    return version.to_bytes(8, "big") + order.to_bytes(2, "big")


def stamped(param: bytes, ten_bytes: bytes) -> bytes:
    """A parameter with its versionstamp filled in and the offset removed."""
    offset = int.from_bytes(param[-4:], "little", signed=True)
    return param[:offset] + ten_bytes + param[offset + STAMP_BYTES : -4]


def stamp_range(key: bytes, version: int, limit: bytes) -> tuple[bytes, bytes]:
    """All keys that a versionstamped key may become, given that the commit is after a version."""
    offset = stamp_offset(key)
    plain = key[:-4]
    after = offset + STAMP_BYTES
    begin = plain[:offset] + stamp(version, 0) + plain[after:]
    end = plain[:offset] + b"\xff" * STAMP_BYTES + plain[after:] + b"\0"
    return begin, min(end, limit)

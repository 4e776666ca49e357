"""The ends of the key space, the longest keys, what sizes count for, and the bytes of a read."""

from __future__ import annotations

from ..codes import EXACT_WITHOUT_LIMITS, INVALID_OPERATION, Fault

SYSTEM = b"\xff"
SPECIAL = b"\xff\xff"
METADATA_VERSION = b"\xff/metadataVersion"
KEY_LIMIT = 10_000
_SYSTEM_KEY_LIMIT = 30_000
# A tenant's prefix, which raw access makes room for.
_PREFIX_BYTES = 8
# What the client counts for a mutation and for a conflict range beside their keys and values.
MUTATION_BYTES = 44
RANGE_BYTES = 24
UNLIMITED = -1
_WANT_ALL, _ITERATOR, _EXACT, _SERIAL = -2, -1, 0, 4
_MODE_BYTES = (UNLIMITED, 256, 1000, 4096, 80_000)
_ITERATION_BYTES = (4096, 6144, 9216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000)


def write_key_limit(key: bytes, raw_access: bool) -> int:
    """The length that a key may have to be written."""
    if key.startswith(SYSTEM):
        return _SYSTEM_KEY_LIMIT
    return KEY_LIMIT + (_PREFIX_BYTES if raw_access else 0)


def longest(key: bytes) -> int:
    """The longest key that can exist beside a key; longer ones are cut or ignored."""
    return write_key_limit(key, True)


def cut(key: bytes) -> bytes:
    """The first key after all existing ones that come before a key, as far as lengths go."""
    limit = longest(key)
    return key if len(key) <= limit else key[: limit + 1]


def byte_limit(limit: int, target: int, mode: int, iteration: int) -> int:
    """The number of bytes that a range read aims at, from its streaming mode."""
    if limit == UNLIMITED and target == UNLIMITED and mode == _EXACT:
        raise Fault(EXACT_WITHOUT_LIMITS)
    if mode == _ITERATOR:
        if iteration <= 0:
            raise Fault(INVALID_OPERATION)
        mode_bytes = _ITERATION_BYTES[min(iteration, len(_ITERATION_BYTES)) - 1]
    elif mode == _WANT_ALL:
        mode_bytes = _MODE_BYTES[_SERIAL]
    elif 0 <= mode <= _SERIAL:
        mode_bytes = _MODE_BYTES[mode]
    else:
        raise Fault(INVALID_OPERATION)
    if target == UNLIMITED:
        return mode_bytes
    return target if mode_bytes == UNLIMITED else min(target, mode_bytes)

"""Which keys exist: the ends of the key space, the longest keys, and what their sizes count for."""

from __future__ import annotations

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

"""A sample of the keys with their sizes, from which the size of a long range is estimated.

It holds one key in 128, chosen by its hash alone, so the choice need not be stored. The sample is
a table of its own, written in the transactions that write the keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from zlib import crc32

SHARE = 128
"""How many keys each key of the sample represents."""
TABLE = "CREATE TABLE sample (k BLOB PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID"
IN_RANGE = "SELECT k, size FROM sample WHERE k >= ? AND k < ? ORDER BY k"

_SET = "INSERT INTO sample VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET size = excluded.size"
_CLEAR = "DELETE FROM sample WHERE k = ?"
_CLEAR_RANGE = "DELETE FROM sample WHERE k >= ? AND k < ?"
# The golden ratio, by which Knuth spreads what a checksum leaves in order where keys only count up.
SPREAD = 0x9E3779B1
BITS = 1 << 32
BOUND = BITS // SHARE


def chosen(key: bytes) -> bool:
    """Whether a key belongs to the sample, if it is set."""
    return crc32(key) * SPREAD % BITS < BOUND


def note(cursor: sqlite3.Cursor, changed: Iterable[tuple[bytes, int | None]]) -> None:
    """Note the sizes of chosen keys that were set, and None for those that were cleared."""
    for key, size in changed:
        if size is None:
            cursor.execute(_CLEAR, (key,))
        else:
            cursor.execute(_SET, (key, size))


def note_clear_range(cursor: sqlite3.Cursor, begin: bytes, end: bytes) -> None:
    """Note that a range was cleared."""
    cursor.execute(_CLEAR_RANGE, (begin, end))

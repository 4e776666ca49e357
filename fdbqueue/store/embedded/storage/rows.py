"""The rows of the table of keys and values, each with a checksum of both.

SQLite looks at the structure of a page, not at what it holds: a bit that a disk has flipped would
be read as another value. So whoever reads a row checks it. A flipped bit in a key puts the row
where no search finds it; but it stands between the same rows as before, and a search for the key
ends beside it. So that nothing is found is believed only if both neighbours are sound, and that a
range ends, if the next row is.

Adler's checksum takes a third of the time of a CRC in Python's zlib, and finds each flipped bit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from zlib import adler32

from ..store_errors import StoreCorrupt

TABLE = """CREATE TABLE kv (
    k BLOB PRIMARY KEY, v BLOB NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID"""
SET = """INSERT INTO kv VALUES (?, ?, ?)
    ON CONFLICT (k) DO UPDATE SET v = excluded.v, checksum = excluded.checksum"""
CLEAR = "DELETE FROM kv WHERE k = ?"
CLEAR_RANGE = "DELETE FROM kv WHERE k >= ? AND k < ?"
SIZES = "SELECT k, length(k) + length(v) FROM kv WHERE k >= ? AND k < ? ORDER BY k LIMIT ?"

# Ranges without their far end: the row beyond it is checked, too.
_FORWARD = "SELECT * FROM kv WHERE k >= ? ORDER BY k LIMIT ?"
_BACKWARD = "SELECT * FROM kv WHERE k < ? ORDER BY k DESC LIMIT ?"
# The rows beside a place.
_BEFORE = "SELECT * FROM kv WHERE k < ? ORDER BY k DESC LIMIT 1"
_BEHIND = "SELECT * FROM kv WHERE k >= ? ORDER BY k LIMIT 1"
_BESIDE = f"SELECT * FROM ({_BEFORE}) UNION ALL SELECT * FROM ({_BEHIND})".replace("?", "?1")
_GET = "SELECT v, checksum FROM kv WHERE k = ?"
_ALL = "SELECT * FROM kv"
# What a storage server counts for a row beside its key and value.
ROW_OVERHEAD = 24
_DIFFERS = "a key or its value is not what was written"

Row = tuple[bytes, bytes]


def checksum(key: bytes, value: bytes) -> int:
    """The checksum of a row."""
    return adler32(value, adler32(key))


class Table:
    """Reads the rows of one store.

    Args:
        path: the store, for errors.
        checks: whether to check what is read.
    """

    def __init__(self, path: str, checks: bool) -> None:
        self._path = path
        self._checks = checks

    def get(self, cursor: sqlite3.Cursor, key: bytes) -> bytes | None:
        """The value of a key.

        Raises:
            StoreCorrupt: it, or a row beside it, is damaged.
            sqlite3.Error: the file cannot be read.
        """
        row = cursor.execute(_GET, (key,)).fetchone()
        if row is None:
            self._check_beside(cursor, _BESIDE, key)
            return None
        value: bytes = row[0]
        if self._checks:
            self._check(key, value, row[1])
        return value

    def page(
        self,
        cursor: sqlite3.Cursor,
        begin: bytes,
        end: bytes,
        reverse: bool,
        count: int,
        size: int,
    ) -> tuple[list[Row], int]:
        """The first rows of a range, or the last ones in reverse order, and how many bytes they
        leave of a size.

        count: how many at most; -1 for no limit.

        Raises:
            StoreCorrupt: one of them, or the next one, is damaged; if there are none, either
                neighbour.
            sqlite3.Error: the file cannot be read.
        """
        found: list[Row] = []
        checks = self._checks
        start = (_BACKWARD, (end, count)) if reverse else (_FORWARD, (begin, count))
        try:
            for key, value, checked in cursor.execute(*start):
                if checks and adler32(value, adler32(key)) != checked:
                    raise StoreCorrupt(self._path, _DIFFERS)
                if key < begin if reverse else key >= end:
                    break
                found.append((key, value))
                size -= ROW_OVERHEAD + len(key) + len(value)
                if size <= 0:
                    break
        except TypeError as error:
            raise StoreCorrupt(self._path, _DIFFERS) from error
        if not found:
            # The row on the other side was found to be outside, and checked.
            beside = (_BEHIND, end) if reverse else (_BEFORE, begin)
            self._check_beside(cursor, *beside)
        return found, size

    def _check_beside(self, cursor: sqlite3.Cursor, rows: str, place: bytes) -> None:
        """Check rows beside a place where nothing was found."""
        if self._checks:
            for row in cursor.execute(rows, (place,)).fetchall():
                self._check(*row)

    def _check(self, key: bytes, value: bytes, found: int) -> None:
        try:
            if adler32(value, adler32(key)) == found:
                return
        except TypeError:
            # It is not even bytes.
            pass
        raise StoreCorrupt(self._path, _DIFFERS)


def damages(connection: sqlite3.Connection) -> Iterator[str]:
    """What is wrong with a store; reads all of it."""
    connection.text_factory = bytes
    for (problem,) in connection.execute("PRAGMA integrity_check(10)"):
        if problem != b"ok":
            yield problem.decode(errors="replace")
    wrong = 0
    for key, value, found in connection.execute(_ALL):
        try:
            wrong += checksum(key, value) != found
        except TypeError:
            wrong += 1
    if wrong:
        yield f"rows that are not what was written: {wrong:,}"

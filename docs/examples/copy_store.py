"""Copies everything in a store into a file, and a file into an empty store.

Usage: copy_store.py dump FILE, or copy_store.py load FILE

The store is that of FDBQUEUE_STORE, embedded or a cluster. No program may write to it meanwhile.
All keys are copied: queues, and what else the application has. If it was interrupted, begin again;
a store that was loaded halfway must be emptied first.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import fdbqueue
from fdbqueue import fdb, transactional

END = b"\xff"
ROWS = 100
AT_ONCE = 500_000
"""Bytes that a transaction writes."""
SIZES = struct.Struct(">II")
Row = tuple[bytes, bytes]


def rows(db: fdb.Database) -> Iterator[Row]:
    """All keys and values, in pages of a transaction each."""
    begin = b""
    while page := list(db.get_range(begin, END, limit=ROWS)):
        for row in page:
            yield row.key, row.value
        begin = page[-1].key + b"\0"


def dump(db: fdb.Database, file: BinaryIO) -> int:
    """Write all rows to a file; returns how many."""
    count = 0
    for key, value in rows(db):
        file.write(SIZES.pack(len(key), len(value)) + key + value)
        count += 1
    file.write(SIZES.pack(0, 0))  # the end: what lacks it was cut off
    return count


def exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError("the file is not complete: dump again")
    return data


def read(file: BinaryIO) -> Iterator[Row]:
    """The rows of a file. Raises ``EOFError`` if it was cut off."""
    while True:
        key, value = SIZES.unpack(exactly(file, SIZES.size))
        if not key:
            return
        yield exactly(file, key), exactly(file, value)


@transactional
def write(tr: fdb.Transaction, batch: list[Row]) -> None:
    for key, value in batch:
        tr[key] = value


def load(db: fdb.Database, file: BinaryIO) -> int:
    """Write the rows of a file to an empty store; returns how many."""
    if list(db.get_range(b"", END, limit=1)):
        raise FileExistsError("the store is not empty")
    count, size, batch = 0, 0, list[Row]()
    for row in read(file):
        batch.append(row)
        count += 1
        size += len(row[0]) + len(row[1])
        if size >= AT_ONCE:
            write(db, batch)
            size, batch = 0, []
    write(db, batch)
    return count


def main(action: str, path: str) -> None:
    if action == "dump":
        with Path(path).open("wb") as file:
            print("dumped", dump(fdbqueue.open(create=False), file), "rows")
    else:
        with Path(path).open("rb") as file:
            print("loaded", load(fdbqueue.open(), file), "rows")


if __name__ == "__main__":
    main(*sys.argv[1:])

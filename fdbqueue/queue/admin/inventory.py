"""How much a queue stores of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...schema.key_kinds import Kind
from ...schema.keys import KINDS
from ...store.binding import fdb, transactional
from ..queue_base import Handle

PAGE_BYTES = 4_000_000


class Stock(NamedTuple):
    """The rows of a kind, and the bytes of their keys and values."""

    kind: Kind
    rows: int
    size: int


def inventory(db: fdb.Database, queue: Handle) -> Iterator[Stock]:
    """What a queue stores, kind by kind; kinds of which there is nothing are left out.

    Reads every row, in as many transactions as it takes: snapshot reads, no conflicts. So the kinds
    are counted at different moments. Raises ``QueueNotFound``.
    """
    queue._read(db, queue._options)
    for kind in KINDS:
        every = queue._keys.kind(kind)
        begin, rows, size = every.start, 0, 0
        while begin:
            begin, more_rows, more_size = _page(db, begin, every.stop)
            rows, size = rows + more_rows, size + more_size
        if rows:
            yield Stock(kind, rows, size)


@transactional
def _page(tr: fdb.Transaction, begin: bytes, stop: bytes) -> tuple[bytes, int, int]:
    """Where to go on, empty at the end; rows and bytes of a page."""
    rows = size = 0
    mode = fdb.StreamingMode.want_all
    for kv in tr.snapshot.get_range(begin, stop, streaming_mode=mode):
        rows, size = rows + 1, size + len(kv.key) + len(kv.value)
        if size > PAGE_BYTES:
            return kv.key + b"\x00", rows, size
    return b"", rows, size

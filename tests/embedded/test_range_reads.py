"""Range reads look no further than they must; ``test_programs`` holds what they return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fdbqueue.store.embedded.codes import Fault
from fdbqueue.store.embedded.transactions import atomic
from fdbqueue.store.embedded.transactions.range_reads import KeySelector, SnapshotReader
from fdbqueue.store.embedded.transactions.write_map import WriteMap

LIMIT = b"\xff"
KEYS = [b"%02d" % number for number in range(12)]


class Rows:
    """Rows in memory, read as those of a snapshot are."""

    def __init__(self, present: set[bytes]) -> None:
        self.present = present
        self.opened = 0

    def open(self) -> Any:
        self.opened += 1
        return self

    def rows(
        self, begin: bytes, end: bytes, reverse: bool, rows: int, size: int
    ) -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(self.present, reverse=reverse):
            if begin <= key < end:
                yield key, b"\1"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_far_selector_is_resolved_no_further_than_the_limit(reverse: bool) -> None:
    own = WriteMap()
    own.make_unreadable(*((KEYS[0], KEYS[2]) if reverse else (KEYS[8], KEYS[9])))
    begin, end = KeySelector(KEYS[4], 1), KeySelector(KEYS[6], 6)
    if reverse:
        begin, end = KeySelector(KEYS[4], -5), KeySelector(KEYS[6], 1)

    def read(limit: int) -> list[bytes]:
        reader = SnapshotReader(Rows(set(KEYS)).open, own, LIMIT, False)
        return [key for key, _ in reader.range(begin, end, limit, -1, reverse).rows]

    assert read(2) == (KEYS[5:3:-1] if reverse else KEYS[4:6])
    with pytest.raises(Fault):
        read(8)


def test_a_range_that_own_writes_cover_opens_no_snapshot() -> None:
    own, rows = WriteMap(), Rows(set(KEYS))
    own.clear(KEYS[2], KEYS[9], True)
    own.mutate(atomic.SET, KEYS[4], b"\2", True)
    own.mutate(atomic.ADD, KEYS[6], b"\1", True)

    result = SnapshotReader(rows.open, own, LIMIT, False).range(
        KeySelector(KEYS[2], 1), KeySelector(KEYS[9], 1), -1, -1, False
    )

    assert [key for key, _ in result.rows] == [KEYS[4], KEYS[6]]
    assert rows.opened == 0

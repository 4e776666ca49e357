"""Reads over a snapshot and a transaction's own writes: ranges, key selectors, and conflicts.

The conflict ranges follow the rules of FoundationDB's client: a limited read conflicts only up to
the last key that it returned, a selector with everything between its key and what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..codes import UNREADABLE, Fault
from ..storage.rows import ROW_OVERHEAD, Row
from ..storage.snapshots import Snapshot
from .ranges import Range
from .write_map import WriteMap


class KeySelector(NamedTuple):
    """A key selector in the form "the offset-th key from the first at or after `key`"."""

    key: bytes
    offset: int


class Resolved(NamedTuple):
    """The key that a selector found, or the end of the key space that it ran off.

    off: how many keys are missing for it to be found: below 0 before the beginning, above 0
        behind the end. The end itself is what a selector finds that has passed the last key.
    """

    key: bytes
    off: int = 0


class RangeResult(NamedTuple):
    """The rows of a range read, and how the read ended."""

    rows: list[Row]
    more: bool
    off_begin: bool = False
    off_end: bool = False


class SnapshotReader:
    """Reads one snapshot, through a write map unless it is None.

    Args:
        snapshot: opens the snapshot; called when own writes alone do not give the result.
        limit: the first key that may not be read.
        bypass: read versionstamped keys and values as they were given, instead of failing.
    """

    __slots__ = ("_bypass", "_limit", "_snapshot", "_writes")

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        writes: WriteMap | None,
        limit: bytes,
        bypass: bool,
    ) -> None:
        self._snapshot = snapshot
        self._writes = writes if writes is not None and writes.shadows else None
        self._limit = limit
        self._bypass = bypass

    def rows(
        self, begin: bytes, end: bytes, reverse: bool = False, rows: int = 0, size: int = 0
    ) -> Iterator[Row]:
        """The rows of a range in order, or in reverse order.

        rows, size: how many, and how many bytes, the caller takes at most, if it knows.
        """
        if self._writes is None:
            return self._snapshot().rows(begin, end, reverse, rows, size)
        return self._merged(self._writes, begin, end, reverse, rows, size)

    def _merged(
        self, writes: WriteMap, begin: bytes, end: bytes, reverse: bool, limit: int, size: int
    ) -> Iterator[Row]:
        written = writes.keys(begin, end)
        if reverse:
            written.reverse()
        keys = iter(written)
        key = next(keys, None)
        rows: Iterator[Row] | None = None
        row: Row | None = None
        # The unread rows are between these.
        low, high = begin, end
        check = bool(writes.unreadable) and not self._bypass
        while True:
            # The snapshot is opened only when it matters: a transaction that reads back its own
            # writes takes no read version, and conflicts with nothing.
            if rows is None and not _alone(writes, key, low, high, reverse):
                rows = self._uncleared(writes, low, high, reverse, limit, size)
                row = next(rows, None)
            if key is None or (row is not None and (row[0] > key if reverse else row[0] < key)):
                if row is None:
                    break
                found: Row | None = row
                at = row[0]
                row = next(rows, None) if rows is not None else None
            else:
                at = key
                old = None
                if row is not None and row[0] == key:
                    old = row[1]
                    row = next(rows, None) if rows is not None else None
                if check and key in writes.unreadable:
                    raise Fault(UNREADABLE)
                value = writes.value(key, old)
                found = None if value is None else (key, value)
                key = next(keys, None)
            if check and found is not None:
                self._require_readable(writes, *((at, high) if reverse else (low, at + b"\0")))
            if found is not None or rows is None:
                low, high = (low, at) if reverse else (at + b"\0", high)
            if found is not None:
                yield found
        if check:
            self._require_readable(writes, low, high)

    def _uncleared(
        self, writes: WriteMap, begin: bytes, end: bytes, reverse: bool, limit: int, size: int
    ) -> Iterator[Row]:
        if next(writes.unmodified(begin, end), None) is None:
            return
        gaps: Iterator[Range] = writes.cleared.gaps(begin, end)
        if reverse:
            gaps = reversed(list(gaps))
        snapshot = self._snapshot()
        for gap_begin, gap_end in gaps:
            yield from snapshot.rows(gap_begin, gap_end, reverse, limit, size)

    @staticmethod
    def _require_readable(writes: WriteMap, begin: bytes, end: bytes) -> None:
        if begin < end and writes.unreadable.overlaps(begin, end):
            raise Fault(UNREADABLE)

    def resolve(self, selector: KeySelector) -> Resolved:
        """The key that a selector resolves to."""
        if selector.offset > 0:
            remaining = selector.offset
            for key, _ in self.rows(selector.key, self._limit, rows=remaining):
                remaining -= 1
                if not remaining:
                    return Resolved(key)
            return Resolved(self._limit, remaining - 1)
        remaining = 1 - selector.offset
        for key, _ in self.rows(b"", min(selector.key, self._limit), True, remaining):
            remaining -= 1
            if not remaining:
                return Resolved(key)
        return Resolved(b"", -remaining)

    def range(
        self, begin: KeySelector, end: KeySelector, limit: int, byte_limit: int, reverse: bool
    ) -> RangeResult:
        """The rows between two selectors, up to a number of rows and of bytes (-1: no limit).

        A selector at the far end is not resolved before the rows are read, if a limit may cut
        them short: it counts the rows beyond its key, of which so many belong to the range.
        """
        first = last = None
        edge, spare = b"", 0
        limited = limit > 0 or byte_limit > 0
        if reverse:
            last = self._resolved(end)
            if limited and begin.offset < 1 and last.off >= 0 and begin.key <= last.key:
                first, edge, spare = Resolved(b""), begin.key, 1 - begin.offset
        else:
            first = self._resolved(begin)
            if limited and end.offset > 1 and first.off <= 0 and first.key <= end.key:
                last, edge, spare = Resolved(self._limit), end.key, end.offset - 1
        counts = spare > 0
        first = first or self._resolved(begin)
        last = last or self._resolved(end)
        if not counts and first.key >= last.key and first.off >= last.off:
            # However many keys are added beyond the ends, the range stays empty.
            return RangeResult([], False)
        off_begin = first.off < 0 or last.off < 0
        off_end = first.off > 0 or last.off > 0
        found: list[Row] = []
        rows = self.rows(first.key, last.key, reverse, max(limit, 0), max(byte_limit, 0))
        for row in rows:
            beyond = counts and (row[0] < edge if reverse else row[0] >= edge)
            if beyond and not spare:
                break
            found.append(row)
            spare -= beyond
            limit -= 1
            if byte_limit >= 0:
                byte_limit = max(byte_limit - ROW_OVERHEAD - len(row[0]) - len(row[1]), 0)
            if limit == 0 or byte_limit == 0:
                # Rows beyond the last one returned can no longer change the result.
                if reverse:
                    return RangeResult(found, True, False, off_end)
                return RangeResult(found, True, off_begin, False)
            if reverse and beyond and not spare:
                break
        off_begin = off_begin or (counts and reverse and spare > 0)
        off_end = off_end or (counts and not reverse and spare > 0)
        return RangeResult(found, False, off_begin, off_end)

    def _resolved(self, selector: KeySelector) -> Resolved:
        return Resolved(selector.key) if selector.offset == 1 else self.resolve(selector)


def _alone(writes: WriteMap, key: bytes | None, low: bytes, high: bytes, reverse: bool) -> bool:
    """Whether a written key comes next whatever the database holds, and its value is independent
    of the old one."""
    if key is None or not writes.is_independent(key):
        return False
    before = writes.unmodified(key + b"\0", high) if reverse else writes.unmodified(low, key)
    return next(before, None) is None


def key_conflict(selector: KeySelector, found: bytes) -> Range:
    """What a get_key conflicts with."""
    if selector.offset <= 0:
        return found, selector.key
    return selector.key, found + b"\0"


def range_conflict(
    begin: KeySelector, end: KeySelector, result: RangeResult, reverse: bool, limit: bytes
) -> Range:
    """What a range read conflicts with."""
    if begin.key < end.key:
        low, high = begin.key, end.key
        # With an end at or after its key, nothing behind the last row returned can matter.
        if result.more and not reverse and end.offset > 0:
            high = low
        if result.more and reverse and begin.offset <= 1:
            low = high
    else:
        low, high = end.key, begin.key
    if result.off_begin and begin.offset <= 0:
        low = b""
    if result.off_end and end.offset > 0:
        high = limit
    if result.rows:
        smallest, largest = result.rows[0][0], result.rows[-1][0]
        if reverse:
            smallest, largest = largest, smallest
            low = min(low, smallest)
            if end.offset > 0 and high <= largest:
                high = largest + b"\0"
        else:
            if begin.offset <= 0:
                low = min(low, smallest)
            if high <= largest:
                high = largest + b"\0"
    return low, high

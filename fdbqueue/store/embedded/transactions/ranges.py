"""Sets of keys made of half-open ranges [begin, end)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Range = tuple[bytes, bytes]


class RangeSet:
    """A set of keys as disjoint, sorted, coalesced ranges."""

    __slots__ = ("begins", "ends")

    def __init__(self) -> None:
        self.begins: list[bytes] = []
        self.ends: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self.begins)

    def __contains__(self, key: bytes) -> bool:
        index = bisect_right(self.begins, key) - 1
        return index >= 0 and key < self.ends[index]

    def __iter__(self) -> Iterator[Range]:
        return zip(self.begins, self.ends, strict=True)

    def add(self, begin: bytes, end: bytes) -> None:
        """Add a range; ranges that touch become one."""
        begins, ends = self.begins, self.ends
        # Most ranges are added in order: then there is nothing to search or merge.
        if not begins or begin > ends[-1]:
            begins.append(begin)
            ends.append(end)
            return
        first = bisect_left(ends, begin)
        last = bisect_right(begins, end)
        if first < last:
            begin = min(begin, begins[first])
            end = max(end, ends[last - 1])
        begins[first:last] = [begin]
        ends[first:last] = [end]

    def remove(self, begin: bytes, end: bytes) -> None:
        """Remove a range."""
        begins, ends = self.begins, self.ends
        first = bisect_right(ends, begin)
        last = bisect_left(begins, end)
        if first >= last:
            return
        new_begins: list[bytes] = []
        new_ends: list[bytes] = []
        if begins[first] < begin:
            new_begins.append(begins[first])
            new_ends.append(begin)
        if ends[last - 1] > end:
            new_begins.append(end)
            new_ends.append(ends[last - 1])
        begins[first:last] = new_begins
        ends[first:last] = new_ends

    def overlaps(self, begin: bytes, end: bytes) -> bool:
        """Whether any key of a range is in the set."""
        index = bisect_right(self.ends, begin)
        return index < len(self.begins) and self.begins[index] < end

    def within(self, begin: bytes, end: bytes) -> Iterator[Range]:
        """The parts of a range that are in the set, in order."""
        for index in range(bisect_right(self.ends, begin), len(self.begins)):
            if self.begins[index] >= end:
                return
            yield max(begin, self.begins[index]), min(end, self.ends[index])

    def gaps(self, begin: bytes, end: bytes) -> Iterator[Range]:
        """The parts of a range that are not in the set, in order."""
        for covered_begin, covered_end in self.within(begin, end):
            if begin < covered_begin:
                yield begin, covered_begin
            begin = covered_end
        if begin < end:
            yield begin, end


# Shared by new sets without ranges, so that the usual transaction allocates none.
NO_RANGES = RangeSet()
_NO_KEYS: list[bytes] = []


class KeySet:
    """A set of keys kept as single keys and ranges, cheap to make and to add one key to.

    Nothing is ever taken out of it.
    """

    __slots__ = ("_sorted", "keys", "ranges")

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.ranges = NO_RANGES
        self._sorted = _NO_KEYS

    def __bool__(self) -> bool:
        return bool(self.keys) or bool(self.ranges.begins)

    def add_range(self, begin: bytes, end: bytes) -> None:
        """Add a range; a range of exactly one key is kept as a key."""
        if end == begin + b"\0":
            self.keys.add(begin)
            return
        if self.ranges is NO_RANGES:
            self.ranges = RangeSet()
        self.ranges.add(begin, end)

    def update(self, other: KeySet) -> None:
        """Add all of another set."""
        self.keys |= other.keys
        for begin, end in other.ranges:
            self.add_range(begin, end)

    def __contains__(self, key: bytes) -> bool:
        return key in self.keys or key in self.ranges

    def coalesced(self) -> RangeSet:
        """The whole set as ranges."""
        result = RangeSet()
        singles = ((key, key + b"\0") for key in self.keys)
        for begin, end in sorted([*singles, *self.ranges]):
            result.add(begin, end)
        return result

    def intersects(self, other: KeySet) -> bool:
        """Whether some key is in both sets."""
        if self.keys and other.keys and not self.keys.isdisjoint(other.keys):
            return True
        mine, theirs = self.ranges, other.ranges
        if mine.begins and other.keys and other.has_key_in(mine):
            return True
        if theirs.begins and self.keys and self.has_key_in(theirs):
            return True
        return bool(mine.begins) and any(mine.overlaps(begin, end) for begin, end in theirs)

    def has_key_in(self, ranges: RangeSet) -> bool:
        """Whether one of the single keys is in some ranges: a search for each of the fewer."""
        if len(self.keys) <= len(ranges.begins):
            return any(key in ranges for key in self.keys)
        if len(self._sorted) != len(self.keys):
            self._sorted = sorted(self.keys)
        for begin, end in ranges:
            index = bisect_left(self._sorted, begin)
            if index < len(self._sorted) and self._sorted[index] < end:
                return True
        return False

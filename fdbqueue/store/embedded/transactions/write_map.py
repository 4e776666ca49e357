"""A transaction's own writes: what it reads back, what it conflicts with, what it will commit.

Per key a stack of mutations, as short as it can be without knowing the value in the database; the
cleared ranges; the ranges that cannot be read back because a versionstamp will decide them; and
the ranges that others will conflict with.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from . import atomic
from .atomic import Op
from .ranges import NO_RANGES, KeySet, Range, RangeSet


class WriteMap:
    """The writes of one transaction, in the order that makes them readable.

    Attributes:
        conflicts: keys and ranges that other transactions must not have read.
        stacks: for each key its mutations, oldest first.
        shadows: whether a read could see something else than the snapshot.
        flushed: mutations that no longer take part in reads, to be committed before the others.
    """

    __slots__ = ("_sorted", "cleared", "conflicts", "flushed", "shadows", "stacks", "unreadable")

    def __init__(self) -> None:
        self.stacks: dict[bytes, list[Op]] = {}
        # The keys of the stacks in order; None until that is asked for.
        self._sorted: list[bytes] | None = None
        self.cleared = NO_RANGES
        self.unreadable = NO_RANGES
        self.conflicts = KeySet()
        self.shadows = False
        self.flushed: list[tuple[int, bytes, bytes | None]] | None = None

    def __bool__(self) -> bool:
        return bool(
            self.stacks
            or self.cleared.begins
            or self.conflicts.keys
            or self.conflicts.ranges.begins
            or self.flushed
            or self.unreadable.begins
        )

    def keys(self, begin: bytes, end: bytes) -> list[bytes]:
        """The keys with mutations in a range, in order."""
        if self._sorted is None:
            self._sorted = sorted(self.stacks)
        return self._sorted[bisect_left(self._sorted, begin) : bisect_left(self._sorted, end)]

    def touches(self, begin: bytes, end: bytes) -> bool:
        """Whether a read of a range could see something else than the snapshot."""
        if self.cleared.overlaps(begin, end) or self.unreadable.overlaps(begin, end):
            return True
        return bool(self.keys(begin, end))

    def mutate(self, op: int, key: bytes, operand: bytes | None, conflict: bool) -> None:
        """Add a set or an atomic mutation; to set None is to clear the one key."""
        self.shadows = True
        if conflict:
            self.conflicts.keys.add(key)
        was_unreadable = bool(self.unreadable.begins) and key in self.unreadable
        if op in (atomic.SET_VERSIONSTAMPED_KEY, atomic.SET_VERSIONSTAMPED_VALUE):
            self._add_unreadable(key, key + b"\0")
        if key not in self.stacks:
            # Cleared before: the old value is known to be none, so the result is known, too.
            if self.cleared.begins and op not in atomic.INDEPENDENT_TYPES and key in self.cleared:
                op, operand = atomic.SET, atomic.apply(op, None, operand)
            self.stacks[key] = [(op, operand)]
            if self._sorted is not None:
                self._note_key(self._sorted, key)
        elif not was_unreadable and op in (atomic.SET, atomic.SET_VERSIONSTAMPED_VALUE):
            self.stacks[key] = [(op, operand)]
        elif was_unreadable or op in atomic.INDEPENDENT_TYPES:
            self.stacks[key].append((op, operand))
        else:
            _push(self.stacks[key], (op, operand))

    def _note_key(self, known: list[bytes], key: bytes) -> None:
        if not known or key > known[-1]:
            known.append(key)
        # Beyond that, sorting once when somebody asks is cheaper than many insertions.
        elif len(known) < 1024:
            insort(known, key)
        else:
            self._sorted = None

    def clear(self, begin: bytes, end: bytes, conflict: bool) -> None:
        """Clear a range."""
        if end == begin + b"\0" and not self.unreadable.begins:
            self.mutate(atomic.SET, begin, None, conflict)
            return
        self.shadows = True
        if conflict:
            self.conflicts.add_range(begin, end)
        self._forget(begin, end)
        if self.cleared is NO_RANGES:
            self.cleared = RangeSet()
        self.cleared.add(begin, end)

    def _forget(self, begin: bytes, end: bytes) -> None:
        if self.stacks:
            for key in self.keys(begin, end):
                del self.stacks[key]
            assert self._sorted is not None
            first, last = bisect_left(self._sorted, begin), bisect_left(self._sorted, end)
            if first < last:
                del self._sorted[first:last]
        if self.unreadable.begins:
            self.unreadable.remove(begin, end)

    def make_unreadable(self, begin: bytes, end: bytes) -> None:
        """Make a range unreadable, because a versionstamped key may fall into it.

        Earlier writes there are committed first, so that the versionstamped key comes after them.
        """
        self.shadows = True
        if self.flushed is None:
            self.flushed = []
        self.flushed.extend(self._mutations(begin, end))
        self._forget(begin, end)
        self.cleared.remove(begin, end)
        self._add_unreadable(begin, end)

    def _add_unreadable(self, begin: bytes, end: bytes) -> None:
        if self.unreadable is NO_RANGES:
            self.unreadable = RangeSet()
        self.unreadable.add(begin, end)

    def is_independent(self, key: bytes) -> bool:
        """Whether the key was written so that its old value does not matter."""
        stack = self.stacks.get(key)
        return stack is not None and stack[0][0] in atomic.INDEPENDENT_TYPES

    def sets(self, key: bytes, value: bytes | None) -> bool:
        """Whether all that is written to the key is this value."""
        return self.stacks.get(key) == [(atomic.SET, value)]

    def value(self, key: bytes, old: bytes | None) -> bytes | None:
        """The value of a written key, given the value in the snapshot."""
        stack = self.stacks[key]
        value = None if key in self.cleared else old
        for op, operand in stack:
            value = atomic.apply(op, value, operand)
        return value

    def unmodified(self, begin: bytes, end: bytes) -> Iterator[Range]:
        """The parts of a range whose content in the database still matters to this transaction."""
        if not self.stacks and not self.cleared.begins:
            yield begin, end
            return
        for gap_begin, gap_end in self.cleared.gaps(begin, end):
            start = gap_begin
            for key in self.keys(gap_begin, gap_end):
                if self.is_independent(key):
                    if start < key:
                        yield start, key
                    start = key + b"\0"
            if start < gap_end:
                yield start, gap_end

    def mutations(self) -> list[tuple[int, bytes, bytes | None]]:
        """All mutations, in the order in which they must be applied."""
        if self.flushed is None and not self.cleared.begins:
            # The keys are independent of each other, so their order does not matter.
            stacks = self.stacks.items()
            return [(op, key, operand) for key, stack in stacks for op, operand in stack]
        return [*(self.flushed or ()), *self._mutations(b"", b"\xff\xff")]

    def _mutations(self, begin: bytes, end: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
        # Clears first: a key that was cleared and then set must end up set.
        for cleared_begin, cleared_end in self.cleared.within(begin, end):
            if cleared_end == cleared_begin + b"\0":
                yield atomic.CLEAR_RANGE, cleared_begin, None
            else:
                yield atomic.CLEAR_RANGE, cleared_begin, cleared_end
        for key in self.keys(begin, end):
            for op, operand in self.stacks[key]:
                yield op, key, operand


def _push(stack: list[Op], new: Op) -> None:
    """Add an atomic mutation to a stack, merged with the top where that changes no result."""
    top = stack[-1]
    if top[0] == atomic.SET:
        stack[-1] = (atomic.SET, atomic.apply(new[0], top[1], new[1]))
    elif atomic.mergeable(top, new):
        stack[-1] = (top[0], atomic.apply(new[0], top[1], new[1]))
    else:
        stack.append(new)

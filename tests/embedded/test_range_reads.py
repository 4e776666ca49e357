"""Range reads against the simplest model: what they return, and what they say they depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.store.embedded.codes import Fault
from fdbqueue.store.embedded.transactions import atomic
from fdbqueue.store.embedded.transactions.range_reads import Reader, Selector, range_conflict
from fdbqueue.store.embedded.transactions.ranges import RangeSet
from fdbqueue.store.embedded.transactions.write_map import WriteMap

LIMIT = b"\xff"
KEYS = [b"%02d" % number for number in range(12)]
keys = st.sampled_from(KEYS)
selectors = st.builds(Selector, st.sampled_from([*KEYS, b"", LIMIT]), st.integers(-4, 6))
writes = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys),
        st.tuples(st.just("add"), keys),
        st.tuples(st.just("clear"), keys, keys),
    ),
    max_size=4,
)


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


def written(steps: list[tuple[Any, ...]]) -> WriteMap:
    own = WriteMap()
    for step in steps:
        if step[0] == "set":
            own.mutate(atomic.SET, step[1], b"\2", True)
        elif step[0] == "add":
            own.mutate(atomic.ADD, step[1], b"\1", True)
        elif step[1] < step[2]:
            own.clear(step[1], step[2], True)
    return own


def merged(present: set[bytes], steps: list[tuple[Any, ...]]) -> list[bytes]:
    found = set(present)
    for step in steps:
        if step[0] == "clear":
            found -= {key for key in found if step[1] <= key < step[2]}
        else:
            found.add(step[1])
    return sorted(found)


def resolved(found: list[bytes], selector: Selector) -> bytes:
    at = sum(key < selector.key for key in found) + selector.offset - 1
    return b"" if at < 0 else found[at] if at < len(found) else LIMIT


def read(
    present: set[bytes], steps: list[tuple[Any, ...]], question: tuple[Any, ...]
) -> tuple[list[tuple[bytes, bytes]], RangeSet]:
    """The rows of a range, and the parts of the database that they depend on."""
    begin, end, limit, reverse = question
    own = written(steps)
    if begin.offset >= end.offset and begin.key >= end.key:
        return [], RangeSet()
    result = Reader(Rows(present).open, own, LIMIT, False).range(begin, end, limit, -1, reverse)
    depends = RangeSet()
    low, high = range_conflict(begin, end, result, reverse, LIMIT)
    if low < high:
        for part in own.unmodified(low, high):
            depends.add(*part)
    return result.rows, depends


questions = st.tuples(selectors, selectors, st.sampled_from([-1, 1, 2, 3]), st.booleans())


@given(st.sets(keys), writes, questions)
def test_a_range_read_returns_what_lies_between_its_selectors(
    present: set[bytes], steps: list[tuple[Any, ...]], question: tuple[Any, ...]
) -> None:
    begin, end, limit, reverse = question
    found = merged(present, steps)
    low, high = resolved(found, begin), resolved(found, end)
    expected = [key for key in found if low <= key < high]
    if reverse:
        expected.reverse()

    rows, _ = read(present, steps, question)

    assert [key for key, _ in rows] == (expected if limit < 0 else expected[:limit])


@given(st.sets(keys), writes, questions, keys)
def test_what_lies_outside_of_a_range_reads_conflicts_does_not_change_it(
    present: set[bytes], steps: list[tuple[Any, ...]], question: tuple[Any, ...], changed: bytes
) -> None:
    rows, depends = read(present, steps, question)

    after, _ = read(present ^ {changed}, steps, question)

    assert changed in depends or after == rows


@pytest.mark.parametrize("reverse", [False, True])
def test_a_far_selector_is_resolved_no_further_than_the_limit(reverse: bool) -> None:
    own = WriteMap()
    own.make_unreadable(*((KEYS[0], KEYS[2]) if reverse else (KEYS[8], KEYS[9])))
    begin, end = Selector(KEYS[4], 1), Selector(KEYS[6], 6)
    if reverse:
        begin, end = Selector(KEYS[4], -5), Selector(KEYS[6], 1)

    def read(limit: int) -> list[bytes]:
        reader = Reader(Rows(set(KEYS)).open, own, LIMIT, False)
        return [key for key, _ in reader.range(begin, end, limit, -1, reverse).rows]

    assert read(2) == (KEYS[5:3:-1] if reverse else KEYS[4:6])
    with pytest.raises(Fault):
        read(8)


@given(writes, keys, keys)
def test_a_range_that_own_writes_cover_opens_no_snapshot(
    steps: list[tuple[Any, ...]], one: bytes, other: bytes
) -> None:
    begin, end = min(one, other), max(one, other) + b"\0"
    steps = [("clear", begin, end), *steps]
    own, rows = written(steps), Rows(set(KEYS))

    result = Reader(rows.open, own, LIMIT, False).range(
        Selector(begin, 1), Selector(end, 1), -1, -1, False
    )

    assert [key for key, _ in result.rows] == [
        key for key in merged(set(KEYS), steps) if begin <= key < end
    ]
    assert rows.opened == 0

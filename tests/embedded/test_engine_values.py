"""The parts of the engine that are plain functions and values, against the simplest models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.store.embedded.storage.conflicts import RecentCommits, conflicting, decode, encode
from fdbqueue.store.embedded.transactions.ranges import KeySet, RangeSet

numbers = st.integers(0, 30)
spans = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair) + 1))


def key(number: int) -> bytes:
    return b"%03d" % number


def members(ranges: RangeSet) -> set[int]:
    return {number for number in range(40) if key(number) in ranges}


@given(st.lists(st.tuples(st.booleans(), spans)), spans)
def test_a_range_set_is_a_set(
    steps: list[tuple[bool, tuple[int, int]]], probe: tuple[int, int]
) -> None:
    ranges, model = RangeSet(), set[int]()
    for add, (begin, end) in steps:
        if add:
            ranges.add(key(begin), key(end))
            model |= set(range(begin, end))
        else:
            ranges.remove(key(begin), key(end))
            model -= set(range(begin, end))

    begin, end = probe
    assert members(ranges) == model
    assert ranges.begins == sorted(ranges.begins)
    assert all(low < high for low, high in ranges)
    assert all(high < low for high, low in zip(ranges.ends, ranges.begins[1:], strict=False))
    assert ranges.overlaps(key(begin), key(end)) == bool(model & set(range(begin, end)))
    inside = RangeSet()
    for low, high in ranges.within(key(begin), key(end)):
        inside.add(low, high)
    outside = RangeSet()
    for low, high in ranges.gaps(key(begin), key(end)):
        outside.add(low, high)
    assert members(inside) == model & set(range(begin, end))
    assert members(outside) == set(range(begin, end)) - model


@st.composite
def key_sets(draw: st.DrawFn) -> tuple[KeySet, set[int]]:
    chosen, model = KeySet(), set[int]()
    for number in draw(st.lists(numbers, max_size=4)):
        chosen.keys.add(key(number))
        model.add(number)
    for begin, end in draw(st.lists(spans, max_size=3)):
        chosen.add_range(key(begin), key(end))
        model |= set(range(begin, end))
    return chosen, model


@given(key_sets(), key_sets())
def test_key_sets_intersect_when_they_share_a_key(
    one: tuple[KeySet, set[int]], two: tuple[KeySet, set[int]]
) -> None:
    # Ranges of neighbouring keys also share what lies between, so the model is asked both ways.
    if one[1] & two[1]:
        assert one[0].intersects(two[0])
        assert two[0].intersects(one[0])
    assert one[0].intersects(two[0]) == two[0].intersects(one[0])
    if not one[0].coalesced() or not two[0].coalesced():
        assert not one[0].intersects(two[0])


@given(key_sets())
def test_what_a_commit_wrote_survives_the_log(written: tuple[KeySet, set[int]]) -> None:
    found = decode(encode(written[0]))

    assert found.keys == written[0].keys
    assert list(found.ranges) == list(written[0].ranges)


def everything() -> KeySet:
    all_keys = KeySet()
    all_keys.add_range(b"", b"\xff")
    return all_keys


def wrote(number: int) -> KeySet:
    written = KeySet()
    written.keys.add(key(number))
    return written


def test_the_log_in_memory_is_topped_up_with_what_others_committed() -> None:
    recent = RecentCommits(10)
    recent.append(20, wrote(1))

    recent.top_up([(20, b""), (30, encode(wrote(2))), (40, encode(wrote(3)))])

    assert recent.newest == 40
    assert [written.keys for written in recent.since(20, everything())] == [{key(2)}, {key(3)}]


def test_a_log_that_was_trimmed_too_far_makes_older_transactions_too_old() -> None:
    recent = RecentCommits(10)

    recent.top_up([(30, encode(wrote(2))), (40, encode(wrote(3)))])

    assert recent.complete_from == 30
    assert recent.newest == 40


def test_trimming_forgets_only_what_is_old() -> None:
    recent = RecentCommits(0)
    for version in range(1, 11):
        recent.append(version, wrote(version))

    recent.trim(6)

    assert recent.complete_from == 6
    assert len(recent.since(6, everything())) == 4


@given(st.lists(key_sets(), max_size=4), key_sets())
def test_what_is_left_out_of_the_log_touches_nothing_that_was_read(
    commits: list[tuple[KeySet, set[int]]], wanted: tuple[KeySet, set[int]]
) -> None:
    reads, written = wanted[0], [one for one, _ in commits]
    recent = RecentCommits(1)
    recent.top_up([(1, b""), *((2 + n, encode(one)) for n, one in enumerate(written))])

    found = recent.since(1, reads)

    assert sum(one.intersects(reads) for one in found) == sum(
        one.intersects(reads) for one in written
    )


def test_a_commit_of_keys_that_were_not_read_is_left_out() -> None:
    recent = RecentCommits(1)
    recent.top_up([(1, b""), (2, encode(wrote(2)))])

    assert recent.since(1, wrote(3)) == []


class Counted(bytes):
    """Bytes that count how often they are compared and searched."""

    looks = 0

    def __contains__(self, part: object) -> bool:
        Counted.looks += 1
        return super().__contains__(part)  # type: ignore[operator]

    def __lt__(self, other: bytes) -> bool:
        Counted.looks += 1
        return super().__lt__(other)

    def __gt__(self, other: bytes) -> bool:
        Counted.looks += 1
        return super().__gt__(other)


@pytest.mark.parametrize("ranges", [False, True])
def test_looking_for_a_conflict_costs_as_much_as_was_read_and_written_not_their_product(
    ranges: bool,
) -> None:
    count = 1000
    recent, reads = RecentCommits(0), KeySet()
    for number in range(count):
        written = wrote(number)
        if ranges:
            written.add_range(key(number) + b"/", key(number) + b"0")
        recent.append(number + 1, Counted(encode(written)))
        reads.keys.add(Counted(b"other/%06d" % number))
    Counted.looks = 0

    assert not any(written.intersects(reads) for written in recent.since(0, reads))

    assert Counted.looks < 50 * count


@given(key_sets(), st.lists(key_sets(), max_size=4))
def test_the_ranges_that_conflict_are_those_in_which_something_was_written(
    read: tuple[KeySet, set[int]], commits: list[tuple[KeySet, set[int]]]
) -> None:
    found = conflicting(read[0], [written for written, _ in commits])

    for begin, end in read[0].coalesced():
        single = KeySet()
        single.add_range(begin, end)
        assert found.overlaps(begin, end) == any(single.intersects(one) for one, _ in commits)

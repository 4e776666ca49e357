"""What a transaction conflicts with: the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fdbqueue.store.binding import fdb

Step = Callable[[Any], object]


def conflicts(db: Any, space: Any, read: Step, write: Step) -> bool:
    """Whether a transaction that read fails because another one wrote before it committed."""
    reader = db.create_transaction()
    reader.get_read_version().wait()
    reader[space.pack(("other", "place"))] = b"x"
    read(reader)
    writer = db.create_transaction()
    write(writer)
    writer.commit().wait()
    code = 0
    try:
        reader.commit().wait()
    except fdb.FDBError as error:
        code = error.code
    assert code in (0, 1020)
    return code == 1020


@pytest.fixture
def keys(db: Any, space: Any) -> Callable[[int], bytes]:
    """Ten keys, of which the even ones are set."""

    def key(number: int) -> bytes:
        packed: bytes = space.pack(("key", number))
        return packed

    @fdb.transactional
    def fill(tr: Any) -> None:
        for number in range(0, 10, 2):
            tr[key(number)] = b"%d" % number

    fill(db)
    return key


def writing(key: bytes) -> Step:
    """A write of a key that leaves every key as it is."""
    return lambda tr: tr.add_write_conflict_key(key)


def test_a_read_conflicts_with_a_later_write_of_its_key(db: Any, space: Any, keys: Any) -> None:
    assert conflicts(db, space, lambda tr: tr[keys(2)].wait(), writing(keys(2)))
    assert not conflicts(db, space, lambda tr: tr[keys(2)].wait(), writing(keys(4)))


def test_a_read_of_nothing_conflicts_as_well(db: Any, space: Any, keys: Any) -> None:
    assert conflicts(db, space, lambda tr: tr[keys(3)].wait(), writing(keys(3)))


def test_a_snapshot_read_conflicts_with_nothing(db: Any, space: Any, keys: Any) -> None:
    assert not conflicts(db, space, lambda tr: tr.snapshot[keys(2)].wait(), writing(keys(2)))


def test_a_limited_read_conflicts_up_to_the_last_key_it_returned(
    db: Any, space: Any, keys: Any
) -> None:
    def read(tr: Any) -> object:
        return tr.get_range(keys(0), keys(9), limit=2).to_list()

    assert conflicts(db, space, read, writing(keys(1)))
    assert conflicts(db, space, read, writing(keys(2)))
    assert not conflicts(db, space, read, writing(keys(3)))
    assert not conflicts(db, space, read, writing(keys(6)))


def test_a_limited_read_backwards_conflicts_down_to_the_last_key_it_returned(
    db: Any, space: Any, keys: Any
) -> None:
    def read(tr: Any) -> object:
        return tr.get_range(keys(0), keys(9), limit=2, reverse=True).to_list()

    assert conflicts(db, space, read, writing(keys(6)))
    assert conflicts(db, space, read, writing(keys(7)))
    assert not conflicts(db, space, read, writing(keys(5)))


def test_a_whole_read_conflicts_with_its_whole_range(db: Any, space: Any, keys: Any) -> None:
    def read(tr: Any) -> object:
        return tr.get_range(keys(0), keys(9)).to_list()

    assert conflicts(db, space, read, writing(keys(5)))
    assert not conflicts(db, space, read, writing(keys(9)))


def test_a_selector_conflicts_with_what_lies_between_it_and_what_it_found(
    db: Any, space: Any, keys: Any
) -> None:
    def after(tr: Any) -> object:
        return tr.get_key(fdb.KeySelector.first_greater_than(keys(2))).value

    assert conflicts(db, space, after, writing(keys(3)))
    assert conflicts(db, space, after, writing(keys(4)))
    assert not conflicts(db, space, after, writing(keys(2)))
    assert not conflicts(db, space, after, writing(keys(5)))

    def before(tr: Any) -> object:
        return tr.get_key(fdb.KeySelector.last_less_than(keys(4))).value

    assert conflicts(db, space, before, writing(keys(3)))
    assert conflicts(db, space, before, writing(keys(2)))
    assert not conflicts(db, space, before, writing(keys(4)))


@pytest.fixture(params=["first", "last"])
def edge(request: pytest.FixtureRequest, db: Any) -> Iterator[Callable[[int], bytes]]:
    """Keys before, or behind, all others of the store, of which the even ones up to 8 are set."""
    prefix = b"\0\0" if request.param == "first" else b"\xfe\xff"

    def key(number: int) -> bytes:
        return prefix + b"%d" % number

    def clear() -> None:
        del db[prefix : prefix + b"\xff"]

    clear()
    for number in range(2, 10, 2):
        db[key(number)] = b""
    yield key
    clear()


def test_a_selector_that_ran_off_an_end_matters_where_the_result_was_not_cut_short_before_it(
    db: Any, space: Any, edge: Any
) -> None:
    last = edge(0) > b"\x01"
    within = fdb.KeySelector.first_greater_or_equal(edge(5))
    off = within + 100 if last else within - 100
    begin, end = (edge(1), off) if last else (off, edge(9))

    def reading(limit: int, reverse: bool) -> Step:
        return lambda tr: tr.get_range(begin, end, limit=limit, reverse=reverse).to_list()

    beyond = writing(edge(9) if last else edge(1))
    # Cut short at the other end: the rows that it gave do not depend on where it would have ended.
    assert not conflicts(db, space, reading(1, reverse=not last), beyond)
    # Cut short, but it began where the selector led it; and not cut short.
    assert conflicts(db, space, reading(1, reverse=last), beyond)
    assert conflicts(db, space, reading(0, reverse=last), beyond)


@pytest.mark.parametrize("edge", ["last"], indirect=True)
def test_a_range_that_is_empty_because_its_begin_ran_off_the_end_depends_on_nothing_behind_it(
    db: Any, space: Any, edge: Any
) -> None:
    far = fdb.KeySelector.first_greater_or_equal(edge(3)) + 100

    def read(tr: Any) -> object:
        return tr.get_range(far, edge(5)).to_list()

    assert conflicts(db, space, read, writing(edge(4)))
    assert not conflicts(db, space, read, writing(edge(7)))


def test_an_atomic_mutation_reads_nothing(db: Any, space: Any, keys: Any) -> None:
    def increment(tr: Any) -> None:
        tr.add(keys(2), b"\x01")

    assert not conflicts(db, space, increment, increment)
    assert db[keys(2)] == b"4"


def test_reading_ones_own_write_conflicts_with_nothing(db: Any, space: Any, keys: Any) -> None:
    def read(tr: Any) -> None:
        tr[keys(2)] = b"mine"
        assert tr[keys(2)] == b"mine"
        del tr[keys(4) : keys(6)]
        assert tr.get_range(keys(4), keys(6)).to_list() == []

    assert not conflicts(db, space, read, writing(keys(2)))
    assert not conflicts(db, space, read, writing(keys(5)))


def test_reading_the_result_of_an_own_atomic_mutation_conflicts(
    db: Any, space: Any, keys: Any
) -> None:
    def read(tr: Any) -> None:
        tr.add(keys(2), b"\x01")
        assert tr[keys(2)] == b"3"

    assert conflicts(db, space, read, writing(keys(2)))


def test_clearing_a_range_conflicts_with_reads_in_it(db: Any, space: Any, keys: Any) -> None:
    def clear(tr: Any) -> None:
        tr.clear_range(keys(1), keys(5))

    assert conflicts(db, space, lambda tr: tr[keys(3)].wait(), clear)
    assert not conflicts(db, space, lambda tr: tr[keys(5)].wait(), clear)


def test_explicit_conflict_ranges_count_like_reads_and_writes(
    db: Any, space: Any, keys: Any
) -> None:
    def reads(tr: Any) -> None:
        tr.add_read_conflict_range(keys(3), keys(5))

    def writes(tr: Any) -> None:
        tr.add_write_conflict_key(keys(3))

    assert conflicts(db, space, reads, writing(keys(4)))
    assert not conflicts(db, space, reads, writing(keys(5)))
    assert conflicts(db, space, reads, writes)
    assert db[keys(3)] == None  # noqa: E711  (the bindings' values compare to None)


def test_a_write_without_a_conflict_range_makes_nobody_conflict(
    db: Any, space: Any, keys: Any
) -> None:
    def write(tr: Any) -> None:
        tr.options.set_next_write_no_write_conflict_range()
        tr[keys(2)] = b"quiet"
        tr[keys(4)] = b"loud"

    assert not conflicts(db, space, lambda tr: tr[keys(2)].wait(), write)
    assert conflicts(db, space, lambda tr: tr[keys(4)].wait(), write)


def test_two_blind_writes_of_one_key_both_commit(db: Any, space: Any, keys: Any) -> None:
    def write(tr: Any) -> None:
        tr[keys(2)] = b"blind"

    assert not conflicts(db, space, write, write)


def test_a_read_only_transaction_never_conflicts(db: Any, keys: Any) -> None:
    reader = db.create_transaction()
    reader[keys(2)].wait()
    db[keys(2)] = b"new"

    reader.commit().wait()

    assert reader.get_committed_version() == -1


def test_a_versionstamped_key_conflicts_with_reads_of_what_it_becomes(db: Any, space: Any) -> None:
    prefix = space.pack(("stamped",))

    def write(tr: Any) -> None:
        offset = len(prefix).to_bytes(4, "little")
        tr.set_versionstamped_key(prefix + b"\0" * 10 + offset, b"v")

    assert conflicts(db, space, lambda tr: tr.get_range_startswith(prefix).to_list(), write)


def test_conflicting_keys_are_reported_when_asked_for(db: Any, space: Any, keys: Any) -> None:
    reader = db.create_transaction()
    reader.options.set_report_conflicting_keys()
    assert reader[keys(2)] == b"2"
    assert reader[keys(4)] == b"4"
    reader[space.pack(("other",))] = b"x"
    db[keys(4)] = b"new"

    with pytest.raises(fdb.FDBError) as conflict:
        reader.commit().wait()

    assert conflict.value.code == 1020
    prefix = b"\xff\xff/transaction/conflicting_keys/"
    rows = reader.get_range(prefix, prefix + b"\xff").to_list()
    assert [(row.key.removeprefix(prefix), row.value) for row in rows] == [
        (keys(4), b"1"),
        (keys(4) + b"\0", b"0"),
    ]

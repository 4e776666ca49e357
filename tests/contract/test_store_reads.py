"""Range reads, selectors and read versions: the same on every engine."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue.store.binding import fdb

locality: Any = importlib.import_module("fdb.locality")

MODES = ["want_all", "iterator", "exact", "small", "medium", "large", "serial"]


@pytest.fixture
def rows(db: Any, space: Any) -> list[tuple[bytes, bytes]]:
    """Two hundred rows of growing size, in order."""
    expected = [(space.pack((number,)), b"%d" % number * (1 + number)) for number in range(200)]

    @fdb.transactional
    def fill(tr: Any) -> None:
        for key, value in expected:
            tr[key] = value

    fill(db)
    return expected


def read_version(db: Any) -> int:
    """The read version of a new transaction, which must outlive its futures."""
    transaction = db.create_transaction()
    version: int = transaction.get_read_version().wait()
    return version


def pairs(result: Any) -> list[tuple[bytes, bytes]]:
    return [(row.key, row.value) for row in result]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_streaming_mode_reads_the_same_rows(
    db: Any, space: Any, rows: list[tuple[bytes, bytes]], mode: str, reverse: bool
) -> None:
    transaction = db.create_transaction()
    expected = rows[::-1] if reverse else rows

    found = transaction.get_range_startswith(
        space.key(), 150, reverse, getattr(fdb.StreamingMode, mode)
    )

    assert pairs(found) == expected[:150]


def test_exact_mode_needs_a_limit(db: Any, space: Any) -> None:
    transaction = db.create_transaction()

    with pytest.raises(fdb.FDBError) as refusal:
        transaction.get_range_startswith(
            space.key(), streaming_mode=fdb.StreamingMode.exact
        ).to_list()

    assert refusal.value.code == 2210


def test_reads_outside_the_legal_range_are_refused(db: Any) -> None:
    transaction = db.create_transaction()
    reads: list[Callable[[], object]] = [
        lambda: transaction[b"\xff/secret"].value,
        lambda: transaction.get_range(b"a", b"\xff\x01").to_list(),
        lambda: transaction.get_key(fdb.KeySelector.first_greater_than(b"\xff\x01")).value,
    ]
    for read in reads:
        with pytest.raises(fdb.FDBError) as refusal:
            read()
        assert refusal.value.code == 2004
    transaction.options.set_read_system_keys()
    transaction[b"\xff/secret"].wait()


def test_read_versions_never_go_back_and_see_what_was_committed(db: Any, space: Any) -> None:
    last = 0
    for number in range(20):
        writer = db.create_transaction()
        writer[space.pack(("key",))] = b"%d" % number
        writer.commit().wait()
        reader = db.create_transaction()
        version = reader.get_read_version().wait()
        assert version >= writer.get_committed_version() > last
        last = version


def test_versions_advance_while_nothing_is_written(db: Any) -> None:
    first = read_version(db)
    moved = threading.Event()
    for _ in range(1000):
        if read_version(db) > first:
            moved.set()
            break
        moved.wait(0.01)

    assert moved.is_set()


def test_a_version_from_the_future_is_refused(db: Any) -> None:
    transaction = db.create_transaction()
    transaction.set_read_version(2**60)

    with pytest.raises(fdb.FDBError) as refusal:
        transaction[b"key"].wait()

    assert refusal.value.code == 1009


def test_a_version_from_long_ago_is_refused(db: Any) -> None:
    current = read_version(db)
    transaction = db.create_transaction()
    transaction.set_read_version(max(1, current - 60_000_000))

    with pytest.raises(fdb.FDBError) as refusal:
        transaction[b"key"].wait()

    assert refusal.value.code == 1007


def test_split_points_cut_a_range_in_order(
    db: Any, space: Any, rows: list[tuple[bytes, bytes]]
) -> None:
    begin, end = space.range().start, space.range().stop
    transaction = db.create_transaction()

    points = transaction.get_range_split_points(begin, end, 10_000).wait()

    assert points[0] == begin
    assert points[-1] == end
    assert points == sorted(points)
    assert transaction.get_estimated_range_size_bytes(begin, end).wait() >= 0


def test_locality_names_a_server_and_the_boundaries_of_shards(db: Any) -> None:
    boundaries = list(locality.get_boundary_keys(db, b"", b"\xff"))

    assert boundaries == sorted(boundaries)
    assert locality.get_addresses_for_key(db, b"key").wait()


@pytest.mark.parametrize("own_writes", [True, False])
def test_a_batch_of_a_range_read_holds_as_many_rows_as_its_bytes_allow(
    db: Any, space: Any, own_writes: bool
) -> None:
    keys = [space.pack((number,)) for number in range(200)]

    @fdb.transactional
    def fill(tr: Any) -> None:
        for key in keys:
            tr[key] = bytes(100)

    fill(db)
    transaction = db.create_transaction()
    if not own_writes:
        transaction.options.set_read_your_writes_disable()
    mode = fdb.StreamingMode.small
    rows = transaction.get_range(keys[0], keys[-1], streaming_mode=mode)
    assert next(iter(rows)).key == keys[0]

    # What the transaction conflicts with tells how far the first batch went: to 256 bytes, of
    # which each row takes 24 beside its key and value.
    prefix = b"\xff\xff/transaction/read_conflict_range/"
    read = [row.key for row in transaction.get_range(prefix, prefix + b"\xff\xff")]
    assert read[-1] == prefix + keys[1] + b"\0"

"""What writes do, and what a transaction reads of its own: the same on every engine."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fdbqueue.store.binding import fdb


@pytest.mark.parametrize(
    "operand", [b"", b"\0" * 12, b"\0" * 13 + b"\x01", b"\0" * 10 + b"\xff" * 4]
)
def test_a_versionstamp_that_does_not_fit_is_refused(db: Any, space: Any, operand: bytes) -> None:
    transaction = db.create_transaction()
    transaction.set_versionstamped_value(space.pack(("key",)), operand)

    with pytest.raises(fdb.FDBError) as refusal:
        transaction.commit().wait()

    assert refusal.value.code == 2000


def test_reading_own_writes_cannot_be_disabled_after_a_write(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction[space.pack(("key",))] = b"v"
    transaction.options.set_read_your_writes_disable()

    with pytest.raises(fdb.FDBError) as refusal:
        transaction.commit().wait()

    assert refusal.value.code == 2000


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        (b"k" * 10_000, b"v" * 100_000, 0),
        (b"k" * 10_001, b"v", 2102),
        (b"k", b"v" * 100_001, 2103),
        (b"\xff", b"v", 2004),
        (b"\xff/metadataVersion", b"v", 2000),
    ],
)
def test_keys_and_values_have_their_limits(
    db: Any, space: Any, key: bytes, value: bytes, code: int
) -> None:
    if key.startswith(b"k"):
        key = (space.key() + key)[: len(key)] if len(key) > 100 else space.key() + key
    transaction = db.create_transaction()
    transaction[key] = value

    if code:
        with pytest.raises(fdb.FDBError) as refusal:
            transaction.commit().wait()
        assert refusal.value.code == code
    else:
        transaction.commit().wait()
        assert db[key] == value


def test_the_first_thing_wrong_is_what_the_commit_reports(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction[b"k" * 10_001] = b"v"
    transaction[b"\xff"] = b"v"

    with pytest.raises(fdb.FDBError) as refusal:
        transaction[space.pack(("key",))].wait()
    assert refusal.value.code == 2102
    transaction.reset()
    assert not transaction[space.pack(("key",))].present()


def test_an_inverted_range_is_refused(db: Any) -> None:
    transaction = db.create_transaction()
    transaction.clear_range(b"b", b"a")
    with pytest.raises(fdb.FDBError) as refusal:
        transaction.commit().wait()
    assert refusal.value.code == 2005

    transaction = db.create_transaction()
    with pytest.raises(fdb.FDBError) as refusal:
        transaction.add_read_conflict_range(b"b", b"a")
    assert refusal.value.code == 2005


def test_the_metadata_version_is_readable_and_moves_only_by_versionstamp(db: Any) -> None:
    transaction = db.create_transaction()
    transaction.set_versionstamped_value(b"\xff/metadataVersion", b"\0" * 14)
    stamp = transaction.get_versionstamp()
    transaction.commit().wait()

    assert db[b"\xff/metadataVersion"] == stamp.value


def test_a_transaction_over_its_size_limit_is_refused(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction.options.set_size_limit(10_000)
    transaction[space.pack(("key",))] = b"v" * 20_000

    with pytest.raises(fdb.FDBError) as refusal:
        transaction.commit().wait()

    assert refusal.value.code == 2101
    assert db[space.pack(("key",))] == None  # noqa: E711


def test_ten_megabytes_are_the_limit_of_a_transaction(db: Any, space: Any) -> None:
    def attempt(values: int) -> int:
        transaction = db.create_transaction()
        for number in range(values):
            transaction[space.pack((number,))] = b"v" * 100_000
        try:
            transaction.commit().wait()
        except fdb.FDBError as error:
            return error.code
        return 0

    assert attempt(99) == 0
    assert attempt(100) == 2101


def test_the_approximate_size_counts_what_the_commit_will_carry(db: Any) -> None:
    transaction = db.create_transaction()
    sizes = [transaction.get_approximate_size().wait()]
    transaction[b"key"] = b"value"
    sizes.append(transaction.get_approximate_size().wait())
    transaction.clear(b"key2")
    sizes.append(transaction.get_approximate_size().wait())
    transaction.clear_range(b"a", b"b")
    sizes.append(transaction.get_approximate_size().wait())
    transaction.add(b"n", b"12")
    sizes.append(transaction.get_approximate_size().wait())
    transaction.add_read_conflict_key(b"read")
    sizes.append(transaction.get_approximate_size().wait())
    transaction.add_write_conflict_key(b"write")
    sizes.append(transaction.get_approximate_size().wait())

    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert steps == [83, 66, 72, 74, 33, 35]


def test_unreadable_keys_can_be_read_when_asked_for(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()
    transaction.options.set_bypass_unreadable()
    transaction.set_versionstamped_value(key, b"raw" + b"\0" * 14)

    assert transaction[key].value.startswith(b"raw")


def test_snapshot_reads_see_own_writes_unless_told_not_to(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    db[key] = b"old"
    transaction = db.create_transaction()
    transaction[key] = b"new"

    assert transaction.snapshot[key] == b"new"
    transaction.options.set_snapshot_ryw_disable()
    assert transaction.snapshot[key] == b"old"
    assert transaction[key] == b"new"
    transaction.options.set_snapshot_ryw_enable()
    assert transaction.snapshot[key] == b"new"

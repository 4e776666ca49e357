"""What writes do, and what a transaction reads of its own: the same on every engine."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fdbqueue.store.binding import fdb

ATOMICS = [
    ("add", b"\xff\x01", b"\x01\x00", b"\x00\x02"),
    ("add", b"\xff\xff", b"\x01\x00", b"\x00\x00"),
    ("add", b"\x01\x02\x03", b"\x01", b"\x02"),
    ("add", b"\x01", b"\x01\x00\x00", b"\x02\x00\x00"),
    ("add", None, b"\x05\x00", b"\x05\x00"),
    ("add", b"\x01", b"", b""),
    ("bit_and", b"\x0f\xff", b"\x3c", b"\x0c"),
    ("bit_and", b"\x0f", b"\xff\xff", b"\x0f\x00"),
    ("bit_and", None, b"\x3c", b"\x3c"),
    ("bit_or", b"\x01", b"\x10\x10", b"\x11\x10"),
    ("bit_or", None, b"\x10", b"\x10"),
    ("bit_xor", b"\x11\x22", b"\x01\x02\x03", b"\x10\x20\x03"),
    ("append_if_fits", b"ab", b"cd", b"abcd"),
    ("append_if_fits", None, b"cd", b"cd"),
    ("append_if_fits", b"a" * 99_999, b"bb", b"a" * 99_999),
    ("max", b"\x00\x01", b"\x05", b"\x05"),
    ("max", b"\x05", b"\x00\x01", b"\x00\x01"),
    ("max", b"\x09\x09", b"\x05", b"\x09"),
    ("max", None, b"\x05", b"\x05"),
    ("min", b"\x00\x01", b"\x05", b"\x00"),
    ("min", b"\x05", b"\x00\x01", b"\x05\x00"),
    ("min", None, b"\x05", b"\x05"),
    ("byte_max", b"b", b"abc", b"b"),
    ("byte_max", None, b"abc", b"abc"),
    ("byte_min", b"b", b"abc", b"abc"),
    ("byte_min", b"a", b"abc", b"a"),
    ("compare_and_clear", b"x", b"x", None),
    ("compare_and_clear", b"x", b"y", b"x"),
    ("compare_and_clear", None, b"y", None),
]


@pytest.mark.parametrize(("name", "before", "operand", "after"), ATOMICS)
def test_an_atomic_mutation_gives_the_same_before_and_after_the_commit(
    db: Any, space: Any, name: str, before: bytes | None, operand: bytes, after: bytes | None
) -> None:
    stored, written, cleared = (space.pack((kind,)) for kind in ("stored", "written", "cleared"))
    if before is not None:
        db[stored] = before
    db[cleared] = b"gone"
    transaction = db.create_transaction()
    if before is not None:
        transaction[written] = before
        transaction[cleared] = before
    else:
        del transaction[cleared]

    for key in (stored, written, cleared):
        getattr(transaction, name)(key, operand)
    own = [transaction[key].value for key in (stored, written, cleared)]
    transaction.commit().wait()

    assert own == [after] * 3
    assert [db[key] for key in (stored, written, cleared)] == [after] * 3


def test_mutations_of_one_key_apply_in_their_order(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    db[key] = b"\x01"
    transaction = db.create_transaction()

    transaction.add(key, b"\x02")
    transaction.max(key, b"\x09")
    transaction.add(key, b"\x01\x00")
    transaction.bit_xor(key, b"\xff")
    seen = transaction[key].value
    transaction.commit().wait()

    assert seen == b"\xf5"
    assert db[key] == seen


def test_a_key_set_after_its_range_was_cleared_is_there(db: Any, space: Any) -> None:
    db[space.pack((1,))] = b"old"
    transaction = db.create_transaction()

    transaction.clear_range_startswith(space.key())
    transaction[space.pack((2,))] = b"new"
    transaction.add(space.pack((1,)), b"\x07")
    seen = [(row.key, row.value) for row in transaction.get_range_startswith(space.key())]
    transaction.commit().wait()

    assert seen == [(space.pack((1,)), b"\x07"), (space.pack((2,)), b"new")]
    rows = db.get_range_startswith(space.key())
    assert [(row.key, row.value) for row in rows] == seen


def test_a_versionstamped_value_holds_the_stamp_of_its_commit(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()

    transaction.set_versionstamped_value(key, b"<" + b"\0" * 10 + b">\x01\0\0\0")
    stamp = transaction.get_versionstamp()
    transaction.commit().wait()

    assert db[key] == b"<" + stamp.value + b">"
    assert int.from_bytes(stamp.value[:8], "big") == transaction.get_committed_version()


def test_versionstamped_keys_are_in_the_order_of_their_commits(db: Any, space: Any) -> None:
    prefix = space.pack(("log",))
    offset = len(prefix).to_bytes(4, "little")

    for number in range(5):
        db.set_versionstamped_key(prefix + b"\0" * 10 + offset, b"%d" % number)

    rows = db.get_range_startswith(prefix)
    assert [row.value for row in rows] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    "operand", [b"", b"\0" * 12, b"\0" * 13 + b"\x01", b"\0" * 10 + b"\xff" * 4]
)
def test_a_versionstamp_that_does_not_fit_is_refused(db: Any, space: Any, operand: bytes) -> None:
    transaction = db.create_transaction()
    transaction.set_versionstamped_value(space.pack(("key",)), operand)

    with pytest.raises(fdb.FDBError) as refusal:
        transaction.commit().wait()

    assert refusal.value.code == 2000


def test_what_a_versionstamp_will_decide_cannot_be_read(db: Any, space: Any) -> None:
    prefix, value = space.pack(("stamped",)), space.pack(("value",))
    offset = len(prefix).to_bytes(4, "little")

    def attempt(read: Any) -> int:
        transaction = db.create_transaction()
        transaction.set_versionstamped_key(prefix + b"\0" * 10 + offset, b"v")
        transaction.set_versionstamped_value(value, b"\0" * 14)
        code = 0
        try:
            read(transaction)
        except fdb.FDBError as error:
            code = error.code
        if code:
            with pytest.raises(fdb.FDBError) as commit:
                transaction.commit().wait()
            assert commit.value.code == code
        return code

    assert attempt(lambda tr: tr[value].wait()) == 1036
    assert attempt(lambda tr: tr.get_range_startswith(space.key()).to_list()) == 1036
    assert attempt(lambda tr: tr.get_range_startswith(prefix, reverse=True).to_list()) == 1036
    assert attempt(lambda tr: tr[space.pack(("zz",))].wait()) == 0


def test_a_clear_makes_an_unreadable_key_readable_again(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()
    transaction.set_versionstamped_value(key, b"\0" * 14)

    transaction.clear(key)

    assert not transaction[key].present()
    transaction.commit().wait()
    assert db[key] == None  # noqa: E711


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


def test_reads_do_not_see_own_writes_when_that_is_disabled(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    db[key] = b"old"
    transaction = db.create_transaction()
    transaction.options.set_read_your_writes_disable()
    transaction[key] = b"new"
    transaction.add(space.pack(("n",)), b"\x01")

    assert transaction[key] == b"old"
    transaction.commit().wait()
    assert db[key] == b"new"
    assert db[space.pack(("n",))] == b"\x01"


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

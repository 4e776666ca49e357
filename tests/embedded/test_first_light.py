"""The engine does what every program expects of it first: it stores, reads, and conflicts."""

from __future__ import annotations

from typing import Any

import pytest

from fdbqueue.store.binding import fdb


def test_a_value_that_was_set_is_read_back(db: Any) -> None:
    db[b"key"] = b"value"

    assert db[b"key"] == b"value"


def test_a_transaction_reads_its_own_writes_in_ranges(db: Any) -> None:
    db[b"a"] = b"1"
    db[b"c"] = b"3"
    transaction = db.create_transaction()

    transaction[b"b"] = b"2"
    del transaction[b"c"]

    assert [row.key for row in transaction.get_range(b"", b"\xff")] == [b"a", b"b"]


def test_two_transactions_that_read_and_write_the_same_key_conflict(db: Any) -> None:
    db[b"key"] = b"0"
    first, second = db.create_transaction(), db.create_transaction()
    assert first[b"key"] == second[b"key"] == b"0"
    first[b"key"] = b"1"
    second[b"key"] = b"2"

    first.commit().wait()
    with pytest.raises(fdb.FDBError) as conflict:
        second.commit().wait()

    assert conflict.value.code == 1020
    assert db[b"key"] == b"1"


def test_a_watch_fires_when_its_key_changes(db: Any) -> None:
    value, watch = db.get_and_watch(b"key")
    assert not value.present()

    db[b"key"] = b"now"

    watch.wait()
    assert watch.is_ready()

"""The program that copies a store: all or nothing of a file, into an empty store alone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import fdbqueue
from docs.examples import copy_store
from fdbqueue import Queue, fdb


@pytest.fixture
def old(tmp_path: Path) -> fdb.Database:
    """A store with a queue of messages in several states, and with other data."""
    db = fdbqueue.open(tmp_path / "old.fdbq")
    queue = Queue.create(db, "orders")
    queue.enqueue_many(db, [b"%d" % n for n in range(250)])
    queue.enqueue(db, b"film" * 100_000, priority=9)
    queue.enqueue(db, b"later", delay=60)
    first, second, _ = queue.receive_many(db, 3)
    queue.reject(db, first, "no")
    queue.ack(db, second)
    for key in (b"other", b"other\0", b"others"):
        db[key] = b"data"
    return db


@pytest.fixture
def new(tmp_path: Path) -> fdb.Database:
    return fdbqueue.open(tmp_path / "new.fdbq")


def everything(db: fdb.Database) -> list[tuple[bytes, bytes]]:
    return [(row.key, row.value) for row in db.get_range(b"", b"\xff")]


def dumped(db: fdb.Database) -> bytes:
    file = io.BytesIO()
    copy_store.dump(db, file)
    return file.getvalue()


def test_a_copy_has_every_row(
    old: fdb.Database, new: fdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given pages and transactions that are smaller than the store
    monkeypatch.setattr(copy_store, "ROWS", 1)
    monkeypatch.setattr(copy_store, "AT_ONCE", 10_000)
    copy_store.load(new, io.BytesIO(dumped(old)))
    assert everything(new) == everything(old)
    assert Queue("orders").admin.verify(new).ok
    assert Queue("orders").depth(new) == Queue("orders").depth(old)


def test_a_file_that_was_cut_off_is_refused(old: fdb.Database, new: fdb.Database) -> None:
    file = dumped(old)
    for size in (0, 5, len(file) // 2, len(file) - 1):
        new.clear_range(b"", b"\xff")
        with pytest.raises(EOFError):
            copy_store.load(new, io.BytesIO(file[:size]))


def test_a_store_that_is_not_empty_is_refused(old: fdb.Database, new: fdb.Database) -> None:
    new[b"mine"] = b"1"
    with pytest.raises(FileExistsError):
        copy_store.load(new, io.BytesIO(dumped(old)))
    assert everything(new) == [(b"mine", b"1")]

"""The engine's helper threads: what fails in one is reported to who needed it, and ends nothing."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from fdbqueue.store import embedded, world
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage import snapshots, watches
from fdbqueue.store.embedded.storage.file import StoreFile
from fdbqueue.store.embedded.timers import Timers
from fdbqueue.store.embedded.transactions import lifecycle, transaction
from tests.patience import DEADLINE


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.store")


@pytest.fixture
def own_timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    """Timers of this test's own, whose thread has not started."""
    timers = Timers()
    for module in (lifecycle, snapshots, transaction):
        monkeypatch.setattr(module, "timers", timers)
    return timers


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No thread can be started, as at the limit, or when the interpreter ends."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return monkeypatch


def breaking(monkeypatch: pytest.MonkeyPatch, thread: str, times: int) -> list[int]:
    """Let a thread open no file so many times; what is left of them."""
    left = [times]
    connect = StoreFile.connect

    def attempt(file: StoreFile) -> sqlite3.Connection:
        if threading.current_thread().name == thread and left[0]:
            left[0] -= 1
            raise sqlite3.OperationalError("unable to open database file")
        return connect(file)

    monkeypatch.setattr(StoreFile, "connect", attempt)
    return left


def fired(watch: Any) -> threading.Event:
    event = threading.Event()
    watch.on_ready(lambda _: event.set())
    return event


def test_watches_fire_although_the_file_could_not_be_opened_for_a_while(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db: Any = fdb.open(path)
    left = breaking(monkeypatch, "fdbqueue-watches", 2)
    watch = db.get_and_watch(b"key")[1]

    db[b"key"] = b"changed"

    assert fired(watch).wait(DEADLINE)
    watch.wait()
    assert left == [0]


def test_a_watch_whose_key_cannot_be_read_for_long_fails(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db: Any = fdb.open(path)
    monkeypatch.setattr(watches, "_UNREADABLE_SECONDS", 0.0)
    breaking(monkeypatch, "fdbqueue-watches", 2)

    watch = db.get_and_watch(b"key")[1]

    assert fired(watch).wait(DEADLINE)
    with pytest.raises(embedded.StoreFileError, match="unable to open"):
        watch.wait()
    # Later ones are not affected.
    later = db.get_and_watch(b"key")[1]
    db[b"key"] = b"changed"
    assert fired(later).wait(DEADLINE)
    later.wait()


def test_a_connection_that_cannot_be_rolled_back_ends_neither_retries_nor_reads(
    path: str, own_timers: Timers
) -> None:
    db: Any = fdb.open(path)
    db[b"key"] = b"value"
    reader = db.create_transaction()
    assert reader[b"key"] == b"value"
    reader.reset()
    kept = embedded.open_store(path).snapshots
    assert kept.current is not None
    assert kept.current.cursor is not None
    kept.current.cursor.connection.close()

    own_timers.call_later(0, lambda: kept.drop_idle(also_kept=True))

    reader.on_error(1020).wait()
    assert reader[b"key"] == b"value"


def test_whatever_fails_on_the_timer_thread_retries_go_on(path: str, own_timers: Timers) -> None:
    reader = fdb.open(path).create_transaction()

    own_timers.call_later(0, lambda: int(""))

    reader.on_error(1020).wait()


def test_a_commit_that_was_made_is_no_error_because_no_thread_could_be_started(
    path: str, no_threads: pytest.MonkeyPatch
) -> None:
    db: Any = fdb.open(path)

    db[b"key"] = b"value"

    assert db[b"key"] == b"value"
    no_threads.undo()
    db[b"key"] = b"later"
    assert db[b"key"] == b"later"


def test_what_needs_a_thread_that_cannot_be_started_fails_and_works_again_later(
    path: str, own_timers: Timers, no_threads: pytest.MonkeyPatch
) -> None:
    db: Any = fdb.open(path)
    watch = db.get_and_watch(b"key")[1]
    reader = db.create_transaction()

    with pytest.raises(embedded.EngineError, match="can't start"):
        watch.wait()
    with pytest.raises(embedded.EngineError, match="can't start"):
        reader.on_error(1020).wait()

    no_threads.undo()
    reader.on_error(1020).wait()
    watch = db.get_and_watch(b"key")[1]
    db[b"key"] = b"changed"
    watch.wait()


def test_transactions_that_are_over_leave_nothing_behind_for_their_timeout(
    path: str, own_timers: Timers
) -> None:
    db: Any = fdb.open(path)

    for _ in range(400):
        writer = db.create_transaction()
        writer.options.set_timeout(86_400_000)
        writer[b"key"] = b""
        stamp = writer.get_versionstamp()
        writer.commit().wait()
        stamp.wait()

    assert len(own_timers) < 200


def test_no_call_is_lost_behind_one_whose_caller_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, called = Timers(), threading.Event()
    timers.call_later(0, called.set)
    assert called.wait(DEADLINE)

    def interrupted(_: object) -> None:
        raise InterruptedError

    def add_until_the_thread_sleeps() -> None:
        while True:
            timers.call_later(0, int)

    with monkeypatch.context() as signals:
        signals.setattr(world.Event, "set", interrupted)
        with pytest.raises(InterruptedError):
            add_until_the_thread_sleeps()
    again = threading.Event()
    timers.call_later(0, again.set)
    assert again.wait(DEADLINE)

"""Whoever waits for a commit sleeps, is woken by it, and finds out by itself where nobody wakes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded import open_stores
from fdbqueue.store.embedded.storage import versions, watches
from fdbqueue.store.embedded.storage.versions import SLEEPERS, TOUCHED, Sidecar
from tests.embedded.test_processes import Worker
from tests.patience import DEADLINE, eventually

FOREVER = 3600.0


@pytest.fixture
def shared(path: str) -> Sidecar:
    found = Sidecar(path)
    if found.made is None:
        pytest.skip("this system has no futex")
    return found


def sleeper(shared: Sidecar, touched: int) -> threading.Thread:
    thread = threading.Thread(target=shared.sleep, args=(touched, FOREVER), daemon=True)
    thread.start()
    return thread


def ends(thread: threading.Thread) -> bool:
    thread.join(0.01)
    return not thread.is_alive()


def test_nobody_falls_asleep_on_a_number_that_has_moved(shared: Sidecar) -> None:
    shared.words[TOUCHED] = 2
    eventually(lambda: ends(sleeper(shared, 1)))


def test_a_commit_wakes_sleepers_also_where_the_file_is_mapped_again(shared: Sidecar) -> None:
    other = Sidecar(shared.path)
    threads = [sleeper(each, 0) for each in (shared, other, shared)]
    eventually(lambda: shared.words[SLEEPERS])

    def wake() -> bool:
        # Who has not fallen asleep yet does not later.
        shared.words[TOUCHED] = 1
        shared.wake()
        return all(map(ends, threads))

    eventually(wake)


def test_a_commit_without_sleepers_asks_nothing_of_the_system(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db: Any = fdb.open(path)
    shared = open_stores.find(path).file.shared
    wakes: list[int] = []
    monkeypatch.setattr(shared, "wake", lambda: wakes.append(1))
    db[b"key"] = b"value"
    assert not wakes
    shared.words[SLEEPERS] = 1
    db[b"key"] = b"other"
    assert wakes == [1]


def test_watches_fire_where_commits_wake_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "futex", lambda *_: None)
    db: Any = fdb.open(str(tmp_path / "a.store"))
    shared = open_stores.find(str(tmp_path / "a.store")).file.shared
    assert shared.made is None
    watch = db.get_and_watch(b"watched")[1]
    worker = Worker(str(tmp_path / "a.store"), "change_unheard", "them")
    try:
        assert worker.process.stdin is not None
        worker.process.stdin.write("watched\n")
        worker.process.stdin.flush()
        eventually(watch.is_ready)
    finally:
        worker.kill()


def test_arming_a_watch_wakes_the_thread_out_of_its_longest_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key may have changed since the snapshot, and then nothing else does."""
    monkeypatch.setattr(watches, "_SLEEP_SECONDS", FOREVER)
    db: Any = fdb.open(str(tmp_path / "a.store"))
    its_watches = open_stores.find(str(tmp_path / "a.store")).watches
    kept = db.get_and_watch(b"other")[1]
    for number in range(50):
        eventually(lambda: its_watches._sleeping)
        tr = db.create_transaction()
        watch = tr.watch(b"key")
        watch_fired = threading.Event()
        watch.on_ready(lambda _, event=watch_fired: event.set())
        change = db.create_transaction()
        change[b"key"] = b"%d" % number
        change.commit().wait()
        tr.commit().wait()
        assert watch_fired.wait(DEADLINE)
    assert not kept.is_ready()

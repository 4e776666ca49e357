"""Commits of callers that do not wait: tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fdbqueue.aio.driver import run
from fdbqueue.store import client
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded import faults
from fdbqueue.store.embedded.storage import commit
from fdbqueue.store.embedded.storage.writer import Writer
from fdbqueue.store.embedded.timers import timers
from tests.embedded.commit_lock import held
from tests.patience import DEADLINE

OFTEN = commit.QUICK_COMMITS + 3


@pytest.fixture
def db(path: str) -> Any:
    return fdb.open(path)


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which threads have written commits."""
    found: list[int] = []
    write = Writer.write

    def noted(*args: Any) -> Any:
        found.append(threading.get_ident())
        return write(*args)

    monkeypatch.setattr(Writer, "write", noted)
    return found


def put(db: Any, key: bytes, read: bytes | None = None, between: Callable[[], Any] = int) -> None:
    tr = client.begin(db)
    if read is not None:
        tr.get(read).wait()
    tr.set(key, b"")
    between()
    tr.commit().wait()


def loop(main: Any) -> Any:
    return asyncio.run(asyncio.wait_for(main, DEADLINE))


async def often(db: Any, times: int = OFTEN) -> None:
    for n in range(times):
        await run(partial(put, db, b"%d" % n))


@pytest.mark.parametrize("seconds", [0.0, 1000.0], ids=["slow", "quick"])
def test_a_task_commits_by_itself_once_commits_are_quick(
    db: Any, writers: list[int], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(commit, "QUICK_SECONDS", seconds)
    loop(often(db))
    mine = [each == threading.get_ident() for each in writers]
    assert mine == [n >= commit.QUICK_COMMITS and seconds > 0 for n in range(OFTEN)]


def test_a_slow_commit_sends_the_next_ones_to_the_thread(
    db: Any, writers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "QUICK_SECONDS", 1000.0)

    async def main() -> None:
        await often(db)
        monkeypatch.setattr(commit, "QUICK_SECONDS", 0.0)
        await often(db, 1)
        monkeypatch.setattr(commit, "QUICK_SECONDS", 1000.0)
        await often(db, 2)

    loop(main())
    mine = [each == threading.get_ident() for each in writers]
    assert mine[-4:] == [True, True, False, False]  # the slow one is the second


def test_other_tasks_go_on_between_commits_that_a_task_makes_by_itself(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "QUICK_SECONDS", 1000.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> int:
        beside = asyncio.create_task(other())
        await often(db)
        before = turns
        await often(db, 5)
        beside.cancel()
        return turns - before

    assert loop(main()) >= 5


def test_a_task_does_not_wait_for_the_lock_of_another_process(
    db: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "QUICK_SECONDS", 1000.0)

    async def main() -> None:
        await often(db)
        with held(path):
            late = asyncio.create_task(run(partial(put, db, b"late")))
            for _ in range(20):
                await asyncio.sleep(0.001)  # The loop goes on.
            assert not late.done()
        await late

    loop(main())
    assert db[b"late"] is not None


def test_a_commit_that_a_task_makes_by_itself_fails_like_any_other(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "QUICK_SECONDS", 1000.0)

    async def main() -> None:
        await often(db)
        change = partial(db.__setitem__, b"read", b"changed")
        with pytest.raises(fdb.FDBError) as raised:
            await run(partial(put, db, b"never", b"read", change))
        assert raised.value.code == 1020
        await often(db, 1)

    loop(main())
    assert db[b"never"] is None


def test_a_disk_that_fails_ends_the_commit_of_a_task_with_its_error(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "QUICK_SECONDS", 1000.0)

    def broken(*_: Any) -> Any:
        raise OSError("no disk")

    async def main() -> None:
        await often(db)
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "write", broken)
            with pytest.raises(Exception, match="no disk"):
                await run(partial(put, db, b"never"))
        await often(db, 1)  # Nobody is left at work.

    loop(main())


def test_a_deadline_leaves_nothing_behind_once_the_commit_is_made(db: Any) -> None:
    def limited() -> None:
        tr = client.begin(db)
        tr.options.set_timeout(3_600_000)
        tr.set(b"key", b"")
        tr.commit().wait()

    async def main() -> None:
        for _ in range(300):
            await run(limited)

    loop(main())
    assert len(timers) < 250, "calls that are cancelled are swept out now and then"


def test_faults_keep_nobody_from_leading(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given faults in force, and a file that is always in use when somebody looks
    lock = commit.Committer._lock
    monkeypatch.setattr(commit.Committer, "_lock", lambda self, wait: wait and lock(self, wait))
    faults.inject(1, {})

    def patiently() -> None:
        for n in range(50):
            tr = db.create_transaction()
            tr.options.set_timeout(int(1000 * DEADLINE))
            tr[b"thread %d" % n] = b""
            tr.commit().wait()

    async def main() -> None:
        threads = [asyncio.to_thread(patiently) for _ in range(3)]
        await asyncio.gather(*threads, *(often(db, 50) for _ in range(3)))

    # When threads that wait for so long at most and tasks commit together, then all do
    try:
        loop(main())
    finally:
        faults.stop()
    assert len(list(db.get_range(b"", b"\xff"))) == 100

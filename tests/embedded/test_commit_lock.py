"""Waiting for the commit lock, which another process may hold for long: it may be paused."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fdbqueue
from fdbqueue import errors
from fdbqueue.cli.monitor import status
from fdbqueue.store import embedded
from fdbqueue.store.binding import fdb
from tests.embedded.commit_lock import held
from tests.patience import DEADLINE, eventually

SOON = 50


@pytest.fixture
def db(path: str) -> Any:
    return fdb.open(path)


class Attempt(threading.Thread):
    """A transaction that sets a key, and its error code, 0 for none."""

    def __init__(self, db: Any, key: bytes, timeout: int = 0, reads: bytes | None = None) -> None:
        super().__init__(daemon=True)
        self.code: int | type[BaseException] | None = None
        self.key = key
        self.transaction = db.create_transaction()
        if timeout:
            self.transaction.options.set_timeout(timeout)
        if reads is not None:
            self.transaction[reads].wait()
        self.transaction[key] = b""
        self.start()

    def run(self) -> None:
        try:
            self.transaction.commit().wait()
            self.code = 0
        except fdb.FDBError as error:
            self.code = error.code
        except Exception as error:
            self.code = type(error)

    def outcome(self) -> Any:
        self.join(DEADLINE)
        return self.code


def test_a_timeout_ends_the_wait_for_the_lock(db: Any, path: str) -> None:
    db[b"before"] = b""

    with held(path):
        late = Attempt(db, b"late", timeout=SOON)
        assert late.outcome() == 1031

    # What timed out before it had the lock was not committed, and nobody is kept waiting.
    db[b"after"] = b""
    assert [row.key for row in db[b"":b"\xff"]] == [b"after", b"before"]
    with pytest.raises(fdb.FDBError) as again:
        late.transaction.commit().wait()
    assert again.value.code in (1031, 2017)


def test_whoever_can_wait_gets_the_lock_when_others_gave_up(db: Any, path: str) -> None:
    with held(path):
        attempts = [
            Attempt(db, b"%d" % number, timeout=SOON if number % 3 else 0) for number in range(12)
        ]
        impatient = [attempt for attempt in attempts if int(attempt.key) % 3]
        assert [attempt.outcome() for attempt in impatient] == [1031] * len(impatient)

    patient = [attempt for attempt in attempts if not int(attempt.key) % 3]
    assert [attempt.outcome() for attempt in patient] == [0] * len(patient)
    assert {row.key for row in db[b"":b"\xff"]} == {attempt.key for attempt in patient}


def test_a_timeout_that_is_long_enough_changes_nothing(db: Any, path: str) -> None:
    with held(path):
        attempts = [Attempt(db, b"%d" % number, timeout=60_000) for number in range(6)]

    assert [attempt.outcome() for attempt in attempts] == [0] * 6
    assert len(list(db[b"":b"\xff"])) == 6


def test_commits_with_timeouts_and_without_share_the_lock_between_stores(
    db: Any, path: str
) -> None:
    def work(number: int) -> None:
        for turn in range(50):
            transaction = db.create_transaction()
            if number % 2:
                transaction.options.set_timeout(60_000)
            transaction.add(b"sum", b"\1\0\0\0")
            transaction[b"%d/%d" % (number, turn)] = b""
            transaction.commit().wait()

    def disturb() -> None:
        while not over.is_set():
            with held(path):
                pass

    over = threading.Event()
    disturber = threading.Thread(target=disturb)
    disturber.start()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(DEADLINE)
    over.set()
    disturber.join(DEADLINE)

    assert int.from_bytes(db[b"sum"], "little") == 300
    assert len(list(db[b"0":b"9"])) == 300


class Interrupted(BaseException):
    """What the signal handler of the next test raises."""


def test_an_interrupted_wait_keeps_nobody_from_committing(db: Any, path: str) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    db[b"before"] = b""
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with held(path):
            leader = Attempt(db, b"leader")
            transaction = db.create_transaction()
            transaction[b"follower"] = b""
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                transaction.commit().wait()
    finally:
        signal.signal(signal.SIGALRM, previous)

    assert leader.outcome() == 0
    assert Attempt(db, b"after").outcome() == 0


def test_a_conflict_with_a_commit_that_then_failed_is_none(db: Any, path: str) -> None:
    # SQLite refuses what sets this key, but only at the end of the group, as on a full disk.
    key = b"refused"
    db[b"before"] = b""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON recent "
            f"WHEN EXISTS (SELECT 1 FROM kv WHERE k = x'{key.hex()}') "
            "BEGIN SELECT raise(ABORT, 'refused'); END"
        )
    with held(path):
        leader = Attempt(db, b"leader")
        followers = [Attempt(db, key, reads=key)]
        followers += [Attempt(db, b"%d" % number, reads=key) for number in range(5)]

    assert leader.outcome() == 0
    assert issubclass(followers[0].outcome(), embedded.StoreFileError)
    assert [follower.outcome() for follower in followers[1:]] == [0] * 5
    kept = {b"before", b"leader", *(follower.key for follower in followers[1:])}
    assert {row.key for row in db[b"":b"\xff"]} == kept


def test_a_prepared_store_is_opened_and_read_while_another_process_holds_the_lock(
    db: Any, path: str
) -> None:
    db[b"key"] = b"value"
    program = "import sys, fdbqueue; print(fdbqueue.open(sys.argv[1])[b'key'])"
    with held(path):
        found = subprocess.run(
            [sys.executable, "-c", program, f"embedded:{path}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    assert found.stdout == "b'value'\n", found.stderr


@pytest.fixture
def stopped(db: Any, path: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is stopped while it holds the commit lock."""
    db[b"key"] = b"value"
    program = (
        "import fcntl, sys, time; lock = open(sys.argv[1] + '-lock', 'rb'); "
        "fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def test_who_holds_the_commit_lock_is_told(
    db: Any, path: str, stopped: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = embedded.lock_holder(path)
    assert holder is not None
    assert (holder.pid, holder.stopped) == (stopped.pid, True)
    assert sys.executable in holder.command
    # As fdbq doctor does first.
    monkeypatch.setattr(status, "COMMIT_MS", 100)
    with pytest.raises(
        errors.StoreError, match=f"process {stopped.pid} .*kill -CONT {stopped.pid}"
    ):
        status.version(fdbqueue.open(f"embedded:{path}"))
    stopped.kill()
    stopped.wait()
    # What this process has begun to commit takes its turn.
    eventually(lambda: embedded.lock_holder(path) is None)
    status.version(db)


def test_a_process_forks_while_a_stopped_one_holds_the_commit_lock(
    db: Any, path: str, stopped: subprocess.Popen[str]
) -> None:
    program = (
        "import os, sys, threading, fdbqueue; db = fdbqueue.open(sys.argv[1])\n"
        "commits = lambda: db.set(b'key', b'other')\n"
        "threading.Thread(target=commits, daemon=True).start()\n"
        "if os.fork():\n"
        "    assert os.wait()[1] == 0\n"
        "print(db[b'key'], flush=True); os._exit(0)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, f"embedded:{path}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert found.stdout == "b'value'\n" * 2, found.stderr

"""An exception that a signal handler raises, or another thread sends, inside the engine: it reaches
its thread, and nobody else is affected.

The test of all places tries each once, as far as a profile function sees them, and the random ones
add what it cannot see.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded import close_store
from tests.embedded.test_processes import Worker
from tests.interruption import Interrupted, Interruption
from tests.patience import DEADLINE

# Python itself swallows what is raised in a destructor.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def inside_engine(path: str) -> bool:
    return "store/embedded" in path


@pytest.fixture
def db(path: str) -> Any:
    return fdb.open(path)


def in_thread(work: Callable[[], object]) -> None:
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(DEADLINE), "blocked"


def count(tr: Any) -> None:
    tr[b"count"] = b"%d" % (int(tr[b"count"].value or b"0") + 1)


def once(db: Any, number: int) -> None:
    tr = db.create_transaction()
    count(tr)
    tr.add(b"sum", b"\1\0\0\0\0\0\0\0")
    tr[b"key/%d" % number] = b""
    tr.commit().wait()


def total(db: Any) -> int:
    return int.from_bytes(db[b"sum"] or b"", "little")


def check(db: Any, before: int, acknowledged: bool) -> int:
    """The transaction was made wholly or not, and not twice; returns how many are made."""
    made = int(db[b"count"] or b"0")
    assert made == total(db) == len(list(db.get_range_startswith(b"key/")))
    assert made in ((before + 1,) if acknowledged else (before, before + 1))
    return made


def test_wherever_a_commit_is_interrupted_others_go_on(db: Any, path: str) -> None:
    made, interrupted = 0, 0
    other = Worker(path, "change", "them")
    assert other.process.stdin is not None
    try:
        for place in itertools.count():
            with Interruption(place, inside_engine) as interruption:
                try:
                    once(db, place)
                    acknowledged = True
                except Interrupted:
                    acknowledged = False
            # Nothing that was to interrupt is lost, but in what Python itself calls to clean up.
            interrupted += not acknowledged
            in_thread(lambda: db.__setitem__(b"ours", b""))
            other.process.stdin.write("theirs\n")
            other.process.stdin.flush()
            other.wait_for_lines(place + 1)
            made = check(db, made, acknowledged)
            if not interruption.came:
                break
        assert interrupted > 100
    finally:
        other.kill()


def test_wherever_a_close_is_interrupted_the_store_can_be_used_again(path: str) -> None:
    for place in itertools.count():
        fdb.open(path)[b"before"] = b""
        with Interruption(place, inside_engine) as interruption, suppress(Interrupted):
            close_store(path)
        in_thread(lambda: close_store(path))
        in_thread(lambda: fdb.open(path).__setitem__(b"after", b""))
        if not interruption.came:
            break
    assert place > 3


class Commits:
    """Commits of one thread, each of a key of its own, and those that were acknowledged."""

    def __init__(self, db: Any, name: str, end: float) -> None:
        self.db = db
        self.name = name.encode()
        self.end = end
        self.acknowledged: list[bytes] = []
        self.interrupted = 0
        self.inside = False

    def make(self) -> None:
        """Commit for a while, whatever interrupts."""
        for number in itertools.count():
            try:
                if time.monotonic() > self.end:
                    return
                key = b"%s/%d" % (self.name, number)
                tr = self.db.create_transaction()
                if number % 3 == 0:
                    tr[b"shared"].wait()
                if number % 4 == 0:
                    tr.options.set_timeout(60_000)
                tr[key] = b""
                self.inside = True
                tr.commit().wait()
                self.inside = False
                self.acknowledged.append(key)
            except Interrupted:
                self.interrupted += 1
            except fdb.FDBError as error:
                # A group whose leader was interrupted may be made or not.
                if error.code != 1021:
                    raise


def inside(frame: FrameType | None) -> bool:
    """Whether a thread is in the engine, or in the bindings."""
    while frame is not None:
        if frame.f_code.co_filename.endswith("fdb/impl.py"):
            return True
        frame = frame.f_back
    return False


def interrupt_at_random(db: Any, path: str, seconds: float) -> None:
    rng, end = random.Random(), time.monotonic() + seconds
    mine, others = Commits(db, "main", end), [Commits(db, f"thread{n}", end) for n in range(3)]
    process = Worker(path, "append", "other", "64")
    calm = threading.Lock()

    def work(commits: Commits) -> None:
        try:
            commits.make()
        finally:
            # Its number must not become that of a thread of the engine, while exceptions are sent.
            with calm:
                pass

    threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in others]

    def interrupt(_: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.003))
        if inside(frame):
            raise Interrupted

    send = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def disturb() -> None:
        while time.monotonic() < end:
            time.sleep(rng.uniform(0.0001, 0.003))
            number = rng.randrange(len(threads))
            if others[number].inside:
                ident = ctypes.c_ulong(threads[number].ident or 0)
                send(ident, ctypes.py_object(Interrupted))

    calm.acquire()
    before, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
    try:
        sys.unraisablehook = lambda _: None
        for thread in (*threads, disturber := threading.Thread(target=disturb)):
            thread.start()
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        mine.make()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    disturber.join()
    calm.release()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive(), "blocked"

    in_thread(lambda: db.__setitem__(b"after", b""))
    said = len(process.lines)
    process.wait_for_lines(said + 10)
    process.kill()
    kept = {row.key for row in db[b"":b"\xff"]}
    for each in (mine, *others):
        assert kept.issuperset(each.acknowledged)
    assert mine.acknowledged
    assert mine.interrupted > 10
    kept_there = b"".join(row.value for row in db.get_range_startswith(b"list/"))
    assert kept_there.count(b",") >= len(process.lines)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seconds", [3.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_whoever_is_interrupted_at_random_others_go_on(db: Any, path: str, seconds: float) -> None:
    interrupt_at_random(db, path, seconds)

"""Several processes on one store: serializable, durable, and none in another's way."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fdbqueue
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage.mailbox import AVAILABLE, Mailbox
from tests.patience import DEADLINE, eventually

WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """A process of worker.py, and the lines that it has printed."""

    def __init__(self, store: str, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), store, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "FDBQUEUE_SYNCHRONOUS": "normal", **environment},
        )
        self.lines: list[str] = []
        self._grown = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._grown:
                self.lines.append(line.strip())
                self._grown.notify_all()
        with self._grown:
            self._grown.notify_all()

    def wait_for_lines(self, count: int) -> None:
        """Wait until it has printed so many lines."""
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.lines) >= count, DEADLINE)

    def kill(self) -> None:
        """Kill it, and read what it had printed."""
        self.process.kill()
        self.finish()

    def finish(self) -> int:
        """Wait until it ends; its exit code."""
        code = self.process.wait(DEADLINE)
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return code


@pytest.fixture
def start(store: str) -> Iterator[Any]:
    """Start workers on the store of the test; what still runs at its end is killed."""
    workers: list[Worker] = []

    def begin(*arguments: str, **environment: str) -> Worker:
        workers.append(Worker(store, *arguments, **environment))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.kill()


def appended(db: Any, lists: int) -> dict[str, list[int]]:
    """The numbers that each worker has in the lists, list by list; no number twice."""
    found: dict[str, list[int]] = defaultdict(list)
    for number in range(lists):
        content = (db[b"list/%d" % number] or b"").decode()
        position: dict[str, int] = {}
        for entry in filter(None, content.split(",")):
            name, _, text = entry.partition(":")
            assert position.get(name, -1) < int(text), "out of order, or twice"
            position[name] = int(text)
            found[name].append(int(text))
    return found


def check_appended(db: Any, lists: int, acknowledged: dict[str, int]) -> None:
    """Every acknowledged append is there once, and at most one more that nobody heard of."""
    found = appended(db, lists)
    for name, count in acknowledged.items():
        numbers = sorted(found[name])
        assert numbers == list(range(len(numbers)))
        assert count <= len(numbers) <= count + 1


def check_file(path: str) -> None:
    """SQLite finds nothing wrong with the file."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_money_is_neither_made_nor_lost(db: Any, start: Any) -> None:
    for account in range(8):
        db[b"account/%d" % account] = b"100"

    workers = [start("transfer", f"w{number}", "150") for number in range(4)]

    assert [worker.finish() for worker in workers] == [0] * 4
    assert sum(int(row.value) for row in db.get_range_startswith(b"account/")) == 800


def run_with_kills(db: Any, store: str, start: Any, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    # Few lists make many conflicts, but a list must stay below the size of a value.
    lists = max(2, kills)
    acknowledged: dict[str, int] = {}
    running: list[tuple[str, Worker]] = []

    def begin() -> None:
        name = f"w{len(acknowledged)}"
        acknowledged[name] = 0
        running.append((name, start("append", name, str(lists))))

    for _ in range(3):
        begin()
    for _ in range(kills):
        name, victim = running.pop(rng.randrange(len(running)))
        victim.wait_for_lines(rng.randrange(1, 40))
        victim.kill()
        acknowledged[name] = len(victim.lines)
        begin()
    for name, worker in running:
        worker.wait_for_lines(1)
        worker.kill()
        acknowledged[name] = len(worker.lines)
    check_appended(db, lists, acknowledged)
    check_file(store)


def test_a_killed_process_loses_nothing_that_was_acknowledged(
    db: Any, store: str, start: Any
) -> None:
    run_with_kills(db, store, start, kills=5, seed=1)


STEPS = sorted(
    line
    for function in (Mailbox.post, Mailbox.note, Mailbox.answer, Mailbox.take_answer, Mailbox.wake)
    for _, _, line in function.__code__.co_lines()
    if line is not None and line > function.__code__.co_firstlineno
)


@pytest.mark.skipif(not AVAILABLE, reason="processes pass on no commits here")
def test_a_process_may_die_at_any_step_of_passing_commits_on(
    db: Any, store: str, start: Any
) -> None:
    survivors = [start("append", f"s{number}", "20") for number in range(2)]
    victims: dict[str, Worker] = {}
    steps = sorted(set(STEPS))
    for line in steps[random.randrange(8) :: 8]:
        victim = victims[f"v{line}"] = start("append_until", f"v{line}", "20", str(line))
        # Not every step is ever taken.
        eventually(lambda: victim.process.poll() is not None or len(victim.lines) > 40)  # noqa: B023
        victim.process.kill()
        before = len(survivors[0].lines)
        survivors[0].wait_for_lines(before + 1)
    for worker in (*survivors, *victims.values()):
        worker.kill()

    acknowledged = {name: len(victim.lines) for name, victim in victims.items()}
    for number, survivor in enumerate(survivors):
        acknowledged[f"s{number}"] = len(survivor.lines)
    check_appended(db, 20, acknowledged)
    check_file(store)


@pytest.mark.slow
def test_hundreds_of_kills_lose_nothing_that_was_acknowledged(
    db: Any, store: str, start: Any
) -> None:
    run_with_kills(db, store, start, kills=300, seed=2)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_process_killed_around_its_commit_leaves_all_or_nothing(
    db: Any, store: str, start: Any, seed: int
) -> None:
    worker = start("append", "w", "1", FDBQUEUE_FAULTS=f"{seed}:kill=0.03")

    assert worker.finish() == -signal.SIGKILL

    check_appended(db, 1, {"w": len(worker.lines)})
    check_file(store)


def test_a_watch_fires_when_another_process_changes_its_key(db: Any, start: Any) -> None:
    worker = start("change", "them")
    _, watch = db.get_and_watch(b"watched")
    fired = threading.Event()
    watch.on_ready(lambda _: fired.set())
    assert worker.process.stdin is not None

    worker.process.stdin.write("watched\n")
    worker.process.stdin.flush()

    assert fired.wait(DEADLINE)
    assert db[b"watched"] == b"them"


def test_a_reader_sees_what_another_process_has_committed(db: Any, start: Any) -> None:
    worker = start("change", "them")
    assert worker.process.stdin is not None
    for number in range(1, 20):
        key = b"seen/%d" % number
        assert db[key] == None  # noqa: E711
        worker.process.stdin.write(key.decode() + "\n")
        worker.process.stdin.flush()
        worker.wait_for_lines(number)
        assert db[key] == b"them"


def count_up(store: str, times: int) -> None:
    database = fdbqueue.open(store)

    @fdb.transactional
    def once(tr: Any) -> None:
        tr[b"count"] = b"%d" % (int(tr[b"count"].value or b"0") + 1)

    for _ in range(times):
        once(database)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_its_store_though_the_folder_of_another_is_gone(
    store: str, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    count_up(f"embedded:{gone}/store.fdbq", 1)
    count_up(store, 1)
    shutil.rmtree(gone)
    child = multiprocessing.get_context("fork").Process(target=count_up, args=(store, 5))
    child.start()
    child.join(DEADLINE)
    assert child.exitcode == 0


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_the_store_beside_its_parent(db: Any, store: str) -> None:
    context = multiprocessing.get_context("fork")
    count_up(store, 1)
    held = db.create_transaction()
    assert held[b"count"] == b"1"

    children = [context.Process(target=count_up, args=(store, 50)) for _ in range(3)]
    for child in children:
        child.start()
    count_up(store, 50)
    for child in children:
        child.join(DEADLINE)

    assert [child.exitcode for child in children] == [0, 0, 0]
    assert db[b"count"] == b"201"
    check_file(store)


@pytest.mark.parametrize("mebibytes", [1, 3])
@pytest.mark.promise(1)
def test_a_full_disk_is_a_clear_error_and_loses_nothing(
    store: str, start: Any, mebibytes: int
) -> None:
    worker = start("fill", "w", str(mebibytes << 20))

    assert worker.finish() == 0

    assert worker.lines[0].startswith("full ")
    assert f"no room left for the embedded store: {os.path.realpath(store)}" in worker.lines[0]
    assert worker.lines[1] == "recovered"
    check_file(store)


def elsewhere(store: str, statement: str) -> Any:
    """What a statement gives in another process, the last to close the file unless one has it."""
    program = (
        "import sqlite3, sys; "
        "print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0])"
    )
    found = subprocess.run(
        [sys.executable, "-S", "-c", program, store, statement],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(found.stdout)


@pytest.mark.parametrize("other_name", [False, True])
def test_opening_a_store_again_in_its_process_loses_no_commit(
    store: str, tmp_path: Path, other_name: bool
) -> None:
    link = tmp_path / "link.fdbq"
    link.symlink_to(store)
    db = fdb.open(store)
    db[b"key/before"] = b""

    # Looking what kind of file it is must not take away the locks on it: another process would
    # be the last to close it, and would delete the log that this one goes on writing to.
    assert fdbqueue.open(link if other_name else store)[b"key/before"] == b""
    elsewhere(store, "SELECT count(*) FROM kv")
    for number in range(20):
        db[b"key/%d" % number] = b""

    assert elsewhere(store, "SELECT count(*) FROM kv WHERE k >= x'6b6579' AND k < x'6c'") == 21


def test_what_a_process_reads_after_a_long_rest_is_not_too_old(db: Any, store: str) -> None:
    # Given a transaction that has read what was last committed, long ago
    db[b"mine"] = b"0"
    tr = db.create_transaction()
    assert tr[b"mine"] == b"0"

    # When another process makes its first commit, which drops what is older than ten seconds
    later = (
        "import time; real = time.time; time.time = lambda: real() + 60\n"
        f"import fdbqueue; fdbqueue.open({store!r})[b'other'] = b'1'"
    )
    subprocess.run([sys.executable, "-c", later], check=True, timeout=DEADLINE)

    # Then the first one commits: nobody wrote what it read
    tr[b"mine"] = b"1"
    tr.commit().wait()
    assert db[b"mine"] == b"1"


def test_whoever_conflicts_again_and_again_gets_its_turn(path: str) -> None:
    workers = [Worker(path, "increment", str(number), "100") for number in range(4)]
    for worker in workers:
        worker.wait_for_lines(1)
    for worker in workers:
        assert worker.process.stdin is not None
        worker.process.stdin.write("go\n")
        worker.process.stdin.flush()
    for worker in workers:
        assert worker.finish() == 0
    # Eight conflicts, its turn, and two more if the machine is busy, as each is twice as long
    assert max(int(worker.lines[1]) for worker in workers) <= 11
    assert fdb.open(path)[b"hot"] == b"400"

"""Random transactions of threads and processes, and whether a serial order explains them.

Each transaction reads by keys, ranges both ways, limits and selectors, and sets, clears, adds,
appends, and writes versionstamped keys and values. What it saw is recorded with its versionstamp.
`first_anomaly` replays all commits in the order of their versionstamps on a plain model: each read
must find there what it found in the store. A transaction that only read must have seen the state at
its read version, and none may have begun before a commit that had returned already.

Usage as a program: histories.py STORE SEED SECONDS THREADS FAULT. It prints the records.
"""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    os.environ["FDBQUEUE_STORE"] = f"embedded:{sys.argv[1]}"

import fdbqueue
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage.conflicts import RecentCommits
from fdbqueue.store.embedded.storage.snapshots import Snapshots
from fdbqueue.store.embedded.storage.writer import Writer
from fdbqueue.store.embedded.transactions.commit_requests import CommitRequest
from fdbqueue.store.embedded.transactions.ranges import KeySet

KEYS = [b"a/%d" % number for number in range(6)]
STAMPED = b"s/"
ENDS = [*KEYS, b"a0", STAMPED, b"s0"]
UNKNOWN = b"\0" * 10
Step = tuple[Any, ...]
State = dict[bytes, bytes]


class Record(NamedTuple):
    """A transaction that was committed: when it began and ended, by a clock of all processes."""

    began: float
    ended: float
    read_version: int
    stamp: bytes | None
    """None if it wrote nothing."""
    steps: list[tuple[Step, Any]]
    """What it did, each with what it found."""


def random_step(rng: random.Random) -> Step:
    """A read or a write."""
    key, (begin, end) = rng.choice(KEYS), sorted(rng.sample(ENDS, 2))
    value = b"%06d" % rng.randrange(10**6)
    return rng.choice(
        [
            ("get", key),
            ("range", begin, end, rng.randrange(4), rng.random() < 0.5),
            ("range", STAMPED, b"s0", rng.randrange(3), rng.random() < 0.5),
            ("get_key", rng.choice(ENDS), rng.random() < 0.5, rng.randint(-2, 3)),
            ("set", key, value),
            ("clear", key),
            ("clear_range", begin, end),
            ("add", key, rng.randrange(256).to_bytes(2, "little")),
            ("append_if_fits", key, value[:2]),
            ("stamp_key", value),
            ("stamp_value", key),
        ]
    )


def act(tr: Any, step: Step) -> Any:
    """Do a step in the store; what it finds."""
    kind, arguments = step[0], step[1:]
    if kind == "get":
        return tr[arguments[0]].value
    if kind == "range":
        return [(row.key, row.value) for row in tr.get_range(*arguments)]
    if kind == "get_key":
        return bytes(tr.get_key(fdb.KeySelector(*arguments)).value)
    if kind == "stamp_key":
        offset = len(STAMPED).to_bytes(4, "little")
        tr.set_versionstamped_key(STAMPED + UNKNOWN + offset, *arguments)
    elif kind == "stamp_value":
        tr.set_versionstamped_value(*arguments, UNKNOWN + b"\0\0\0\0")
    elif kind == "set":
        tr[arguments[0]] = arguments[1]
    else:
        getattr(tr, kind)(*arguments)
    return None


def replay(state: State, step: Step, stamp: bytes) -> Any:
    """Do a step in the model; what it finds."""
    kind, arguments = step[0], step[1:]
    if kind == "get":
        return state.get(arguments[0])
    if kind == "range":
        begin, end, limit, reverse = arguments
        rows = sorted((item for item in state.items() if begin <= item[0] < end), reverse=reverse)
        return rows[:limit] if limit else rows
    if kind == "get_key":
        key, or_equal, offset = arguments
        keys = sorted(state)
        index = (bisect_right if or_equal else bisect_left)(keys, key) + offset - 1
        return b"" if index < 0 else keys[index] if index < len(keys) else b"\xff"
    if kind == "set":
        state[arguments[0]] = arguments[1]
    elif kind == "clear":
        state.pop(arguments[0], None)
    elif kind == "clear_range":
        for key in [key for key in state if arguments[0] <= key < arguments[1]]:
            del state[key]
    elif kind == "add":
        key, operand = arguments
        size, old = len(operand), state.get(key, b"")
        total = int.from_bytes(old[:size], "little") + int.from_bytes(operand, "little")
        state[key] = (total % 256**size).to_bytes(size, "little")
    elif kind == "append_if_fits":
        state[arguments[0]] = state.get(arguments[0], b"") + arguments[1]
    elif kind == "stamp_key":
        state[STAMPED + stamp] = arguments[0]
    elif kind == "stamp_value":
        state[arguments[0]] = stamp
    return None


def first_anomaly(records: list[Record]) -> str | None:
    """The first record that no serial order explains; None if there is one that explains all."""
    order = sorted(
        (each for each in records if each.stamp is not None), key=lambda r: r.stamp or b""
    )
    readers = sorted((r for r in records if r.stamp is None), key=lambda r: r.read_version)
    ends = sorted((r.ended, int.from_bytes((r.stamp or b"")[:8], "big")) for r in order)
    newest, at = 0, 0
    for record in sorted(records, key=lambda r: r.began):
        while at < len(ends) and ends[at][0] < record.began:
            newest, at = max(newest, ends[at][1]), at + 1
        if record.read_version < newest:
            return f"it began after a commit at {newest} had returned: {record}"
    state: State = {}
    for record in order:
        version = int.from_bytes((record.stamp or b"")[:8], "big")
        while readers and readers[0].read_version < version:
            found = _difference(dict(state), readers.pop(0))
            if found:
                return found
        found = _difference(state, record)
        if found:
            return found
    return next(filter(None, (_difference(dict(state), reader) for reader in readers)), None)


def _difference(state: State, record: Record) -> str | None:
    for step, found in record.steps:
        expected = replay(state, step, record.stamp or b"")
        if expected != found:
            return f"{step} found {found}, in serial order {expected}: {record}"
    return None


def one_transaction(db: Any, rng: random.Random) -> Record | None:
    """A random transaction, or None if it was not committed."""
    began = time.monotonic()
    tr = db.create_transaction()
    steps: list[tuple[Step, Any]] = []
    try:
        version = tr.get_read_version().wait()
        for _ in range(rng.randint(1, 5)):
            step = random_step(rng)
            steps.append((step, act(tr, step)))
        stamp = tr.get_versionstamp()
        tr.commit().wait()
    except fdb.FDBError as error:
        if error.code not in (1007, 1020, 1036):
            raise
        return None
    written = tr.get_committed_version() >= 0
    return Record(began, time.monotonic(), version, bytes(stamp.wait()) if written else None, steps)


def run(db: Any, seed: int, seconds: float, threads: int) -> list[Record]:
    """The records of some threads."""
    records: list[Record] = []

    def work(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            record = one_transaction(db, rng)
            if record is not None:
                records.append(record)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return records


def run_processes(
    store: str, seed: int, seconds: float, processes: int, threads: int, fault: str = "none"
) -> list[Record]:
    """The records of the threads of some processes."""
    given = (str(seconds), str(threads), fault)
    running = [
        subprocess.Popen(
            [sys.executable, __file__, store, str(seed * 100 + number), *given],
            stdout=subprocess.PIPE,
            env={**os.environ, "FDBQUEUE_SYNCHRONOUS": "full"},
        )
        for number in range(processes)
    ]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return [Record(*fields) for output in outputs for fields in pickle.loads(output)]


def stamped_too_late() -> None:
    """What a versionstamped key becomes is no write for those who are judged later."""
    original = CommitRequest.stamp

    def stamp(self: CommitRequest, version: int) -> None:
        asked = self.writes
        original(self, version)
        self.writes = asked

    setattr(CommitRequest, "stamp", stamp)  # noqa: B010


def stale_snapshot() -> None:
    """A snapshot is lent again although something was committed since."""
    original = Snapshots.acquire

    def acquire(self: Snapshots) -> Any:
        current = self.current
        if current is not None and current.cursor is not None and random.random() < 0.2:
            current.users += 1
            return current, current.newest
        return original(self)

    setattr(Snapshots, "acquire", acquire)  # noqa: B010


def ranges_read_do_not_conflict() -> None:
    """The commits of others are compared with single keys that were read only."""
    original = Writer._judge

    def judge(self: Writer, request: CommitRequest, *rest: Any) -> int:
        reads = request.reads
        request.reads = KeySet()
        request.reads.keys.update(reads.keys)
        try:
            return original(self, request, *rest)
        finally:
            request.reads = reads

    setattr(Writer, "_judge", judge)  # noqa: B010


def group_is_not_judged() -> None:
    """Of a group, each is compared with the commits before the group only."""
    original = Writer._judge

    def judge(self: Writer, request: CommitRequest, accepted: Any) -> int:
        return original(self, request, [])

    setattr(Writer, "_judge", judge)  # noqa: B010


def commits_of_others_are_missed() -> None:
    """The commits of other processes are not read from the table."""

    def top_up(self: RecentCommits, rows: Any) -> None:
        self.newest = max([self.newest, *(version for version, _ in rows)])

    setattr(RecentCommits, "top_up", top_up)  # noqa: B010


FAULTS: dict[str, Callable[[], None]] = {
    "stamped_too_late": stamped_too_late,
    "stale_snapshot": stale_snapshot,
    "ranges_read_do_not_conflict": ranges_read_do_not_conflict,
    "group_is_not_judged": group_is_not_judged,
    "commits_of_others_are_missed": commits_of_others_are_missed,
}
"""Faults of the engine that the checker finds."""

if __name__ == "__main__":
    _, path, seed, seconds, threads, fault = sys.argv
    FAULTS.get(fault, lambda: None)()
    found = run(fdbqueue.open(path), int(seed), float(seconds), int(threads))
    sys.stdout.buffer.write(pickle.dumps([tuple(record) for record in found]))

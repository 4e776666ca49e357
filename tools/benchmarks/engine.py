"""The embedded engine, beside the cost of the bindings and of SQLite alone.

Every figure of docs/engine.md comes from it. Compared rounds alternate, and the best round of
each counts. Costs are processor time of the calling thread, which other work on the machine
distorts least, together with wall-clock time.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from unittest import mock

from typer import Option

from fdbqueue.cli import terminal
from fdbqueue.queue.queue import Queue
from fdbqueue.store import binding
from fdbqueue.store.binding import DEFAULT, Engine, fdb
from fdbqueue.store.embedded.futures import Future

from . import measure, processes
from .clients import Client, payload, quantile
from .declare import Rounds, Row, Seconds, at_least, at_most, benchmark, known
from .turns import in_turn, ratio

VALUE = b"v" * 20
WARM_UP, CALLS = 0.1, 3_000
SMALL, STEP = 1_000, 7_919
FIRES = 100
TIMES = 3
"""How often what takes a while is measured; the median counts."""

Measured = tuple[float, float]
"""Microseconds a call: processor time of this thread, and wall-clock time."""


@benchmark("engine")
def engine(
    only: Annotated[
        str,
        Option(metavar="GROUP,…", help="Only single, durable, processes, reads or watches."),
    ] = "",
    rounds: Rounds = 9,
    large: Annotated[int, Option(metavar="N", min=1, help="Keys in the large store.")] = 1_000_000,
    seconds: Seconds = 4.0,
) -> Iterator[Row]:
    """Measure the embedded engine, beside the bindings alone, and SQLite alone."""
    if DEFAULT.engine is not Engine.EMBEDDED:
        raise terminal.CommandError("this measures the embedded engine, not a cluster")
    groups: Mapping[str, Callable[[Path], Iterable[Row]]] = {
        "single": lambda place: processes.once(partial(_single, place, rounds)),
        "durable": lambda place: _durable(place, seconds),
        "processes": lambda place: _processes(place, seconds),
        "reads": lambda place: processes.once(partial(_reads, place, rounds, large)),
        "watches": lambda place: _watches(place, seconds),
    }
    for group in known("group", only.split(","), groups):
        terminal.note(f"{group} …")
        with TemporaryDirectory(prefix="fdbqueue-bench-") as directory:
            yield from groups[group](Path(directory))


def _opened(store: Path, synchronous: str) -> fdb.Database:
    os.environ["FDBQUEUE_SYNCHRONOUS"] = synchronous
    return binding.open(store)


def _key(number: int) -> bytes:
    return b"k%08d" % number


def _per_call(call: Callable[[int], object]) -> Measured:
    begun, used = time.perf_counter(), time.thread_time()
    for number in range(CALLS):
        call(number)
    spent, passed = time.thread_time() - used, time.perf_counter() - begun
    return spent / CALLS * 1e6, passed / CALLS * 1e6


def _best(section: str, samples: Mapping[str, list[Measured]]) -> Iterator[Row]:
    """The best round of each."""
    for name, found in samples.items():
        spent, passed = (min(each) for each in zip(*found, strict=True))
        yield Row(f"{section} {name}", spent, "µs", more={"wall µs": passed})


# -- a transaction that sets one key --------------------------------------------------------------


def _single(place: Path, rounds: int) -> list[Row]:
    database, bare = _opened(place / "single", "normal"), _bare(place / "bare")

    def set_one(of: Any, number: int) -> None:
        of[_key(number)] = VALUE

    def bindings() -> Measured:
        with mock.patch.object(fdb.impl._FDBBase, "capi", _Nothing()):
            return _per_call(partial(set_one, fdb.impl.Database(1)))

    def bare_sqlite() -> Measured:
        found = _per_call(partial(_set_bare, bare))
        bare.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return found

    ways: dict[str, Callable[[], Measured]] = {
        "bindings": bindings,
        "bare_sqlite": bare_sqlite,
        "total": partial(_per_call, partial(set_one, database)),
    }
    rows = [*_best("single_set_us", in_turn(rounds, ways))]
    most = rows[0].figure + 2.5 * rows[1].figure
    bar = at_most("a set: that of the bindings, and 2.5 of SQLite", rows[2].figure, most, "µs")
    return [*rows, bar]


class _Nothing:
    """Functions below the bindings that do nothing: every call returns a future that is done."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        done = Future()
        plain = {
            "fdb_database_create_transaction": 0,
            "fdb_future_get_error": 0,
            "fdb_future_is_ready": True,
            "fdb_future_destroy": None,
        }
        found = plain.get(name, done)
        function = self.__dict__[name] = lambda *_: found
        return function


def _bare(path: Path) -> sqlite3.Connection:
    """A file as the engine has it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in (
        "journal_mode = wal",
        "wal_autocheckpoint = 0",
        "synchronous = normal",
        "secure_delete = off",
        "cache_size = -16384",
        "mmap_size = 1073741824",
    ):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("CREATE TABLE kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")
    connection.execute("CREATE TABLE recent (version INTEGER PRIMARY KEY, written BLOB)")
    return connection


def _set_bare(bare: sqlite3.Connection, number: int) -> None:
    """The statements of a transaction that sets one key."""
    bare.execute("BEGIN IMMEDIATE")
    bare.execute(
        "INSERT INTO kv VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
        (_key(number), VALUE),
    )
    bare.execute("INSERT INTO recent (written) VALUES (?)", (b"0000" + _key(number),))
    bare.execute("COMMIT")


# -- commits a second -----------------------------------------------------------------------------


def _durable(place: Path, seconds: float) -> Iterator[Row]:
    rates = in_turn(
        TIMES,
        {
            name: partial(processes.once, partial(_commits, place / "full", threads, seconds))
            for name, threads in (("one_thread", 1), ("sixteen_threads", 16))
        },
    )
    yield from (Row(f"durable_commits_per_s {way}", median(rates[way])) for way in rates)
    gain = ratio(rates["sixteen_threads"], rates["one_thread"])
    yield at_least("durable commits: rate of sixteen threads to that of one", gain, 8)


def _commits(store: Path, threads: int, seconds: float) -> float:
    db, counts = _opened(store, "full"), [0] * threads
    end = time.monotonic() + seconds

    def work(n: int) -> None:
        while time.monotonic() < end:
            db[b"%d/%d" % (n, counts[n] % 1000)] = b"v"
            counts[n] += 1

    with ThreadPoolExecutor(threads) as pool:
        [*pool.map(work, range(threads))]
    return sum(counts) / seconds


# -- several processes ----------------------------------------------------------------------------


def _processes(place: Path, seconds: float) -> Iterator[Row]:
    """Rates of one and four processes, durable.

    The bound of a gain is what four gain if they keep all cores busy at the cost that they have.
    """
    stores = count()
    for work in ("set", "put", "take"):
        found: dict[int, Measured] = {}
        for number in (1, 4):
            runs = [_run(place / f"{next(stores)}", work, number, seconds) for _ in range(TIMES)]
            rate, used = (median(each) for each in zip(*runs, strict=True))
            found[number] = rate, used
            yield Row(f"processes fdbqueue {work} {number}", rate, more={"µs": used})
        bound = len(os.sched_getaffinity(0)) * 1e6 / found[4][1] / found[1][0]
        gain = found[4][0] / found[1][0]
        yield Row(f"four processes that {work}: gain", gain, "", more={"bound": bound})


def _run(store: Path, work: str, number: int, seconds: float) -> Measured:
    """Messages a second that so many processes handle together, and processor time for each."""
    processes.once(partial(_fill, store, 100 + (int(6_000 * seconds) if work == "take" else 0)))
    opened = partial(_Sets if work == "set" else _Singly, store)
    call: processes.Work = partial(measure.put, opened, 1, 0, None)
    if work == "take":
        call = partial(measure.take, opened, 1, None)
    span, reports = processes.run([call] * number, seconds, WARM_UP)
    figures = measure.Figures.of(reports, span.measured, span.end)
    return figures.rate, figures.cpu_us


def _fill(store: Path, backlog: int) -> None:
    db = _opened(store, "normal")
    queue = Queue.open(db, "queue", create=True)
    for _ in range(backlog):  # Each with a row of its own.
        queue.enqueue(db, payload(0))


class _Singly(Client):
    """Single messages, each call a transaction."""

    def __init__(self, store: Path) -> None:
        self._db = _opened(store, "full")
        self._queue = Queue.open(self._db, "queue")

    def enqueue(self, payload: bytes) -> None:
        self._queue.enqueue(self._db, payload)

    def take(self, most: int) -> list[bytes]:
        held = self._queue.receive(self._db, wait=10)
        if held is None:
            raise processes.BenchmarkFailed(problem="the backlog is too small")
        self._queue.ack(self._db, held)
        return [held.payload]


class _Sets(_Singly):
    """Blind sets, which show what the engine gains by itself."""

    def enqueue(self, payload: bytes) -> None:
        self._db[b"%d/%d" % (os.getpid(), int(payload))] = payload


# -- reads ----------------------------------------------------------------------------------------


def _reads(place: Path, rounds: int, large: int) -> list[Row]:
    databases = {size: _with_keys(place / f"{size}", size) for size in (SMALL, large)}
    ways: dict[str, Callable[[fdb.Database, int, int], object]] = {
        "point": lambda db, size, number: db[_key(number * STEP % size)],
        "first": lambda db, size, number: db.get_range(b"", b"\xff", limit=1),
    }
    samples = in_turn(
        rounds,
        {
            f"{way}_{size}": partial(_per_call, partial(read, database, size))
            for size, database in databases.items()
            for way, read in ways.items()
        },
    )
    rows = [*_best("reads_us", samples)]
    for way in ways:
        times = min(samples[f"{way}_{large}"])[0] / min(samples[f"{way}_{SMALL}"])[0]
        bar = at_most(f"{way} read: cost in the large store to that in the small", times, 1.3)
        rows.append(bar)
    return rows


def _with_keys(store: Path, size: int) -> fdb.Database:
    database = _opened(store, "normal")
    for begin in range(0, size, 10_000):
        transaction = database.create_transaction()
        for number in range(begin, min(begin + 10_000, size)):
            transaction[_key(number)] = VALUE
        transaction.commit().wait()
    return database


# -- watches --------------------------------------------------------------------------------------


def _watches(place: Path, seconds: float) -> Iterator[Row]:
    context = get_context("fork")
    asks, commits = context.SimpleQueue(), context.SimpleQueue()
    store = place / "watched"
    works = partial(_watch, store, seconds, asks, commits), partial(_write, store, asks, commits)
    idle, delays = processes.together(works)[0]
    yield at_most("ten armed watches", idle * 100, 1, "% of a core")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield at_most(f"a watch fires after, {name}", quantile(delays, share) * 1_000, 20, "ms")


def _watch(store: Path, seconds: float, asks: Any, commits: Any) -> tuple[float, list[float]]:
    """The share of a core of ten armed watches, and how late one fires in another process."""
    database: Any = _opened(store, "normal")
    watches = [database.get_and_watch(b"idle/%d" % number)[1] for number in range(10)]
    time.sleep(1.0)
    before = time.process_time()
    time.sleep(seconds)
    used = time.process_time() - before
    delays: list[float] = []
    for _ in range(FIRES):
        _, watch = database.get_and_watch(b"watched")
        fired: list[float] = []
        done = threading.Event()
        watch.on_ready(
            lambda _, fired=fired, done=done: (fired.append(time.monotonic()), done.set())
        )
        asks.put(True)
        committed = commits.get()
        done.wait()
        delays.append(max(0.0, fired[0] - committed))
    asks.put(False)
    del watches
    return used / seconds, delays


def _write(store: Path, asks: Any, commits: Any) -> None:
    database = _opened(store, "normal")
    for number in count():
        if not asks.get():
            return
        database[b"watched"] = b"%d" % number
        commits.put(time.monotonic())

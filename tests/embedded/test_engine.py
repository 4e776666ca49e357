"""Promises of the engine that a server keeps by other means."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fdbqueue.store import embedded, world
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage import sampling
from fdbqueue.store.embedded.storage.database import EmbeddedDatabase
from fdbqueue.store.embedded.storage.snapshots import Snapshot
from fdbqueue.store.embedded.transactions import lifecycle, reads, writes
from fdbqueue.store.embedded.transactions.transaction import EmbeddedTransaction, live
from tests.patience import DEADLINE

tenant_management: Any = importlib.import_module("fdb.tenant_management")


def run_threads(count: int, work: Any) -> None:
    """Run a function in so many threads; raises what any of them raised."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_threads_that_commit_together_each_get_their_own_outcome(db: Any, space: Any) -> None:
    outcomes: list[int] = []
    together = threading.Barrier(8)

    def work(number: int) -> None:
        for turn in range(25):
            transaction = db.create_transaction()
            transaction[space.pack(("shared", turn))].wait()
            together.wait(DEADLINE)
            transaction[space.pack(("shared", turn))] = b"%d" % number
            transaction[space.pack(("own", turn, number))] = b""
            try:
                transaction.commit().wait()
                outcomes.append(0)
            except fdb.FDBError as error:
                outcomes.append(error.code)

    run_threads(8, work)

    # Eight read the same key and write it: exactly one of each eight can have been first.
    assert outcomes.count(0) == 25
    assert outcomes.count(1020) == 7 * 25
    assert len(db.get_range_startswith(space.pack(("own",)))) == 25


def test_commits_of_one_group_have_distinct_versionstamps(db: Any, space: Any) -> None:
    prefix = space.pack(("log",))
    offset = len(prefix).to_bytes(4, "little")
    together = threading.Barrier(8)

    def work(number: int) -> None:
        for _ in range(10):
            together.wait(DEADLINE)
            db.set_versionstamped_key(prefix + b"\0" * 10 + offset, b"%d" % number)

    run_threads(8, work)

    assert len(db.get_range_startswith(prefix)) == 80


def test_transactions_may_be_destroyed_in_the_middle_of_anything(db: Any, space: Any) -> None:
    # Cycles are collected wherever an allocation triggers it, also inside the engine's own locks.
    class Cycle:
        def __init__(self, transaction: Any) -> None:
            self.transaction = transaction
            self.watch = transaction.watch(space.pack(("watched",)))
            self.me = self

    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:

        def work(number: int) -> None:
            for turn in range(60):
                cycle = Cycle(db.create_transaction())
                cycle.transaction[space.pack((number, turn))].wait()
                db[space.pack((number, turn))] = b"v"
                del cycle

        run_threads(4, work)
    finally:
        gc.set_threshold(*threshold)

    assert len(db.get_range_startswith(space.key())) == 240


def test_many_transactions_may_be_open_at_different_versions(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    held = []
    for number in range(40):
        db[key] = b"%d" % number
        transaction = db.create_transaction()
        transaction.get_read_version().wait()
        held.append(transaction)

    assert [transaction[key].value for transaction in held] == [b"%d" % n for n in range(40)]


def test_commits_grow_old_beside_a_process_whose_clock_was_ahead_when_it_began(
    db: Any, space: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:
        ahead.setattr(world, "time", lambda: 3600 + time.time())
        other = EmbeddedDatabase(embedded.OpenStore(store, "normal"))
    theirs = -1
    live[theirs] = EmbeddedTransaction(other)
    writes.fdb_transaction_set(theirs, b"ahead", 5, b"", 0)
    assert lifecycle.fdb_transaction_commit(theirs).error is None
    lifecycle.fdb_transaction_destroy(theirs)

    def commit(times: int) -> None:
        for number in range(times):
            db[space.pack((number,))] = b""

    commit(300)
    real = time.monotonic_ns
    monkeypatch.setattr(world, "monotonic_ns", lambda: real() + 11_000_000_000)
    commit(300)

    connection = sqlite3.connect(store)
    assert connection.execute("SELECT count(*) FROM recent").fetchone()[0] < 500
    connection.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_read_with_a_limit_reads_each_row_about_once(
    db: Any, space: Any, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = db.create_transaction()
    for number in range(500):
        transaction[space.pack((number,))] = bytes(1000)
    transaction.commit().wait()
    read = 0
    chunk = Snapshot._page

    def counting(*arguments: Any) -> Any:
        nonlocal read
        found = chunk(*arguments)
        read += len(found[0])
        return found

    monkeypatch.setattr(Snapshot, "_page", counting)

    assert len(db.get_range_startswith(space.key(), limit=450, reverse=reverse)) == 450
    assert 450 <= read < 500


def test_the_size_of_a_long_range_is_estimated_from_a_sample(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, size = 15_000, 9 + 30
    monkeypatch.setattr(
        importlib.import_module("fdbqueue.store.embedded.storage.snapshots"), "_MEASURED", 100
    )
    writer = db.create_transaction()
    for number in range(count):
        writer[b"key/%05d" % number] = bytes(30)
    writer.commit().wait()

    def estimate(begin: bytes, end: bytes) -> float:
        transaction = db.create_transaction()
        return float(transaction.get_estimated_range_size_bytes(begin, end).wait())

    assert estimate(b"key/00000", b"key/00050") == 50 * size
    assert 0.8 < estimate(b"", b"\xff") / (count * size) < 1.2
    cuts = db.create_transaction().get_range_split_points(b"", b"\xff", count * size // 10).wait()
    assert 8 <= len(cuts) <= 13
    for limit, wanted in ((0, [b"", b"\xff"]), (3, [*cuts[:4], b"\xff"]), (-1, cuts)):
        reader = db.create_transaction()  # as bindings from 8.0 on ask for a limit
        future = reads.fdb_transaction_get_range_split_points_with_limit(
            reader.tpointer, b"", 0, b"\xff", 1, count * size // 10, limit
        )
        assert future.value == wanted

    db.clear_range(b"key/05000", b"key/10000")
    assert 0.8 < estimate(b"", b"\xff") / (count * 2 // 3 * size) < 1.2


def test_the_sample_follows_every_kind_of_write(
    db: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "BOUND", sampling.BITS)

    def write(steps: Callable[[Any], object]) -> None:
        writer = db.create_transaction()
        steps(writer)
        writer.commit().wait()

    for key in [b"key/%02d" % number for number in range(20)]:
        db[key] = key
    write(lambda tr: [tr.set(b"bulk/%02d" % number, bytes(number)) for number in range(20)])
    write(lambda tr: tr.clear_range(b"key/03", b"key/06"))
    write(lambda tr: tr.clear(b"key/10"))
    write(lambda tr: tr.set(b"key/11", b"another"))
    write(lambda tr: tr.add(b"sum", b"\1\0\0\0"))
    write(lambda tr: tr.compare_and_clear(b"key/12", b"key/12"))
    write(lambda tr: tr.set_versionstamped_key(bytes(14), b"value"))
    write(lambda tr: tr.set_versionstamped_value(b"stamp", bytes(14)))

    connection = sqlite3.connect(store)
    kept = "SELECT k, length(k) + length(v) FROM kv WHERE k < x'ff' ORDER BY k"
    sizes = connection.execute(kept).fetchall()
    assert len(sizes) == 20 + 20 - 3 - 1 + 1 - 1 + 2
    assert connection.execute("SELECT k, size FROM sample ORDER BY k").fetchall() == sizes
    connection.close()


@pytest.fixture
def descriptors() -> Iterator[int]:
    """Few file descriptors: so many may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 100 + 2 * len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def hold(db: Any, key: bytes, count: int) -> list[Any]:
    """So many transactions, each of which reads another state."""
    held = []
    for number in range(count):
        db[key] = b"%d" % number
        held.append(db.create_transaction())
        held[-1][key].wait()
    return held


def test_transactions_that_are_too_many_for_the_descriptors_end_the_oldest(
    db: Any, space: Any, descriptors: int
) -> None:
    key = space.pack(("key",))

    held = hold(db, key, descriptors)

    assert held[-1][key] == b"%d" % (descriptors - 1)
    with pytest.raises(fdb.FDBError) as too_old:
        held[0][key].wait()
    assert too_old.value.code == 1007


def test_a_process_without_descriptors_is_told_so(db: Any, space: Any, descriptors: int) -> None:
    key = space.pack(("key",))
    db[key] = b"0"
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            taken.extend(os.dup(0) for _ in range(descriptors))
        with pytest.raises(embedded.StoreFailed, match="ulimit -n"):
            hold(db, key, descriptors)
    finally:
        for each in taken:
            os.close(each)

    db[key] = b"again"
    assert db[key] == b"again"


def test_the_log_of_sqlite_stays_small_under_overlapping_readers(
    db: Any, space: Any, store: str
) -> None:
    value = b"v" * 90_000
    file = embedded.open_store(store).file
    largest = 0
    readers: list[Any] = []

    for number in range(1500):
        db[space.pack((number % 50,))] = value
        readers.append(db.create_transaction())
        readers[-1][space.pack((0,))].wait()
        if len(readers) > 3:
            readers.pop(0)
        largest = max(largest, file.log_bytes())

    # 130 MB went through it; with overlapping readers SQLite alone would never start it over.
    assert largest < 100 << 20


@pytest.mark.slow
def test_a_read_after_five_seconds_is_too_old(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction[space.pack(("key",))].wait()
    passed = threading.Event()

    passed.wait(5.5)

    with pytest.raises(fdb.FDBError) as refusal:
        transaction[space.pack(("key",))].wait()
    assert refusal.value.code == 1007


def test_tenants_are_disabled(db: Any) -> None:
    tenant = db.open_tenant(b"tenant")
    attempts: list[tuple[Callable[[], object], int]] = [
        (lambda: tenant[b"key"], 2131),
        (lambda: tenant.get_id().wait(), 2131),
        (lambda: tenant_management.create_tenant(db, b"tenant"), 2136),
    ]
    for attempt, code in attempts:
        with pytest.raises(fdb.FDBError) as refusal:
            attempt()
        assert refusal.value.code == code
    assert tenant_management.list_tenants(db, b"", b"\xff", 10).to_list() == []


def test_the_client_reports_itself_healthy(db: Any) -> None:
    assert b'"Healthy": true' in db.get_client_status().value


def test_time_is_kept_as_a_cluster_keeps_it(db: fdb.Database) -> None:
    prefix = b"\xff\x02/timeKeeper/map/"
    tr = db.create_transaction()
    tr.options.set_read_system_keys()

    (note,) = tr.get_range(prefix, prefix + b"\xff", limit=1, reverse=True)

    (seconds,) = fdb.tuple.unpack(note.key, len(prefix))
    (version,) = fdb.tuple.unpack(note.value)
    assert abs(seconds - time.time()) < 60
    assert 0 <= tr.get_read_version().wait() - version < 60_000_000
    until = prefix + fdb.tuple.pack((seconds,))
    assert tr.get_range(prefix, until).to_list() == []


def test_a_callback_that_waits_for_what_it_begins_is_an_error(
    db: Any, space: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    key = space.pack(("key",))
    db[key] = b"v"
    errors: list[BaseException] = []
    later: list[Any] = []
    transaction = db.create_transaction()

    def wait(_: object) -> None:
        for begin in (
            lambda: transaction[key],
            lambda: transaction.get_range(key, key + b"\0"),
            transaction.get_read_version,
            db.create_transaction().commit,
        ):
            try:
                each = begin()
                each.to_list() if hasattr(each, "to_list") else each.wait()
            except embedded.EngineError as error:
                errors.append(error)

    def go_on(future: Any) -> None:
        # What the callback is told of is there, and so is what was waited for before.
        assert future.value == b"v"
        begun = transaction[key]
        begun.on_ready(lambda found: later.append(found.value))
        later.append(begun)

    transaction[key].on_ready(wait)
    transaction[key].on_ready(go_on)

    assert len(errors) == 4
    assert "must not wait" in str(errors[0])
    assert later[0] == b"v"
    assert later[1].wait() == b"v"
    assert capsys.readouterr().err == ""


def test_a_commit_goes_through_although_the_log_started_over_since_its_snapshot(
    db: Any, space: Any, store: str
) -> None:
    key = space.pack(("key",))
    connection = sqlite3.connect(store)

    def start_over() -> None:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0

    @fdb.transactional
    def append(tr: Any) -> None:
        old = tr[key].value or b""
        start_over()
        tr[key] = old + b"x"

    for _ in range(5):
        embedded.open_store(store).snapshots.drop_idle(also_kept=True)
        start_over()
        append(db)
    connection.close()

    assert db[key] == b"xxxxx"

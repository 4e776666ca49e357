"""What can be wrong with the file of a store, and how it is said."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fdbqueue.store import embedded, world
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage import checkpoint
from fdbqueue.store.embedded.storage import file as store_module
from fdbqueue.store.embedded.storage import rows as table


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.store")


def test_a_new_store_is_made_where_there_is_none(path: str) -> None:
    embedded.check(path)
    assert not os.path.exists(path)

    embedded.open_store(path)

    embedded.check(path)
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_store_that_another_makes_meanwhile_is_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a file that its maker has only begun
    begun = sqlite3.connect(path)
    begun.execute("PRAGMA journal_mode = wal")
    begun.close()
    connect = store_module._open

    # When the maker ends between two looks
    def slowly(*given: str) -> Any:
        connection = connect(*given)

        def execute(statement: str) -> sqlite3.Cursor:
            found = connection.execute(statement)
            if "application_id" in statement:
                monkeypatch.setattr(store_module, "_open", connect)
                embedded.open_store(path)
            return found

        return SimpleNamespace(execute=execute, close=connection.close)

    monkeypatch.setattr(store_module, "_open", slowly)
    # Then it is not refused
    embedded.check(path)
    assert store_module._open is connect


def test_a_file_that_is_something_else_is_refused_and_left_alone(path: str) -> None:
    Path(path).write_bytes(b"just a text, long enough to be looked at" * 40)
    before = Path(path).read_bytes()

    for attempt in (embedded.check, embedded.open_store):
        with pytest.raises(embedded.NotAStoreFile) as refusal:
            attempt(path)
        assert str(refusal.value).startswith(f"the file is not an embedded store: {path}")

    assert Path(path).read_bytes() == before
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_another_programs_database_is_refused(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()

    with pytest.raises(embedded.NotAStoreFile):
        embedded.open_store(path)


@pytest.mark.parametrize("other", [2, 7])
def test_another_format_is_refused(path: str, monkeypatch: pytest.MonkeyPatch, other: int) -> None:
    monkeypatch.setattr(store_module, "FORMAT", other)
    store_module.StoreFile(path)
    monkeypatch.setattr(store_module, "FORMAT", 3)

    for attempt in (embedded.check, embedded.open_store):
        with pytest.raises(embedded.OtherFormat) as refusal:
            attempt(path)
        assert (refusal.value.found, refusal.value.supported) == (other, 3)
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_a_read_only_file_is_refused(path: str) -> None:
    store_module.StoreFile(path)
    os.chmod(path, 0o444)

    with pytest.raises(embedded.NotWritable) as refusal:
        embedded.open_store(path)

    assert refusal.value.path == path


def test_a_read_only_directory_is_refused(path: str) -> None:
    directory = os.path.dirname(path)
    os.chmod(directory, 0o555)
    try:
        with pytest.raises(embedded.NotWritable) as refusal:
            embedded.open_store(path)
    finally:
        os.chmod(directory, 0o755)

    assert directory in str(refusal.value)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(embedded.NoDirectory):
        embedded.open_store(str(tmp_path / "none" / "a.store"))


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(embedded.NotAStoreFile):
        embedded.open_store(str(tmp_path))


def test_a_damaged_store_is_refused(path: str) -> None:
    store_module.StoreFile(path)
    content = bytearray(Path(path).read_bytes())
    content[100:4096] = os.urandom(3996)
    Path(path).write_bytes(content)

    with pytest.raises(embedded.StoreFileError):
        embedded.open_store(path)


def make(path: str, rows: list[tuple[bytes, bytes]]) -> None:
    """A store with these rows, that nobody has open."""
    connection = store_module.StoreFile(path, "normal").connect()
    connection.execute("BEGIN")
    connection.executemany(
        table.SET, ((key, value, table.checksum(key, value)) for key, value in rows)
    )
    connection.execute("COMMIT")
    connection.close()


@pytest.mark.parametrize("read", ["key", "range", "size", "commit", "watch"])
def test_a_damaged_page_is_an_error_of_the_engine(path: str, read: str) -> None:
    def look() -> object:
        db: Any = fdb.open(path)
        if read == "key":
            return db[b"key/500"].wait()
        if read == "range":
            return db[b"key/":b"key0"]
        if read == "size":
            return db.create_transaction().get_estimated_range_size_bytes(b"", b"\xff").wait()
        if read == "watch":
            return db.get_and_watch(b"key/500")
        db[b"key/500"] = b""
        return None

    make(path, [(b"key/%03d" % number, bytes(200)) for number in range(1000)])
    content = bytearray(Path(path).read_bytes())
    content[5 * 4096 :] = os.urandom(len(content) - 5 * 4096)
    Path(path).write_bytes(content)

    with pytest.raises(embedded.StoreCorrupt, match=f"corrupt.*{path}"):
        look()


@pytest.mark.parametrize("seed", range(12))
def test_wherever_a_file_is_damaged_nothing_but_an_error_of_the_engine_comes_of_it(
    path: str, seed: int
) -> None:
    random = Random(seed)
    make(path, [(b"key/%03d" % number, random.randbytes(100)) for number in range(300)])
    content = bytearray(Path(path).read_bytes())
    for _ in range(random.choice([100, 1000])):
        content[random.randrange(len(content))] = random.randrange(256)
    # Damage in the header would only keep it from being opened.
    content[:1000] = Path(path).read_bytes()[:1000]
    Path(path).write_bytes(content)

    with contextlib.suppress(embedded.StoreFileError):
        db: Any = fdb.open(path)
        for use in (
            lambda: [db[b"key/%03d" % number] for number in range(0, 300, 10)],
            lambda: [list(db.get_range(b"", b"\xff", reverse=way)) for way in (False, True)],
            lambda: db.create_transaction().get_range_split_points(b"", b"\xff", 1000).wait(),
            lambda: db.add(b"key/150", b"\1"),
            lambda: db.clear_range(b"key/100", b"key/120"),
        ):
            with contextlib.suppress(embedded.StoreFileError):
                use()


def test_macos_is_asked_to_write_past_the_cache_of_the_disk(path: str) -> None:
    connection = store_module.StoreFile(path, "full").connect()

    assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
    assert connection.execute("PRAGMA checkpoint_fullfsync").fetchone() == (1,)
    connection.close()


def test_an_unknown_durability_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="synchronous must be one of"):
        embedded.open_store(path, synchronous="sometimes")


def test_durability_is_full_unless_the_environment_says_otherwise(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FDBQUEUE_SYNCHRONOUS")
    assert embedded.open_store(path).file.synchronous == "full"
    monkeypatch.setenv("FDBQUEUE_SYNCHRONOUS", "normal")
    assert embedded.open_store(path + "2").file.synchronous == "normal"


def test_the_engine_does_not_take_the_place_of_another_library() -> None:
    program = (
        "import sys, types; sys.modules['fdb.impl'] = types.ModuleType('fdb.impl')\n"
        "import fdbqueue.store.embedded.store_errors as errors\n"
        "import importlib; engine = importlib.import_module('fdbqueue.store.embedded')\n"
        "engine._library = None\n"
        "try: engine.install()\n"
        "except errors.EngineError as error: print(error)\n"
    )
    root = str(Path(embedded.__file__).parents[2])
    stub = f"import sys, types; m = types.ModuleType('fdbqueue'); m.__path__ = [{root!r}]; "
    stub += "sys.modules['fdbqueue'] = m\n"

    result = subprocess.run(
        [sys.executable, "-c", stub + program], capture_output=True, text=True, check=True
    )

    assert "loaded already" in result.stdout


def log_sizes(path: str, commits: int, fill: bytes) -> list[int]:
    """The sizes of SQLite's log after each of some commits."""
    db: Any = fdb.open(path)
    sizes: list[int] = []
    for number in range(commits):
        db[b"key/%03d" % number] = fill * 2000
        sizes.append(embedded.open_store(path).file.log_bytes())
    return sizes


def test_a_log_that_was_extended_ahead_of_commits_holds_what_was_committed(path: str) -> None:
    embedded.open_store(path, synchronous="full")

    sizes = log_sizes(path, 200, b"1")
    # As after a crash of the machine: the files, without the processes that had them open. Closing
    # one of them here would drop the store's locks.
    copy = f"{path}.copy"
    for suffix in ("", "-wal"):
        subprocess.run(["cp", path + suffix, copy + suffix], check=True)

    # Commits find room in the log, not only at its end.
    assert len(set(sizes)) < len(sizes) / 4
    copied: Any = fdb.open(copy)
    assert len(copied.get_range_startswith(b"key/")) == 200


def test_a_log_that_started_over_is_extended_again(path: str) -> None:
    store = embedded.open_store(path, synchronous="full")
    log_sizes(path, 100, b"1")
    store.snapshots.drop_idle(also_kept=True)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    connection.close()
    assert store.file.log_bytes() == 0

    sizes = log_sizes(path, 100, b"2")

    assert sizes[0] < sizes[-1]
    assert len(set(sizes)) < len(sizes) / 2
    db: Any = fdb.open(path)
    assert len(db.get_range_startswith(b"key/")) == 100


def test_no_room_for_the_sidecar_is_an_error_of_the_engine(path: str) -> None:
    program = (
        "import resource, signal, sys; from fdbqueue.store import embedded; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)); "
        "embedded.open_store(sys.argv[1])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, path], check=False, capture_output=True, text=True
    )
    assert "StoreFull" in found.stderr.splitlines()[-1]


@pytest.mark.parametrize("suffix", ["-lock", "-shm"])
def test_a_mapped_file_that_is_cut_off_ends_its_process_and_loses_nothing(
    path: str, suffix: str
) -> None:
    program = (
        "import os, sys, fdbqueue\n"
        "db = fdbqueue.open(sys.argv[1])\n"
        "for number in range(200):\n"
        "    db[b'key/%d' % number] = b''\n"
        "    print(number, flush=True)\n"
        "    if number == 100: os.truncate(sys.argv[2], 0)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, f"embedded:{path}", path + suffix],
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == -signal.SIGBUS, found.stderr

    acknowledged = {b"key/%d" % int(line) for line in found.stdout.split()}
    assert len(acknowledged) > 100
    db: Any = fdb.open(path)
    assert acknowledged <= {row.key for row in db.get_range_startswith(b"key/")}
    db[b"after"] = b""


def test_with_32_descriptors_a_process_commits_while_it_holds_many_transactions(path: str) -> None:
    program = (
        "import resource, sys, fdbqueue; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        "db, held = fdbqueue.open(sys.argv[1]), []\n"
        "for number in range(60):\n"
        "    held.append(db.create_transaction()); held[-1][b'key'].wait()\n"
        "    db[b'key'] = b'%d' % number\n"
        "print(db[b'key'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, f"embedded:{path}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.stdout == "b'59'\n", found.stderr


def test_a_reader_that_is_stopped_keeps_commits_waiting_less_and_less(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_PATIENCE", ((-1, 20),))
    moments = itertools.count(1000)
    later = {**vars(world), "monotonic": lambda: next(moments)}
    monkeypatch.setattr(checkpoint, "world", SimpleNamespace(**later))
    waited: list[int] = []

    def start_over(self: checkpoint.Checkpointer, milliseconds: int) -> bool:
        waited.append(milliseconds)
        return False

    monkeypatch.setattr(checkpoint.Checkpointer, "_start_over", start_over)
    checkpointer = embedded.open_store(path).checkpointer
    for _ in range(2000):
        checkpointer._keep_small()
    # Two thousand seconds by this clock.
    assert sum(waited) / 1000 < 2000 / 32
    assert len(waited) > 1

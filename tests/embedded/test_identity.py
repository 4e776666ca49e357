"""A store is one file that all processes find alike, and that only its owner can use."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fdbqueue
from fdbqueue.store import embedded
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage import file as files
from fdbqueue.store.embedded.storage import versions
from fdbqueue.store.location import default_store


@pytest.fixture
def db(path: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("FDBQUEUE_SYNCHRONOUS", "full")
    db = fdb.open(path)
    db[b"before"] = b"kept"
    return db


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def elsewhere(path: str, program: str) -> None:
    """Run a program with the store open as ``db`` in a process that ends as usual."""
    begin = "import sys, fdbqueue; db = fdbqueue.open(sys.argv[1]); "
    subprocess.run([sys.executable, "-c", begin + program, f"embedded:{path}"], check=True)


def test_a_file_with_two_names_is_refused(path: str, tmp_path: Path) -> None:
    elsewhere(path, "db[b'key'] = b'value'")
    os.link(path, tmp_path / "other")
    for attempt in (embedded.check, embedded.open_store):
        with pytest.raises(embedded.StoreMisplaced, match="2 names"):
            attempt(path)
    os.unlink(tmp_path / "other")
    assert fdb.open(path)[b"key"] == b"value"


def remove(path: str) -> None:
    os.unlink(path)


def replace(path: str) -> None:
    shutil.copy(path, path + ".new")
    os.rename(path + ".new", path)


def move(path: str) -> None:
    os.rename(path, path + ".moved")


def link(path: str) -> None:
    os.link(path, path + ".other")


def remove_lock(path: str) -> None:
    os.unlink(path + "-lock")


def replace_lock(path: str) -> None:
    remove_lock(path)
    os.mkdir(path + "-lock")


def replace_directory(path: str) -> None:
    directory = os.path.dirname(path)
    os.rename(directory, directory + ".moved")
    Path(directory).touch()


@pytest.mark.parametrize(
    "change", [remove, replace, move, link, remove_lock, replace_lock, replace_directory]
)
def test_nothing_is_committed_to_a_store_that_others_do_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[str], None]
) -> None:
    monkeypatch.setenv("FDBQUEUE_SYNCHRONOUS", "full")
    directory = tmp_path / "stores"
    directory.mkdir()
    path = str(directory / "a.store")
    db: Any = fdb.open(path)
    db[b"before"] = b"kept"
    change(path)
    present = {*tmp_path.rglob("*")}

    with pytest.raises(embedded.StoreMisplaced):
        db[b"after"] = b"lost"
    # Nor does who only reads meet another error, even one who is to move the clock.
    embedded.open_store(path).file.shared.words[versions.FLOOR] = 0
    assert db[b"before"] == b"kept"
    embedded.close_store(path)

    assert {*tmp_path.rglob("*")} <= present


def test_connecting_again_creates_no_file(db: Any, path: str) -> None:
    store = embedded.open_store(path)
    os.unlink(path)
    with pytest.raises(embedded.StoreMisplaced):
        store.file.connect()
    assert not os.path.exists(path)


@pytest.mark.parametrize("name", ["a.store", "zwei Wörter.store"])
def test_a_store_that_is_mounted_by_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, mounts = str(tmp_path / name), tmp_path / "mounts"
    elsewhere(path, "db[b'key'] = b'value'")
    monkeypatch.setattr(files, "_MOUNTS", str(mounts))
    line = b"22 1 8:1 /other %s rw,relatime - ext4 /dev/sda rw\n"
    mounts.write_bytes(line % b"/not/UTF-8/\xff")
    embedded.check(path)

    mounts.write_bytes(line % b"/\xff" + line % path.replace(" ", "\\040").encode())
    for attempt in (embedded.check, embedded.open_store):
        with pytest.raises(embedded.StoreMisplaced, match="mount its directory"):
            attempt(path)


def test_an_empty_file_beside_a_log_is_not_made_anew(path: str) -> None:
    Path(path).touch()
    Path(path + "-wal").write_bytes(b"commits")
    with pytest.raises(embedded.StoreCorrupt):
        embedded.open_store(path)
    assert Path(path + "-wal").read_bytes() == b"commits"


def killed(path: str, program: str) -> None:
    """The same in a process that is killed at its end, so that its log stays."""
    with pytest.raises(subprocess.CalledProcessError):
        elsewhere(path, f"{program}; import os; os.kill(os.getpid(), 9)")


def test_the_log_of_another_store_is_refused_and_changes_nothing(path: str) -> None:
    elsewhere(path, "db[b'key'] = b'value'")
    elsewhere(path + "2", "db[b'key'] = b'other'")
    killed(path + "2", "db[b'key'] = b'another'")
    shutil.copy(path + "2-wal", path + "-wal")
    for _ in range(2):
        with pytest.raises(embedded.StoreMisplaced, match=r"log \(-wal\) is of another store"):
            embedded.open_store(path)
    os.unlink(path + "-wal")
    assert fdb.open(path)[b"key"] == b"value"


@pytest.mark.parametrize("log", [False, True])
def test_the_lock_file_of_another_store_is_refused(path: str, log: bool) -> None:
    elsewhere(path, "db[b'key'] = b'value'")
    killed(path + "2", "db[b'key'] = b'other'")
    # The whole of the other store is in its log.
    for suffix in ("-lock", "-wal")[: 1 + log]:
        shutil.copy(path + "2" + suffix, path + suffix)
    for _ in range(2):
        with pytest.raises(embedded.StoreMisplaced, match=r"of another store"):
            embedded.open_store(path)
    for suffix in ("-lock", "-wal")[: 1 + log]:
        os.unlink(path + suffix)
    assert fdb.open(path)[b"key"] == b"value"


def test_a_store_that_was_removed_alone_is_made_anew(path: str) -> None:
    elsewhere(path, "db[b'key'] = b'value'")
    os.unlink(path)
    assert fdb.open(path)[b"key"] is None


def test_after_a_normal_end_the_one_file_holds_all(path: str, tmp_path: Path) -> None:
    elsewhere(path, "db[b'key'] = b'value'")
    assert not os.path.exists(path + "-wal")
    shutil.copy(path, tmp_path / "copy")
    assert fdb.open(str(tmp_path / "copy"))[b"key"] == b"value"


def test_who_leaves_first_leaves_the_log_to_others(db: Any, path: str) -> None:
    elsewhere(path, "db[b'theirs'] = b'value'")
    db[b"ours"] = b"value"
    assert [row.key for row in db[b"":b"\xff"]] == [b"before", b"ours", b"theirs"]


def test_a_store_that_was_closed_is_opened_anew(db: Any, path: str) -> None:
    embedded.close_store(path)
    assert fdb.open(path)[b"before"] == b"kept"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_a_new_store_is_its_owners_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, umask: int
) -> None:
    if umask == 0o277 and os.getuid() == 0:
        umask = 0o077
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = default_store()
    before = os.umask(umask)
    try:
        fdbqueue.open(f"embedded:{path}")[b"key"] = b"value"
    finally:
        os.umask(before)
    folder = Path(path).parent
    assert mode(str(folder)) == 0o700 & ~umask
    assert len(os.listdir(folder)) > 1
    for name in os.listdir(folder):
        assert mode(str(folder / name)) == 0o600 & ~umask


@pytest.mark.parametrize("theirs", [0o600, 0o640, 0o664])
def test_what_stands_beside_a_store_has_its_mode(path: str, theirs: int) -> None:
    Path(path).touch()
    os.chmod(path, theirs)
    Path(path + "-lock").touch()
    os.chmod(path + "-lock", 0o666)
    fdb.open(path)[b"key"] = b"value"
    assert {mode(path + end) for end in ("", "-lock", "-wal", "-shm")} == {theirs}


def test_who_shares_a_store_by_its_group_locks_nobody_of_the_group_out(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [12_345] if os.getuid() == 0 else [g for g in os.getgroups() if g != os.getgid()]
    if not groups:
        pytest.skip("this user has only one group")
    change = os.fchown

    def fchown(file: int, owner: int, group: int) -> None:
        if owner != -1:
            raise PermissionError
        change(file, owner, group)

    monkeypatch.setattr(os, "fchown", fchown)
    Path(path).touch()
    os.chown(path, -1, groups[0])
    os.chmod(path, 0o660)
    fdb.open(path)[b"key"] = b"value"
    lock = os.stat(path + "-lock")
    assert (lock.st_gid, stat.S_IMODE(lock.st_mode)) == (groups[0], 0o660)


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    fdbqueue.open(f"embedded:{tmp_path / 'a.store'}")
    assert mode(str(tmp_path)) == 0o755


def test_a_lock_file_that_is_a_link_is_not_followed(path: str, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.touch()
    os.symlink(target, path + "-lock")
    with pytest.raises(embedded.NotAStoreFile, match="symbolic link"):
        embedded.open_store(path)
    assert target.read_bytes() == b""


@pytest.mark.parametrize("linked", [False, True])
def test_a_lock_file_that_is_something_else_is_left_alone(
    path: str, tmp_path: Path, linked: bool
) -> None:
    other = Path(path + "-lock")
    if linked:
        (tmp_path / "precious").write_bytes(b"")
        os.link(tmp_path / "precious", other)
    else:
        other.write_bytes(b"a letter to somebody")
    os.chmod(other, 0o644)
    before = other.read_bytes()
    with pytest.raises(embedded.NotAStoreFile):
        embedded.open_store(path)
    assert other.read_bytes() == before
    assert mode(str(other)) == 0o644


def test_a_path_that_is_too_long_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 100] * 5)
    deep.mkdir(parents=True)
    with pytest.raises(embedded.NotWritable, match="longer"):
        embedded.open_store(str(deep / "a.store"))
    assert not list(deep.iterdir())


@pytest.mark.parametrize(
    "word",
    [
        *range(versions.ANNOUNCED, versions.FIRST_SLOT),
        versions.slot_of(b"key"),
        *range(versions.ROUND, versions.STORE + 1),
    ],
)
@pytest.mark.parametrize("value", [-1, 1 << 62, (1 << 63) - 1])
def test_a_forged_number_in_the_lock_file_is_an_error_of_the_engine_or_harmless(
    path: str, word: int, value: int
) -> None:
    db: Any = fdb.open(path)
    db[b"key"] = b"kept"
    words = embedded.open_store(path).file.shared.words
    words[word] = value
    assert db[b"key"] == b"kept"
    refusal = None
    try:
        db[b"key"] = b"changed"
    except embedded.StoreFailed as error:
        refusal = str(error)
    if refusal is None:
        assert db[b"key"] == b"changed"
    else:
        assert "-lock" in refusal
        embedded.close_store(path)
        os.unlink(path + "-lock")
        assert fdb.open(path)[b"key"] == b"kept"

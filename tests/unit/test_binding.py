"""Which store is loaded: every rule in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fdbqueue.errors import NotAStore, StoreNotFound
from fdbqueue.store.binding import Engine, locate
from tests.patience import DEADLINE


def run(code: str, **variables: str) -> str:
    """What a fresh process prints, but that a store is new, with the given variables only."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FDB", "XDG_DATA"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    shown = (done.stdout + done.stderr).strip().splitlines()
    return "\n".join(line for line in shown if not line.startswith("created a new store"))


OPEN = "import fdbqueue; db = fdbqueue.open({}); print(fdbqueue.describe(db))"


def test_a_path_is_an_embedded_store(tmp_path: Path) -> None:
    path = str(tmp_path / "store.fdbq")
    assert run(OPEN.format(""), FDBQUEUE_STORE=path) == f"embedded store {path}"
    assert run(OPEN.format(""), FDBQUEUE_STORE=f"embedded:{path}") == f"embedded store {path}"
    assert run(OPEN.format(repr(path)), FDBQUEUE_STORE="embedded:/x") == f"embedded store {path}"


def test_an_api_version_that_the_application_selected_is_respected(tmp_path: Path) -> None:
    path = str(tmp_path / "store.fdbq")
    select = "import fdb, fdbqueue.store.embedded as e; e.install(); fdb.api_version({});"
    then = f"import fdbqueue; fdbqueue.open({path!r}); print(fdb.get_api_version())"
    assert run(select.format(710) + then).endswith("710")
    assert "needs 710 or later" in run(select.format(630) + then)


def test_both_kinds_in_one_process_is_a_clear_error(tmp_path: Path) -> None:
    cluster = tmp_path / "fdb.cluster"
    cluster.write_text("test:test@127.0.0.1:4500")
    shown = run(OPEN.format(repr(str(cluster))), FDBQUEUE_STORE=f"embedded:{tmp_path}/s.fdbq")
    assert "StoreError" in shown
    assert f"set FDBQUEUE_STORE={cluster} before" in shown


NO_CLIENT = """
import ctypes
real = ctypes.CDLL
class CDLL(real):
    def __init__(self, name, *arguments, **options):
        if name and "fdb_c" in str(name):
            raise OSError("no client library")
        super().__init__(name, *arguments, **options)
ctypes.CDLL = CDLL
"""


@pytest.mark.parametrize("variable", ["FDB_CLUSTER_FILE", "FDBQUEUE_STORE"])
def test_a_cluster_without_a_client_library_is_an_error_and_no_other_store(
    tmp_path: Path, variable: str
) -> None:
    cluster, home = tmp_path / "fdb.cluster", tmp_path / "home"
    cluster.write_text("test:test@127.0.0.1:4500")

    shown = run(
        NO_CLIENT + OPEN.format(""),
        **{variable: str(cluster)},
        HOME=str(home),
        XDG_DATA_HOME=str(home),
    )

    assert "UnsupportedVersion" in shown
    assert f"{cluster} cannot be used" in shown
    assert "foundationdb-clients" in shown
    assert not home.exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "StoreNotFound"), (b"buy milk", "NotAStore"), (b"SQLite format 3\0", "NotAStore")],
)
def test_a_cluster_file_that_cannot_be_used_is_an_error(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    cluster, home = tmp_path / "named", tmp_path / "home"
    if content is not None:
        cluster.write_bytes(content)

    shown = run(
        OPEN.format(""), FDB_CLUSTER_FILE=str(cluster), HOME=str(home), XDG_DATA_HOME=str(home)
    )

    assert expected in shown.splitlines()[-1]
    assert str(cluster) in shown.splitlines()[-1]
    assert not home.exists()


def test_an_application_that_has_chosen_the_engine_still_names_the_store(tmp_path: Path) -> None:
    path, cluster = str(tmp_path / "store.fdbq"), tmp_path / "fdb.cluster"
    cluster.write_text("test:test@127.0.0.1:4500")
    select = "import fdb, fdbqueue.store.embedded as e; e.install(); fdb.api_version(730);"
    code = select + OPEN.format("")

    assert run(code, FDBQUEUE_STORE=path) == f"embedded store {path}"
    assert "StoreError" in run(code, FDBQUEUE_STORE=str(cluster))


def test_the_default_store_is_said_in_one_line_of_the_log(tmp_path: Path) -> None:
    if Path("/etc/foundationdb/fdb.cluster").exists():
        pytest.skip("this machine has a default cluster file")
    log = "import logging; logging.basicConfig(level=20, format='%(message)s');"

    shown = run(log + OPEN.format(""), HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path))

    store = f"embedded store {tmp_path}/fdbqueue/store.fdbq"
    assert shown.splitlines() == [store, f"fdbqueue uses {store}, as no other is named"]


def test_without_anything_the_store_is_in_the_users_data_directory(tmp_path: Path) -> None:
    if Path("/etc/foundationdb/fdb.cluster").exists():
        pytest.skip("this machine has a default cluster file")
    shown = run(OPEN.format(""), HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path / "data"))
    assert shown.startswith(f"embedded store {tmp_path}")


def test_a_cluster_file_is_told_from_a_store(tmp_path: Path) -> None:
    cluster = tmp_path / "any.name"
    cluster.write_text("# comment\ndocker:docker@127.0.0.1:4500,127.0.0.2:4500\n")
    assert locate(cluster).engine is Engine.FOUNDATIONDB
    cluster.write_text("secure:Zq9@10.0.0.1:4500:tls,[fd00::1]:4500:tls\n")
    assert locate(cluster).engine is Engine.FOUNDATIONDB
    assert locate(tmp_path / "new.fdbq").engine is Engine.EMBEDDED


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("buy milk")
    for name in (str(text), str(tmp_path), "embedded:", "", "embedded:a\0b"):
        with pytest.raises(NotAStore):
            locate(name)
    with pytest.raises(StoreNotFound, match="a cluster file must exist"):
        locate(tmp_path / "missing.cluster")


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"buy milk", "NotAStore"), (b"SQLite format 3\0" + bytes(100), "NotAStore")],
)
def test_a_file_that_is_no_store_is_left_as_it_is(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    shown = run(OPEN.format(""), FDBQUEUE_STORE=f"embedded:{path}")
    assert expected in shown.splitlines()[-1]
    assert path.read_bytes() == content


def test_a_path_that_cannot_be_created_is_a_clear_error() -> None:
    shown = run(OPEN.format(""), FDBQUEUE_STORE="embedded:/proc/store.fdbq")
    assert "StoreError" in shown.splitlines()[-1]


@pytest.mark.parametrize(
    "setting", ["FDBQUEUE_SYNCHRONOUS", "FDBQUEUE_CHECKSUMS", "FDBQUEUE_FAULTS"]
)
def test_a_setting_that_means_nothing_is_named(tmp_path: Path, setting: str) -> None:
    told = run(OPEN.format(""), FDBQUEUE_STORE=str(tmp_path / "store"), **{setting: "perhaps"})
    assert re.search(f"StoreError: .*{setting} must be .*perhaps", told.splitlines()[-1])


def test_a_name_that_is_no_utf8_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    told = run(OPEN.format(""), FDBQUEUE_STORE=name)
    assert "StoreError" in told.splitlines()[-1]
    assert not list(tmp_path.iterdir())


OPEN_AND_HOLD = """
import fcntl, os, subprocess, sys
import fdbqueue
path = {path!r}
db = fdbqueue.open({first!r})
db[b"k"] = b"v"
tr = db.create_transaction()
assert tr[b"k"] == b"v"
again = fdbqueue.open(path)
probe = (
    "import fcntl, sys; file = open(sys.argv[1], 'r+b');"
    "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)"
)
print(subprocess.run([sys.executable, "-c", probe, path], capture_output=True).returncode)
"""
"""The range is the one of SQLite's shared locks."""


@pytest.mark.parametrize("prefix", ["", "embedded:"])
def test_opening_a_store_again_leaves_its_locks_alone(tmp_path: Path, prefix: str) -> None:
    # Given a store that this process has open
    path = str(tmp_path / "store.fdbq")
    # When it is opened again by its path, then another process cannot take it for unused
    code = OPEN_AND_HOLD.format(path=path, first=prefix + path)
    assert run(code, FDBQUEUE_STORE=f"embedded:{path}") == "1"

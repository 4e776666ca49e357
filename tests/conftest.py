"""The store that the tests run on: the one at hand, else fresh embedded ones.

Tests may run in several processes (pytest-xdist), each of which has an embedded store of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_TOGETHER = (
    "tests/spark/",
    "tests/simulation/test_simulation.py::test_idle_",
    "tests/docs/test_site.py",
    "tests/acceptance/test_curator.py",
    "tests/acceptance/test_package.py",
)
"""Tests that share what takes seconds to build or to start."""
_LONGEST_FIRST = (
    "tests/spark/",
    "tests/simulation/",
    "tests/docs/",
    "tests/acceptance/",
    "tests/contract/",
)
_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30


def _memory() -> str | None:
    """A directory in memory with room for the files of the tests, which may run programs there."""
    if not os.access(_IN_MEMORY, os.W_OK) or os.statvfs(_IN_MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return str(_IN_MEMORY) if shutil.disk_usage(_IN_MEMORY).free > _ROOM_BYTES else None


if (place := _memory()) is not None:
    # No test waits for a disk.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)

_SHARED = os.environ.get("FDBQUEUE_TESTS_DIRECTORY")
_TEMPORARY: str | None = None
if not os.environ.get("FDBQUEUE_STORE") and not os.environ.get("FDB_CLUSTER_FILE"):
    _TEMPORARY = tempfile.mkdtemp(prefix="fdbqueue-tests-", dir=place)
    os.environ["FDBQUEUE_TESTS_DIRECTORY"] = _TEMPORARY
    os.environ["FDBQUEUE_STORE"] = f"embedded:{_TEMPORARY}/session.fdbq"
    os.environ.setdefault("FDBQUEUE_SYNCHRONOUS", "normal")
elif _SHARED is not None:
    worker = os.environ["PYTEST_XDIST_WORKER"]
    os.environ["FDBQUEUE_STORE"] = f"embedded:{_SHARED}/{worker}.fdbq"

# The settings of every Spark that the tests or their processes start.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark" / "conf"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is where the tests run in the background; the processes that they start and interrupt
    # would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

from xdist.scheduler import LoadScopeScheduling

import fdbqueue
from fdbqueue.messages import run
from fdbqueue.store import client
from fdbqueue.store.binding import DEFAULT, Engine, close, default_cluster_file, fdb
from tests.promises import (
    pytest_addoption,
    pytest_report_collectionfinish,
    pytest_runtestloop,
)
from tests.seeds import (
    SEED,
    VARIABLE,
    left_out,
    pytest_configure,
    pytest_runtest_setup,
    pytest_terminal_summary,
)

__all__ = [
    "pytest_addoption",
    "pytest_configure",
    "pytest_report_collectionfinish",
    "pytest_runtest_setup",
    "pytest_runtestloop",
    "pytest_terminal_summary",
]


def pytest_sessionfinish() -> None:
    if _TEMPORARY is not None:
        shutil.rmtree(_TEMPORARY, ignore_errors=True)


def pytest_report_header() -> str:
    return f"store: {DEFAULT}, {VARIABLE}={SEED}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long is started first, so that all processes end together."""
    if left := left_out(items):
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=[*left])

    def place(item: pytest.Item) -> int:
        starts = (item.nodeid.startswith(folder) for folder in _LONGEST_FIRST)
        return next((n for n, found in enumerate(starts) if found), len(_LONGEST_FIRST))

    items.sort(key=place)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Which process runs a test: any, but tests that share something stay in one."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for group in _TOGETHER if nodeid.startswith(group)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def embedded() -> bool:
    """Whether the tests run on the embedded engine."""
    return DEFAULT.engine is Engine.EMBEDDED


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The path of a fresh embedded store, or the cluster file of the server at hand."""
    if DEFAULT.engine is Engine.EMBEDDED:
        return str(tmp_path / "store.fdbq")
    return DEFAULT.path or default_cluster_file()


@pytest.fixture
def db(store: str) -> Iterator[fdb.Database]:
    """The store, open for as long as the test."""
    db = fdbqueue.open(store)
    yield db
    close(db)


@pytest.fixture
def space(db: fdb.Database) -> Iterator[fdb.Subspace]:
    """A fresh subspace, cleared afterwards."""
    space = fdb.Subspace((f"test-{uuid.uuid4().hex}",))
    yield space
    db.clear_range_startswith(space.key())


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages share rows even if they are few."""
    monkeypatch.setattr(run, "MIN_MESSAGES", 2)
    monkeypatch.setattr(run, "MAX_MESSAGES", 4)


@pytest.fixture
def environment(store: str) -> dict[str, str]:
    """The environment of a process that uses the same store."""
    return {**os.environ, "FDBQUEUE_STORE": store}


@pytest.fixture
def queue(db: fdb.Database, space: fdb.Subspace) -> fdbqueue.Queue:
    """A fresh queue with ten levels and two attempts."""
    return fdbqueue.Queue.create(db, "orders", root=space, max_attempts=2)


@pytest.fixture
def mutations(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Counts what an operation writes."""
    capi: Any = fdb.impl._FDBBase.capi
    written: list[str] = []

    def counted(name: str, write: Any) -> Any:
        def call(*args: Any) -> Any:
            written.append(name)
            return write(*args)

        return call

    for kind in ("set", "clear", "clear_range", "atomic_op"):
        name = f"fdb_transaction_{kind}"
        monkeypatch.setattr(capi, name, counted(name, getattr(capi, name)))

    def count(operation: Callable[[], Any]) -> int:
        written.clear()
        operation()
        return len(written)

    return count


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What reads return from now on: a number of rows for each."""
    found: list[int] = []
    capi: Any = fdb.impl._FDBBase.capi
    get, wait = capi.fdb_transaction_get, client._Rows.wait

    def counted_get(*args: Any) -> Any:
        found.append(1)
        return get(*args)

    def counted_wait(self: Any) -> Any:
        page = wait(self)
        found.append(max(1, len(page[0])))
        return page

    monkeypatch.setattr(capi, "fdb_transaction_get", counted_get)
    monkeypatch.setattr(client._Rows, "wait", counted_wait)
    return found

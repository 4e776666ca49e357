"""Fixtures for tests of the embedded engine: the bindings on it, a store per test run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fdbqueue.embedded as embedded


@pytest.fixture(scope="session")
def bindings() -> Any:
    """The fdb module, running on the engine."""
    embedded.install()
    import fdb

    if not fdb.is_api_version_selected():
        fdb.api_version(730)
    return fdb


@pytest.fixture(scope="session")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the tests of one run share."""
    return tmp_path_factory.mktemp("store") / "engine.store"


@pytest.fixture
def db(bindings: Any, store_path: Path) -> Iterator[Any]:
    """An open database, emptied before the test."""
    os.environ["FDBQUEUE_SYNCHRONOUS"] = "normal"
    database = bindings.open(str(store_path))
    del database[b"":b"\xff"]
    yield database

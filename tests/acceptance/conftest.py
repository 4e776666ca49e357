"""Processes on the store of the test, and a queue for them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from fdbqueue import Queue, fdb
from fdbqueue.errors import QueueNotFound
from tests.acceptance.running import Fdbq, Programs


@pytest.fixture
def fdbq(environment: dict[str, str]) -> Fdbq:
    """The console script, on the store of the test."""
    return Fdbq(environment)


@pytest.fixture
def name(db: fdb.Database) -> Iterator[str]:
    """A fresh queue below the default root, as ``fdbq`` sees it; deleted afterwards."""
    name = f"orders-{uuid.uuid4().hex}"
    Queue.create(db, name)
    yield name
    with contextlib.suppress(QueueNotFound):
        Queue(name).delete(db)


@pytest.fixture
def programs(environment: dict[str, str]) -> Iterator[Programs]:
    """Programs that use the package on the store of the test."""
    programs = Programs(environment)
    yield programs
    programs.end()

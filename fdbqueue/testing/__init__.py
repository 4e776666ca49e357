"""A testing kit for programs that use queues. Needs pytest.

Put ``pytest_plugins = ["fdbqueue.testing"]`` into the ``conftest.py`` at the top of your tests to
get the fixtures below. With the embedded engine each test gets its own store, in memory where the
system has a directory there. On a cluster each test gets its own subspace, which is cleared
afterwards. ``fdbqueue.aio.testing`` has the same for asyncio.

It is no entry point of pytest, which would import it, and so choose a store, in every run of every
project in the same environment.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Unpack

import pytest

from ..queue.queue import Queue
from ..store import binding, world
from ..store.binding import Engine, fdb
from ..values.model import Message
from ..values.options import Options
from .assertions import assert_depth, assert_enqueued
from .clock import ManualClock
from .draining import drain
from .eager import Eager

__all__ = [
    "Eager",
    "ManualClock",
    "assert_depth",
    "assert_enqueued",
    "drain",
    "fdbqueue_clock",
    "fdbqueue_db",
    "fdbqueue_drain",
    "fdbqueue_eager",
    "fdbqueue_queue",
    "fdbqueue_root",
]

_IN_MEMORY = Path("/dev/shm")


def _told(record: logging.LogRecord) -> bool:
    """Whether a log has a record: not that a store is new, as each is here."""
    return record.levelno != logging.WARNING


@pytest.fixture
def fdbqueue_db() -> Iterator[fdb.Database]:
    """A database: the test's own embedded store, closed afterwards, or the configured cluster."""
    if binding.DEFAULT.engine is not Engine.EMBEDDED:
        yield binding.open()
        return
    place = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fdbqueue-", dir=place) as directory:
        binding.log.addFilter(_told)
        try:
            db = binding.open(Path(directory) / "test.fdbq")
        finally:
            binding.log.removeFilter(_told)
        yield db
        binding.close(db)


@pytest.fixture
def fdbqueue_root(fdbqueue_db: fdb.Database) -> Iterator[fdb.Subspace]:
    """An empty subspace to use as ``root``, cleared afterwards."""
    root = fdb.Subspace((f"test-{world.urandom(16).hex()}",))
    yield root
    fdbqueue_db.clear_range_startswith(root.key())


@pytest.fixture
def fdbqueue_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock that the test moves: that of all queues that were opened without another one."""
    clock = ManualClock()
    clock.install(monkeypatch)
    return clock


@pytest.fixture
def fdbqueue_queue(
    fdbqueue_db: fdb.Database, fdbqueue_root: fdb.Subspace, fdbqueue_clock: ManualClock
) -> Callable[..., Queue]:
    """A function that creates queues: ``fdbqueue_queue("orders", levels=3)``."""

    def make(name: str = "test", **options: Unpack[Options]) -> Queue:
        return Queue.create(fdbqueue_db, name, root=fdbqueue_root, **options)

    return make


@pytest.fixture
def fdbqueue_drain() -> Callable[..., list[Message]]:
    """``drain``."""
    return drain


@pytest.fixture
def fdbqueue_eager(fdbqueue_db: fdb.Database, monkeypatch: pytest.MonkeyPatch) -> Eager:
    """Handles messages at once: ``fdbqueue_eager(queue, handler)``."""
    eager = Eager(fdbqueue_db)
    eager.install(monkeypatch)
    return eager

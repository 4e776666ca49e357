"""A queue and a clock for most tests: its options are those of the marker ``queue``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fdbqueue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.gates import Gate


@pytest.fixture
def clock() -> ManualClock:
    """A clock that tests move on."""
    return ManualClock()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """What holds handlers up until the test lets them through."""
    gate = Gate()
    yield gate
    gate.let(1_000)


@pytest.fixture
def queues(db: fdb.Database, space: fdb.Subspace, clock: ManualClock) -> tuple[Queue, Queue]:
    """Two queues of one root, with two attempts."""
    terms: dict[str, Any] = {"root": space, "max_attempts": 2, "backoff": None, "clock": clock}
    return Queue.create(db, "one", **terms), Queue.create(db, "two", **terms)


@pytest.fixture
def queue(
    db: fdb.Database, space: fdb.Subspace, clock: ManualClock, request: pytest.FixtureRequest
) -> Queue:
    """A fresh queue; where the module says nothing else, one with ten levels and two attempts."""
    mark = request.node.get_closest_marker("queue")
    name, options = "orders", dict[str, Any](max_attempts=2)
    if mark is not None:
        (name,), options = mark.args or (name,), {**mark.kwargs, "clock": clock}
    return Queue.create(db, name, root=space, **options)

"""What a plain operation passes on its way to the store: how many files, and how many calls.

Counted are the calls of Python and C functions of an open queue, as ``sys.setprofile`` tells them:
those of the package, of the standard library and of the bindings. Not counted is what runs below
the bindings' C API, that is the store itself, waiting for it, and checking what it returns.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from benchmarks.calls import measured

import fdbqueue
from fdbqueue import Queue
from fdbqueue.store import tasks
from fdbqueue.store.binding import DEFAULT, Engine, fdb
from tests.unit.test_layers import FLOOR

PACKAGE = str(Path(fdbqueue.__file__).parent) + os.sep
STORE = os.path.join(PACKAGE, "store", "embedded", "")
OUTSIDE = {"block_until_ready", "check_error_code"}

MOST_FILES = 8
"""Files of the package that an operation passes."""
POINTERS = 20
"""Calls of an operation that take results of a cluster: those of the engine need no pointers."""


@pytest.fixture(autouse=True)
def without_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that does not use asyncio: an earlier test may have."""
    monkeypatch.setattr(tasks, "used", False)


class Passed:
    """What an operation passes: the files of the package in their order, the calls, and each call
    from a room to one on a floor above it."""

    def __init__(self, operation: Callable[[], object]) -> None:
        self.files: list[str] = []
        self.climbs: list[tuple[str, str]] = []
        self.calls = 0
        self._outside: FrameType | None = None
        sys.setprofile(self._see)
        try:
            operation()
        finally:
            sys.setprofile(None)
        self.calls -= 2  # The operation's own lambda, and the end of counting.

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if self._outside is not None:
            if frame is self._outside and event == "return":
                self._outside = None
            return
        code = frame.f_code
        if event == "call" and (code.co_filename.startswith(STORE) or code.co_name in OUTSIDE):
            self._outside = frame
        elif event == "call":
            self.calls += 1
            if code.co_filename.startswith(PACKAGE):
                self._enter(frame)
        elif event == "c_call":
            self.calls += 1

    def _enter(self, frame: FrameType) -> None:
        file = frame.f_code.co_filename.removeprefix(PACKAGE)
        if file not in self.files:
            self.files.append(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None:
            above = caller.f_code.co_filename.removeprefix(PACKAGE)
            if _floor(above) < _floor(file):
                self.climbs.append((above, file))


def _floor(file: str) -> int:
    return FLOOR[file.split(os.sep)[0].removesuffix(".py")]


def use(db: fdb.Database, queue: Queue) -> Queue:
    """Bring a queue into use: what is known of it once is known."""
    for _ in range(3):
        queue.enqueue(db, b"before")
        delivery = queue.receive(db)
        assert delivery is not None
        queue.ack(db, delivery)
    queue.enqueue(db, b"before")
    return queue


busy = pytest.fixture(use, name="busy")


def least(operation: Callable[[], object]) -> Passed:
    """What an operation passes at the least, of three times: now and then it does a chore besides,
    such as asking what time it is."""
    return min((Passed(operation) for _ in range(3)), key=lambda passed: passed.calls)


def test_all_calls_of_an_operation_with_those_of_the_embedded_engine(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    found = []
    # The engine notes the size of one key in 128, which may be a counter of a queue.
    for n in range(3):
        queue = use(db, Queue.create(db, f"busy-{n}", root=space))
        for _ in range(20):
            queue.enqueue(db, b"x")
        found.append({each.operation: each.total for each in measured(db, queue)})
    calls = {operation: min(each[operation] for each in found) for operation in found[0]}
    assert calls["enqueue"] <= 250
    assert calls["receive"] + calls["ack"] <= 525


def check(operation: Callable[[], object], most_calls: int) -> None:
    passed = least(operation)
    assert len(passed.files) <= MOST_FILES, passed.files
    assert passed.climbs == []
    assert passed.calls <= most_calls + (0 if DEFAULT.engine is Engine.EMBEDDED else POINTERS)


def test_an_enqueue_in_a_transaction_of_its_own(db: fdb.Database, busy: Queue) -> None:
    check(lambda: busy.enqueue(db, b"x"), 86)


@pytest.mark.parametrize("subscriptions", [1, 20])
def test_an_enqueue_evaluates_only_selectors_that_demand_the_value_of_its_header(
    db: fdb.Database, busy: Queue, subscriptions: int
) -> None:
    headers = {"region": "r0"}
    busy.enqueue(db, b"x", headers=headers)
    without = least(lambda: busy.enqueue(db, b"x", headers=headers)).calls
    for n in range(subscriptions):
        busy.subscribe(db, f"s{n}", selector=f"region = 'r{n}'")
    busy.enqueue(db, b"x", headers=headers)
    passed = least(lambda: busy.enqueue(db, b"x", headers=headers))
    assert passed.climbs == []
    assert passed.calls - without <= 60


def test_an_enqueue_in_the_callers_transaction(db: fdb.Database, busy: Queue) -> None:
    tr = db.create_transaction()
    check(lambda: busy.enqueue(tr, b"x"), 141)


def test_a_receive_and_an_acknowledgement_in_transactions_of_their_own(
    db: fdb.Database, busy: Queue
) -> None:
    busy.enqueue_many(db, [b"x"] * 10)
    held = busy.receive_many(db, 3)
    check(lambda: busy.receive(db), 116)
    check(lambda: busy.ack(db, held.pop()), 68)


def test_a_receive_and_an_acknowledgement_in_the_callers_transaction(
    db: fdb.Database, busy: Queue
) -> None:
    busy.enqueue_many(db, [b"x"] * 10)
    held = busy.receive_many(db, 3)
    tr = db.create_transaction()
    check(lambda: busy.receive(tr), 197)
    check(lambda: busy.ack(tr, held.pop()), 98)


@pytest.mark.parametrize("options", [{"headers": {"a": 1}}, {"key": "k"}, {"ttl": 60}])
def test_a_message_with_more_than_a_payload_is_received_on_the_same_way(
    db: fdb.Database, busy: Queue, options: dict[str, Any]
) -> None:
    busy.purge(db)
    for n in range(3):
        if "key" in options:
            options = {"key": f"k{n}"}
        busy.enqueue(db, b"x", **options)
    check(lambda: busy.receive(db), 127)

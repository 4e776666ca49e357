"""The function calls of one operation on an open queue, and who makes them.

Counted as the standard profiler does: functions of Python, and of C that Python calls. A function
of C counts for the part that calls it. On a cluster, the work of its client library is not seen.
"""

from __future__ import annotations

import cProfile
import os
import pstats
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import fdbqueue
from fdbqueue.cli.bench import processes
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import Delivery
from fdbqueue.values.records import record

TIMES = 9
PARTS = ("package", "bindings", "engine", "others")

_PACKAGE = os.path.dirname(fdbqueue.__file__) + os.sep
_ENGINE = os.path.join(_PACKAGE, "store", "embedded", "")
_BINDINGS = os.path.dirname(fdb.__file__) + os.sep
_BUILT_IN = "~"


@record
class Calls:
    """The calls of an operation by part; the least of ``TIMES``, since some do a chore besides."""

    operation: str
    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.parts.values())

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"operation": self.operation, **self.parts, "total": self.total}


def run() -> Iterator[Calls]:
    """Count the calls of an enqueue, a receive and an acknowledgement, in a temporary subspace."""
    with processes.scratch() as space:
        db, root = processes.opened(space)
        yield from measured(db, Queue.create(db, "calls", root=root))


def measured(db: fdb.Database, queue: Queue[bytes]) -> Iterator[Calls]:
    """Count the calls of operations on a queue."""
    held: list[Delivery] = []

    def receive() -> None:
        found = queue.receive(db)
        assert found is not None
        held.append(found)

    operations: dict[str, Callable[[], object]] = {
        "enqueue": lambda: queue.enqueue(db, b"x"),
        "receive": receive,
        "ack": lambda: queue.ack(db, held.pop()),
    }
    for operation in operations.values():  # What is learnt once is known then.
        operation()
    for name, operation in operations.items():
        yield min((_count(name, operation) for _ in range(TIMES)), key=lambda calls: calls.total)


def _count(name: str, operation: Callable[[], object]) -> Calls:
    profile = cProfile.Profile()
    profile.runcall(operation)
    parts: Counter[str] = Counter(dict.fromkeys(PARTS, 0))
    found: Any = pstats.Stats(profile)
    for (file, _, _), (_, calls, _, _, callers) in found.stats.items():
        if file != _BUILT_IN:
            parts[_part(file)] += calls
        for (caller, _, _), (count, *_) in callers.items() if file == _BUILT_IN else ():
            parts[_part(caller)] += count
    return Calls(name, dict(parts))


def _part(file: str) -> str:
    if file.startswith(_ENGINE):
        return "engine"
    if file.startswith(_PACKAGE):
        return "package"
    return "bindings" if file.startswith(_BINDINGS) else "others"

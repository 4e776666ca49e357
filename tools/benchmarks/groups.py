"""What a group costs those who end its messages, and how often they conflict because of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from fdbqueue import NewMessage
from fdbqueue.queue.queue import Queue
from fdbqueue.schema import once
from fdbqueue.values.records import record

from . import processes

WORKERS = 4
TAKEN = 20
STEP = 1_000
KEPT_SECONDS = 3_600
_CONFLICT = 1020


@record
class Ending:
    """What the ends of messages cost in a group, and of others that stand alone, too.

    messages: how many. ended, alone: messages that four processes receive and acknowledge in a
    second, 20 in a transaction, of one queue. conflicts, conflicts_alone: of all
    these transactions together. find_ms: how long it takes to ask how far the group has come.
    """

    messages: int
    ended: float
    alone: float
    conflicts: int
    conflicts_alone: int
    find_ms: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


class _Conflicts:
    """Counts the conflicts of this process."""

    def __init__(self) -> None:
        self.count = 0
        once.on_retry(self.met)

    def met(self, code: int) -> None:
        self.count += code == _CONFLICT


def run(counts: Sequence[int]) -> Iterator[Ending]:
    """Measure with each number of messages, in a temporary subspace."""
    for count in counts:
        with processes.scratch() as space:
            processes.once(partial(_enqueue, space, count))
            ended, conflicts = _end(space, "grouped", count)
            alone, conflicts_alone = _end(space, "alone", count)
            find_ms = processes.once(partial(_find, space, count))
        yield Ending(count, ended, alone, conflicts, conflicts_alone, find_ms)


def _enqueue(space: bytes, count: int) -> None:
    db, root = processes.opened(space)
    grouped, alone = (Queue.create(db, name, root=root, lease=600) for name in ("grouped", "alone"))
    grouped.enqueue_group(db, [b"x" * 100] * count, then=b"all", name="g")
    for begin in range(0, count, STEP):
        some = [NewMessage(b"x" * 100, keep_result=KEPT_SECONDS)] * min(STEP, count - begin)
        alone.enqueue_many(db, some)


def _end(space: bytes, name: str, count: int) -> tuple[float, int]:
    began = time.monotonic()
    conflicts = sum(processes.together([partial(_work, space, name)] * WORKERS))
    return count / (time.monotonic() - began), conflicts


def _work(space: bytes, name: str) -> int:
    db, root = processes.opened(space)
    queue, conflicts = Queue(name, root), _Conflicts()
    while held := queue.receive_many(db, TAKEN):
        queue.ack_many(db, held)
    return conflicts.count


def _find(space: bytes, count: int) -> float:
    db, root = processes.opened(space)
    queue = Queue("grouped", root)
    queue.depth(db)  # which opens the store
    began = time.monotonic()
    group = queue.groups.get(db, "g")
    took = time.monotonic() - began
    assert group is not None, "the group is gone"
    assert (group.state, group.done) == ("complete", count), f"it is {group}"
    return 1000 * took

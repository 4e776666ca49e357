"""What a group costs those who end its messages, and how often they conflict because of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated

from typer import Option

from fdbqueue import NewMessage, Then
from fdbqueue.queue.queue import Queue
from fdbqueue.schema import once

from . import processes
from .client_counters import CONFLICT
from .declare import Row, benchmark, counts

WORKERS = 4
TAKEN = 20
STEP = 1_000
KEPT_SECONDS = 3_600


@benchmark("groups")
def groups(
    messages: Annotated[
        str, Option(metavar="N,…", help="Numbers of messages of one group.")
    ] = "1000,100000",
) -> Iterator[Row]:
    """Measure what a group costs those who end its messages, and how often they conflict.

    Four processes receive and acknowledge 20 messages in a transaction; beside them others do so
    with messages that stand alone.
    """
    for count in counts(messages, 1_000_000):
        with processes.scratch() as space:
            processes.once(partial(_enqueue, space, count))
            for name in ("grouped", "alone"):
                began = time.monotonic()
                conflicts = sum(processes.together([partial(_work, space, name)] * WORKERS))
                rate = count / (time.monotonic() - began)
                yield Row(f"{name}, {count}", rate, more={"conflicts": conflicts})
            find = processes.once(partial(_find, space, count))
        yield Row(f"to ask how far it has come, {count}", find, "ms")


def _enqueue(space: bytes, count: int) -> None:
    db, root = processes.opened(space)
    grouped, alone = (Queue.create(db, name, root=root, lease=600) for name in ("grouped", "alone"))
    grouped.enqueue_many(db, [b"x" * 100] * count, group=Then(b"all", name="g"))
    for begin in range(0, count, STEP):
        some = [NewMessage(b"x" * 100, keep_result=KEPT_SECONDS)] * min(STEP, count - begin)
        alone.enqueue_many(db, some)


def _work(space: bytes, name: str) -> int:
    db, root = processes.opened(space)
    queue, conflicts = Queue(name, root), 0

    def retry(code: int) -> None:
        nonlocal conflicts
        conflicts += code == CONFLICT

    once.on_retry(retry)
    while held := queue.receive_many(db, TAKEN):
        queue.ack(db, held)
    return conflicts


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

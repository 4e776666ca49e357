"""What blocks gain: batches beside blind sets of the same bytes, and a row for each message."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Annotated
from unittest import mock

from typer import Option

from fdbqueue.messages import run
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb

from . import processes
from .baselines import set_blindly
from .clients import payload
from .declare import Row, at_least, at_most, benchmark

BATCH, LARGE = 100, 800
SETS, ENQUEUE, ENQUEUE_ROWS = "blind sets", "enqueue", "enqueue, a row each"
TAKE, TAKE_ROWS = "receive and ack", "receive and ack, a row each"
TAKE_BATCH = "receive and ack a batch"
ONE, ONE_ALONE = "receive and ack singly, from blocks", "receive and ack singly, from rows"


@benchmark("blocks")
def measured(
    rounds: Annotated[int, Option(metavar="N", min=1, help="Calls of each kind.")] = 30,
    messages: Annotated[
        int,
        Option(metavar="N", min=1_000, help="Messages in the queue whose storage is measured."),
    ] = 1_000_000,
) -> Iterator[Row]:
    """Measure messages that are enqueued together beside blind sets of the same bytes."""
    with processes.scratch() as space:
        stored: float = processes.once(partial(_stored, space, messages))
    with processes.scratch() as space:
        rows: list[Row] = processes.once(partial(_measured, space, rounds))
    yield from rows
    found = {row.name: row for row in rows}
    for count, bar in ((BATCH, 1.2), (LARGE, 3.0)):
        times = found[f"{ENQUEUE}, {count}"].figure / found[f"{SETS}, {count}"].figure
        yield at_least(f"enqueue of {count}: rate to that of blind sets", times, bar)
    times = found[f"{ONE}, {BATCH}"].figure / found[f"{ONE_ALONE}, {BATCH}"].figure
    yield at_least("receive and ack one: rate from blocks to that from rows", times, 0.9)
    yield at_most("bytes of keys and values to those of payloads", stored, 1.3)


Operation = tuple[Callable[[], object], Callable[[], object]]
"""What is done before, and what is measured."""


def _measured(space: bytes, rounds: int) -> list[Row]:
    db, root = processes.opened(space)
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    operations = _operations(db, root)
    for n in range(rounds + 1):
        for name, (prepare, act) in operations.items():
            prepare()
            began = time.perf_counter()
            act()
            if n:  # What is learnt once is known then.
                seconds[name].append(time.perf_counter() - began)
    return [Row(f"{name}, {n}", n / median(took)) for (name, n), took in seconds.items()]


def _operations(db: fdb.Database, root: fdb.Subspace) -> Mapping[tuple[str, int], Operation]:
    def queue(name: str) -> Queue[bytes]:
        return Queue.open(db, name, root=root)

    def nothing() -> None:
        pass

    def singly(given: Sequence[bytes]) -> None:
        for each in given:
            single.enqueue(db, each)

    found: dict[tuple[str, int], Operation] = {}
    for count in (BATCH, LARGE):
        given = [payload(n) for n in range(count)]
        shared, alone = queue(f"shared {count}"), queue(f"alone {count}")
        fill = partial(shared.enqueue_many, db, given)
        found[SETS, count] = nothing, partial(set_blindly, db, root, given)
        found[ENQUEUE, count] = nothing, fill
        found[ENQUEUE_ROWS, count] = nothing, partial(_enqueue_rows, db, alone, given)
        found[TAKE, count] = nothing, partial(_take, db, shared, count)
        found[TAKE_BATCH, count] = fill, partial(_take_batch, db, shared, count)
        found[TAKE_ROWS, count] = nothing, partial(_take, db, alone, count)
    given = [payload(n) for n in range(BATCH)]
    cut, single = queue("cut"), queue("single")
    found[ONE, BATCH] = partial(cut.enqueue_many, db, given), partial(_take_singly, db, cut)
    found[ONE_ALONE, BATCH] = partial(singly, given), partial(_take_singly, db, single)
    return found


def _enqueue_rows(db: fdb.Database, queue: Queue[bytes], given: Sequence[bytes]) -> None:
    with mock.patch.object(run, "MIN_MESSAGES", run.MAX_MESSAGES + 1):
        queue.enqueue_many(db, given)


def _take(db: fdb.Database, queue: Queue[bytes], count: int) -> None:
    held = queue.receive_many(db, count)
    assert len(held) == count, f"{len(held)} messages instead of {count}"
    queue.ack(db, held)


def _take_batch(db: fdb.Database, queue: Queue[bytes], count: int) -> None:
    batch = queue.receive_batch(db, count)
    found = len(batch.payloads)
    assert found == count, f"{found} messages instead of {count}"
    queue.ack(db, batch)


def _take_singly(db: fdb.Database, queue: Queue[bytes]) -> None:
    for _ in range(BATCH):
        held = queue.receive(db)
        assert held is not None, "a message is missing"
        queue.ack(db, held)


def _stored(space: bytes, messages: int) -> float:
    """The bytes of the keys and values of a queue, to those of the payloads."""
    db, root = processes.opened(space)
    queue = Queue.open(db, "stored", root=root)
    given = [payload(n) for n in range(BATCH)]
    for _ in range(messages // BATCH):
        queue.enqueue_many(db, given)
    total, every = 0, root.range()
    begin = every.start
    while found := db.get_range(begin, every.stop, limit=1_000):
        total += sum(len(kv.key) + len(kv.value) for kv in found)
        begin = found[-1].key + b"\x00"
    return total / (messages // BATCH * sum(map(len, given)))

"""What blocks gain: batches beside blind sets of the same bytes, and beside a row for each message.

One process does every operation in turn, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from statistics import median
from typing import Annotated

from typer import Option

from fdbqueue.queue.queue import Queue
from fdbqueue.schema.codec import blocks
from fdbqueue.store import binding
from fdbqueue.store.binding import DEFAULT, Engine, fdb

from . import baselines, processes
from .client_counters import Counts, Meter
from .clients import payload
from .declare import Row, at_least, at_most, benchmark

BATCH, LARGE = 100, 800
SETS, ENQUEUE, ENQUEUE_ROWS = "blind sets", "enqueue", "enqueue, a row each"
TAKE, TAKE_ROWS = "receive and ack", "receive and ack, a row each"
TAKE_BATCH, MUTATIONS = "receive and ack a batch", "mutations/message"
ONE, ONE_ALONE = "receive and ack singly, from blocks", "receive and ack singly, from rows"
KEYS, FILES = "bytes of keys and values", "bytes of the store's file"
REMEMBERED_SECONDS, COMMITS_TO_FORGET = 11, 300


@benchmark("blocks")
def measured(
    rounds: Annotated[int, Option(metavar="N", min=1, help="Calls of each kind.")] = 30,
    messages: Annotated[
        int,
        Option(metavar="N", min=1_000, help="Messages in the queue whose storage is measured."),
    ] = 1_000_000,
) -> Iterator[Row]:
    """Measure messages of 100 bytes that are enqueued together beside blind sets of the same bytes.

    \b
    Examples:
      tools/bench blocks
      tools/bench blocks --rounds 10 --messages 100000
    """
    with processes.scratch() as space:  # In a new store: a file does not shrink.
        stored: dict[str, float] = processes.once(partial(_stored, space, messages))
    with processes.scratch() as space:
        rows: list[Row] = processes.once(partial(_measured, space, rounds))
    yield from rows
    yield from judge({row.name: row for row in rows}, stored)


def judge(found: Mapping[str, Row], stored: Mapping[str, float]) -> Iterator[Row]:
    """The figures that blocks promise."""

    def at(operation: str, count: int = BATCH) -> Row:
        return found[f"{operation}, {count}"]

    for count, bar in ((BATCH, 1.2), (LARGE, 3.0)):
        ratio = at(ENQUEUE, count).figure / at(SETS, count).figure
        yield at_least(f"enqueue of {count}: rate to that of blind sets", ratio, bar)
    single = at(ONE).figure / at(ONE_ALONE).figure
    yield at_least("receive and ack one: rate from blocks to that from rows", single, 0.9)
    yield at_most("receive and ack one: mutations", at(ONE_ALONE).more[MUTATIONS], 10)
    taken = at(TAKE_BATCH).more[MUTATIONS] * BATCH
    yield at_most(f"receive and ack of {BATCH}: mutations", taken, 12)
    for name, each in stored.items():
        yield at_most(f"{name} to those of payloads", each, 1.3)


# -- operations -----------------------------------------------------------------------------------

Operation = tuple[Callable[[], object], Callable[[], object]]
"""What is done before, and what is measured."""


def _measured(space: bytes, rounds: int) -> list[Row]:
    db, root = processes.opened(space)
    meter = Meter()
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    written: defaultdict[tuple[str, int], Counts] = defaultdict(Counts)
    operations = _operations(db, root)
    for n in range(rounds + 1):
        for name, (prepare, act) in operations.items():
            prepare()
            before, began = meter.now(), time.perf_counter()
            act()
            if n:  # What is learnt once is known then.
                seconds[name].append(time.perf_counter() - began)
                written[name] += meter.now() - before
    return [
        Row(
            f"{name}, {count}",
            count / median(took),
            more={
                MUTATIONS: written[name, count].written / count / rounds,
                "bytes/message": written[name, count].written_bytes / count / rounds,
            },
        )
        for (name, count), took in seconds.items()
    ]


def _operations(db: fdb.Database, root: fdb.Subspace) -> dict[tuple[str, int], Operation]:
    found: dict[tuple[str, int], Operation] = {}
    for count in (BATCH, LARGE):
        given = [payload(n) for n in range(count)]
        shared, alone = (
            Queue.open(db, f"{kind} {count}", root=root) for kind in ("shared", "alone")
        )
        found[SETS, count] = _nothing, partial(_set, db, root, given)
        found[ENQUEUE, count] = _nothing, partial(shared.enqueue_many, db, given)
        found[ENQUEUE_ROWS, count] = _nothing, partial(_enqueue_rows, db, alone, given)
        found[TAKE, count] = _nothing, partial(_take, db, shared, count)
        again = partial(shared.enqueue_many, db, given)
        found[TAKE_BATCH, count] = again, partial(_take_batch, db, shared, count)
        found[TAKE_ROWS, count] = _nothing, partial(_take, db, alone, count)
    given = [payload(n) for n in range(BATCH)]
    cut, single = (Queue.open(db, name, root=root) for name in ("cut", "single"))
    fill = partial(cut.enqueue_many, db, given), partial(_enqueue_singly, db, single, given)
    found[ONE, BATCH] = fill[0], partial(_take_singly, db, cut, BATCH)
    found[ONE_ALONE, BATCH] = fill[1], partial(_take_singly, db, single, BATCH)
    return found


def _nothing() -> None:
    pass


def _set(db: fdb.Database, root: fdb.Subspace, given: Sequence[bytes]) -> None:
    baselines.set_blindly(db, root, given)


def _enqueue_rows(db: fdb.Database, queue: Queue[bytes], given: Sequence[bytes]) -> None:
    shares = blocks.MIN_MESSAGES
    blocks.MIN_MESSAGES = blocks.MAX_MESSAGES + 1
    try:
        queue.enqueue_many(db, given)
    finally:
        blocks.MIN_MESSAGES = shares


def _enqueue_singly(db: fdb.Database, queue: Queue[bytes], given: Sequence[bytes]) -> None:
    for each in given:
        queue.enqueue(db, each)


def _take(db: fdb.Database, queue: Queue[bytes], count: int) -> None:
    held = queue.receive_many(db, count)
    _check(len(held), count)
    queue.ack(db, held)


def _take_batch(db: fdb.Database, queue: Queue[bytes], count: int) -> None:
    batch = queue.receive_batch(db, count)
    _check(len(batch.payloads), count)
    queue.ack(db, batch)


def _take_singly(db: fdb.Database, queue: Queue[bytes], count: int) -> None:
    for _ in range(count):
        held = queue.receive(db)
        if held is None:
            raise processes.BenchmarkFailed(problem="a message is missing")
        queue.ack(db, held)


def _check(found: int, expected: int) -> None:
    if found != expected:
        raise processes.BenchmarkFailed(problem=f"{found} messages instead of {expected}")


# -- storage --------------------------------------------------------------------------------------


def _stored(space: bytes, messages: int) -> dict[str, float]:
    before = _file_bytes()
    db, root = processes.opened(space)
    queue = Queue.open(db, "stored", root=root)
    given = [payload(n) for n in range(BATCH)]
    for _ in range(messages // BATCH):
        queue.enqueue_many(db, given)
    payloads = messages // BATCH * sum(map(len, given))
    found = {KEYS: _row_bytes(db, root) / payloads}
    if before is not None:
        _forget_commits(db, root)
        found[FILES] = ((_file_bytes() or 0) - before) / payloads
    return found


def _row_bytes(db: fdb.Database, root: fdb.Subspace) -> int:
    total, every = 0, root.range()
    begin = every.start
    while found := db.get_range(begin, every.stop, limit=1_000):
        total += sum(len(kv.key) + len(kv.value) for kv in found)
        begin = found[-1].key + b"\x00"
    return total


def _forget_commits(db: fdb.Database, root: fdb.Subspace) -> None:
    """Let the embedded engine forget what each commit of the last seconds wrote. It does so once in
    some hundred commits, and uses the space again."""
    time.sleep(REMEMBERED_SECONDS)
    for n in range(COMMITS_TO_FORGET):
        db[root.pack(("forget",))] = b"%d" % n


def _file_bytes() -> int | None:
    """How much of the file of an embedded store is in use, with all that is in the store."""
    if DEFAULT.path is None or DEFAULT.engine is not Engine.EMBEDDED:
        return None
    binding.close(binding.open())
    with closing(sqlite3.connect(f"file:{DEFAULT.path}?mode=ro", uri=True)) as file:
        size, pages, free = (
            file.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
    return int(size * (pages - free))

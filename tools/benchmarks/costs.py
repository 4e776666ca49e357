"""What each operation asks of a store, and which operations conflict: counts, no times.

On FoundationDB as on the embedded engine, but for keys whose length depends on the age of the
database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, TypeVar

from fdbqueue.messages.run import MIN_MESSAGES
from fdbqueue.queue.batch import Batch
from fdbqueue.queue.queue import Queue
from fdbqueue.schema.keys import DEFAULT_ROOT, QueueKeys
from fdbqueue.store.binding import fdb, transactional
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import Delivery, NewMessage

from . import processes
from .client_counters import CONFLICT, Counts, Meter
from .clients import payload
from .declare import app

T = TypeVar("T")

TIMES = 5
MANY = (100, 1_000)
LARGE = 1_000_000
BACKLOG = MIN_MESSAGES - 1
"""So few messages that are enqueued together have a row each."""
DELAY, PASSES = 1.0, 2.0


@dataclass(frozen=True)
class Cost:
    """What one call asks of the store, with keys below the default root.

    The least of ``TIMES`` calls, since some do a chore besides. The name of the queue has five
    letters. round_trips: waits for answers, the commit's among them. read, written: keys.
    written_bytes: of these keys and their values. shared: keys that every such call writes.
    """

    operation: str
    commits: int
    round_trips: int
    read: int
    written: int
    written_bytes: int
    shared: int


@dataclass(frozen=True)
class Clash:
    """Whether a transaction fails because another one, named ``other``, commits while it runs."""

    operation: str
    other: str
    fails: bool


@app.command("costs")
def costs() -> None:
    """Count what each operation reads, writes and waits for, and try which operations conflict.

    Prints the tables of docs/capacity.md, in Markdown: payloads of 100 bytes, on an open queue.
    """
    with processes.scratch() as space:
        found: tuple[list[Cost], list[Clash]] = processes.once(partial(_counted, space))
    print(tables(*found))


def tables(costs: Sequence[Cost], clashes: Sequence[Clash]) -> str:
    """Both as tables of Markdown."""
    counted = "commits", "waits", "keys read", "keys written", "bytes", "the same each time"
    others = list(dict.fromkeys(each.other for each in clashes))
    conflicts: dict[str, list[str]] = {}
    for each in clashes:
        conflicts.setdefault(each.operation, []).append("again" if each.fails else "")
    rows = [[name, *map("{:,}".format, counts)] for name, *counts in map(astuple, costs)]
    lines = [*_table(("one call", *counted), rows), ""]
    lines += _table(("runs", *others), [[name, *fails] for name, fails in conflicts.items()])
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ("| " + " | ".join(line) + " |" for line in (heads, *rows))
    return [head, "|" + "---|" * len(heads), *body]


def _counted(space: bytes) -> tuple[list[Cost], list[Clash]]:
    db, root = processes.opened(space)
    clashes = [*_clashes(db, root)]
    meter = _KeyMeter()
    longer = len(space) - len(DEFAULT_ROOT.key())
    return [_cost(meter, longer, *each) for each in _operations(db, root)], clashes


# -- costs ----------------------------------------------------------------------------------------

Operation = tuple[str, Callable[[], Any], Callable[[Any], object]]
"""Its name, what is done before, and what is counted, of what the former returns."""


class _KeyMeter(Meter):
    """A meter that also notes which keys are written."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.ends = 0
        super().__init__()

    def _written(self, name: str, transaction: Any, key: bytes, *other: Any) -> None:
        super()._written(name, transaction, key, *other)
        self.keys.append(key)
        self.ends += name == "fdb_transaction_clear_range"


def _cost(
    meter: _KeyMeter,
    longer: int,
    name: str,
    prepare: Callable[[], Any],
    act: Callable[[Any], object],
) -> Cost:
    found: list[Counts] = []
    keys: list[set[bytes]] = []
    for _ in range(TIMES + 1):
        given = prepare()
        before, meter.ends = meter.now(), 0
        meter.keys.clear()
        act(given)
        counts = meter.now() - before
        counts.written_bytes -= longer * (len(meter.keys) + meter.ends)
        found.append(counts)
        keys.append(set(meter.keys))
    # What is learnt once is known after the first.
    least = Counts(*map(min, *map(astuple, found[1:])))
    shared = sum(not _is_record(key) for key in set.intersection(*keys[1:]))
    asked = least.commits, least.round_trips, least.rows, least.written, least.written_bytes
    return Cost(name, *asked, shared)


def _is_record(key: bytes) -> bool:
    """Whether a key is that of a record of commits, which each process has for itself."""
    return bool(fdb.tuple.unpack(key)[-3:-2] == (QueueKeys.once.number,))


def _operations(db: fdb.Database, root: fdb.Subspace) -> Iterator[Operation]:
    given, clock = payload(0), ManualClock()
    numbers = iter(range(1_000_000))

    def queue(name: str) -> Queue[bytes]:
        made = Queue.create(db, name, root=root, clock=clock)
        made.enqueue_many(db, [given] * BACKLOG)
        return made

    def held() -> Delivery:
        takes.enqueue(db, given)
        return _found(takes.receive(db))

    def name() -> str:
        return f"name {next(numbers):06}"

    adds, takes = queue("added"), queue("taken")
    adds.enqueue_many(db, [NewMessage(given, key="busy")] * BACKLOG)
    yield "enqueue", _nothing, lambda _: adds.enqueue(db, given)
    yield "enqueue, `dedup_id`", name, lambda text: adds.enqueue(db, given, dedup_id=text)
    yield "enqueue, `unique`", name, lambda text: adds.enqueue(db, given, unique=text)
    yield "enqueue, `delay`", _nothing, lambda _: adds.enqueue(db, given, delay=600)
    yield "enqueue, `key` with a free slot", name, lambda text: adds.enqueue(db, given, key=text)
    yield "enqueue, `key` with a backlog", _nothing, lambda _: adds.enqueue(db, given, key="busy")
    yield "enqueue, 1 MB", _nothing, lambda _: adds.enqueue(db, bytes(LARGE))

    add = partial(takes.enqueue, db, given)
    yield "receive", add, lambda _: _found(takes.receive(db))
    yield "ack", held, lambda each: takes.ack(db, each)
    yield (
        "receive, with the ack of the last",
        lambda: (held(), add())[0],
        lambda each: _found(takes.receive(db, ack=[each])),
    )
    yield "dequeue", add, lambda _: _found(_dequeue(db, takes))
    yield "extend", held, lambda each: takes.extend(db, each, 60)
    yield "release", held, lambda each: takes.release(db, each)
    yield "release, with an error", held, lambda each: takes.release(db, each, error="no")
    yield "reject", held, lambda each: takes.reject(db, each, "no")

    chain = Queue.create(db, "chain", root=root)
    chain.enqueue_many(db, [NewMessage(given, key="busy")] * BACKLOG * 2)
    yield (
        "ack, which hands the slot of a `key` on",
        lambda: _found(chain.receive(db)),
        lambda each: chain.ack(db, each),
    )
    late = Queue.create(db, "later", root=root, clock=clock)

    def falls_due() -> None:
        late.enqueue(db, given, delay=DELAY)
        clock.seconds += PASSES

    yield "receive, of one that falls due", falls_due, lambda _: _found(late.receive(db))
    for count in MANY:
        yield from _batches(db, Queue.create(db, f"{count:05}", root=root), count)
    yield "peek", _nothing, lambda _: takes.peek(db)
    yield "depth", _nothing, lambda _: takes.depth(db)


def _batches(db: fdb.Database, queue: Queue[bytes], count: int) -> Iterator[Operation]:
    fill = partial(queue.enqueue_many, db, [payload(0)] * count)

    def taken() -> list[Delivery]:
        fill()
        return queue.receive_many(db, count)

    def batch() -> Batch[bytes]:
        fill()
        return queue.receive_batch(db, count)

    text = f"{count:,}"
    yield f"enqueue_many, {text}", _nothing, lambda _: fill()
    yield f"receive_many, {text}", _nothing, lambda _: queue.receive_many(db, count)
    yield f"ack, {text}", taken, lambda held: queue.ack(db, held)
    yield f"receive_batch, {text}", fill, lambda _: queue.receive_batch(db, count)
    yield f"ack of a batch, {text}", batch, lambda held: queue.ack(db, held)


def _nothing() -> None:
    pass


@transactional
def _dequeue(tr: fdb.Transaction, queue: Queue[bytes]) -> object:
    return queue.dequeue(tr)


def _found(taken: T | None) -> T:
    if taken is None:
        raise processes.BenchmarkFailed(problem="a message is missing")
    return taken


# -- conflicts ------------------------------------------------------------------------------------

EMPTY = "receive, of nothing"
Step = Callable[[fdb.Transaction], object]


def _steps(db: fdb.Database, queue: Queue[bytes]) -> dict[str, Callable[[], Step]]:
    """Each operation: what is done before any transaction begins, which returns it."""
    given = payload(0)

    def with_key() -> Step:
        for _ in range(2):
            queue.enqueue(db, given, key="busy")
        return lambda tr: queue.enqueue(tr, given, key="busy")

    def held(settle: Callable[[fdb.Transaction, Delivery], object]) -> Step:
        queue.enqueue(db, given)
        delivery = _found(queue.receive(db))
        return lambda tr: settle(tr, delivery)

    return {
        "enqueue": lambda: lambda tr: queue.enqueue(tr, given),
        "enqueue, `key` with a backlog": with_key,
        "receive": lambda: queue.receive,
        EMPTY: lambda: queue.receive,
        "ack": partial(held, queue.ack),
        "release": partial(held, queue.release),
        "extend": partial(held, lambda tr, delivery: queue.extend(tr, delivery, 60)),
    }


def _clashes(db: fdb.Database, root: fdb.Subspace) -> Iterator[Clash]:
    operations = list(_steps(db, Queue.create(db, "any", root=root)))
    for operation in operations:
        for other in operations:
            if other != EMPTY:
                yield Clash(operation, other, _fails(db, root, operation, other))


def _fails(db: fdb.Database, root: fdb.Subspace, operation: str, other: str) -> bool:
    queue = Queue.create(db, f"{operation} {other}", root=root)
    if operation != EMPTY:
        queue.enqueue_many(db, [payload(0)] * BACKLOG)
    steps = _steps(db, queue)
    first, second = steps[operation](), steps[other]()
    mine, theirs = (db.create_transaction() for _ in range(2))
    for transaction in (mine, theirs):
        transaction.get_read_version().wait()
    for transaction, step in ((mine, first), (theirs, second)):
        step(transaction)
        transaction[root.pack(("beside", queue.name))] = b""  # What only reads never fails.
    theirs.commit().wait()
    try:
        mine.commit().wait()
    except fdb.FDBError as error:
        if error.code != CONFLICT:
            raise
        return True
    return False

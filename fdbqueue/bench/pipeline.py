"""How fast the data source on Spark is, beside one that does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from .. import spark as pipeline
from ..api import Queue
from ..binding import fdb
from ..model import NewMessage
from . import measure
from .bars import Bar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 2_000
LEVELS = 10
RUNS = 3

BROWSE_RATE = 60_000
WRITE_RATE = 30_000
CONSUME_RATE = 15_000
IDLE_MS = 50.0
IDLE_RUNS = 50
STREAM_BATCHES = 5


@dataclass(frozen=True, slots=True)
class Rate:
    """One thing that was measured; ``figure`` is rows a second, or what its name says."""

    name: str
    figure: float
    bar: Bar | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ground:
    """What all groups measure on: a session, a store, messages of ``size`` bytes, ``rows`` of
    them, and a name for queues that nobody else has."""

    spark: SparkSession
    db: fdb.Database
    root: fdb.Subspace
    rows: int
    size: int

    def queue(self, name: str, **options: Any) -> Queue:
        """A fresh queue."""
        return Queue.create(self.db, name, root=self.root, levels=LEVELS, **options)

    def filled(self, name: str, **options: Any) -> Queue:
        """A fresh queue with all rows as messages."""
        queue = self.queue(name, **options)
        payload = bytes(self.size)
        for begin in range(0, self.rows, BATCH):
            numbers = range(begin, min(begin + BATCH, self.rows))
            queue.enqueue_many(
                self.db,
                [NewMessage(payload, priority=n % LEVELS, headers={"n": n}) for n in numbers],
            )
        return queue

    def read(self, queue: Queue, **options: str) -> DataFrame:
        """A table of a queue."""
        named = {**pipeline.options(self.db, queue), **options}
        return self.spark.read.format("fdbqueue").options(**named).load()

    def constants(self) -> DataFrame:
        """As many rows of the same columns, from a data source that has nothing to do."""
        options = {"rows": str(self.rows), "size": str(self.size)}
        return self.spark.read.format("constants").options(**options).load()


Group = Callable[[Ground], Iterator[Rate]]


def timed(runs: int, action: Callable[[], object]) -> float:
    """The median seconds of several runs, after one that is not counted."""
    action()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return median(taken)


def drop(frame: DataFrame) -> None:
    """Read a table to its end, and do nothing with it."""
    frame.write.format("noop").mode("overwrite").save()


def browse(ground: Ground) -> Iterator[Rate]:
    """A batch read of all ready messages."""
    yield Rate(
        "batch read of constants", ground.rows / timed(RUNS, lambda: drop(ground.constants()))
    )
    queue = ground.filled("browsed")
    rate = ground.rows / timed(RUNS, lambda: drop(ground.read(queue)))
    name = "batch read of ready messages"
    yield Rate(name, rate, Bar(f"{name}: rows/s", rate, BROWSE_RATE, False))


def write(ground: Ground) -> Iterator[Rate]:
    """A batch write: rows are staged by the tasks, and published by the driver."""
    frame = ground.spark.range(ground.rows).selectExpr(
        f"CAST(repeat('x', {ground.size}) AS BINARY) AS payload",
        f"CAST(id % {LEVELS} AS INT) AS priority",
    )
    queue = ground.queue("written")

    def save(name: str, **options: str) -> None:
        frame.write.format(name).options(**options).mode("append").save()

    dropped = timed(RUNS, lambda: save("constants"))
    yield Rate("batch write that is dropped", ground.rows / dropped)
    named = pipeline.options(ground.db, queue)
    rate = ground.rows / timed(RUNS, lambda: save("fdbqueue", **named))
    enqueued = queue.depth(ground.db).enqueued
    assert enqueued == (RUNS + 1) * ground.rows, f"{enqueued:,} messages were enqueued"
    name = "batch write of messages"
    yield Rate(name, rate, Bar(f"{name}: rows/s", rate, WRITE_RATE, False))


def streamed(ground: Ground, source: str, options: Mapping[str, str]) -> float:
    """Rows a second of a stream that ends when all is read, over its micro-batches that have any,
    but for the first, in which Spark gets ready."""
    with TemporaryDirectory(prefix="fdbqueue-bench-") as checkpoint:
        query = (
            ground.spark.readStream.format(source)
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        done = [each for each in query.recentProgress if each.numInputRows][1:]
    seconds = sum(each.durationMs["triggerExecution"] for each in done) / 1000
    return sum(each.numInputRows for each in done) / seconds


def consume(ground: Ground) -> Iterator[Rate]:
    """A stream that takes messages, and what it costs where there are none."""
    batch = max(1, ground.rows // STREAM_BATCHES)
    constants = {"rows": ground.rows, "batch": batch, "size": ground.size}
    texts = {name: str(value) for name, value in constants.items()}
    yield Rate("stream of constants", streamed(ground, "constants", texts))
    queue = ground.filled("consumed")
    options = {
        **pipeline.options(ground.db, queue),
        "mode": "consume",
        "consumer": "bench",
        "maxMessagesPerBatch": str(batch),
    }
    rate = streamed(ground, "fdbqueue", options)
    name = "stream that takes messages"
    yield Rate(name, rate, Bar(f"{name}: rows/s", rate, CONSUME_RATE, False))
    idle = 1000 * idle_seconds(options)
    name = "ms of ours in an empty micro-batch"
    yield Rate(name, idle, Bar(name, idle, IDLE_MS, True))


def idle_seconds(options: Mapping[str, str]) -> float:
    """What our reader takes for a micro-batch that has nothing: all that Spark calls then."""
    from pyspark.sql.types import StructType

    from ..spark import consuming

    reader = consuming.reader(options, StructType())
    start = reader.initialOffset()

    def poll() -> None:
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
        reader.reportLatestOffset()

    return timed(IDLE_RUNS, poll)


GROUPS: dict[str, Group] = {"browse": browse, "write": write, "consume": consume}


def run(rows: int, size: int, groups: Sequence[str] | None, master: str) -> Iterator[Rate]:
    """Measure; the figures come as they are known. What is written is removed in the end.

    Raises ``MissingPackage`` and ``MissingJava``.
    """
    session = pipeline.local("fdbqueue-bench", master=master)
    from .constants import Constants

    session.dataSource.register(Constants)
    try:
        with measure.scratch() as space:
            ground = Ground(session, *measure.opened(space), rows, size)
            for group in groups or GROUPS:
                yield from GROUPS[group](ground)
    finally:
        session.stop()

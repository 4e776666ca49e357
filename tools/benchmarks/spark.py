"""The speed of the Spark data source."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, TypeVar

from typer import Option

from fdbqueue import spark as pipeline
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import NewMessage

from . import processes
from .declare import Rounds, Row, at_most, benchmark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

BATCH, LEVELS, PARTITIONS, PAYLOAD = 2_000, 10, 10, bytes(100)
BROWSE_RATE, WRITE_RATE, CONSUME_RATE, IDLE_MS = 60_000, 30_000, 15_000, 50.0
IDLE_RUNS = 50
STREAM_BATCHES = 5


@dataclass(frozen=True)
class Setup:
    """A session, a store, the root of the queues, and how much to measure.

    rows: messages in a queue.
    runs: runs that count; several runs are preceded by a warm-up.
    """

    spark: SparkSession
    db: fdb.Database
    root: fdb.Subspace
    rows: int
    runs: int

    def queue(self, name: str) -> Queue:
        """Create a queue."""
        return Queue.create(self.db, name, root=self.root, levels=LEVELS)

    def filled(self, name: str) -> Queue:
        """Create a queue with all rows as messages."""
        queue = self.queue(name)
        for begin in range(0, self.rows, BATCH):
            numbers = range(begin, min(begin + BATCH, self.rows))
            queue.enqueue_many(
                self.db,
                [NewMessage(PAYLOAD, priority=n % LEVELS, headers={"n": n}) for n in numbers],
            )
        return queue

    def measured(
        self, name: str, bar: float, run: Callable[[T], float], prepare: Callable[[], T]
    ) -> Row:
        """The median of what the runs return, in rows a second, and of their processor time."""
        if self.runs > 1:
            run(prepare())
        rates, costs = [], []
        for _ in range(self.runs):
            given = prepare()
            spent = processes.cpu_seconds(os.getpid())
            rates.append(run(given))
            costs.append((processes.cpu_seconds(os.getpid()) - spent) / self.rows * 1e6)
        return Row(name, median(rates), "rows/s", bar, more={"CPU µs/row": median(costs)})

    def timed(self, name: str, bar: float, action: Callable[[], object]) -> Row:
        """Measure an action that reads or writes all rows."""

        def run(_: None) -> float:
            began = time.perf_counter()
            action()
            return self.rows / (time.perf_counter() - began)

        return self.measured(name, bar, run, lambda: None)


def browse(setup: Setup) -> Iterator[Row]:
    """Measure a batch read of all ready messages."""
    options = pipeline.options(setup.db, setup.filled("browsed"))

    def drop() -> None:
        frame = setup.spark.read.format("fdbqueue").options(**options).load()
        frame.write.format("noop").mode("overwrite").save()

    yield setup.timed("batch read of ready messages", BROWSE_RATE, drop)


def write(setup: Setup) -> Iterator[Row]:
    """Measure a batch write of rows that come from Python."""
    options = pipeline.options(setup.db, setup.queue("written"))
    columns = _messages(setup)

    def save() -> None:
        columns.write.format("fdbqueue").mode("append").options(**options).save()

    yield setup.timed("batch write of messages", WRITE_RATE, save)


def _messages(setup: Setup) -> DataFrame:
    import pyarrow as pa

    text = pa.string()
    schema = {"payload": pa.binary(), "priority": pa.int32(), "headers": pa.map_(text, text)}
    row = {"payload": PAYLOAD, "priority": 4, "headers": [("n", "1")]}
    one = pa.RecordBatch.from_pylist([row], schema=pa.schema(schema))

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield one.take(pa.array([0] * len(batch)))

    numbers = setup.spark.range(0, setup.rows, numPartitions=PARTITIONS)
    return numbers.mapInArrow(made, "payload binary, priority int, headers map<string, string>")


def consume(setup: Setup) -> Iterator[Row]:
    """Measure a stream that takes messages, without its first micro-batch, and its cost for an
    empty one."""
    numbers = count()
    batch = max(1, setup.rows // STREAM_BATCHES)

    def options() -> dict[str, str]:
        queue = setup.filled(f"consumed {next(numbers)}")
        taking = {"mode": "consume", "consumer": "bench", "maxMessagesPerBatch": str(batch)}
        return {**pipeline.options(setup.db, queue), **taking}

    def drop(options: Mapping[str, str]) -> float:
        stream = setup.spark.readStream.format("fdbqueue").options(**options).load().writeStream
        with TemporaryDirectory(prefix="fdbqueue-bench-") as checkpoint:
            writer = stream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            done = [each for each in query.recentProgress if each.numInputRows][1:]
        seconds = sum(each.durationMs["triggerExecution"] for each in done) / 1000
        return sum(each.numInputRows for each in done) / seconds

    yield setup.measured("stream that takes messages", CONSUME_RATE, drop, options)
    empty = {**pipeline.options(setup.db, setup.queue("empty")), "consumer": "bench"}
    idle = 1000 * _idle_seconds({**empty, "mode": "consume"})
    yield at_most("ours in an empty micro-batch", idle, IDLE_MS, "ms")


def _idle_seconds(options: Mapping[str, str]) -> float:
    """The time that our reader spends on an empty micro-batch: all the calls that Spark makes."""
    from pyspark.sql.types import StructType

    from fdbqueue.spark.source import consume_stream

    reader = consume_stream.ConsumeReader.of(options, StructType())
    start = reader.initialOffset()
    taken = []
    for _ in range(IDLE_RUNS):
        began = time.perf_counter()
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
        reader.reportLatestOffset()
        taken.append(time.perf_counter() - began)
    return median(taken)


@benchmark("spark")
def measured(
    rows: Annotated[int, Option(metavar="N", min=1_000, help="Messages in each queue.")] = 300_000,
    repeat: Rounds = 3,
) -> Iterator[Row]:
    """Measure the Spark data source.

    Needs fdbqueue[spark] and Java.
    """
    session = pipeline.local("fdbqueue-bench", master="local[2]")
    try:
        with processes.scratch() as space:
            setup = Setup(session, *processes.opened(space), rows, repeat)
            for group in (browse, write, consume):
                yield from group(setup)
    finally:
        session.stop()

"""The speed of the Spark data source, beside the library by itself.

Both are measured in turns, in one Spark session: the library in processes of its own, and Spark
with two cores. Of a stream, what counts is the time inside its batches, without the first one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from typer import Option

from fdbqueue import spark as pipeline
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import NewMessage

from . import processes
from .declare import Rounds, Row, at_least, at_most, benchmark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH, RECEIVED, LEVELS, PARTITIONS, PAYLOAD = 2_000, 1_000, 10, 10, bytes(100)
READ, WRITE, CONSUME, BROWSE, PLANNING, IDLE_MS = 1.0, 0.6, 0.8, 0.8, 0.2, 50.0
IDLE_RUNS = 50
STREAM_BATCHES = 2
ALONE = processes.How("spawn")

Figures = dict[str, float]


@dataclass(frozen=True)
class Setup:
    """A session, a store, the space of the queues, and how many messages a queue has."""

    spark: SparkSession
    db: fdb.Database
    space: bytes
    rows: int
    numbers: count[int]

    def queue(self, filled: bool = True) -> Queue:
        """Create a queue, with all messages or with none."""
        name, root = f"{next(self.numbers)}", fdb.Subspace(rawPrefix=self.space)
        queue = Queue.create(self.db, name, root=root, levels=LEVELS)
        if filled:
            _enqueue(self.space, name, self.rows)
        return queue

    def alone(self, work: Callable[..., tuple[float, float]], *terms: int) -> float:
        """Messages a second of the library by itself: of a process for each term, or of one."""
        name = self.queue(filled=not terms).name
        works = [partial(work, self.space, name, each) for each in terms]
        spans = processes.together(works or [partial(work, self.space, name)], ALONE)
        seconds: float = max(end for _, end in spans) - min(begin for begin, _ in spans)
        return self.rows / seconds

    def timed(self, action: Callable[[], object]) -> float:
        """Rows a second of an action that reads or writes all."""
        began = time.perf_counter()
        action()
        return self.rows / (time.perf_counter() - began)

    def streamed(self, **options: str) -> tuple[float, float]:
        """Rows a second inside the batches of a stream, and which part of that it is planned."""
        given = {**pipeline.options(self.db, self.queue()), **options}
        given["maxMessagesPerBatch"] = str(max(1, self.rows // STREAM_BATCHES))
        stream = self.spark.readStream.format("fdbqueue").options(**given).load().writeStream
        with TemporaryDirectory(prefix="fdbqueue-bench-") as checkpoint:
            writer = stream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            done = [each for each in query.recentProgress if each.numInputRows]
        # With the first batch of a stream that leaves messages, all are planned.
        planned = sum(each.durationMs["latestOffset"] for each in done) * (1 - 1 / len(done))
        spans = (each.durationMs for each in done[1:])
        took = planned + sum(each["triggerExecution"] - each["latestOffset"] for each in spans)
        return 1000 * sum(each.numInputRows for each in done[1:]) / took, planned / took


def _enqueue(space: bytes, name: str, rows: int) -> tuple[float, float]:
    db, root = processes.opened(space)
    queue = Queue(name, root)
    began = time.monotonic()
    for begin in range(0, rows, BATCH):
        numbers = range(begin, min(begin + BATCH, rows))
        queue.enqueue_many(
            db, [NewMessage(PAYLOAD, priority=n % LEVELS, headers={"n": "1"}) for n in numbers]
        )
    return began, time.monotonic()


def _browse(space: bytes, name: str) -> tuple[float, float]:
    db, root = processes.opened(space)
    began = time.monotonic()
    for _ in Queue(name, root).browse(db):
        pass
    return began, time.monotonic()


def _receive(space: bytes, name: str) -> tuple[float, float]:
    db, root = processes.opened(space)
    queue = Queue(name, root)
    began = time.monotonic()
    while batch := queue.receive_batch(db, RECEIVED):
        queue.ack(db, batch)
    return began, time.monotonic()


# -- one round of each ----------------------------------------------------------------------------


def read(setup: Setup) -> Figures:
    """A batch read of all columns."""
    options = pipeline.options(setup.db, setup.queue())
    frame = setup.spark.read.format("fdbqueue").options(**options).load()
    rate = setup.timed(lambda: frame.write.format("noop").mode("overwrite").save())
    return {"read": rate, "browse() alone": setup.alone(_browse)}


def write(setup: Setup) -> Figures:
    """A batch write of rows that come from Python."""
    options = pipeline.options(setup.db, setup.queue(filled=False))
    writer = _messages(setup).write.format("fdbqueue").mode("append").options(**options)
    half = setup.rows // 2
    return {
        "write": setup.timed(writer.save),
        "enqueue_many() by two": setup.alone(_enqueue, half, setup.rows - half),
    }


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


def consume(setup: Setup) -> Figures:
    """A stream that takes messages."""
    rate, planned = setup.streamed(mode="consume", consumer="bench")
    alone = setup.alone(_receive)
    return {"consume": rate, "receive_batch() and ack() alone": alone, "planned": planned}


def browse(setup: Setup) -> Figures:
    """A stream that leaves messages."""
    rate, _ = setup.streamed()
    return {"browse": rate, "browse() alone": setup.alone(_browse)}


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


GROUPS: Mapping[str, tuple[Callable[[Setup], Figures], float]] = {
    "read": (read, READ),
    "write": (write, WRITE),
    "consume": (consume, CONSUME),
    "browse": (browse, BROWSE),
}


@benchmark("spark")
def measured(
    rows: Annotated[int, Option(metavar="N", min=1_000, help="Messages in each queue.")] = 400_000,
    repeat: Rounds = 5,
) -> Iterator[Row]:
    """Measure the Spark data source beside the library by itself.

    Needs fdbqueue[spark] and Java.
    """
    session = pipeline.local("fdbqueue-bench", master="local[2]")
    found: dict[str, list[Figures]] = {group: [] for group in GROUPS}
    try:
        with processes.scratch() as space:
            setup = Setup(session, processes.opened(space)[0], space, rows, count())
            # The first round warms up.
            for round_ in range(repeat + (repeat > 1)):
                for group in GROUPS:
                    figures = GROUPS[group][0](setup)
                    if round_ or repeat == 1:
                        found[group].append(figures)
            for group in GROUPS:
                ours, alone, *others = found[group][0]
                rounds = found[group]
                rates = {name: median(each[name] for each in rounds) for name in (ours, alone)}
                ratio = median(each[ours] / each[alone] for each in rounds)
                row = at_least(f"{ours} / {alone}", ratio, GROUPS[group][1])
                yield Row(row.name, row.figure, "", row.bar, more=rates)
                for name in others:
                    part = median(each[name] for each in rounds)
                    yield at_most(f"{ours}: {name}", part, PLANNING)
            empty = pipeline.options(setup.db, setup.queue(filled=False))
            idle = 1000 * _idle_seconds({**empty, "mode": "consume", "consumer": "bench"})
            yield at_most("ours in an empty micro-batch", idle, IDLE_MS, "ms")
    finally:
        session.stop()

"""How fast tables are written to queues, and queues are read as streams, on Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from statistics import median
from tempfile import TemporaryDirectory

from ... import spark as pipeline
from . import process_tree
from .bars import Bar
from .spark_setup import Ground, Rate

WRITE_RATE = 30_000
CONSUME_RATE = 15_000
IDLE_MS = 50.0
IDLE_RUNS = 50
STREAM_BATCHES = 5


def write(ground: Ground) -> Iterator[Rate]:
    """A batch write of as many rows."""
    columns = ground.constants().select("payload", "priority", "headers")

    def drop() -> None:
        columns.write.format("constants").mode("append").save()

    yield ground.measured("batch write, dropped", drop)
    queue = ground.queue("written")

    def save() -> None:
        options = pipeline.options(ground.db, queue)
        columns.write.format("fdbqueue").mode("append").options(**options).save()

    yield ground.measured("batch write of messages", save, WRITE_RATE)


def consume(ground: Ground) -> Iterator[Rate]:
    """A stream that takes messages, and what it costs where there are none."""
    batch = max(1, ground.rows // STREAM_BATCHES)
    constants = {"rows": ground.rows, "batch": batch, "size": ground.size}
    texts = {name: str(value) for name, value in constants.items()}
    yield _streamed(ground, "stream of constants", "constants", texts)
    options = {
        **pipeline.options(ground.db, ground.filled("consumed")),
        "mode": "consume",
        "consumer": "bench",
        "maxMessagesPerBatch": str(batch),
    }
    name = "stream that takes messages"
    yield _streamed(ground, name, "fdbqueue", options, CONSUME_RATE)
    idle = 1000 * _idle_seconds(options)
    name = "ms of ours in an empty micro-batch"
    yield Rate(name, idle, bar=Bar(name, idle, IDLE_MS, True))


def _streamed(
    ground: Ground, name: str, source: str, options: Mapping[str, str], at_least: float = 0
) -> Rate:
    """A stream that ends when all is read: over its micro-batches that have any rows, but for the
    first, in which Spark gets ready."""
    spent = process_tree.cpu_seconds()
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
    now = process_tree.cpu_seconds()
    cost = None if spent is None or now is None else (now - spent) / ground.rows * 1e6
    seconds = sum(each.durationMs["triggerExecution"] for each in done) / 1000
    rate = sum(each.numInputRows for each in done) / seconds
    return Rate(
        name, rate, cost, Bar(f"{name}: rows/s", rate, at_least, False) if at_least else None
    )


def _idle_seconds(options: Mapping[str, str]) -> float:
    """What our reader takes for a micro-batch that has nothing: all that Spark calls then."""
    from pyspark.sql.types import StructType

    from ...spark.source import consume_stream

    reader = consume_stream.reader(options, StructType())
    start = reader.initialOffset()
    taken = []
    for _ in range(IDLE_RUNS):
        began = time.perf_counter()
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
        reader.reportLatestOffset()
        taken.append(time.perf_counter() - began)
    return median(taken)

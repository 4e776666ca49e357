"""The speed of the Spark data source, compared with one that does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Annotated

from typer import Option

from fdbqueue import spark as pipeline

from . import processes
from .declare import Rounds, Row, at_most, benchmark, known
from .spark_setup import Setup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BROWSE_RATE = 60_000
WRITE_RATE = 30_000
CONSUME_RATE = 15_000
IDLE_MS = 50.0
IDLE_RUNS = 50
STREAM_BATCHES = 5

Benchmark = Callable[[Setup], Iterator[Row]]


def drop(frame: DataFrame) -> None:
    """Read a table to its end and discard it."""
    frame.write.format("noop").mode("overwrite").save()


def browse(setup: Setup) -> Iterator[Row]:
    """Measure a batch read of all ready messages."""
    yield setup.measured("batch read of constants", lambda: drop(setup.constants()))
    queue = setup.filled("browsed")
    name = "batch read of ready messages"
    yield setup.measured(name, lambda: drop(setup.read(queue)), BROWSE_RATE)


def write(setup: Setup) -> Iterator[Row]:
    """Measure a batch write."""
    columns = setup.constants().select("payload", "priority", "headers")

    def drop() -> None:
        columns.write.format("constants").mode("append").save()

    yield setup.measured("batch write, dropped", drop)
    queue = setup.queue("written")

    def save() -> None:
        options = pipeline.options(setup.db, queue)
        columns.write.format("fdbqueue").mode("append").options(**options).save()

    yield setup.measured("batch write of messages", save, WRITE_RATE)


def consume(setup: Setup) -> Iterator[Row]:
    """Measure a stream that takes messages, and its cost for an empty micro-batch."""
    batch = max(1, setup.rows // STREAM_BATCHES)
    constants = {"rows": setup.rows, "batch": batch, "size": setup.size}
    texts = {name: str(value) for name, value in constants.items()}
    yield setup.streamed("stream of constants", "constants", lambda: texts)
    numbers = count()

    def options() -> dict[str, str]:
        queue = setup.filled(f"consumed {next(numbers)}")
        taking = {"mode": "consume", "consumer": "bench", "maxMessagesPerBatch": str(batch)}
        return {**pipeline.options(setup.db, queue), **taking}

    name = "stream that takes messages"
    yield setup.streamed(name, "fdbqueue", options, CONSUME_RATE)
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


GROUPS: dict[str, Benchmark] = {"browse": browse, "write": write, "consume": consume}


@benchmark("spark")
def measured(
    only: Annotated[str, Option(metavar="GROUP,…", help="Only browse, write or consume.")] = "",
    rows: Annotated[int, Option(metavar="N", min=1_000, help="Messages in each queue.")] = 300_000,
    size: Annotated[
        int, Option("--bytes", metavar="N", min=0, max=50_000, help="Size of each payload.")
    ] = 100,
    repeat: Rounds = 3,
    cores: Annotated[int, Option(metavar="N", min=1, help="Cores that Spark may use.")] = 2,
) -> Iterator[Row]:
    """Measure the Spark data source against one that does nothing.

    Needs fdbqueue[spark] and Java.

    \b
    Examples:
      tools/bench spark
      tools/bench spark --only browse --rows 1000000 --bytes 500
    """
    groups = known("group", only.split(","), GROUPS)
    session = pipeline.local("fdbqueue-bench", master=f"local[{cores}]")
    from .constant_source import Constants

    session.dataSource.register(Constants)
    try:
        with processes.scratch() as space:
            setup = Setup(session, *processes.opened(space), rows, size, repeat)
            for group in groups:
                yield from GROUPS[group](setup)
    finally:
        session.stop()

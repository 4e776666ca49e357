"""A driver that streams one queue into another, and is killed at a step.

``python -m tests.spark.processes.killed_stream STEP DIR``: it starts Spark, waits for a line on its
standard input, and goes. In ``DIR`` is the checkpoint, and is noted whom to kill.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext

import fdbqueue.spark
from fdbqueue.messages.streams import staging
from fdbqueue.queue.streams.sinks import Sink
from fdbqueue.spark.source import consume_stream
from fdbqueue.spark.source import write as writing
from fdbqueue.spark.source.source import FdbQueueSource

STEP, DIRECTORY = sys.argv[1], Path(sys.argv[2])
BATCH = 60


def first_time(name: str) -> bool:
    try:
        (DIRECTORY / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die(step: str) -> None:
    """At its step the driver is killed: its Python, its Java, and the process that serves it."""
    if step != STEP:
        return
    (DIRECTORY / f"killed {step}").touch()
    for pid in json.loads((DIRECTORY / "pids").read_text()):
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def die_publishing() -> None:
    """The driver is killed when the first of the rows are published."""
    staging.STEP_ROWS = 1
    publish = Sink.publish

    def some(*arguments: Any, **options: Any) -> Any:
        return publish(*arguments, **options, progress=lambda _: die(STEP))

    Sink.publish = some  # type: ignore[method-assign]


class Reader(consume_stream.ConsumeReader):
    def latestOffset(self, start: Any, limit: Any) -> Any:
        if start["batch"] > self._planner().begin(self._db()).batch:
            die("before the batch is acknowledged")
        end = super().latestOffset(start, limit)
        if end != start:
            die("before the offset is written")
        return end

    def commit(self, end: Any) -> None:
        die("before the batch before is committed")
        super().commit(end)
        die("after the batch before is committed")

    def partitions(self, start: Any, end: Any) -> Any:
        found = super().partitions(start, end)
        die("before the tasks read")
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            if first_time("a worker was killed"):
                os.kill(os.getpid(), signal.SIGKILL)


class Writer(writing.StreamWriter):
    def write(self, iterator: Iterator[Any]) -> writing.Staged:
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and first_time("a worker was killed that had staged"):
            os.kill(os.getpid(), signal.SIGKILL)
        if context.partitionId() == 1 and first_time("a task failed"):
            raise RuntimeError("once")
        return staged

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        die("before the sink commits")
        if STEP == "while the sink publishes":
            die_publishing()
        super().commit(messages, batchId)
        die("before the commit is written")


class Source(FdbQueueSource):
    def streamReader(self, schema: Any) -> Reader:
        return Reader.of(self.options, schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> Writer:
        return Writer.of(self.options, schema)


def main() -> None:
    spark = fdbqueue.spark.local(master="local[2,5]", short=True)
    spark.dataSource.register(Source)
    sys.stdin.readline()
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    # Python first: it would end by itself, with another exit code, once it misses its Java.
    (DIRECTORY / "pids").write_text(json.dumps([os.getpid(), java]))
    (
        spark.readStream.format("fdbqueue")
        .option("mode", "consume")
        .option("consumer", "stream")
        .option("maxMessagesPerBatch", BATCH)
        .load("source")
        .select("payload", "priority")
        .writeStream.format("fdbqueue")
        .option("checkpointLocation", str(DIRECTORY / "checkpoint"))
        .trigger(availableNow=True)
        .start("sink")
        .awaitTermination()
    )


if __name__ == "__main__":
    main()

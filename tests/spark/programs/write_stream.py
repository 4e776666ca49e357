"""A driver that streams files into a queue, and is killed at a step: ``write_stream.py STEP DIR``.

``DIR/in`` has the files; in ``DIR`` is noted what has happened already, and whom to kill.
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
from fdbqueue.queue import staging
from fdbqueue.sinks import Sink
from fdbqueue.spark import writing
from fdbqueue.spark.source import FdbQueueSource

STEP, DIRECTORY = sys.argv[1], Path(sys.argv[2])


def first_time(name: str) -> bool:
    try:
        (DIRECTORY / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die() -> None:
    """The driver is killed: its Java, its Python, and the process that speaks for it."""
    for pid in json.loads((DIRECTORY / "pids").read_text()):
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Writer(writing.StreamWriter):
    def write(self, iterator: Iterator[Any]) -> writing.Staged:
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and first_time("a worker was killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if context.partitionId() == 1 and first_time("a task failed"):
            raise RuntimeError("once")
        return staged

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        if STEP == "publishing":
            staging.STEP_ROWS = 1
            publish = Sink.publish

            def some(*arguments: Any, **options: Any) -> Iterator[Any]:
                for _ in publish(*arguments, **options):
                    die()  # after the first step
                    yield

            Sink.publish = some  # type: ignore[method-assign]
        super().commit(messages, batchId)


class Source(FdbQueueSource):
    def streamWriter(self, schema: Any, overwrite: bool) -> Writer:
        made = writing.stream_writer(self.options, schema, overwrite)
        return Writer(made._settings, made._schema, made._seen)


def main() -> None:
    spark = fdbqueue.spark.local(master="local[2,3]", short=True)
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    (DIRECTORY / "pids").write_text(json.dumps([java, os.getpid()]))
    spark.dataSource.register(Source)
    (
        spark.readStream.schema("payload STRING, priority INT")
        .option("maxFilesPerTrigger", 1)
        .json(str(DIRECTORY / "in"))
        .repartition(2)
        .writeStream.format("fdbqueue")
        .option("queue", "sink")
        .option("checkpointLocation", str(DIRECTORY / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()

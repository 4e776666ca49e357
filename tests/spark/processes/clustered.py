"""A job on a standalone cluster, one of whose processes is killed while tasks read.

``python -m tests.spark.processes.clustered MASTER JOB VICTIM`` runs the job once, and prints what
came out. The first task that has read something kills the executor that it runs in, or the driver
and nothing else of the cluster.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import fdbqueue
import fdbqueue.spark
from fdbqueue import Queue
from fdbqueue.spark.source import batch_read, consume_stream, source

DIRECTORY = Path(os.environ.get("STRUCK_DIRECTORY", "."))
BATCH = 60


def strike() -> None:
    """Once: kill whom the test has named."""
    try:
        (DIRECTORY / "struck").touch(exist_ok=False)
    except FileExistsError:
        return
    for pid in json.loads((DIRECTORY / "pids").read_text()) or [parent(parent(os.getpid()))]:
        os.kill(pid, signal.SIGKILL)


def parent(pid: int) -> int:
    # The name of the program, in parentheses, may have spaces.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class TableReader(batch_read.BatchReader):
    def read(self, partition: Any) -> Iterator[Any]:
        for rows in super().read(partition):
            yield rows
            strike()


class StreamReader(consume_stream.ConsumeReader):
    def read(self, partition: Any) -> Iterator[Any]:
        for rows in super().read(partition):
            yield rows
            strike()


class Source(source.FdbQueueSource):
    def reader(self, schema: Any) -> Any:
        made = super().reader(schema)
        assert isinstance(made, batch_read.BatchReader)
        return TableReader(made._settings, made._schema, made._queue)

    def streamReader(self, schema: Any) -> Any:
        return StreamReader.of(self.options, schema, 2)


def main() -> None:
    master, job, victim = sys.argv[1:4]
    source.FdbQueueSource.known_to = lambda spark: Source  # type: ignore[method-assign]
    names = ("FDBQUEUE_STORE", "PYTHONPATH", "STRUCK_DIRECTORY")
    config = {f"spark.executorEnv.{name}": os.environ[name] for name in names}
    config |= {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = fdbqueue.spark.local(master=master, short=True, config=config)
    db = fdbqueue.open()
    taken, made = Queue.open(db, "source"), Queue.open(db, "sink")
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    # Python last: it would end by itself once it misses its Java, and with another exit code.
    pids = [os.getpid(), java] if victim == "driver" else []
    (DIRECTORY / "pids").write_text(json.dumps(pids))
    files = str(DIRECTORY / "files")
    if job == "write":
        table = spark.read.format("fdbqueue").option("partitionBytes", 10_000).load("source")
        copies = table.select("payload", "priority").write.format("fdbqueue").mode("append")
        copies.option("id", "copy").save("sink")
    elif job == "drain":
        fdbqueue.spark.drain(db, taken, files, max_messages=BATCH, spark=spark)
    else:
        options = {"mode": "consume", "consumer": "c", "maxMessagesPerBatch": str(BATCH)}
        stream = spark.readStream.format("fdbqueue").options(**options).load("source")
        writer = stream.select("payload", "priority").writeStream
        if job == "foreachBatch":
            writer = writer.foreachBatch(fdbqueue.spark.foreach_batch(db, made))
        else:
            writer = writer.format("parquet").option("path", files)
        checkpoint = str(DIRECTORY / "checkpoint")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()
    if Path(files).exists():
        rows = spark.read.parquet(files).select("payload").collect()
        print(json.dumps(sorted(bytes(row.payload).decode() for row in rows)))
    else:
        print(json.dumps(sorted(each.payload.decode() for each in made.browse(db))))
    spark.stop()


if __name__ == "__main__":
    # Executors find the classes of a module, and not those of this program.
    import_module("tests.spark.processes.clustered").main()

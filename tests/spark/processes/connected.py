"""All jobs, a batch and a stream, as a client of Spark Connect; prints what they did."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import fdbqueue
import fdbqueue.spark
from fdbqueue import Queue


def main() -> None:
    directory = Path(sys.argv[1])
    spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
    assert "connect" in type(spark).__module__
    db = fdbqueue.open()
    queue = Queue.create(db, "flights", history_seconds=3600)
    (directory / "flights.jsonl").write_text('{"delay": 5}\n{"delay": 75}\n{"delay": 99}\n')
    loaded = fdbqueue.spark.load(db, queue, directory / "flights.jsonl", spark=spark)
    source = fdbqueue.spark.options(db, queue)
    table = spark.read.format("fdbqueue").options(**source, payloadSchema="delay INT").load()
    late = table.where("payload.delay > 60").count()
    copies = Queue.create(db, "copies")
    write = fdbqueue.spark.foreach_batch(db, copies, id="copies")
    query = (
        spark.readStream.format("fdbqueue")
        .options(**source)
        .load()
        .select("payload")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", tempfile.mkdtemp(dir=directory))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    queue.reject(db, queue.receive(db), reason="bad")  # type: ignore[arg-type]
    replayed = fdbqueue.spark.replay(db, queue, "reason = 'bad'", spark=spark)
    drained = fdbqueue.spark.drain(db, queue, directory / "drained", spark=spark)
    report = fdbqueue.spark.report(db, [queue], spark=spark)
    verdict = fdbqueue.spark.check(db, [queue], spark=spark)
    try:
        spark.read.format("fdbqueue").option("levles", "1").load("flights").count()
        said = ""
    except Exception as error:
        said = str(error)
    print(
        json.dumps(
            {
                "loaded": loaded.rows,
                "late": late,
                "copied": copies.depth(db).ready,
                "replayed": replayed.replayed,
                "drained": drained.rows,
                "done": report.queues[0].whole.done,
                "checked": [verdict.ok, verdict.checked["messages"]],
                "said": "option 'levles': unknown" in said,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()

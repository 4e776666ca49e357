"""Streams of queues, on a real Spark: messages are taken, or looked at, batch by batch."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fdbqueue.spark
from fdbqueue import Depth, NewMessage, Queue, fdb
from fdbqueue.errors import InvalidOptions, NotFound, QueueNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Options = dict[str, Any]


class Stream:
    """One query over and over: with the same checkpoint, into the same rows."""

    def __init__(self, spark: SparkSession, source: Options, checkpoint: Path) -> None:
        self.spark = spark
        self.source = source
        self.checkpoint = checkpoint
        self.batches: list[list[bytes]] = []
        self.columns: list[str] = []

    def __call__(self, **options: Any) -> list[list[bytes]]:
        """Run it until there is nothing more; returns the payloads of the batches of this run."""
        self.batches = []
        query = self.start(**options)
        query.awaitTermination()
        return self.batches

    def start(self, checkpoint: str = "", **options: Any) -> StreamingQuery:
        """Start it, for what is there now."""

        def keep(rows: DataFrame, batch: int) -> None:
            self.columns = rows.columns
            found = rows.select("payload").collect()
            self.batches.append([bytes(row.payload) for row in found])

        return (
            self.spark.readStream.format("fdbqueue")
            .options(**self.source, **options)
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint / checkpoint))
            .trigger(availableNow=True)
            .start()
        )


@pytest.fixture
def stream(spark: SparkSession, source: Options, tmp_path: Path) -> Stream:
    return Stream(spark, source, tmp_path / "checkpoint")


def test_a_stream_takes_all_messages_once_in_batches(
    stream: Stream, db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in range(10)])
    options = {"mode": "consume", "consumer": "stream", "maxMessagesPerBatch": 4}
    found = stream(**options, partitions=3)
    assert found == [[b"9", b"8", b"7", b"6"], [b"5", b"4", b"3", b"2"], [b"1", b"0"]]
    assert queue.depth(db) == Depth(enqueued=10, done=10)
    queue.enqueue(db, b"later")
    assert stream(**options) == [[b"later"]]
    assert stream(**options) == []
    assert queue.admin.verify(db).ok


def test_a_stream_looks_at_all_messages_once_and_leaves_them(
    stream: Stream, db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in range(10)])
    found = stream(maxMessagesPerBatch=4)
    assert [sorted(batch) for batch in found] == [
        [b"6", b"7", b"8", b"9"], [b"2", b"3", b"4", b"5"], [b"0", b"1"],
    ]  # fmt: skip
    queue.receive(db, at_most_once=True)
    queue.enqueue_many(db, [NewMessage(b"urgent", priority=9), b"plain"])
    assert [sorted(batch) for batch in stream()] == [[b"plain", b"urgent"]]
    assert stream() == []
    assert queue.depth(db).ready == 11


def test_what_is_wrong_is_said_by_the_query(stream: Stream, db: fdb.Database, queue: Queue) -> None:
    for options, problem in (
        ({"mode": "consume"}, "mode consume needs it"),
        ({"levles": "1"}, "option 'levles': unknown"),
        ({"startingOffsets": "x"}, "startingOffsets='x': must be"),
        ({"payloadSchema": "a INTT"}, "option 'payloadSchema': 'a INTT': 'INTT' is no type"),
    ):
        with pytest.raises(Exception, match=problem) as refused:
            stream.start(**options)
        first = str(refused.value).splitlines()[0]
        assert problem.split(":")[0] in first, "it leads, and no traceback is before it"
    with pytest.raises(Exception, match="streams browse ready messages") as refused:
        stream(table="leased")
    assert "streams browse ready messages" in str(refused.value).splitlines()[0]
    queue.enqueue(db, b"a")
    assert stream() == [[b"a"]]
    with pytest.raises(Exception, match="the checkpoint belongs to mode 'browse'"):
        stream(mode="consume", consumer="stream")
    table = stream.spark.read.format("fdbqueue").options(**stream.source, payloadSchema="a INT")
    with pytest.raises(Exception, match="cannot read the payload of message") as failed:
        table.load().collect()
    assert "cannot read the payload of message" in str(failed.value).splitlines()[-1]


def test_progress_has_what_waits_in_the_queue(
    stream: Stream, db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    query = stream.start(mode="consume", consumer="stream", maxMessagesPerBatch=2)
    query.awaitTermination()
    (source,) = query.recentProgress[0]["sources"]
    told = json.loads(source["latestOffset"])
    assert (told["queue"], told["ready"], told["leased"]) == ("orders", 1, 2)
    assert source["numInputRows"] == 2


def test_a_batch_that_is_repeated_is_enqueued_once_by_foreach_batch(
    stream: Stream, db: fdb.Database, queue: Queue, space: fdb.Subspace
) -> None:
    # Given a query that writes to two queues, and to one of them twice, and then fails
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    copies, others = (Queue.create(db, name, root=space) for name in ("copies", "others"))
    first = fdbqueue.spark.foreach_batch(db, copies)
    second = fdbqueue.spark.foreach_batch(db, copies, id="again", contentType="text/plain")
    third = fdbqueue.spark.foreach_batch(db, others)
    with pytest.raises(InvalidOptions, match="'rooom': unknown"):
        fdbqueue.spark.foreach_batch(db, others, rooom="1")
    with pytest.raises(QueueNotFound):
        fdbqueue.spark.foreach_batch(db, Queue("nowhere", space))
    failing = [True]

    def each(rows: DataFrame, batch: int) -> None:
        payloads = rows.select("payload")
        first(payloads, batch)
        second(payloads.where("payload = X'61'"), batch)
        if failing.pop() if failing else False:
            raise RuntimeError("once")
        third(payloads, batch)

    def run() -> None:
        query = (
            stream.spark.readStream.format("fdbqueue")
            .options(**stream.source, maxMessagesPerBatch=2)
            .load()
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", str(stream.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match="once"):
        run()
    assert copies.depth(db).enqueued == 3
    # When it is started again
    run()
    # Then each row is there once
    assert sorted(message.payload for message in copies.browse(db)) == [b"a", b"a", b"b", b"c"]
    assert sorted(message.payload for message in others.browse(db)) == [b"a", b"b", b"c"]


def test_a_query_that_is_retired_leaves_no_message_leased(
    stream: Stream, db: fdb.Database, queue: Queue
) -> None:
    # Given a query that has completed a batch, and is in the next one
    queue.enqueue_many(db, [b"%d" % n for n in range(10)])
    begun, over = threading.Event(), threading.Event()

    def each(rows: DataFrame, batch: int) -> None:
        rows.count()
        if batch == 1:
            begun.set()
            over.wait(60)

    query = (
        stream.spark.readStream.format("fdbqueue")
        .options(**stream.source, mode="consume", consumer="c", maxMessagesPerBatch=4)
        .load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(stream.checkpoint))
        .start()
    )
    assert begun.wait(60)
    with pytest.raises(NotFound):
        fdbqueue.spark.retire(db, queue, query, "C")
    assert query.isActive
    # When it is retired
    stopping = threading.Timer(1, over.set)
    stopping.start()
    given = fdbqueue.spark.retire(db, queue, query, "c")
    # Then what it had completed is done, and the rest is for others
    depth = queue.depth(db)
    # The batch that it was in may have come to its end meanwhile
    assert depth.done in (4, 8)
    assert (depth.leased, given, depth.ready) == (0, 8 - depth.done, 10 - depth.done)
    queue.streams.plans.forget(db, "c")


def test_sql_reads_and_writes_a_view(
    stream: Stream, db: fdb.Database, queue: Queue, source: Options
) -> None:
    options = ", ".join(f"{name} '{text}'" for name, text in source.items())
    columns = "(payload STRING, priority INT)"
    view = f"CREATE TEMPORARY VIEW v {columns} USING fdbqueue OPTIONS ({options})"
    stream.spark.sql(view)
    stream.spark.sql("INSERT INTO v VALUES ('A', 3), ('B', 9)")
    found = stream.spark.sql("SELECT * FROM v").collect()
    assert [tuple(row) for row in found] == [('"B"', 9), ('"A"', 3)]
    stream.spark.sql(f"CREATE TABLE t {columns} USING fdbqueue OPTIONS ({options})")
    for statement in (
        f"CREATE TABLE u USING fdbqueue OPTIONS ({options})",
        "SELECT * FROM t",
        "INSERT INTO t VALUES ('A', 3)",
    ):
        with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW") as refused:
            stream.spark.sql(statement).collect()
        assert "use CREATE TEMPORARY VIEW" in str(refused.value).splitlines()[0]
    stream.spark.sql("DROP TABLE t")
    stream.spark.catalog.dropTempView("v")

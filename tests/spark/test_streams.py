"""Streams of queues, on a real Spark: messages are taken, or looked at, batch by batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fdbqueue import Depth, NewMessage, Queue, fdb

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
        ({"startingPosition": "x"}, "startingPosition='x': must be"),
        ({"payloadSchema": "a INTT"}, "option 'payloadSchema': 'a INTT': 'INTT' is no type"),
    ):
        with pytest.raises(Exception, match=problem) as refused:
            stream.start(**options)
        first = str(refused.value).splitlines()[0]
        assert problem.split(":")[0] in first, "it leads, and no traceback is before it"
    with pytest.raises(Exception, match="streams read ready messages") as refused:
        stream(table="leased")
    assert "streams read ready messages" in str(refused.value).splitlines()[0]
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

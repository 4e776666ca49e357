"""What a hostile message can do to a Spark job: nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fdbqueue import Depth, NewMessage, Queue, fdb
from tests.contract.test_hostile import HEADERS, HOSTILE, readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JSON = {"payload": "json", "payloadSchema": "order INT, payload STRING"}


@pytest.fixture
def messages(db: fdb.Database, queue: Queue) -> list[bytes]:
    """Hostile messages in the queue, and a good one behind them."""
    payloads = [*HOSTILE, b'{"order": 17}']
    queue.enqueue_many(db, [NewMessage(each, headers=HEADERS) for each in payloads])
    return payloads


def test_a_table_has_them_as_they_are(
    spark: SparkSession, source: dict[str, str], messages: list[bytes]
) -> None:
    table = spark.read.format("fdbqueue").options(**source).load()
    assert [bytes(row.payload) for row in table.orderBy("id").collect()] == messages


def test_as_json_they_are_an_error_that_names_the_message_or_null(
    spark: SparkSession, source: dict[str, str], messages: list[bytes]
) -> None:
    reader = spark.read.format("fdbqueue").options(**source, **JSON)
    with pytest.raises(Exception, match=r"CorruptData: cannot read the payload of message 05-"):
        reader.load().collect()
    lenient = reader.option("badPayloads", "null").load().orderBy("id").collect()
    assert [row.payload.order for row in lenient if row.payload is not None][-1] == 17
    assert sum(row.payload is None for row in lenient) >= sum(not readable(m) for m in messages)


def test_a_stream_takes_them_and_goes_on(
    spark: SparkSession,
    db: fdb.Database,
    queue: Queue,
    source: dict[str, str],
    messages: list[bytes],
    tmp_path: Path,
) -> None:
    seen: list[Any] = []

    def keep(rows: DataFrame, batch: int) -> None:
        seen.extend(row.payload for row in rows.orderBy("id").collect())

    options = {"mode": "consume", "consumer": "hostile", "badPayloads": "null"}
    query = (
        spark.readStream.format("fdbqueue")
        .options(**source, **JSON, **options)
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(seen) == len(messages)
    assert seen[-1].order == 17
    assert queue.depth(db) == Depth(enqueued=len(messages), done=len(messages))
    assert queue.admin.verify(db).ok

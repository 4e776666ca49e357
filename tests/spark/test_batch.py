"""Reading queues as tables, on a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fdbqueue import NewMessage, Queue, fdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_queue_is_a_table_with_payloads_by_a_schema_and_headers_as_columns(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(
        db,
        [
            NewMessage(b'{"carrier": "UA", "delay": %d}' % n, priority=n % 10, headers={"n": n})
            for n in range(50)
        ],
    )
    flights = (
        spark.read.format("fdbqueue")
        .options(**source)
        .option("payloadSchema", "carrier STRING, delay INT")
        .option("headerColumns", "n BIGINT")
        .load()
    )
    found = flights.where("payload.carrier = 'UA' AND level < 5 AND n = payload.delay")
    assert [(row[0], row[1]) for row in found.selectExpr("count(*)", "sum(n)").collect()] == [
        (25, sum(n for n in range(50) if 9 - n % 10 < 5))
    ]


@pytest.mark.parametrize(
    ("serializer", "value", "read"),
    [(None, b"a", b"a"), (bytes, b"a", b"a"), (dict, {"a": 1}, '{"a":1}'), (str, "a", '"a"')],
)
def test_payloads_are_read_as_the_serializer_of_the_queue_writes_them(
    spark: SparkSession,
    db: fdb.Database,
    queue: Queue,
    source: dict[str, str],
    serializer: type | None,
    value: Any,
    read: object,
) -> None:
    Queue.open(db, queue.name, root=queue._root, serializer=serializer).enqueue(db, value)
    table = spark.read.format("fdbqueue").options(**source).load()
    assert [row.payload for row in table.collect()] == [read]


def test_a_schema_of_the_user_names_the_columns_and_conditions_are_pushed_down(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in range(10)])
    table = (
        spark.read.format("fdbqueue")
        .schema("payload STRING, level INT, enqueued_at TIMESTAMP")
        .options(**source)
        .load()
    )
    some = table.where("level IN (1, 2, 3) AND level < 3 AND enqueued_at > '2020-01-01'")
    assert some.rdd.getNumPartitions() == 2, "only these levels are read"
    assert {row.payload for row in some.collect()} == {"8", "7"}


def test_an_empty_table_has_its_columns_and_no_rows(
    spark: SparkSession, queue: Queue, source: dict[str, str]
) -> None:
    history = spark.read.format("fdbqueue").options(**source).option("table", "history").load()
    assert history.columns[:3] == ["stamp", "transition", "id"]
    assert history.collect() == []


def test_the_driver_tells_what_is_wrong(
    spark: SparkSession, embedded: bool, source: dict[str, str], tmp_path: Path
) -> None:
    def load(**options: str) -> None:
        spark.read.format("fdbqueue").options(**{**source, **options}).load()

    with pytest.raises(Exception, match="InvalidOptions: option 'levles': unknown"):
        load(levles="1")
    with pytest.raises(Exception, match="QueueNotFound: there is no queue 'none'"):
        load(queue="none")
    if embedded:
        with pytest.raises(Exception, match="an embedded store must exist"):
            load(store=str(tmp_path / "none.fdbq"))
    wrong = spark.read.format("fdbqueue").schema("id INT").options(**source).load()
    with pytest.raises(Exception, match="InvalidSchema: column 'id': it is STRING, not INT"):
        wrong.collect()


def test_what_an_executor_cannot_read_is_told_to_the_driver(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    bad = queue.enqueue(db, b"\xff")
    table = spark.read.format("fdbqueue").options(**source).option("payload", "string").load()
    with pytest.raises(Exception, match=f"CorruptData: cannot read the payload of message {bad}"):
        table.collect()

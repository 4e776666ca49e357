"""Reading queues as tables, on a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fdbqueue import Queue, fdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_ready_messages_are_rows(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    ids = [queue.enqueue(db, b"%d" % n, priority=n, headers={"n": n}) for n in range(5)]
    rows = spark.read.format("fdbqueue").options(**source).load().collect()
    assert sorted(row.id for row in rows) == sorted(ids)
    assert {row.id: bytes(row.payload) for row in rows} == {
        each: b"%d" % n for n, each in enumerate(ids)
    }
    assert {row.headers["n"] for row in rows} == set("01234")

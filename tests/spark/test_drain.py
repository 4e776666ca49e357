"""The job that empties a queue into files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fdbqueue import NewMessage, Queue, fdb
from fdbqueue.errors import InvalidInput, JobFailed, QueueNotFound
from fdbqueue.spark import Step, drain
from tests.acceptance.running import FDBQ
from tests.taking import take

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_ready_goes_to_files_once(
    spark: SparkSession, db: fdb.Database, queue: Queue, tmp_path: Path
) -> None:
    path, steps = tmp_path / "out", list[Step]()
    for n in range(10):
        queue.enqueue(db, b"%d" % n, priority=n, headers={"n": n})

    done = drain(
        db, queue, path, max_messages=4, header_columns="n INT", spark=spark, progress=steps.append
    )
    queue.enqueue(db, b"later")
    more = drain(db, queue, path, header_columns="n INT", spark=spark)

    assert (done.rows, done.size, done.batches) == (10, 10, 3)
    assert (more.rows, more.size, more.batches) == (1, 5, 1)
    assert steps[-1] == Step("draining", 10, 10, "messages")
    rows = spark.read.parquet(str(path)).collect()
    assert sorted(bytes(row.payload) for row in rows) == [*(b"%d" % n for n in range(10)), b"later"]
    assert {row.n for row in rows} == {*range(10), None}
    depth = queue.depth(db)
    assert (depth.done, depth.leased, depth.ready) == (11, 0, 0)
    assert queue.admin.verify(db).ok


def test_a_drain_takes_what_waits_under_ordering_keys_and_says_what_it_left(
    spark: SparkSession, db: fdb.Database, queue: Queue, tmp_path: Path
) -> None:
    queue.set_options(db, lease=3600)
    keyed = [NewMessage(b"%d" % n, key="klm"[n % 3]) for n in range(30)]
    queue.enqueue_many(db, [NewMessage(b"held", key="h"), NewMessage(b"waits", key="h")])
    take(db, queue)
    queue.enqueue_many(db, [*keyed, NewMessage(b"later", delay=3600)])

    done = drain(db, queue, tmp_path / "out", max_messages=8, spark=spark)

    assert (done.rows, queue.depth(db).done) == (30, 30)
    assert (done.left.waiting, done.left.scheduled, done.left.leased) == (1, 1, 1)
    assert done.left.why == (
        "1 waiting for others of their keys or limits",
        "1 scheduled",
        "1 leased by other consumers",
    )
    assert queue.admin.verify(db).ok


def test_payloads_have_a_schema(
    spark: SparkSession, db: fdb.Database, queue: Queue, tmp_path: Path
) -> None:
    for n in range(3):
        queue.enqueue(db, json.dumps({"carrier": "AA", "delay": n}).encode())
    queue.enqueue(db, b"no JSON")
    path, schema = tmp_path / "out", "carrier STRING, delay INT"
    with pytest.raises(JobFailed, match="cannot read"):
        drain(db, queue, path, payload="json", payload_schema=schema, spark=spark)
    assert queue.depth(db).done == 0

    done = drain(
        db,
        queue,
        path,
        payload="json",
        payload_schema=schema,
        bad_payloads="null",
        columns=["id", "payload"],
        spark=spark,
    )

    assert (done.rows, done.size) == (4, None)
    rows = spark.read.parquet(str(path)).selectExpr("payload.delay").collect()
    assert {row.delay for row in rows} == {0, 1, 2, None}
    assert queue.depth(db).done == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"format": "xml"}, "name one of parquet"),
        ({"payload": "json"}, "payloadSchema"),
        ({"payload": "json", "payload_schema": "a b c"}, "payloadSchema"),
        ({"columns": ["body"]}, "body"),
        ({"max_messages": 0}, "maxMessagesPerBatch"),
        ({"consumer": "\n"}, "it must have "),
    ],
)
def test_what_cannot_be_drained_is_said_in_a_line(
    spark: SparkSession,
    db: fdb.Database,
    queue: Queue,
    tmp_path: Path,
    arguments: dict[str, object],
    said: str,
) -> None:
    queue.enqueue(db, b"x")
    with pytest.raises(InvalidInput) as raised:
        drain(db, queue, tmp_path / "out", spark=spark, **arguments)  # type: ignore[arg-type]
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert queue.depth(db).ready == 1


def test_a_queue_that_is_not_there_is_not_drained(
    spark: SparkSession, db: fdb.Database, queue: Queue, tmp_path: Path
) -> None:
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        drain(db, queue, tmp_path / "out", spark=spark)


@pytest.mark.slow
def test_a_drain_that_is_killed_goes_on_and_writes_each_message_once(
    spark: SparkSession, db: fdb.Database, environment: dict[str, str], tmp_path: Path
) -> None:
    queue, path = Queue.open(db, "drained"), tmp_path / "out"
    names = [b"%d" % n for n in range(3_000)]
    queue.enqueue_many(db, names)
    process = subprocess.Popen(
        [FDBQ, "stream", "drain", "drained", path, "--batch", "100"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # Given a drain that is killed, with its Java, when it has done some batches
        while queue.depth(db).done < 300:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert queue.depth(db).done < len(names)

        # When it is run again
        drain(db, queue, path, spark=spark)

        # Then the files have each message once
        rows = spark.read.parquet(str(path)).select("payload").collect()
        assert Counter(bytes(row.payload) for row in rows) == Counter(names)
        depth = queue.depth(db)
        assert (depth.done, depth.leased) == (len(names), 0)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        queue.delete(db)

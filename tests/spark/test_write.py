"""Writing tables and streams into queues, on a real Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import fdbqueue.spark
from fdbqueue import Bounds, Queue, fdb
from fdbqueue.errors import InvalidSchema, QueueError
from fdbqueue.spark.source.write import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, str]


def write(frame: DataFrame, source: Options, **options: str) -> None:
    frame.write.format("fdbqueue").options(**source, **options).mode("append").save()


def refused(frame: DataFrame, source: Options, **options: str) -> str:
    """What a write says that must fail."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark wraps the error in its own
        write(frame, source, **options)
    return str(raised.value)


def values(db: fdb.Database, queue: Queue) -> list[Any]:
    return [queue.value(message) for message in queue.browse(db)]


def test_threads_write_in_a_session_in_which_nothing_was_registered(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    # Given a new session, which no new thread has as its active one
    session = spark.newSession()
    rows = session.createDataFrame([(b"a",)], "payload BINARY")
    # When threads register it, and write to it at once
    with ThreadPoolExecutor(4, initializer=fdbqueue.spark.register, initargs=(session,)) as threads:
        for written in [threads.submit(write, rows, source) for _ in range(4)]:
            written.result()
    # Then each has found the format
    assert values(db, queue) == [b"a"] * 4


def test_rows_become_messages_with_all_that_an_enqueue_takes(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    at = datetime.now(UTC) + timedelta(days=1)
    rows: list[tuple[Any, ...]] = [
        (b"plain", 9, {"region": "eu"}, None, None, None, None, None, None, None),
        (b"rests", None, None, 60.5, None, None, None, None, None, None),
        (b"scheduled", None, None, None, at, None, None, None, None, None),
        (b"ends", 0, {}, None, None, timedelta(hours=1), 7, None, None, None),
        (b"k1", 3, None, None, None, None, None, "k", None, None),
        (b"k2", 3, None, None, None, None, None, "k", None, None),
        (b"d", 2, None, None, None, None, None, None, "d", None),
        (b"d again", 2, None, None, None, None, None, None, "d", None),
        (b"u", 1, None, None, None, None, None, None, None, "u"),
    ]
    columns = (
        "payload BINARY, priority INT, headers MAP<STRING,STRING>, delay DOUBLE, at TIMESTAMP, "
        "ttl INTERVAL DAY TO SECOND, max_attempts INT, key STRING, dedup_id STRING, unique STRING"
    )

    write(spark.createDataFrame(rows, columns).coalesce(1), source)

    found = {message.payload: message for message in queue.peek(db, 20)}
    assert list(found) == [b"plain", b"k1", b"d", b"u", b"ends"]
    assert found[b"plain"].headers == {"region": "eu"}
    assert found[b"plain"].priority == 9
    assert found[b"ends"].expires_at_ms is not None
    depth = queue.depth(db)
    assert (depth.enqueued, depth.ready, depth.waiting, depth.scheduled) == (8, 5, 1, 2)
    assert queue.admin.verify(db).ok


def test_rows_count_in_the_limits_that_they_name(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    stripe = queue.limits["api", "stripe"]
    stripe.set(db, concurrency=1)
    rows: list[tuple[Any, ...]] = [
        (b"0", {"api": "stripe"}),
        (b"1", {"api": "stripe"}),
        (b"2", {}),
        (b"3", None),
        (b"4", {"api": None}),
    ]
    columns = "payload BINARY, limits MAP<STRING,STRING>"
    write(spark.createDataFrame(rows, columns).coalesce(1), source)
    structs = [(b"5", ("stripe", None)), (b"6", (None, None))]
    columns = "payload BINARY, limits STRUCT<api: STRING, tenant: STRING>"
    write(spark.createDataFrame(structs, columns).coalesce(1), source)
    both = [(b"7", "k", ("stripe", "7"))]
    columns = "payload BINARY, key STRING, limits STRUCT<api: STRING, tenant: STRING>"
    write(spark.createDataFrame(both, columns).coalesce(1), source)
    dimensions = ", ".join(f"d{n}: STRING" for n in range(6))
    bad = spark.createDataFrame(
        [(b"8", ("x",) * 6)], f"payload BINARY, limits STRUCT<{dimensions}>"
    )
    assert "at most 5 limits" in refused(bad, source)

    assert sorted(each.payload for each in queue.peek(db, 20)) == [b"0", b"2", b"3", b"4", b"6"]
    state = stripe.state(db)
    assert (len(state.out), state.waiting) == (1, 3)
    assert len(queue.keys["k"].state(db).out) == 1
    assert queue.admin.verify(db).ok


def test_payloads_may_be_text_or_anything_nested(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    write(spark.createDataFrame([("grüße",)], "payload STRING"), source)
    row = (
        {"n": 1, "when": datetime(2026, 1, 2, 3, 4, 5), "price": Decimal("1.50")},
        {"carrier": "AA", "delay": 7, "late": True, "none": None},
    )
    nested = spark.createDataFrame(
        [row],
        "payload STRUCT<n: INT, when: TIMESTAMP_NTZ, price: DECIMAL(5,2)>, "
        "headers STRUCT<carrier: STRING, delay: INT, late: BOOLEAN, none: STRING>",
    )
    write(nested, source)
    write(spark.createDataFrame([([{"a": 1.5}],)], "payload ARRAY<MAP<STRING,DOUBLE>>"), source)

    text, struct, array = queue.browse(db)
    assert (queue.value(text), text.content_type) == ("grüße", "application/json")
    assert json.loads(struct.payload) == {"n": 1, "when": "2026-01-02T03:04:05", "price": 1.5}
    assert struct.content_type == "application/json"
    assert struct.headers == {"carrier": "AA", "delay": 7, "late": True, "none": None}
    assert queue.value(array) == [{"a": 1.5}]


class Reversed:
    """A serializer of a content type of its own."""

    content_type = "application/x-reversed"

    def dumps(self, value: bytes) -> bytes:
        return value[::-1]

    def loads(self, payload: bytes) -> bytes:
        return payload[::-1]


SERIALIZERS: dict[str, Any] = {"none": None, "dict": dict, "bytes": bytes, "own": Reversed()}


@pytest.mark.parametrize(
    ("serializer", "columns", "options", "row", "value"),
    [
        ("none", "BINARY", {}, b"\xff", b"\xff"),
        ("none", "STRING", {}, "7", "7"),
        ("none", "STRING", {"contentType": "application/json"}, "7", 7),
        ("dict", "STRUCT<n: INT, note: STRING>", {}, (1, None), {"n": 1, "note": None}),
        ("dict", "MAP<STRING, BOOLEAN>", {}, {"a": True}, {"a": True}),
        ("dict", "BINARY", {"contentType": "application/json"}, b'{"a": 1}', {"a": 1}),
        ("bytes", "BINARY", {}, b"\xff", b"\xff"),
        ("own", "BINARY", {}, b"ba", b"ab"),
    ],
)
def test_payloads_are_stored_as_the_serializer_of_the_queue_says(
    spark: SparkSession,
    db: fdb.Database,
    space: fdb.Subspace,
    source: Options,
    serializer: str,
    columns: str,
    options: Options,
    row: Any,
    value: Any,
) -> None:
    given = SERIALIZERS[serializer]
    queue = Queue.open(db, "typed", root=space, serializer=given)
    rows = spark.createDataFrame([(row,)], f"payload {columns}")
    write(rows, {**source, "queue": "typed"}, **options)
    assert [*map(queue.value, queue.browse(db))] == [value]


@pytest.mark.parametrize(
    ("serializer", "columns", "options", "said"),
    [
        ("dict", "BINARY", {}, r"BINARY becomes application/octet-stream, .* is dict \(app"),
        ("dict", "STRING", {"contentType": "text/csv"}, "STRING becomes text/csv, .* contentType"),
        ("bytes", "STRING", {}, "STRING becomes application/json, .*: write BINARY"),
        ("own", "STRUCT<n: INT>", {}, r"STRUCT becomes .* Reversed \(application/x-rev"),
    ],
)
def test_what_the_serializer_of_the_queue_does_not_take_is_refused(
    db: fdb.Database,
    space: fdb.Subspace,
    source: Options,
    serializer: str,
    columns: str,
    options: Options,
    said: str,
) -> None:
    Queue.create(db, "typed", root=space, serializer=SERIALIZERS[serializer])
    schema = StructType.fromDDL(f"payload {columns}")
    assert isinstance(schema, StructType)
    with pytest.raises(InvalidSchema, match=said):
        BatchWriter.of({**source, "queue": "typed", **options}, schema)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("body BINARY", {}, "column 'body': a write has no such column; the columns are payload,"),
        ("priority INT", {}, "column 'payload': it is missing"),
        ("payload INT", {}, "column 'payload': it is BINARY, STRING, or a STRUCT"),
        ("payload STRING, priority STRING", {}, "column 'priority': it is an integer, not STRING"),
        ("payload STRING, headers STRING", {}, "column 'headers': it is a MAP from STRING"),
        ("payload STRING, headers MAP<STRING,BINARY>", {}, "column 'headers'"),
        ("payload STRING, delay STRING", {}, "column 'delay': it is a number of seconds"),
        ("payload STRING, key INT", {}, "column 'key': it is STRING, not INT"),
        ("payload STRING, limits STRING", {}, "column 'limits': it is a MAP from STRING"),
        ("payload STRING, limits MAP<STRING,INT>", {}, "column 'limits'"),
        ("payload STRING", {"prioritty": "3"}, "option 'prioritty': unknown"),
        ("payload STRING", {"timeout": "soon"}, "option 'timeout'"),
        ("payload STRING", {"id": ""}, "it must have "),
        ("payload STRING", {"badRows": "drop"}, "option 'badRows'"),
        ("payload STRING", {"queue": "nowhere"}, "there is no queue 'nowhere'"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is(
    spark: SparkSession,
    db: fdb.Database,
    queue: Queue,
    source: Options,
    columns: str,
    options: Options,
    said: str,
) -> None:
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    with pytest.raises(QueueError) as raised:
        BatchWriter.of({**source, **options}, schema)
    assert said in str(raised.value)
    assert queue.streams.sinks(db) == {}


def test_spark_tells_what_cannot_be_written(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    frame = spark.createDataFrame([], "payload STRING, priority STRING")
    assert "column 'priority': it is an integer, not STRING" in refused(frame, source)
    assert queue.streams.sinks(db) == {}


def test_a_queue_is_not_overwritten(
    spark: SparkSession, source: Options, queue: Queue, db: fdb.Database
) -> None:
    frame = spark.createDataFrame([("a",)], "payload STRING")
    with pytest.raises(Exception, match="rows are added to a queue"):
        frame.write.format("fdbqueue").options(**source).mode("overwrite").save()
    with pytest.raises(Exception, match='use either the "Append"'):
        frame.write.format("fdbqueue").options(**source).save()
    assert values(db, queue) == []


def test_a_row_that_is_no_message_fails_the_write_and_nothing_is_written(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    rows = [("a", 1), ("b", 2), ("c", 10), ("d", 3), (None, 3)]
    frame = spark.createDataFrame(rows, "payload STRING, priority INT").coalesce(1)

    said = refused(frame, source)
    assert re.search(r"row 3 of partition 0: priority=10: must be", said)
    assert queue.depth(db).enqueued == 0
    assert queue.streams.sinks(db) == {}

    # unless such rows may be left out
    write(frame, source, badRows="skip")
    assert sorted(values(db, queue)) == ["a", "b", "d"]


def test_a_write_of_the_same_id_is_made_once(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    frame = spark.range(1_000).selectExpr("CAST(id AS STRING) AS payload")
    for _ in range(2):
        write(frame, source, id="load of Monday")
    write(frame.limit(5), source, id="load of Tuesday")
    write(frame.limit(3), source)
    write(frame.limit(3), source)
    assert queue.depth(db).enqueued == 1_011


def test_a_write_that_stopped_halfway_goes_on_with_its_id(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    # Given a queue that is too small, and a write that does not wait
    queue.set_options(db, bounds=Bounds(messages=20, when_full="block"))
    frame = spark.range(50).selectExpr("CAST(id AS STRING) AS payload").coalesce(1)
    said = refused(frame, source, room="0")
    name = re.search(r"with the option id set to '([^']+)'", said)
    assert name is not None, said
    begun = [int(value) for value in values(db, queue)]
    assert 0 < len(begun) < 50

    # When there is room, and the write is made again
    queue.set_options(db, bounds=Bounds(messages=None, when_full="reject"))
    write(frame, source, id=name[1])

    assert [int(value) for value in values(db, queue)] == list(range(50))


def test_a_queue_that_rejects_takes_nothing_of_what_has_no_room(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    queue.set_options(db, bounds=Bounds(messages=20))
    frame = spark.range(50).selectExpr("CAST(id AS STRING) AS payload")
    assert "is full: it holds" in refused(frame, source)
    assert queue.depth(db).enqueued == 0
    write(frame.limit(20), source)
    assert queue.depth(db).enqueued == 20


def test_tasks_that_fail_or_run_twice_enqueue_once(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: Options
) -> None:
    from pyspark.sql.types import StructType

    schema = StructType([StructField("payload", StringType())])
    writer = BatchWriter.of(source, schema)

    def task(rows: Sequence[str]) -> Any:
        batches = [pa.record_batch([pa.array([row])], names=["payload"]) for row in rows]
        return writer.stage("write", 0, iter(batches))

    # Given a task that ran twice at once (speculation), and one whose first attempt was lost
    first, second = task(["a", "b"]), task(["b", "a"])
    task(["c", "d"])
    again = task(["c", "d"])

    # When the driver is told of one attempt of each, twice
    writer.publish([second, None, again])
    writer.publish([first, again])

    assert values(db, queue) == ["b", "a", "c", "d"]


def test_a_stream_goes_into_a_queue(
    spark: SparkSession,
    db: fdb.Database,
    queue: Queue,
    source: Options,
    checkpoint: str,
    tmp_path: Any,
) -> None:
    given = tmp_path / "in"
    given.mkdir()

    def run(**options: str) -> None:
        (
            spark.readStream.schema("payload STRING, priority INT")
            .option("maxFilesPerTrigger", 1)
            .json(str(given))
            .writeStream.format("fdbqueue")
            .options(**source, **options)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    for n in range(3):
        (given / f"{n}.json").write_text(json.dumps({"payload": f"file {n}", "priority": n}))
    run()
    (given / "3.json").write_text(json.dumps({"payload": "file 3"}))
    run()

    assert sorted(values(db, queue)) == ["file 0", "file 1", "file 2", "file 3"]
    (state,) = queue.streams.sinks(db).values()
    assert (state.done, state.batch) == (3, -1)
    (given / "4.json").write_text(json.dumps({"payload": "file 4"}))
    with pytest.raises(Exception, match="has it in its checkpoint"):
        run(id="mine")

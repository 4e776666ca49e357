"""What is refused before anything is read, and what an executor says that sees another store."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import types

from fdbqueue import Queue, fdb
from fdbqueue.errors import (
    InvalidInput,
    InvalidOptions,
    InvalidSchema,
    QueueNotFound,
    StoreNotFound,
    StoreNotShared,
)
from fdbqueue.spark import stores
from fdbqueue.spark.source import batch_read
from fdbqueue.spark.source.columns import TABLES
from fdbqueue.spark.source.settings import BATCH, LAYOUT, Location, UserOptions
from fdbqueue.spark.source.source import FdbQueueSource

from .columns import read, schema


def test_an_unknown_option_is_refused_with_a_list_of_the_known(source: dict[str, str]) -> None:
    with pytest.raises(InvalidOptions, match=r"option 'levles'.*headerColumns, .*selector"):
        read(source, levles="1")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"table": "readdy"},
            "'readdy' is not one of 'ready', 'waiting', 'retrying', 'scheduled'",
        ),
        ({"payload": "xml"}, "'xml' is not one of"),
        ({"levels": "1-x"}, "'1-x' is not a list of levels"),
        ({"levels": "5-3"}, "'5-3' is not a list of levels"),
        ({"levels": "3,99"}, "the levels are 0 to 9"),
        ({"since": "yesterday"}, "not a time like 2026"),
        ({"selector": "priority >"}, "invalid selector"),
        ({"table": "history", "selector": "priority > 1"}, "selects messages, not history"),
        ({"partitionBytes": "4 parsecs"}, "not a size like"),
        ({"partitionBytes": "1"}, "not between 10,000 and"),
        ({"pushdown": "yes"}, "not one of 'true', 'false'"),
        ({"payload": "bytes", "payloadSchema": "a INT"}, "needs payload to be"),
        ({"headerColumns": "a, a"}, "'a' is not a new column"),
        ({"headerColumns": "a WHAT"}, "'a WHAT' is not a new column"),
        ({"headerColumns": "level"}, "already has a column 'level'"),
        ({"headerColumns": "region", "table": "history"}, "only messages have headers"),
        ({"root": "orders"}, "in hexadecimal"),
        ({"queue": ""}, "it is required"),
        ({"path": "other"}, "but the path is 'other'"),
        ({"queue": "a" * 300}, "it must have "),
    ],
)
def test_an_option_out_of_its_range_is_refused(
    source: dict[str, str], options: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        batch_read.reader({**source, **options}, schema(id="STRING"))


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ({"ids": "STRING"}, {}, "column 'ids': table 'ready' has no such column.*columns are id, "),
        ({"id": "INT"}, {}, "column 'id': it is STRING, not INT"),
        ({"due_at": "TIMESTAMP"}, {}, "no such column"),
        ({"headers": "INT"}, {}, "it is MAP<STRING,STRING>"),
        ({"payload": "STRING"}, {"payload": "bytes"}, "the option payload is 'bytes'"),
        ({"payload": types.DayTimeIntervalType()}, {}, "cannot be read from JSON"),
        ({"region": "TIMESTAMP"}, {"headerColumns": "region"}, "a header column is STRING"),
    ],
)
def test_a_wrong_schema_is_refused(
    source: dict[str, str],
    columns: dict[str, str | types.DataType],
    options: dict[str, str],
    problem: str,
) -> None:
    with pytest.raises(InvalidSchema, match=problem):
        read(source, columns=schema(**columns), **options)


def test_json_without_a_schema_says_what_to_give(source: dict[str, str]) -> None:
    with pytest.raises(InvalidOptions, match="payloadSchema, like"):
        FdbQueueSource({**source, "payload": "json"}).schema()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"payloadSchema": "a INTT"}, "option 'payloadSchema': 'a INTT': 'INTT' is no type"),
        ({"payloadSchema": "a STRUCT<b INT"}, "it ends where it needs '>'"),
        ({"payloadSchema": "a INT b INT"}, "'b' follows the last field"),
        ({"payloadSchema": "a MAP<STRING INT>"}, "'INT' stands where it needs ','"),
        ({"payloadSchema": '{"type": "struct"}'}, "it is not the JSON of a StructType"),
        ({"levles": "1"}, "option 'levles': unknown; .*levels"),
        ({"mode": "consume", "consumer": "c", "levels": "1"}, "'levels': for tables only"),
        ({"levels": "1", "room": "1"}, "'room': for writes only"),
        ({"rooom": "1"}, "'rooom': unknown; the options are badRows, .*, room, "),
        ({"mode": "consume"}, "option 'consumer': mode consume needs it"),
        ({"mode": "browse", "startingOffsets": "x"}, "startingOffsets='x': must be"),
        ({"id": "a", "badRows": "maybe"}, "option 'badRows': 'maybe' is not one of"),
        ({"provider": "fdbqueue"}, "use CREATE TEMPORARY VIEW"),
    ],
)
def test_options_are_checked_where_a_table_or_a_stream_is_named(
    source: dict[str, str], options: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        FdbQueueSource({**source, **options})


def test_options_for_streams_are_no_options_of_tables(source: dict[str, str]) -> None:
    with pytest.raises(InvalidOptions, match="'consumer': for streams only"):
        read(source, consumer="c")


def test_a_missing_queue_is_told_when_the_table_is_named(source: dict[str, str]) -> None:
    with pytest.raises(QueueNotFound, match="'none'"):
        FdbQueueSource({**source, "queue": "none"}).schema()


def test_a_store_that_is_not_there_is_never_made(
    embedded: bool, source: dict[str, str], tmp_path: Path
) -> None:
    if not embedded:
        pytest.skip("of the embedded engine: a cluster is never made by a client")
    path = tmp_path / "none.fdbq"
    with pytest.raises(StoreNotFound, match=r"none\.fdbq: an embedded store must exist"):
        read({**source, "store": str(path)})
    assert not path.exists()


def test_options_may_be_spelled_in_any_case_and_the_path_names_the_queue() -> None:
    given = UserOptions({"partitionbytes": "2 MB", "path": "orders"}, BATCH)
    assert given["partitionBytes"] == 2_000_000
    assert Location.of(given).queue == "orders"


# -- executors ------------------------------------------------------------------------------------


@pytest.fixture
def seen(queue: Queue, source: dict[str, str]) -> stores.SharedQueue:
    return stores.SharedQueue.find(Location.of(UserOptions(source, BATCH)))


def test_an_executor_opens_the_queue_that_the_driver_saw(
    db: fdb.Database, queue: Queue, seen: stores.SharedQueue
) -> None:
    queue.enqueue(db, b"here")
    copy: stores.SharedQueue = pickle.loads(pickle.dumps(seen))
    there, handle = copy.open()
    assert [message.payload for message in handle.peek(there)] == [b"here"]


def test_an_executor_that_has_no_such_store_says_so(
    embedded: bool, seen: stores.SharedQueue, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / ("other.fdbq" if embedded else "other.cluster"))
    there = replace(seen, location=replace(seen.location, store=elsewhere))
    with pytest.raises(StoreNotShared, match=r"does not see the driver.s store: .*other"):
        there.open()


def test_an_executor_that_has_another_engine_says_so(
    embedded: bool, seen: stores.SharedQueue
) -> None:
    other = "FOUNDATIONDB" if embedded else "EMBEDDED"
    with pytest.raises(StoreNotShared, match="set FDBQUEUE_STORE or FDB_CLUSTER_FILE there"):
        replace(seen, engine=other).open()


def test_an_embedded_store_is_of_one_machine(embedded: bool, seen: stores.SharedQueue) -> None:
    if not embedded:
        pytest.skip("of the embedded engine: a cluster is there for all machines")
    with pytest.raises(StoreNotShared, match=r"a file of one machine, elsewhere"):
        replace(seen, host="elsewhere").open()


def test_an_executor_whose_store_has_no_such_queue_or_another_one_says_so(
    seen: stores.SharedQueue,
) -> None:
    with pytest.raises(StoreNotShared, match="there is no queue 'none'"):
        replace(seen, location=replace(seen.location, queue="none")).open()
    with pytest.raises(StoreNotShared, match="another queue 'orders'"):
        replace(seen, identity="another").open()
    with pytest.raises(StoreNotShared, match="another queue 'orders'"):
        replace(seen, version=2**62).open()


def test_every_table_can_be_chosen() -> None:
    assert LAYOUT["table"].choices == tuple(TABLES)

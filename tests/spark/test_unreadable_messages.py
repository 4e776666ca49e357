"""A message that cannot be read is a flagged row; no read and no stream breaks on it."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from fdbqueue import Queue, fdb
from fdbqueue.errors import CorruptData
from fdbqueue.schema.envelope import UNREADABLE
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys

from .columns import read, schema
from .test_stream_readers import browser, consumer, latest, rows

OTHER = b"\x63" + b"an envelope of another version"
KINDS = {
    "ready": QueueKeys.ready,
    "scheduled": QueueKeys.delayed,
    "leased": QueueKeys.lease,
    "dead": QueueKeys.dead,
}


@pytest.fixture
def queue(db: fdb.Database, space: fdb.Subspace) -> Queue:
    return Queue.create(db, "orders", root=space)


def spoil(db: fdb.Database, queue: Queue, kind: Kind, value: bytes = OTHER) -> None:
    """Replace the first value of a kind."""
    within = queue._keys.kind(kind)
    db[db.get_range(within.start, within.stop, limit=1)[0].key] = value


@pytest.fixture
def filled(db: fdb.Database, queue: Queue) -> Queue:
    """Two messages in each table."""
    queue.enqueue_many(db, [b"dead 1", b"dead 2", b"leased 1", b"leased 2"])
    for delivery in queue.receive_many(db, 4)[:2]:
        queue.reject(db, delivery, "no")
    queue.enqueue_many(db, [b"ready 1", b"ready 2"])
    for payload in (b"scheduled 1", b"scheduled 2"):
        queue.enqueue(db, payload, delay=3600)
    return queue


@pytest.mark.parametrize("table", KINDS)
def test_a_table_shows_what_cannot_be_read_without_a_payload_and_with_the_reason(
    db: fdb.Database, filled: Queue, source: dict[str, str], table: str
) -> None:
    spoil(db, filled, KINDS[table])
    bad, good = sorted(read(source, table), key=lambda row: row["payload"] or b"")
    assert (bad["payload"], bad["content_type"]) == (None, UNREADABLE)
    assert "version" in bad["last_error"]
    assert good["payload"].startswith(table.encode())
    assert good["last_error"] is None or "later" not in good["last_error"]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (StringType(), '{"a": 1}'),
        (StructType([StructField("a", IntegerType())]), {"a": 1}),
    ],
)
def test_it_is_no_bad_payload(
    db: fdb.Database, queue: Queue, source: dict[str, str], type_: DataType, expected: object
) -> None:
    queue.enqueue_many(db, [b'{"a": 1}'] * 2)
    spoil(db, queue, QueueKeys.ready)
    assert [row["payload"] for row in read(source, columns=schema(payload=type_))] == [
        None,
        expected,
    ]


def test_it_can_be_skipped_or_refused(
    db: fdb.Database, filled: Queue, source: dict[str, str]
) -> None:
    spoil(db, filled, QueueKeys.ready)
    (good,) = read(source, unreadable="skip")
    assert good["payload"] == b"ready 2"
    with pytest.raises(CorruptData, match="unreadable at 'keep'"):
        read(source, unreadable="fail")


@pytest.mark.parametrize(
    ("choice", "found"), [("keep", [None, b"ready 2"]), ("skip", [b"ready 2"])]
)
def test_a_stream_that_browses_goes_on_behind_it(
    db: fdb.Database, filled: Queue, source: dict[str, str], choice: str, found: list[bytes | None]
) -> None:
    spoil(db, filled, QueueKeys.ready)
    reader = browser(source, unreadable=choice)
    start = reader.initialOffset()
    first = latest(reader, start)
    assert rows(reader, start, first) == found
    filled.enqueue(db, b"ready 3")
    assert rows(reader, first, latest(reader, first)) == [b"ready 3"]


def test_a_stream_that_takes_skips_it_to_the_dead_letters(
    db: fdb.Database, filled: Queue, source: dict[str, str]
) -> None:
    spoil(db, filled, QueueKeys.ready)
    reader = consumer(source)
    start = reader.initialOffset()
    assert rows(reader, start, latest(reader, start)) == [b"ready 2"]
    assert filled.depth(db).dead == 3


def test_a_stream_that_takes_shows_what_was_spoilt_after_it_was_planned(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    reader = consumer(source)
    start = reader.initialOffset()
    end = latest(reader, start)
    spoil(db, queue, QueueKeys.lease)
    assert rows(reader, start, end) == [None, b"b"]
    assert rows(consumer(source, unreadable="skip"), start, end) == [b"b"]

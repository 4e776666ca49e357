"""What the tables of a queue show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, Not

import fdbqueue.spark
from fdbqueue import NewMessage, Queue, fdb
from fdbqueue.errors import InvalidOptions, RowsLost
from fdbqueue.spark.source import batch_read
from fdbqueue.spark.source.columns import TABLES
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import HeaderValue
from tests.taking import take

from .columns import read, schema

SECOND = timedelta(seconds=1)


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture
def queue(db: fdb.Database, space: fdb.Subspace) -> Queue:
    return Queue.create(db, "orders", root=space, history_seconds=3600.0)


def test_every_state_has_its_table_and_counts_agree(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n % 10) for n in range(20)])
    queue.enqueue_many(db, [NewMessage(b"keyed", key="k", priority=0) for _ in range(3)])
    queue.enqueue(db, b"later", delay=3600)
    taken = queue.receive_many(db, 4)
    for delivery in taken[:2]:
        queue.reject(db, delivery, "no")
    queue.release(db, taken[2], delay=3600, error="no stock")
    depth = queue.depth(db)
    found = {
        table: {row["id"] for row in read(source, table)}
        for table in ("ready", "waiting", "retrying", "scheduled", "leased", "dead")
    }
    assert {table: len(ids) for table, ids in found.items()} == {
        "ready": depth.ready,
        "waiting": 2,
        "retrying": 1,
        "scheduled": 1,
        "leased": 1,
        "dead": 2,
    }
    assert set.union(*found.values()) == {
        event.id for event in queue.history(db) if event.transition in ("enqueue", "schedule")
    }


def test_a_ready_message_has_all_its_columns(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    headers: dict[str, HeaderValue] = {"n": 1, "x": 0.5, "s": "text", "yes": True, "none": None}
    message_id = queue.enqueue(db, b"\x00\xff", priority=7, headers=headers, ttl=60, key="k")
    (row,) = read(source)
    message = queue.peek(db)[0]
    assert row == {
        "id": message_id,
        "payload": b"\x00\xff",
        "headers": [("n", "1"), ("x", "0.5"), ("s", "text"), ("yes", "true"), ("none", None)],
        "priority": 7,
        "level": message.level,
        "attempts": 0,
        "enqueued_at": message.enqueued_at,
        "expires_at": moment(message.expires_at_ms or 0),
        "content_type": message.content_type,
        "key": "k",
        "limits": None,
        "last_error": None,
    }


def test_rows_of_a_piece_stand_in_the_order_of_delivery(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    ids = queue.enqueue_many(db, [NewMessage(b"", priority=n % 10) for n in range(300)])
    assert [row["id"] for row in read(source)] == sorted(ids)


def test_messages_that_wait_for_their_ordering_key_are_waiting(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    ids = queue.enqueue_many(db, [NewMessage(b"", key="k", priority=n) for n in (1, 8)])
    assert [row["id"] for row in read(source)] == ids[:1]
    assert [row["id"] for row in read(source, "waiting")] == ids[1:]
    assert read(source, "waiting", levels="7") == []


def test_messages_that_share_a_limit_name_it(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.limits["api", "stripe"].set(db, concurrency=1)
    limits = {"api": "stripe"}
    queue.enqueue_many(db, [NewMessage(b"%d" % n, limits=limits) for n in range(2)])
    queue.enqueue(db, b"2")
    shown = [("api", "stripe")]
    assert {row["payload"]: row["limits"] for row in read(source)} == {b"0": shown, b"2": None}
    assert {row["payload"]: row["limits"] for row in read(source, "waiting")} == {b"1": shown}
    held = take(db, queue)
    assert [row["limits"] for row in read(source, "leased")] == [shown]
    queue.reject(db, held, "bad")
    assert [row["limits"] for row in read(source, "dead")] == [shown]


def test_scheduled_messages_show_when_they_are_due(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    ids = [queue.enqueue(db, b"", at=at + n * SECOND) for n in range(4)]
    assert {row["id"]: row["due_at"] for row in read(source, "scheduled")} == {
        each: at + n * SECOND for n, each in enumerate(ids)
    }
    some = read(
        source, "scheduled", since=(at + SECOND).isoformat(), until=(at + 3 * SECOND).isoformat()
    )
    assert [row["id"] for row in some] == ids[1:3]


def test_a_message_that_rests_between_attempts_is_retrying_under_its_own_id(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    message_id = queue.enqueue(db, b"")
    delivery = take(db, queue)
    queue.release(db, delivery, delay=60, error="no stock")
    assert [row["id"] for row in read(source, "retrying")] == [message_id]
    assert read(source, "scheduled") == []


def test_leases_show_who_has_them_and_until_when(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue(db, b"paid")
    delivery = take(db, queue, lease=60)
    (row,) = read(source, "leased")
    (lease,) = queue.admin.leases(db)
    assert (row["id"], row["payload"], row["consumer"]) == (delivery.id, b"paid", lease.consumer)
    assert abs(row["lease_expires_at"] - moment(delivery.expires_at_ms)) < timedelta(minutes=1)


def test_dead_letters_show_why_and_since_when(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue(db, b"unpaid", headers={"n": 1})
    delivery = take(db, queue)
    queue.reject(db, delivery, "no money")
    (row,) = read(source, "dead")
    (letter,) = queue.dead.list(db)
    assert row["payload"] == b"unpaid"
    assert (row["id"], row["reason"]) == (delivery.id, "no money")
    assert row["died_at"] == moment(letter.death.died_at_ms)
    (failed,) = queue.dead.list(db)[0].failures
    assert row["failures"] == [
        {
            "started_at": moment(failed.started_at_ms),
            "ended_at": moment(failed.ended_at_ms),
            "consumer": failed.consumer,
            "error": "no money",
            "traceback": "",
        }
    ]
    past = (row["died_at"] - SECOND).isoformat()
    assert len(read(source, "dead", since=past)) == 1
    assert read(source, "dead", until=past) == []


def test_history_is_every_line_in_its_order(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [NewMessage(b"", priority=n) for n in range(3)])
    for delivery in queue.receive_many(db, 3):
        queue.ack(db, delivery)
    events = queue.history(db)
    rows = read(source, "history")
    assert [(r["stamp"], r["transition"], r["id"], r["attempt"]) for r in rows] == [
        (e.stamp, e.transition, e.id, e.attempt) for e in events
    ]
    assert [row["at"] for row in rows] == [moment(event.at_ms) for event in events]
    assert {row["level"] for row in read(source, "history", levels="7,8")} == {7, 8}


def test_levels_times_and_selectors_choose_rows(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(
        db, [NewMessage(b"", priority=n, headers={"n": n, "odd": bool(n % 2)}) for n in range(10)]
    )
    at = queue.peek(db)[0].enqueued_at
    assert [row["level"] for row in read(source, levels="0, 3-5")] == [0, 3, 4, 5]
    assert len(read(source, selector="odd AND priority > 4")) == 3
    assert len(read(source, selector="odd AND priority > 4", levels="0-1")) == 1
    assert len(read(source, since=(at - SECOND).isoformat())) == 10
    assert read(source, until=(at - SECOND).isoformat()) == []


def test_payloads_in_chunks_and_compressed_ones_come_whole(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    packed = Queue.create(db, "packed", root=space, compression="zlib")
    payloads = [b"x" * 400_000, bytes(range(256)) * 1_000, b"short", b"y" * 20_000]
    for queue in (packed, Queue.create(db, "plain", root=space)):
        for payload in payloads:
            queue.enqueue(db, payload)
        source = fdbqueue.spark.options(db, queue)
        assert [row["payload"] for row in read(source)] == payloads


def test_the_pieces_of_a_table_hold_every_message_once(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    ids = queue.enqueue_many(db, [NewMessage(bytes(500), priority=n % 3) for n in range(400)])
    small = {**source, "partitionbytes": "20 kB"}
    reader = batch_read.reader(small, schema(id="STRING"))
    pieces = reader.partitions()
    assert len(pieces) >= 3, "one for each level at least"
    found = [
        message_id
        for piece in pieces
        for rows in reader.read(piece)
        for message_id in rows.column(0).to_pylist()
    ]
    assert sorted(found) == sorted(ids)


@pytest.fixture
def told(db: fdb.Database, queue: Queue, source: dict[str, str]) -> batch_read.BatchReader:
    """A reader of a history of more lines than a partition has."""
    for n in range(200):
        queue.enqueue(db, b"", key=f"{n} " + 100 * "k")
    columns = schema(**TABLES["history"])
    return batch_read.reader({**source, "table": "history", "partitionbytes": "10000"}, columns)


def test_lines_of_history_that_are_removed_before_they_are_read_end_the_read(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, told: batch_read.BatchReader
) -> None:
    # Given a read that is planned, and a part of which is done
    first, *others = told.partitions()
    assert others
    assert list(told.read(first))
    # When the queue removes all that is too old
    clock = ManualClock()
    clock.seconds = 4_000
    Queue.open(db, queue.name, root=space, clock=clock).receive(db)
    # Then no part of it is missing without a word
    for piece in (first, *others):
        with pytest.raises(RowsLost, match="lines of the history of queue 'orders' were removed"):
            list(told.read(piece))


def test_lines_of_before_the_time_that_is_asked_for_may_go(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, source: dict[str, str]
) -> None:
    queue.enqueue(db, b"")
    later = datetime.now(UTC) + timedelta(hours=2)
    options = {**source, "table": "history", "since": later.isoformat()}
    reader = batch_read.reader(options, schema(**TABLES["history"]))
    pieces = reader.partitions()
    clock = ManualClock()
    clock.seconds = 4_000
    Queue.open(db, queue.name, root=space, clock=clock).receive(db)
    assert len(pieces) == 1
    assert not any(rows.num_rows for rows in reader.read(pieces[0]))


def test_lines_that_are_about_to_go_are_left_out_where_they_are_not_wanted(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [b"", b""])
    assert len(read(source, "history", skipExpiring="3000")) == 2, "none is about to go"
    assert read(source, "history", skipExpiring="3700") == []


def test_a_table_begins_and_ends_where_each_level_is_told_to(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    ids = queue.enqueue_many(
        db, [NewMessage(b"%d%d" % (n, turn), priority=n) for turn in range(3) for n in (9, 5, 0)]
    )
    found = read(
        source, startingOffsets=f'{{"4": "{ids[4]}"}}', endingOffsets=f'{{"0": "{ids[3]}"}}'
    )
    assert [row["payload"] for row in found] == [b"90", b"51", b"52", b"00", b"01", b"02"]
    assert read(source, startingOffsets="now") == []
    assert len(read(source, endingOffsets="now")) == 9
    with pytest.raises(InvalidOptions, match="only ready has places"):
        read(source, "dead", endingOffsets="now")


@pytest.mark.parametrize(
    ("conditions", "rows"),
    [
        ([EqualTo(("level",), 3)], 1),
        ([In(("level",), (3, 4)), EqualTo(("key",), "k5")], 1),
        ([EqualTo(("key",), "k4"), EqualTo(("origin",), "5")], 0),
        ([EqualTo(("origin",), "5")], 1),
        ([EqualTo(("n",), 5)], 1),
        ([EqualTo(("envelopes",), "5")], 1),
        ([In(("n",), (5, 6, 70))], 2),
        ([GreaterThan(("priority",), 6)], 3),
        ([GreaterThan(("n",), 6), EqualTo(("payload",), b"")], 10),
        ([Not(EqualTo(("level",), 3))], 10),
    ],
)
def test_conditions_are_checked_before_rows_are_made(
    db: fdb.Database, queue: Queue, source: dict[str, str], conditions: list[Filter], rows: int
) -> None:
    sent = [
        NewMessage(
            b"", priority=n, key=f"k{n}", headers={"origin": str(n), "n": n, "envelopes": str(n)}
        )
        for n in range(10)
    ]
    queue.enqueue_many(db, sent)
    columns = schema(level="INT", origin="STRING", n="BIGINT", envelopes="STRING")
    options = {**source, "headerColumns": "origin, n BIGINT, envelopes"}
    reader = batch_read.reader(options, columns, pushdown=True)
    assert isinstance(reader, batch_read.FilteringReader)
    assert reader.pushFilters(conditions) == conditions, "Spark checks them, too"
    found = [made.num_rows for part in reader.partitions() for made in reader.read(part)]
    assert sum(found) == rows
    assert not isinstance(batch_read.reader(options, columns), batch_read.FilteringReader)
    off = batch_read.reader({**options, "pushdown": "false"}, columns, pushdown=True)
    assert not isinstance(off, batch_read.FilteringReader)

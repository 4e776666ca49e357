"""The stream readers, called as Spark calls them, without Spark."""

from __future__ import annotations

import json
import pickle
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

import fdbqueue.spark
from fdbqueue import Depth, NewMessage, Queue, fdb
from fdbqueue.errors import (
    BatchLost,
    CorruptData,
    InvalidArgument,
    InvalidInput,
    InvalidOptions,
    QueueNotFound,
    QueueReplaced,
    RowsLost,
    StoreNotShared,
    TakenOver,
)

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from fdbqueue.spark import stores
from fdbqueue.spark.source import batch_read, browse_stream, consume_stream
from fdbqueue.spark.source.stream_offsets import StreamReader
from fdbqueue.testing import ManualClock

SCHEMA = StructType(
    [
        StructField("payload", BinaryType()),
        StructField("level", IntegerType()),
        StructField("key", StringType()),
    ]
)
Offset = dict[str, Any]


def consumer(source: Mapping[str, str], **options: Any) -> consume_stream.ConsumeReader:
    given = {**source, "mode": "consume", "consumer": "stream", **options}
    return consume_stream.ConsumeReader.of(
        {name: str(value) for name, value in given.items()}, SCHEMA
    )


def browser(source: Mapping[str, str], **options: Any) -> browse_stream.BrowseReader:
    given = {**source, **options}
    return browse_stream.BrowseReader.of(
        {name: str(value) for name, value in given.items()}, SCHEMA
    )


def latest(reader: StreamReader, start: Offset) -> Offset:
    found: Offset = reader.latestOffset(start, reader.getDefaultReadLimit())
    return found


def rows(reader: StreamReader, start: Offset, end: Offset) -> list[bytes]:
    """The payloads of a batch, as tasks read them: by readers and partitions that were pickled."""
    found = []
    for partition in reader.partitions(start, end):
        there = pickle.loads(pickle.dumps((fresh(reader), partition)))
        for made in there[0].read(there[1]):
            found += made.column("payload").to_pylist()
    return found


def fresh(reader: Any) -> Any:
    return type(reader)(reader._settings, reader._schema, reader._queue)


def test_the_calls_of_a_stream_that_takes(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in range(6)])
    reader = consumer(source, maxmessagesperbatch=4, partitions=3)
    start = reader.initialOffset()
    assert fresh(reader).initialOffset() == start
    first = latest(reader, start)
    assert fresh(reader).initialOffset() == start
    assert len(reader.partitions(start, first)) == 2
    assert rows(reader, start, first) == [b"5", b"4", b"3", b"2"]
    second = latest(reader, first)
    reader.commit(first)
    assert rows(reader, first, second) == [b"1", b"0"]
    assert latest(reader, second) == second
    assert reader.partitions(second, second) == []
    assert queue.depth(db) == Depth(enqueued=6, done=6)


@pytest.mark.parametrize("partitions", [1, 3, 7, 100])
def test_batches_of_blocks_are_divided_anywhere_and_read_again_as_they_were(
    db: fdb.Database, queue: Queue, source: dict[str, str], partitions: int
) -> None:
    # Given blocks on several levels, and among them messages with payloads in chunks and keys
    def given(n: int) -> NewMessage:
        payload = b"%d" % n + bytes(120_000 if n % 97 == 0 else 10)
        return NewMessage(payload, priority=n // 150, key="k" if n % 50 == 7 else None)

    sent = [given(n) for n in range(600)]
    ids = queue.enqueue_many(db, sent)
    texts = {**source, "mode": "consume", "consumer": "stream", "partitions": str(partitions)}
    texts |= {"maxMessagesPerBatch": "230"}
    schema = StructType(
        [
            StructField("id", StringType()),
            StructField("payload", BinaryType()),
            StructField("level", IntegerType()),
            StructField("priority", IntegerType()),
        ]
    )
    reader = consume_stream.ConsumeReader.of(texts, schema)

    # When each batch is read twice, the second time by another driver
    offset, seen = reader.initialOffset(), []
    while (end := latest(reader, offset)) != offset:
        parts = reader.partitions(offset, end)
        assert len(parts) <= partitions
        found = [made for part in parts for made in fresh(reader).read(part)]
        rows = [row for made in found for row in made.to_pylist()]
        reader = consume_stream.ConsumeReader.of(texts, schema)
        assert latest(reader, offset) == end
        again = [
            row
            for part in reader.partitions(offset, end)
            for made in reader.read(part)
            for row in made.to_pylist()
        ]
        assert rows == again
        assert len(rows) <= 230
        seen += rows
        offset = end

    # Then each message was in one of them, as it was sent
    sent_as = dict(zip(ids, sent, strict=True))
    assert sorted(row["id"] for row in seen) == sorted(ids)
    for row in seen:
        wanted = sent_as[row["id"]]
        assert row["payload"] == wanted.payload
        assert (row["priority"], row["level"]) == (wanted.priority, 9 - wanted.priority)
    levels = [row["level"] for row in seen if row["id"] and not sent_as[row["id"]].key]
    assert levels == sorted(levels)
    assert queue.depth(db) == Depth(enqueued=600, done=600)


def test_a_stream_that_takes_goes_on_with_what_a_dead_one_left(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    dead = consumer(source, maxmessagesperbatch=1)
    start = dead.initialOffset()
    first = latest(dead, start)
    alive = consumer(source)
    assert rows(alive, start, first) == [b"a"]
    with pytest.raises(TakenOver):
        dead.commit(first)
    with pytest.raises(TakenOver):
        dead.partitions(start, first)
    assert latest(alive, start) == first


def test_all_that_is_there_is_taken_at_once_where_spark_asks_for_it(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    for reader in (browser(source, maxmessagesperbatch=1), consumer(source, maxmessagesperbatch=1)):
        assert reader.getDefaultReadLimit() == ReadMaxRows(1)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert rows(reader, start, end) == [b"a", b"b", b"c"]


def test_a_sorted_queue_is_consumed_in_its_order_and_browsed_by_no_stream(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.delete(db)
    queue = Queue.create(db, queue.name, root=queue._root, sort="n")
    queue.enqueue_many(db, [NewMessage(b"%d" % n, headers={"n": n}) for n in (3, 1, 2)])
    with pytest.raises(InvalidArgument, match="it is sorted"):
        browser(source).initialOffset()
    reader = consumer(source)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = latest(reader, start)
    assert rows(reader, start, end) == [b"1", b"2", b"3"]
    queue.enqueue(db, b"0", headers={"n": 0})
    assert rows(reader, end, latest(reader, end)) == [b"0"]
    with pytest.raises(InvalidArgument, match="it is sorted"):
        consumer(source, consumer="other", startingoffsets="now").initialOffset()


@pytest.mark.parametrize("make", [browser, consumer])
def test_what_comes_later_is_left_by_a_stream_that_ends(
    db: fdb.Database, queue: Queue, source: dict[str, str], make: Callable[..., Any]
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    reader = make(source, maxmessagesperbatch=1)
    reader.prepareForTriggerAvailableNow()
    queue.enqueue_many(db, [NewMessage(b"late", priority=9), b"late"])
    offset, seen = reader.initialOffset(), []
    while (end := latest(reader, offset)) != offset:
        seen += rows(reader, offset, end)
        offset = end
    assert seen == [b"a", b"b"]
    again = make(source)
    assert rows(again, offset, latest(again, offset)) == [b"late", b"late"]


def test_a_batch_that_was_given_back_ends_the_stream_or_is_passed_over(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue(db, b"a")
    reader = consumer(source)
    start = reader.initialOffset()
    first = latest(reader, start)
    (partition,) = reader.partitions(start, first)
    queue.streams.plans.release(db, "stream")
    for call in (
        lambda: latest(reader, first),
        lambda: reader.partitions(start, first),
        lambda: reader.commit(first),
        lambda: list(reader.read(partition)),
    ):
        with pytest.raises(BatchLost, match="given back"):
            call()
    lenient = consumer(source, failondataloss="false")
    assert lenient.partitions(start, first) == []
    again = latest(lenient, first)
    assert rows(lenient, first, again) == [b"a"]


def test_the_calls_of_a_stream_that_looks(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in range(6)])
    reader = browser(source, maxmessagesperbatch=4, partitions=3)
    start = reader.initialOffset()
    first = latest(reader, start)
    assert rows(reader, start, first) == [b"5", b"4", b"3", b"2"]
    queue.enqueue(db, b"urgent", priority=9)
    second = latest(fresh(reader), first)
    assert rows(fresh(reader), first, second) == [b"urgent", b"1", b"0"]
    assert latest(reader, second) == second
    assert reader.partitions(second, second) == []
    assert queue.depth(db).ready == 7


def test_a_stream_that_begins_now_begins_at_one_place_also_after_a_crash(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    ids = queue.enqueue_many(db, [b"before", b"at"])
    reader = browser(source, startingoffsets="now")
    start = reader.initialOffset()
    assert latest(reader, start) == start
    queue.enqueue(db, b"after")
    assert reader.initialOffset() == start
    end = latest(reader, start)
    assert rows(reader, start, end) == [b"after"]
    queue.enqueue(db, b"later")
    # Spark asks again where it begins, and has noted where the first batch ends.
    restarted = browser(source, startingoffsets="now")
    assert rows(restarted, restarted.initialOffset(), end) == [b"after"]
    assert rows(restarted, end, latest(restarted, end)) == [b"later"]
    by_id = browser(source, startingoffsets=ids[1])
    start = by_id.initialOffset()
    assert rows(by_id, start, latest(by_id, start)) == [b"at", b"after", b"later"]


@pytest.mark.parametrize("make", [browser, consumer])
def test_a_stream_begins_where_each_level_is_told_to(
    db: fdb.Database, queue: Queue, source: dict[str, str], make: Callable[..., Any]
) -> None:
    sent = [NewMessage(b"%d%d" % (n, turn), priority=n) for turn in range(2) for n in (9, 5, 0)]
    ids = queue.enqueue_many(db, sent)
    begins = json.dumps({"0": "now", "4": ids[4]})
    reader = make(source, startingoffsets=begins)
    start = reader.initialOffset()
    assert rows(reader, start, latest(reader, start)) == [b"51", b"00", b"01"]


@pytest.mark.parametrize("history", [None, 3_600])
def test_a_stream_that_takes_leaves_what_stands_before_its_begin(
    db: fdb.Database, queue: Queue, source: dict[str, str], history: int | None
) -> None:
    queue.set_options(db, history_seconds=history)
    # Given a begin among messages that were enqueued together, in several rows
    for level in (9, 4):
        queue.enqueue_many(
            db, [NewMessage(b"%d-%d" % (level, n), priority=level) for n in range(9)]
        )
    ids = queue.enqueue_many(db, [NewMessage(b"0-%d" % n, priority=0) for n in range(9)])
    queue.enqueue_many(db, [NewMessage(b"1-%d" % n, priority=0) for n in range(9)])
    begins = json.dumps({"0": "now", "9": ids[3]})
    reader = consumer(source, startingoffsets=begins, maxmessagesperbatch=11)
    offset, seen = reader.initialOffset(), []
    assert queue.streams.plans.show(db, "stream").begins == {0: 2, 9: 1}
    while (end := latest(reader, offset)) != offset:
        seen += rows(reader, offset, end)
        offset = end
    # Then the others are taken, and these are left as they were
    wanted = [f"4-{n}" for n in range(9)] + [f"0-{n}" for n in range(3, 9)]
    assert [each.decode() for each in seen] == wanted + [f"1-{n}" for n in range(9)]
    left = [f"9-{n}" for n in range(9)] + [f"0-{n}" for n in range(3)]
    assert [each.payload.decode() for each in queue.browse(db)] == left
    assert queue.admin.verify(db).ok
    queue.enqueue_many(db, [NewMessage(b"more", priority=n) for n in (0, 9)])
    assert rows(reader, offset, latest(reader, offset)) == [b"more", b"more"]
    while queue.receive_many(db, 100, at_most_once=True):
        pass
    assert queue.admin.verify(db).ok


def test_a_consumer_begins_once_also_after_a_crash_before_its_first_batch_is_noted(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue(db, b"before")
    reader = consumer(source, startingoffsets="now", maxmessagesperbatch=1)
    start = reader.initialOffset()
    queue.enqueue_many(db, [b"a", b"b"])
    end = latest(reader, start)
    again = consumer(source, startingoffsets="now", maxmessagesperbatch=1)
    assert latest(again, again.initialOffset()) == end
    assert rows(again, start, end) == [b"a"]
    assert rows(again, end, latest(again, end)) == [b"b"]
    # A consumer that was forgotten begins anew, also with its checkpoint
    again.commit(latest(again, end))
    queue.streams.plans.forget(db, "stream")
    lenient = consumer(source, startingoffsets="now", failondataloss="false")
    assert latest(lenient, end) == end
    assert [each.payload for each in queue.browse(db)] == [b"before"]


@pytest.mark.parametrize("make", [browser, consumer])
def test_a_stream_begins_with_the_first_message_of_a_time(
    db: fdb.Database,
    queue: Queue,
    space: fdb.Subspace,
    source: dict[str, str],
    make: Callable[..., Any],
) -> None:
    clock = ManualClock()
    timed = Queue.open(db, queue.name, root=space, clock=clock)
    for turn in range(3):
        timed.enqueue_many(db, [NewMessage(b"%d" % turn, priority=n) for n in (9, 0)])
        clock.seconds += 3_600
    (first,) = queue.peek(db, 1)
    since = first.enqueued_at + timedelta(minutes=30)
    reader = make(source, startingtimestamp=since.isoformat())
    start = reader.initialOffset()
    assert rows(reader, start, latest(reader, start)) == [b"1", b"2", b"1", b"2"]
    after = first.enqueued_at + timedelta(days=1)
    # A consumer begins once: another one begins anew
    other = {"consumer": "other"} if make is consumer else {}
    reader = make(source, startingtimestamp=after.isoformat(), **other)
    start = reader.initialOffset()
    queue.enqueue(db, b"new")
    assert rows(reader, start, latest(reader, start)) == [b"new"]


@pytest.mark.parametrize("make", [browser, consumer])
def test_a_stream_ends_where_each_level_is_told_to(
    db: fdb.Database, queue: Queue, source: dict[str, str], make: Callable[..., Any]
) -> None:
    sent = [NewMessage(b"%d%d" % (n, turn), priority=n) for turn in range(3) for n in (9, 5, 0)]
    ids = [queue.enqueue(db, each.payload, priority=each.priority) for each in sent]
    ends = json.dumps({"0": "first", "4": ids[4]})
    reader = make(source, endingoffsets=ends, maxmessagesperbatch=2)
    offset, seen = reader.initialOffset(), []
    while (end := latest(reader, offset)) != offset:
        seen += rows(reader, offset, end)
        offset = end
    assert seen == [b"50", b"00", b"01", b"02"]
    queue.enqueue(db, b"more", priority=9)
    assert latest(reader, offset) == offset


def columns(*names: str) -> StructType:
    types = {"payload": BinaryType(), "reason": StringType(), "transition": StringType()}
    return StructType([StructField(name, types[name]) for name in names])


def passed(reader: Any, start: Offset, end: Offset) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for part in reader.partitions(start, end)
        for made in fresh(reader).read(part)
        for row in made.to_pylist()
    ]


def test_a_stream_browses_the_history(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, source: dict[str, str]
) -> None:
    queue.set_options(db, history_seconds=3_600)
    options = {**source, "table": "history", "maxmessagesperbatch": "4"}

    def made() -> browse_stream.BrowseReader:
        return browse_stream.BrowseReader.of(options, columns("transition"))

    queue.enqueue_many(db, [b"a", b"b", b"c"])
    reader = made()
    start = reader.initialOffset()
    first = latest(reader, start)
    assert passed(reader, start, first) == [("enqueue",)] * 3
    assert latest(reader, first) == first
    for delivery in queue.receive_many(db, 3):
        queue.ack(db, delivery)
    end = first
    seen = []
    while (to := latest(reader, end)) != end:
        seen += passed(made(), end, to)
        end = to
    assert sorted(seen) == [("ack",)] * 3 + [("lease",)] * 3
    # Another that begins now, or with a time, sees what comes after that
    later = browse_stream.BrowseReader.of(
        {**options, "startingoffsets": "now"}, columns("transition")
    )
    begun = later.initialOffset()
    queue.enqueue(db, b"d")
    assert passed(later, begun, latest(later, begun)) == [("enqueue",)]


def test_a_stream_of_history_tells_that_lines_were_removed_before_it_came_to_them(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, source: dict[str, str]
) -> None:
    queue.set_options(db, history_seconds=3_600)
    queue.enqueue_many(db, [b"a", b"b"])

    def made(**options: str) -> browse_stream.BrowseReader:
        given = {**source, "table": "history", **options}
        return browse_stream.BrowseReader.of(given, columns("transition"))

    reader = made()
    start = reader.initialOffset()
    first = latest(reader, start)
    assert latest(reader, first) == first
    queue.enqueue(db, b"c")
    planned = latest(reader, first)
    # When the queue removes what is too old
    clock = ManualClock()
    clock.seconds = 4_000
    Queue.open(db, queue.name, root=space, clock=clock).receive(db)
    # Then a batch that was planned is not empty without a word
    with pytest.raises(RowsLost, match="1 of 1 lines of the history"):
        passed(reader, first, planned)
    lenient = made(failondataloss="false")
    assert passed(lenient, first, planned) == []
    assert latest(lenient, first) != first


def test_a_stream_browses_dead_letters_once_no_older_one_can_come_in(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, source: dict[str, str]
) -> None:
    clock = ManualClock()
    early = Queue.open(db, queue.name, root=space, clock=clock)
    queue.enqueue_many(db, [b"a", b"b", b"c", b"d"])
    clock.seconds = -10
    for n in range(3):
        early.reject(db, queue.receive(db), reason=f"{n}")  # type: ignore[arg-type]
    queue.reject(db, queue.receive(db), reason="now")  # type: ignore[arg-type]
    schema = columns("payload", "reason")
    reader = browse_stream.BrowseReader.of({**source, "table": "dead"}, schema)
    start = reader.initialOffset()
    end = latest(reader, start)
    assert passed(reader, start, end) == [(b"a", "0"), (b"b", "1"), (b"c", "2")]
    assert latest(reader, end) == end
    queue.retry(db)
    with pytest.raises(RowsLost, match="3 of 3 messages"):
        passed(reader, start, end)


@pytest.mark.parametrize("make", [browser, consumer])
def test_a_batch_waits_for_more_messages_but_no_longer_than_it_may(
    db: fdb.Database,
    queue: Queue,
    source: dict[str, str],
    make: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    queue.enqueue_many(db, [b"a", b"b"])
    reader = make(source, minmessagesperbatch=3, maxtriggerdelay=60)
    start = reader.initialOffset()
    assert latest(reader, start) == start
    queue.enqueue(db, b"c")
    first = latest(reader, start)
    assert rows(reader, start, first) == [b"a", b"b", b"c"]
    assert latest(reader, first) == first, "nothing waits, and nothing does later"
    now[0] += 61
    queue.enqueue(db, b"d")
    assert latest(reader, first) == first
    now[0] += 61
    last = latest(reader, first)
    assert rows(reader, first, last) == [b"d"]
    # One that ends waits for nothing
    queue.enqueue(db, b"e")
    ending = make(source, minmessagesperbatch=3)
    ending.prepareForTriggerAvailableNow()
    assert rows(ending, last, latest(ending, last)) == [b"e"]


@pytest.mark.parametrize("partitions", [1, 2])
def test_messages_that_are_gone_before_they_are_read_end_a_strict_stream(
    db: fdb.Database, queue: Queue, source: dict[str, str], partitions: int
) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    strict = browser(source, partitions=partitions)
    start = strict.initialOffset()
    end = latest(strict, start)
    assert rows(strict, start, end) == [b"a", b"b", b"c"]
    (first, *_) = strict.partitions(start, end)
    queue.receive(db, at_most_once=True)
    with pytest.raises(RowsLost, match="1 of 3 messages"):
        list(strict.read(first))
    lenient = browser(source, failondataloss="false")
    assert rows(lenient, start, end) == [b"b", b"c"]
    assert end["messages"] == 3, "so that the progress shows what it missed"


def test_an_error_about_messages_that_are_gone_counts_all_of_the_batch(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    # Given a batch that is read in parts, none of which has all the messages that are taken
    queue.enqueue_many(db, [NewMessage(b"", priority=n % 3) for n in range(3_000)])
    reader = browser(source, partitions=3)
    start = reader.initialOffset()
    end = latest(reader, start)
    parts = reader.partitions(start, end)
    assert len(parts) == 3
    # When all but one are taken
    while (ready := queue.depth(db).ready) > 1:
        queue.receive_many(db, min(500, ready - 1), at_most_once=True)
    # Then each part says so, also where another run has planned it
    for run, some in ((reader, parts), (fresh(reader), fresh(reader).partitions(start, end))):
        for part in some[:2]:
            with pytest.raises(RowsLost, match="2,999 of 3,000 messages"):
                list(run.read(part))


def test_a_stream_that_ends_misses_what_goes_before_its_batch_comes(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    # Given a run that has read the first of four batches
    for level in (9, 5):
        queue.enqueue_many(db, [NewMessage(b"", priority=level) for _ in range(20)])
    options = {"maxmessagesperbatch": 10, "failondataloss": "true"}
    reader, lenient = browser(source, **options), browser(source, failondataloss="false")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    first = latest(reader, start)
    assert len(rows(reader, start, first)) == 10
    # When all others are taken, and others come
    while queue.receive_many(db, 40, at_most_once=True):
        pass
    queue.enqueue_many(db, [b""] * 7)
    # Then it does not end without a word, and says how many it misses of all
    second = latest(reader, first)
    for part in reader.partitions(first, second):
        with pytest.raises(RowsLost, match="30 of 30 messages"):
            list(reader.read(part))
    # One that goes on without them tells so in its progress, and ends where it was to end
    assert (rows(lenient, first, second), second["messages"]) == ([], 10)
    third = latest(reader, second)
    last = latest(reader, third)
    assert [third["messages"], last["messages"]] == [10, 10]
    assert latest(reader, last) == last
    again = browser(source)
    assert len(rows(again, last, latest(again, last))) == 7


def test_a_stream_that_ends_plans_no_more_at_once_than_it_keeps(
    db: fdb.Database, queue: Queue, source: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse_stream, "AHEAD", 5)
    queue.enqueue_many(db, [b"%d" % n for n in range(17)])
    reader = browser(source, maxmessagesperbatch=2)
    reader.prepareForTriggerAvailableNow()
    offset, seen = reader.initialOffset(), []
    while (end := latest(reader, offset)) != offset:
        seen += rows(reader, offset, end)
        offset = end
    assert seen == [b"%d" % n for n in range(17)]


def test_progress_tells_what_waits(db: fdb.Database, queue: Queue, source: dict[str, str]) -> None:
    reader = consumer(source, maxmessagesperbatch=1)
    assert reader.reportLatestOffset()["lagMs"] == 0
    queue.enqueue_many(db, [b"a", b"b", NewMessage(b"c", delay=60)])
    latest(reader, reader.initialOffset())
    told = reader.reportLatestOffset()
    assert told["lagMs"] >= 0
    del told["lagMs"]
    assert told == {
        "queue": queue.name,
        "ready": 1,
        "waiting": 0,
        "retrying": 0,
        "scheduled": 1,
        "leased": 1,
        "dead": 0,
        "numMessagesOutstanding": 1,
        "numBytesOutstanding": 1,
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "consume"}, "mode consume needs it"),
        ({"mode": "take"}, "'take' is not one of"),
        ({"consumer": "c"}, "it needs mode to be 'consume'"),
        ({"startingoffsets": "now", "startingtimestamp": "2026-05-01"}, "give either this or"),
        ({"startingoffsets": '{"0": 1}'}, "is not JSON like"),
        ({"startingoffsets": '{"10": "now"}'}, "the levels are 0 to 9"),
        ({"startingoffsets": '{"a": "now"}'}, "is not JSON like"),
        ({"startingoffsets": '{"0": "05-000000000001-0123456789abcdef"}'}, "is not of level 0"),
        ({"table": "leased"}, "streams browse ready messages"),
        ({"table": "dead", "mode": "consume", "consumer": "c"}, "takes ready messages only"),
        ({"table": "dead", "endingoffsets": "now"}, "only ready messages have places"),
        ({"endingoffsets": '{"10": "now"}'}, "the levels are 0 to 9"),
        ({"levels": "1"}, "for tables only; the options are"),
        ({"maxmessagesperbatch": "0"}, "is not between 1"),
        ({"maxbytesperbatch": "much"}, "not a size"),
        ({"failondataloss": "perhaps"}, "failOnDataLoss"),
        ({"partitions": "many"}, "not an integer"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    queue: Queue, source: dict[str, str], options: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidOptions, match=problem):
        browse_stream.BrowseReader.of({**source, **options}, SCHEMA)


def test_names_that_are_none_are_refused(queue: Queue, source: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        consumer(source, consumer="\n")
    with pytest.raises(InvalidArgument, match="message id"):
        browser(source, startingoffsets="yesterday")
    with pytest.raises(QueueNotFound):
        consumer({**source, "queue": "nowhere"})


def test_a_checkpoint_of_something_else_is_refused(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, source: dict[str, str]
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    taking, looking = consumer(source), browser(source)
    taken, looked = taking.initialOffset(), latest(looking, looking.initialOffset())
    other = Queue.create(db, "other", root=space)
    elsewhere = fdbqueue.spark.options(db, other)
    for reader, offset, what in (
        (consumer(elsewhere), taken, "queue 'orders'"),
        (browser(elsewhere), looked, "queue 'orders'"),
        (consumer(source, consumer="another"), taken, "consumer 'stream'"),
        (browser(source), taken, "mode 'consume'"),
        (taking, looked, "mode 'browse'"),
    ):
        with pytest.raises(InvalidInput, match=what):
            latest(reader, offset)
    for offset in ({}, {**taken, "batch": "one"}):
        with pytest.raises(CorruptData, match="checkpoint"):
            latest(taking, offset)
    with pytest.raises(CorruptData, match="checkpoint"):
        latest(looking, {**looked, "levels": ["x"]})
    place = b64encode(queue._keys.place_after(99)).decode()
    behind = {**looked, "levels": [*looked["levels"], [5, place, place, 0]]}
    with pytest.raises(InvalidInput, match="restored"):
        latest(browser(source), behind)
    with pytest.raises(CorruptData, match="level"):
        latest(looking, {**looked, "levels": [[10, "AA==", "AA==", 0]]})


@pytest.mark.parametrize("make", [browser, consumer])
def test_a_queue_that_was_made_anew_ends_the_streams_of_the_one_before(
    db: fdb.Database,
    queue: Queue,
    space: fdb.Subspace,
    source: dict[str, str],
    make: Callable[..., Any],
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    running = make(source, failondataloss="false")
    start = running.initialOffset()
    end = latest(running, start)
    (partition, *_) = running.partitions(start, end)

    # When another queue has the name, and more messages than the first one had
    queue.delete(db)
    Queue.create(db, "orders", root=space)
    queue.enqueue_many(db, [b"%d" % n for n in range(9)])

    # Then neither a query that runs nor one that is started again goes on with it
    with pytest.raises(QueueReplaced):
        latest(running, end)
    with pytest.raises(QueueReplaced):
        list(running.read(partition))
    restarted = make(source, failondataloss="false")
    with pytest.raises(InvalidInput, match="earlier queue"):
        latest(restarted, end)
    with pytest.raises(InvalidInput, match="earlier queue"):
        restarted.partitions(start, end)
    assert queue.depth(db) == Depth(enqueued=9, ready=9, ready_bytes=9)
    # and one with a new checkpoint has all of it
    fresh_start = restarted.initialOffset()
    assert len(rows(restarted, fresh_start, latest(restarted, fresh_start))) == 9


def test_a_task_that_sees_another_queue_of_the_name_reads_nothing_of_it(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, source: dict[str, str]
) -> None:
    queue.enqueue(db, b"a")
    reader = batch_read.reader(source, SCHEMA)
    (piece,) = reader.partitions()
    queue.delete(db)
    Queue.create(db, "orders", root=space)
    queue.enqueue(db, b"b")
    with pytest.raises(QueueReplaced):
        list(reader.read(piece))
    stores._verify.cache_clear()
    with pytest.raises(StoreNotShared, match="created anew"):
        list(reader.read(piece))

"""Passing messages for a stream that keeps its places itself: none is missed, none comes twice."""

from __future__ import annotations

import pytest

from fdbqueue import NewMessage, Queue
from fdbqueue.errors import InvalidArgument
from fdbqueue.messages.streams.planning import BatchLimits
from fdbqueue.schema import once
from fdbqueue.schema.envelope import Envelope
from fdbqueue.schema.keys import LOWEST
from fdbqueue.store.binding import fdb
from fdbqueue.subscriptions import external_cursors
from fdbqueue.subscriptions.external_cursors import PassedMessages
from fdbqueue.subscriptions.start_position import StartPosition

Database = fdb.Database
Places = dict[int, bytes]

EVERYTHING = BatchLimits()


def advance(
    db: Database, queue: Queue, places: Places, limits: BatchLimits = EVERYTHING
) -> PassedMessages:
    return once.run(
        db,
        queue._keys.once,
        lambda tr: external_cursors.advance(tr, queue._scope(tr), PassedMessages(places), limits),
    )


def begin(db: Database, queue: Queue, place: str) -> Places:
    def body(tr: fdb.Transaction) -> Places:
        start = StartPosition.of("startingOffsets", place)
        return external_cursors.begin(tr, queue._scope(tr), start)

    return once.run(db, queue._keys.once, body)


def between(db: Database, queue: Queue, since: Places, until: Places) -> list[bytes]:
    """The messages that stand between places now, by level."""
    found = []
    for level, place in sorted(until.items()):
        start = queue._keys.ready_from(level, since.get(level, LOWEST)).start
        stop = queue._keys.ready_from(level, place).start
        if start < stop:
            rows = db.get_range(start, stop)
            found += [Envelope.unpack(kv.value).payload for kv in rows]
    return found


def test_messages_are_passed_in_order_as_far_as_the_limits_go(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in range(10)])
    first = advance(db, queue, {}, BatchLimits(messages=4))
    assert (first.messages, first.ended) == (4, True)
    assert between(db, queue, {}, first.places) == [b"9", b"8", b"7", b"6"]
    second = advance(db, queue, first.places)
    assert (second.messages, second.ended) == (6, True)
    assert between(db, queue, first.places, second.places) == [
        b"5", b"4", b"3", b"2", b"1", b"0",
    ]  # fmt: skip
    assert advance(db, queue, second.places).places == second.places


def test_bytes_limit_it_but_one_message_goes_in_any_case(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [bytes(200_000), bytes(1_000), bytes(1_000), bytes(1_000)])
    first = advance(db, queue, {}, BatchLimits(size=2_500))
    assert first.messages == 1
    second = advance(db, queue, first.places, BatchLimits(size=2_500))
    assert second.messages == 2
    assert second.size < 2_500


def test_what_came_after_the_ends_were_taken_is_not_passed(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    ends = queue.streams.plans.planner("any").ends(db)
    queue.enqueue_many(db, [b"b", NewMessage(b"urgent", priority=9)])
    passed = advance(db, queue, {}, BatchLimits(ends=ends))
    assert between(db, queue, {}, passed.places) == [b"a"]
    later = advance(db, queue, passed.places)
    assert between(db, queue, passed.places, later.places) == [b"urgent", b"b"]


def test_nothing_that_stands_before_now_is_in_what_follows(db: Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, [b"a", b"b", b"c"])
    now = begin(db, queue, "now")
    queue.receive(db, at_most_once=True)
    queue.enqueue_many(db, [b"d", NewMessage(b"e", priority=0)])
    rest = advance(db, queue, now)
    assert between(db, queue, now, rest.places) == [b"d", b"e"]
    assert begin(db, queue, "first") == {}
    second = begin(db, queue, ids[1])
    rest = advance(db, queue, second)
    assert between(db, queue, second, rest.places) == [b"b", b"c", b"d", b"e"]
    with pytest.raises(InvalidArgument, match="no such level"):
        begin(db, queue, "20-000000000001-0011223344556677")

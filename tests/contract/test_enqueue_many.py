"""Messages of one call: however they are packed, they arrive as they were given."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from fdbqueue import Bounds, NewMessage, Queue
from fdbqueue.errors import InvalidArgument, InvalidPayload, PayloadTooLarge
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from tests.audit import sound

Database = fdb.Database
HUNDRED = [b"%d" % n for n in range(100)]
PLAIN: list[Any] = [
    b"payload",
    b"",
    NewMessage(b"with headers", headers={"a": 1, "b": "x", "c": None, "d": 0.5, "e": True}),
    NewMessage(b"urgent", priority=9),
    NewMessage(b"at once", delay=0, headers={}),
]
OTHERS: list[Any] = [
    bytearray(b"bytes that may change"),
    NewMessage(b"unique", unique="u"),
    NewMessage(b"once", dedup_id="d"),
    NewMessage(b"mortal", ttl=60),
    NewMessage(b"ordered", key="k"),
    NewMessage(b"late", delay=60),
    NewMessage(b"three times", max_attempts=3),
    NewMessage(b"<a/>", content_type="text/xml"),
    NewMessage(b"large" * 40_000),
]


def rows(db: Database, queue: Queue, kind: Kind = QueueKeys.ready) -> list[fdb.KeyValue]:
    every = queue._keys.kind(kind)
    return list(db.get_range(every.start, every.stop))


def test_a_hundred_are_one_row_and_four_mutations(
    db: Database, queue: Queue, mutations: Callable[[Callable[[], Any]], int]
) -> None:
    queue.enqueue(db, b"before")
    # The row, its level's counters, what sleepers watch, and the record of the transaction
    assert mutations(lambda: queue.enqueue_many(db, HUNDRED)) == 4
    assert mutations(lambda: queue.enqueue_many(db, HUNDRED * 10)) == 4
    assert len(rows(db, queue)) == 3


def test_an_import_writes_the_same_rows_and_its_place(
    db: Database, queue: Queue, mutations: Callable[[Callable[[], Any]], int]
) -> None:
    source = queue.streams.importer("source")
    source.enqueue(db, HUNDRED, since=b"", until=b"1")
    assert mutations(lambda: source.enqueue(db, HUNDRED, since=b"1", until=b"2")) == 5
    assert len(rows(db, queue)) == 2


def test_a_move_and_a_copy_write_the_rows_of_the_messages_they_take(
    db: Database, space: fdb.Subspace, queue: Queue
) -> None:
    queue.enqueue_many(db, HUNDRED)
    copied, moved = (Queue.create(db, name, root=space) for name in ("copied", "moved"))
    queue.copy(db, copied)
    queue.move(db, moved)
    for other in (copied, moved):
        assert [each.payload for each in other.browse(db)] == HUNDRED
        assert len(rows(db, other)) == 1
        sound(db, other)
    assert rows(db, queue) == []
    sound(db, queue)


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    "options", [{}, {"history_seconds": 60}, {"bounds": Bounds(messages=1_000)}]
)
@pytest.mark.parametrize("other", OTHERS, ids=lambda each: getattr(each, "payload", each)[:9])
def test_they_arrive_as_they_were_given_beside_whatever_others(
    db: Database, space: fdb.Subspace, options: dict[str, Any], other: Any
) -> None:
    for place in (0, 3, 10):
        # Given plain messages with another one among them
        queue = Queue.create(db, f"at {place}", root=space, **options)
        given = PLAIN * 2
        given.insert(place, other)
        # When they are enqueued together
        ids = queue.enqueue_many(db, given)
        # Then each is found under its own id, as it was given, and in the order of the call
        whole = [each if isinstance(each, NewMessage) else NewMessage(each) for each in given]
        for message_id, new in zip(ids, whole, strict=True):
            found = queue.get(db, message_id)
            assert found is not None
            message = found.message
            assert message.payload == new.payload
            assert message.priority == new.priority
            assert message.headers == (new.headers or {})
            assert message.content_type == (new.content_type or "application/octet-stream")
        ready = [each for each in zip(whole, ids, strict=True) if not each[0].delay]
        ready.sort(key=lambda each: -each[0].priority)
        assert [each.id for each in queue.browse(db)] == [message_id for _, message_id in ready]
        sound(db, queue)


@pytest.mark.parametrize("levels", [1, 2, 3, 10, 20])
def test_priorities_that_share_a_level_keep_their_order(
    db: Database, space: fdb.Subspace, levels: int
) -> None:
    queue = Queue.create(db, "levels", root=space, levels=levels)
    given = [NewMessage(b"%d" % n, priority=7 * n % 10) for n in range(100)]
    ids = queue.enqueue_many(db, given)
    level = queue.options(db).level
    expected = sorted(range(100), key=lambda n: level(given[n].priority))
    found = list(queue.browse(db))
    assert [each.payload for each in found] == [b"%d" % n for n in expected]
    assert [each.id for each in found] == [ids[n] for n in expected]
    sound(db, queue)


HEADERS: Any = {"a": []}
BAD: list[tuple[Any, type[Exception]]] = [
    (NewMessage(b"x", priority=10), InvalidArgument),
    (NewMessage(b"x", priority=-1), InvalidArgument),
    (NewMessage(b"x", priority=2**70), InvalidArgument),
    (NewMessage(b"x", priority=True), InvalidArgument),
    (NewMessage(b"x", priority=cast(int, 1.0)), InvalidArgument),
    (NewMessage(b"x", headers=HEADERS), InvalidArgument),
    ({"text"}, InvalidPayload),
    (bytes(2_000), PayloadTooLarge),
    (NewMessage(bytes(2_000), unique="u"), PayloadTooLarge),
    (bytes(200_000), PayloadTooLarge),
]


@pytest.mark.parametrize(("bad", "error"), BAD)
@pytest.mark.parametrize(
    "beside", [b"plain", NewMessage(b"mortal", ttl=60), NewMessage(b"equal", priority=1)]
)
def test_after_an_error_nothing_is_written(
    db: Database, space: fdb.Subspace, bad: Any, error: type[Exception], beside: Any
) -> None:
    queue = Queue.create(db, "small", root=space, max_payload=1_000)
    for given in ([beside] * 20 + [bad], [bad] + [beside] * 20, [b"x", bad, beside]):
        tr = db.create_transaction()
        with pytest.raises(error):
            queue.enqueue_many(tr, given)
        tr.commit().wait()
        assert queue.depth(db).enqueued == 0
        assert not any(
            rows(db, queue, kind) for kind in (QueueKeys.ready, QueueKeys.unique, QueueKeys.delayed)
        )
        sound(db, queue)


@pytest.mark.parametrize(
    "full", [{}, {"bounds": Bounds(messages=20, when_full="drop-oldest"), "max_payload": 200_000}]
)
def test_no_chunk_is_written_and_no_message_dropped_for_a_call_that_is_refused(
    db: Database, space: fdb.Subspace, full: dict[str, Any]
) -> None:
    queue = Queue.create(db, "chunks", root=space, **{"max_payload": 200_000, **full})
    queue.enqueue_many(db, [b"x"] * 20)
    tr = db.create_transaction()
    with pytest.raises(PayloadTooLarge):
        queue.enqueue_many(tr, [bytes(150_000), bytes(200_001)])
    tr.commit().wait()
    assert queue.depth(db).ready == 20
    assert rows(db, queue, QueueKeys.chunk) == []
    sound(db, queue)


def test_a_serializer_sees_each_message_once(db: Database, space: fdb.Subspace) -> None:
    seen = []

    class Counting:
        content_type = "text/plain"

        def dumps(self, value: str) -> bytes:
            seen.append(value)
            return value.encode()

        def loads(self, payload: bytes) -> str:
            return payload.decode()

    queue = Queue.create(db, "texts", root=space, serializer=Counting())
    given = [*"abcdefgh", NewMessage("i", ttl=60), *"jklmnopqr"]
    queue.enqueue_many(db, given)
    assert seen == list("abcdefghijklmnopqr")
    assert [queue.value(each) for each in queue.browse(db)] == seen
    assert {each.content_type for each in queue.browse(db)} == {"text/plain"}


def test_a_call_sees_the_calls_before_it_in_its_transaction(db: Database, queue: Queue) -> None:
    tr = db.create_transaction()
    calls = [HUNDRED[n : n + size] for n, size in ((0, 10), (10, 3), (13, 50), (63, 37))]
    ids = [*itertools.chain(*(queue.enqueue_many(tr, each) for each in calls))]
    assert [each.payload for each in queue.peek(tr, 100)] == HUNDRED
    tr.commit().wait()
    assert [each.id for each in queue.browse(db)] == ids == sorted(set(ids))
    sound(db, queue)

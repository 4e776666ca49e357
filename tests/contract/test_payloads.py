"""Payloads: in chunks, compressed, serialized; and nothing of them is left behind."""

from __future__ import annotations

import enum
import json
import math
import os
import pickle
import re
import sys
import uuid
from collections import OrderedDict
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from fdbqueue import Depth, NewMessage, Queue
from fdbqueue.errors import (
    CorruptData,
    InvalidArgument,
    InvalidOptions,
    InvalidPayload,
    MissingPackage,
    OptionsMismatch,
    PayloadTooLarge,
    UnknownContentType,
)
from fdbqueue.store.binding import fdb
from fdbqueue.testing import drain
from fdbqueue.values import serializers
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace

LARGE = os.urandom(1_000_003)
TEXT = b"the same words again and again, " * 30_000


def chunks(db: Database, queue: Queue) -> int:
    """How many pieces of payloads are stored."""
    kind = queue._keys.chunk.rows
    return len(db.get_range(kind.start, kind.stop))


@pytest.mark.parametrize("size", [0, 1, 90_000, 90_001, 180_000, 180_001, 8_000_000])
def test_a_payload_of_any_size_comes_back_and_leaves_nothing(
    db: Database, queue: Queue, size: int
) -> None:
    payload = os.urandom(size)
    queue.enqueue(db, payload)
    assert queue.depth(db).ready_bytes == size
    assert queue.peek(db)[0].payload == payload
    delivery = take(db, queue)
    assert delivery.payload == payload
    queue.ack(db, delivery)
    assert queue.depth(db) == Depth(enqueued=1, done=1)
    assert chunks(db, queue) == 0


def test_a_large_message_is_dequeued_whole(db: Database, queue: Queue) -> None:
    queue.enqueue(db, LARGE)
    message = queue.receive(db, at_most_once=True)
    assert message is not None
    assert message.payload == LARGE
    assert chunks(db, queue) == 0


def test_a_large_message_survives_release_and_extension(db: Database, queue: Queue) -> None:
    queue.enqueue(db, LARGE, headers={"a": 1})
    for _ in range(2):
        delivery = take(db, queue)
        delivery = queue.extend(db, delivery, 60)
        queue.release(db, delivery)
    assert queue.peek(db)[0].payload == LARGE
    assert queue.depth(db) == Depth(enqueued=1, ready=1, ready_bytes=len(LARGE))


def test_a_purge_takes_the_chunks_along(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [LARGE, b"small", LARGE])
    assert chunks(db, queue) == 24
    queue.purge(db)
    assert chunks(db, queue) == 0


def test_a_batch_of_large_messages_ends_where_a_transaction_would(
    db: Database, queue: Queue
) -> None:
    payloads = [bytes([n]) * 3_000_000 for n in range(3)]
    for payload in payloads:
        queue.enqueue(db, payload)
    assert [m.payload for m in queue.peek(db, 10)] == payloads[:2]
    found = queue.receive_many(db, 10)
    assert [d.payload for d in found] == payloads[:2]
    assert [d.payload for d in queue.receive_many(db, 10)] == payloads[2:]


def test_a_batch_of_many_payloads_fits_into_its_transaction(db: Database, queue: Queue) -> None:
    for _ in range(3):
        queue.enqueue_many(db, [bytes(89_000)] * 50)
    got = []
    while found := queue.receive_many(db, 10_000):
        got.append(len(found))
    assert len(got) == 2
    assert sum(got) == 150


def test_the_limit_of_the_queue_is_kept(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "small", root=space, max_payload=1_000)
    queue.enqueue(db, bytes(1_000))
    with pytest.raises(PayloadTooLarge, match="1,001 bytes; at most 1,000"):
        queue.enqueue_many(db, [b"fits", bytes(1_001)])
    assert queue.depth(db).enqueued == 1


def test_no_payload_is_larger_than_a_transaction(db: Database, queue: Queue) -> None:
    with pytest.raises(PayloadTooLarge, match="at most 8,000,000"):
        queue.enqueue(db, bytes(8_000_001))
    queue.set_options(db, max_payload=9_000_000)
    with pytest.raises(PayloadTooLarge, match="at most 9,000,000"):
        queue.enqueue(db, bytes(9_000_001))
    queue.enqueue(db, bytes(9_000_000))
    delivery = take(db, queue)
    assert len(delivery.payload) == 9_000_000


@pytest.mark.parametrize("compression", ["zlib", "zstd"])
def test_a_large_payload_is_compressed_out_of_sight(
    db: Database, space: Subspace, compression: str
) -> None:
    queue = Queue.create(db, "packed", root=space, compression=compression)
    noise = os.urandom(200_000)
    queue.enqueue_many(db, [TEXT, b"too small to bother" * 2, noise])
    assert chunks(db, queue) == 3, "the text fits into its envelope; noise is left as it is"
    assert queue.depth(db).ready_bytes == len(TEXT) + 38 + len(noise)
    queue.set_options(db, compression="none")
    found = queue.receive_many(db, 9)
    assert [d.payload for d in found] == [TEXT, b"too small to bother" * 2, noise]
    queue.ack(db, found)
    assert queue.depth(db).ready_bytes == 0
    assert chunks(db, queue) == 0


def test_an_unknown_compression_is_refused(db: Database, space: Subspace) -> None:
    with pytest.raises(InvalidOptions, match="compression"):
        Queue.create(db, "packed", root=space, compression="lz77")


def test_compression_without_its_package_is_refused_before_anything_is_written(
    db: Database, space: Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for make in (Queue.create, Queue.open):
        with pytest.raises(MissingPackage, match="zstandard"):
            make(db, "packed", root=space, compression="zstd")
    queue = Queue.create(db, "packed", root=space)
    with pytest.raises(MissingPackage):
        queue.set_options(db, compression="zstd")
    assert queue.options(db).compression == "none"


def test_a_lost_chunk_is_an_error_and_no_shorter_payload(db: Database, queue: Queue) -> None:
    queue.enqueue(db, LARGE)
    kind = queue._keys.chunk.rows
    first = next(iter(db.get_range(kind.start, kind.stop, limit=1)))
    del db[first.key]
    with pytest.raises(CorruptData, match="chunks have 910,003 bytes, not 1,000,003"):
        queue.receive(db)
    assert queue.depth(db).ready == 1


# -- serializers ------------------------------------------------------------------------------


class Reversed:
    """Text, backwards; a serializer of a user."""

    content_type = "text/x-reversed"

    def dumps(self, value: Any) -> bytes:
        return str(value[::-1]).encode()

    def loads(self, payload: bytes) -> Any:
        return payload.decode()[::-1]


def test_json_goes_in_and_comes_out(db: Database, space: Subspace) -> None:
    queue = Queue.open(db, "orders", root=space)
    order = {"item": "größe", "count": [1, 2.5, None, True]}
    queue.enqueue(db, order)
    queue.enqueue_many(db, [NewMessage(5), "text", None])
    delivery = take(db, queue)
    assert queue.value(delivery) == order
    assert delivery.payload == '{"item":"größe","count":[1,2.5,null,true]}'.encode()
    assert delivery.message.content_type == "application/json"
    assert [queue.value(message) for message in queue.peek(db, 9)] == [5, "text", None]


def test_a_users_serializer_goes_with_the_handle(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "orders", root=space, serializer=Reversed())
    pickle.loads(pickle.dumps(queue)).enqueue(db, "abc")
    message = queue.peek(db)[0]
    assert (message.payload, queue.value(message)) == (b"cba", "abc")


def test_a_message_is_read_by_its_own_content_type(db: Database, space: Subspace) -> None:
    plain = Queue.create(db, "orders", root=space)
    plain.enqueue(db, b"bytes")
    Queue.open(db, "orders", root=space).enqueue(db, ["json"])
    mine = Queue.open(db, "orders", root=space, serializer=Reversed())
    mine.enqueue(db, "abc")
    messages = plain.peek(db, 3)
    assert [mine.value(message) for message in messages] == [b"bytes", ["json"], "abc"]
    with pytest.raises(UnknownContentType, match="text/x-reversed"):
        plain.value(messages[2])


@pytest.mark.parametrize("given", ["", "x" * 201, "a\ud800", b"text/plain"])
def test_what_is_no_content_type_is_refused(db: Database, queue: Queue, given: Any) -> None:
    with pytest.raises(InvalidArgument, match="content_type"):
        queue.enqueue_many(db, [NewMessage(b"x", content_type=given)])


@pytest.mark.parametrize(
    "serializer",
    [
        *("json", object(), 5),
        *(
            type("S", (Reversed,), {"content_type": given})()
            for given in ("", "x" * 201, "a\ud800")
        ),
    ],
)
def test_an_unknown_serializer_is_refused(db: Database, space: Subspace, serializer: Any) -> None:
    with pytest.raises(InvalidOptions, match="serializer"):
        Queue.create(db, "orders", root=space, serializer=serializer)
    with pytest.raises(Exception, match="no queue"):
        Queue.open(db, "orders", root=space, create=False)


class Level(enum.IntEnum):
    LOW = 1


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (("tea", 2), "not tuple, which JSON gives back as list"),
        ({"lines": [1, ("tea", 2)]}, "tuple at payload['lines'][1]"),
        (math.nan, "the float nan, which JSON does not have"),
        ({"a": {17: "tea"}}, "dict at payload['a'], whose key 17 is no str"),
        ({"scan": b"tea"}, "bytes at payload['scan'], which JSON does not have"),
        (Level.LOW, "Level, which JSON gives back as int"),
        ([OrderedDict(a=1)], "OrderedDict at payload[0], which JSON gives back as dict"),
        ("\ud800", "what JSON gives back in value and type, not str ('utf-8' codec can't encode"),
        ([10**4_400], "what JSON gives back in value and type, not list (Exceeds the limit"),
        (ENDLESS, "more than 100"),
    ],
    ids=range(10),
)
def test_what_json_does_not_give_back_is_refused(
    db: Database, queue: Queue, value: Any, where: str
) -> None:
    with pytest.raises(InvalidPayload, match=re.escape(where)):
        queue.enqueue(db, value)
    with pytest.raises(InvalidPayload, match=re.escape(where)):
        queue.enqueue_many(db, [1, value])
    assert queue.depth(db) == Depth()


def test_what_json_gives_back_is_what_was_enqueued(db: Database, queue: Queue) -> None:
    given: list[Any] = [
        b"{",
        "{",
        {},
        [],
        None,
        True,
        1,
        1.0,
        -0.0,
        2**70,
        {"a": [{"b": [[], ""]}, False]},
    ]
    queue.enqueue_many(db, given)
    for each in given:
        queue.enqueue(db, each)
    found = [queue.value(each) for each in queue.peek(db, 99)]
    assert repr(found) == repr(given * 2)


def test_a_queue_keeps_what_its_serializer_is(db: Database, space: Subspace) -> None:
    Queue.open(db, "typed", root=space)
    Queue.open(db, "typed", root=space, serializer=Order).enqueue(db, ORDER)
    with pytest.raises(OptionsMismatch, match=r"Order \(application/json\).*Line \(application"):
        Queue.open(db, "typed", root=space, serializer=Line)
    plain = Queue.open(db, "typed", root=space)
    plain.enqueue(db, {"number": 17})
    with pytest.raises(InvalidPayload, match="not bytes"):
        plain.enqueue(db, b"17")
    typed = Queue.open(db, "typed", root=space, create=False, serializer=Order)
    assert [typed.value(each) for each in typed.peek(db, 9)] == [ORDER, Order(number=17)]
    typed.set_options(db, serializer=Line)
    Queue.open(db, "typed", root=space, serializer=Line)


def test_who_has_not_the_serializer_enqueues_what_it_makes(db: Database, space: Subspace) -> None:
    Queue.create(db, "notes", root=space, serializer=Reversed())
    plain: Queue[Any] = Queue.open(db, "notes", root=space)
    with pytest.raises(InvalidPayload, match="bytes, not str"):
        plain.enqueue(db, "abc")
    plain.enqueue(db, b"cba")
    with pytest.raises(UnknownContentType, match="text/x-reversed"):
        plain.value(plain.peek(db)[0])
    mine = Queue.open(db, "notes", root=space, serializer=Reversed())
    assert mine.value(mine.peek(db)[0]) == "abc"


def test_a_queue_of_bytes_takes_only_bytes(db: Database, space: Subspace) -> None:
    Queue.create(db, "scans", root=space, serializer=bytes)
    again: Queue[Any] = Queue("scans", space, serializer=bytes)
    for queue in (Queue.open(db, "scans", root=space), again):
        with pytest.raises(InvalidPayload, match="bytes, not dict"):
            queue.enqueue(db, {"a": 1})
        queue.enqueue(db, b"{}")
        assert queue.value(queue.peek(db)[0]) == b"{}"


def test_a_payload_that_is_not_of_its_type_is_an_error(db: Database, space: Subspace) -> None:
    class Broken(Reversed):
        content_type = "application/json"

    queue = Queue.create(db, "orders", root=space, serializer=Broken())
    queue.enqueue(db, "{}")
    reader = Queue.open(db, "orders", root=space)
    with pytest.raises(CorruptData, match="as application/json"):
        reader.value(reader.peek(db)[0])


@dataclass
class Line:
    item: str
    count: int = 1


class Order(BaseModel):
    number: int
    lines: list[Line] = []
    due: datetime | None = None


ORDER = Order(number=17, lines=[Line("tea", 2)], due=datetime(2026, 1, 2, tzinfo=UTC))


JSON = b'{"number":17,"lines":[{"item":"tea","count":2}],"due":"2026-01-02T00:00:00Z"}'


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (Order, ORDER, JSON),
        (Line, Line("tea"), b'{"item":"tea","count":1}'),
        (int, 17, b"17"),
        (bytes, b"17", b"17"),
    ],
)
def test_a_type_is_a_serializer(
    db: Database, space: Subspace, kind: type, value: Any, stored: bytes
) -> None:
    queue: Queue[Any] = Queue.create(db, "typed", root=space, serializer=kind)
    queue.enqueue(db, value)
    message = queue.peek(db)[0]
    assert message.payload == stored
    assert queue.value(message) == value
    again = pickle.loads(pickle.dumps(queue))
    assert again.value(message) == value
    if kind is not bytes:
        plain = Queue.open(db, "typed", root=space, create=False)
        assert plain.value(message) == json.loads(stored)


CHANGED = Order(number=18)
CHANGED.number = "many"  # type: ignore[assignment]


@pytest.mark.parametrize("wrong", [Line("tea"), {"number": "17"}, b"17", None, CHANGED])
def test_a_value_of_another_type_is_refused(db: Database, space: Subspace, wrong: Any) -> None:
    queue = Queue.create(db, "typed", root=space, serializer=Order)
    with pytest.raises(InvalidPayload):
        queue.enqueue(db, wrong)
    assert queue.depth(db).enqueued == 0


def test_a_payload_that_is_not_of_the_type_is_corrupt(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "typed", root=space, serializer=Order)
    Queue.open(db, "typed", root=space).enqueue(db, {"number": "many"})
    with pytest.raises(CorruptData, match="number"):
        queue.value(queue.peek(db)[0])


NASTY: list[Any] = [
    *(None, True, 0, -1, 10**15, 1.5, math.nan, math.inf, -math.inf, "", "tea", "\ud800", "5"),
    *(b"\xff", b"ok", Decimal("1.5"), Decimal("NaN"), Decimal("Infinity"), uuid.UUID(int=5)),
    *(datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), timedelta(days=-1), [1], [math.nan]),
    *({"a": 1.5}, {"a": math.inf}, {1}, (1, "x"), Line("tea"), Line("tea", "many")),  # type: ignore[arg-type]
    *(Line(None), CHANGED, ORDER),  # type: ignore[arg-type]
]
KINDS: list[Any] = [
    *(int, float, bool, str, bytes, Decimal, uuid.UUID, datetime, timedelta, Line, Order),
    *(Literal["tea", "ink"], float | None, int | str, list[int], list[float], set[int]),
    *(tuple[int, str], dict[str, float], Line | None, list[Line]),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_type_takes_is_read_back(kind: Any) -> None:
    holder: Any = make_dataclass("Holder", [("field", kind)])
    serializer = serializers.find(holder)
    assert serializer is not None
    accepted = 0
    for value in [*NASTY, [Line("tea")], "ink"]:
        try:
            payload, _ = serializers.dumps(serializer, holder(value))
        except InvalidPayload:
            continue
        accepted += 1
        assert serializer.loads(payload) == holder(value)
        assert json.loads(payload, parse_constant=pytest.fail) is not None
    assert accepted


class NoSerializer:
    def __init__(self, unknown: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "problem"), [(NoSerializer, "NoSerializer"), (serializers.JsonSerializer, r"\(\)")]
)
def test_a_type_that_is_no_serializer_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidOptions, match=problem):
        Queue("typed", serializer=given)


def test_a_type_needs_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(MissingPackage, match=r"fdbqueue\[pydantic\]"):
        Queue("typed", serializer=Line)


def test_a_handler_gets_the_value(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "typed", root=space, serializer=Order, max_attempts=1)
    queue.enqueue_many(db, [ORDER, Order(number=18)])
    Queue.open(db, "typed", root=space).enqueue(db, ["no order"])
    seen: list[Any] = []

    def handle(tr: fdb.Transaction, order: Order) -> None:
        tr[space["done"].pack((order.number,))] = b""
        seen.append(order)

    drain(db, queue, handle, failures=True)
    assert seen == [ORDER, Order(number=18)]
    assert "CorruptData" in queue.dead.list(db)[0].death.reason
    queue.enqueue_many(db, [ORDER, Order(number=19)])
    batches: list[list[Order]] = []

    def together(orders: list[Order]) -> None:
        batches.append(orders)

    drain(db, queue, together, batch=10)
    assert batches == [[ORDER, Order(number=19)]]

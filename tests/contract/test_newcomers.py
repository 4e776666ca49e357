"""What newcomers do: what is meant is taken, and what is wrong is named in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from fdbqueue import (
    Bounds,
    KeyLimits,
    NewMessage,
    Queue,
    Then,
    Worker,
    aio,
    transactional,
)
from fdbqueue.errors import CorruptData, InvalidArgument, InvalidPayload, InvalidSelector
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock

CALLS: dict[str, Callable[[Queue, Any], object]] = {
    "create": lambda queue, db: Queue.create(db, "other"),
    "open": lambda queue, db: Queue.open(db, "other"),
    "enqueue": lambda queue, db: queue.enqueue(db, b"x"),
    "enqueue later": lambda queue, db: queue.enqueue(db, b"x", delay=1),
    "receive": lambda queue, db: queue.receive(db),
    "peek": lambda queue, db: queue.peek(db),
    "depth": lambda queue, db: queue.depth(db),
    "cancel": lambda queue, db: queue.cancel(db, "05-000000000001-0de7d4c122375cdb"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("given", [None, "orders", 7], ids=repr)
def test_what_is_no_database_is_named(
    db: fdb.Database, space: fdb.Subspace, given: object, call: Callable[[Queue, Any], object]
) -> None:
    queue = Queue.create(db, "orders", root=space)
    with pytest.raises(InvalidArgument, match=f"db={given!r}: must be a database"):
        call(queue, given)


@pytest.mark.parametrize("hour", ["1h", "60m", "3600", "59m60s", timedelta(hours=1), 3600])
def test_a_duration_may_be_written_as_in_the_shell(
    db: fdb.Database, space: fdb.Subspace, hour: Any
) -> None:
    clock = ManualClock()
    queue = Queue.create(db, "orders", root=space, clock=clock)
    queue.enqueue(db, b"a", delay=hour)
    queue.enqueue_many(db, [NewMessage(b"b", delay=hour)])
    clock.seconds += 3599
    assert queue.receive(db) is None
    clock.seconds += 1
    held = queue.receive_many(db, 2, lease=hour)
    assert {each.payload for each in held} == {b"a", b"b"}
    clock.seconds += 3599
    queue.extend(db, held, hour)


@pytest.mark.parametrize("wrong", ["soon", "1 h", "-1h", "", "1h junk"])
def test_a_text_that_is_no_duration_is_refused(
    db: fdb.Database, space: fdb.Subspace, wrong: str
) -> None:
    queue = Queue.create(db, "orders", root=space)
    with pytest.raises(InvalidArgument, match=r'delay=.* or a text such as "90s"'):
        queue.enqueue(db, b"x", delay=wrong)
    with pytest.raises(InvalidArgument, match=r'wait=.* or a text such as "90s"'):
        queue.receive(db, wait=wrong)


def test_an_id_as_bytes_is_shown_what_an_id_is(db: fdb.Database, space: fdb.Subspace) -> None:
    queue: Any = Queue.create(db, "orders", root=space)
    given = queue.enqueue(db, b"x").encode()
    for call in (queue.get, queue.cancel, lambda db, given: queue.cancel(db, [given])):
        with pytest.raises(InvalidArgument, match=r"not a message id, which is a str such as '05-"):
            call(db, given)


@pytest.mark.parametrize("given", [None, "orders"], ids=repr)
def test_a_worker_is_told_that_it_needs_a_queue(db: fdb.Database, given: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"queue={given!r}: must be a Queue"):
        Worker(db).add(given, print)


WRONG: dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]] = {
    "one text for several messages": (
        lambda queue, db: queue.enqueue_many(db, "tea"),
        InvalidArgument,
        "messages='tea': give a list of messages, not str",
    ),
    "a dict for several messages": (
        lambda queue, db: queue.enqueue_many(db, {"a": 1}, group=Then(b"all")),
        InvalidArgument,
        "give a list of messages, not dict",
    ),
    "one message for several": (
        lambda queue, db: queue.enqueue_many(db, NewMessage(b"x")),
        InvalidArgument,
        "give a list of messages, not NewMessage",
    ),
    "a number for a match": (
        lambda queue, db: queue.purge(db, match=5),
        InvalidArgument,
        "match=5: must be a selector, or a function",
    ),
    "a function where a selector is needed": (
        lambda queue, db: queue.receive(db, match=lambda message: True),
        InvalidSelector,
        "it must be a str, not function",
    ),
    "an edit of nothing": (
        lambda queue, db: queue.edit(db, match="TRUE"),
        InvalidArgument,
        "give what changes",
    ),
    "a number for a key": (
        lambda queue, db: queue.enqueue(db, b"x", key=17),
        InvalidArgument,
        "key=17: it must be a str",
    ),
    "a number for a consumer": (
        lambda queue, db: queue.receive(db, consumer=17),
        InvalidArgument,
        "consumer=17: it must be a str",
    ),
    "what is no function for a job": (
        lambda queue, db: queue.job(5),
        InvalidArgument,
        "function=5: must be a function",
    ),
    "a function without a name for a job": (
        lambda queue, db: queue.job(partial(print, "tea")),
        InvalidArgument,
        "needs name=",
    ),
}


@pytest.mark.parametrize(("call", "error", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_and_nothing_is_written(
    db: fdb.Database,
    space: fdb.Subspace,
    call: Callable[[Any, Any], object],
    error: type[Exception],
    told: str,
) -> None:
    queue = Queue.create(db, "orders", root=space)
    with pytest.raises(error, match=told):
        call(queue, db)
    assert queue.depth(db).enqueued == 0


def test_a_misspelt_argument_is_told_the_one_that_was_meant(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    queue: Any = Queue.create(db, "orders", root=space)
    subscription: Any = queue.subscriptions.open(db, "all")
    for call, misspelt, meant in (
        (queue.receive, "leese", "lease"),
        (partial(queue.receive_many, max_messages=2), "mtach", "match"),
        (partial(queue.receive_batch, max_messages=2), "wiat", "wait"),
        (subscription.receive, "consumr", "consumer"),
        (queue.cancel, "stats", "states"),
        (queue.purge, "progres", "progress"),
        (queue.retry, "macth", "match"),
    ):
        with pytest.raises(TypeError, match=f"no argument '{misspelt}': did you mean '{meant}'"):
            call(db, **{misspelt: None})
    for call in (subscription.receive, partial(subscription.receive_many, max_messages=2)):
        with pytest.raises(TypeError, match="no argument 'match'"):
            call(db, match="TRUE")  # its own selector says what it covers


_aio: Any = aio
_Bounds: Any = Bounds
_KeyLimits: Any = KeyLimits
_Queue: Any = Queue
_Worker: Any = Worker
MISFITS: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "enqueue": (lambda queue, db: queue.enqueue(db, b"x", kye="a"), "did you mean 'key'?"),
    "enqueue_many": (lambda queue, db: queue.enqueue_many(db, [], grup=1), "mean 'group'?"),
    "receive": (lambda queue, db: queue.receive(db, lesae=1), "did you mean 'lease'?"),
    "schedule": (lambda queue, db: queue.schedules.set(db, "n", corn=""), "mean 'cron'?"),
    "job": (lambda queue, db: queue.job(print).enqueue(db, 1, prioritty=9), "mean 'priority'?"),
    "KeyLimits": (lambda *_: _KeyLimits(concurency=1), "KeyLimits .* did you mean 'concurrency'?"),
    "Bounds": (lambda *_: _Bounds(mesages=1), "Bounds .* did you mean 'messages'?"),
    "nothing near": (lambda *_: _KeyLimits(waiting=1), "KeyLimits has no argument 'waiting'$"),
    "Worker": (lambda queue, db: _Worker(db, concurency=1), "Worker .* mean 'concurrency'?"),
    "Worker.add": (lambda queue, db: _Worker(db).add(queue, print, tke=1), "did you mean 'take'?"),
    "a term": (lambda queue, db: _Worker(db).add(queue, print, lease=4), r"take=Take\(lease=…\)"),
    "near a term": (
        lambda queue, db: _Worker(db).handler(queue, max_atempts=4),
        r"did you mean fail=Fail\(max_attempts=…\)",
    ),
    "aio.Worker": (
        lambda queue, db: _aio.Worker(_aio.Database(db)).add(_aio.Queue.of(queue), print, batch=4),
        r"run=Run\(batch=…\)",
    ),
    "no database": (lambda queue, db: queue.enqueue(b"x", key="a"), r"call enqueue\(tr, payload"),
    "none, many": (lambda queue, db: queue.enqueue_many([b"x"]), r"enqueue_many\(tr, messages"),
    "none, job": (lambda queue, db: queue.job(print).enqueue(b"x"), r"enqueue\(tr, value"),
    "none, open": (lambda queue, db: _Queue.open("orders"), r"call open\(tr, name"),
}


@pytest.mark.parametrize(("call", "told"), MISFITS.values(), ids=MISFITS)
def test_an_argument_that_does_not_fit_is_told_which_is_meant(
    db: fdb.Database, queue: Queue, call: Callable[[Queue, Any], object], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        call(queue, db)


def test_a_type_error_of_what_is_given_passes(db: fdb.Database, space: fdb.Subspace) -> None:
    class Odd:
        content_type = "text/odd"

        def dumps(self, value: str) -> bytes:
            return value.encode()

        def loads(self, payload: bytes) -> str:
            return payload.decode()

    class Clocks(ManualClock):
        def wall_ms(self) -> int:
            raise TypeError("of the clock")

    queue = Queue.create(db, "odd", root=space, serializer=Odd(), clock=Clocks())
    with pytest.raises(TypeError, match="of the clock"):
        queue.enqueue(db, "x", delay=1)


def test_a_forgotten_database_of_a_function_is_named(db: fdb.Database) -> None:
    @transactional
    def place(tr: fdb.Transaction, number: int = 0) -> None: ...

    @aio.transactional
    async def place_too(tr: aio.Transaction, number: int = 0) -> None: ...

    given: tuple[tuple[Any, ...], ...] = ((7,), (), (db,))
    wrong: Any = place
    for arguments in given[:2]:
        with pytest.raises(InvalidArgument, match=r"tr=(7|None): must be a database"):
            wrong(*arguments)
    with pytest.raises(InvalidArgument, match="by its place"):
        wrong(tr=db)
    wrong = place_too
    for arguments in given:
        with pytest.raises(InvalidArgument, match=r"must be a database, as fdbqueue\.aio\.open"):
            asyncio.run(wrong(*arguments))
    asyncio.run(wrong(tr=aio.Database(db)))


class Order(BaseModel):
    number: int
    customer: str


def test_a_payload_that_is_not_of_the_type_is_told_of_it_in_one_line(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    orders: Queue[Any] = Queue.open(db, "orders", root=space, serializer=Order)
    untyped = Queue[Any]("orders", space)
    wrong = {"number": "seven"}
    fields = r"number: .*valid integer.*; customer: Field required\)?$"
    with pytest.raises(InvalidPayload, match=f"must be Order, .*, not dict .{fields}"):
        orders.enqueue(db, wrong)
    untyped.enqueue(db, b'{"number": "seven"}')
    untyped.enqueue(db, wrong)
    with pytest.raises(CorruptData, match=f"as application/json: it is no Order: {fields}"):
        orders.value(orders.peek(db, 2)[1])
    with pytest.raises(InvalidPayload, match="not Order, which JSON does not have"):
        Queue.open(db, "plain", root=space).enqueue(db, Order(number=1, customer="ada"))

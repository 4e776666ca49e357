"""Rates of keys: so many messages become ready in so much time, and the others wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from fdbqueue import Delivery, KeyLimits, NewMessage, Queue
from fdbqueue.errors import InvalidOptions
from fdbqueue.schema import due
from fdbqueue.schema.keys import WORK, What
from fdbqueue.schema.records import Paced, Timer
from fdbqueue.store.binding import fdb
from tests.audit import sound
from tests.contract.test_slots import conflicts
from tests.patience import DEADLINE
from tests.still_clock import StillClock
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue(
    "jobs", keys=KeyLimits(concurrency=None, rate="6/min"), max_attempts=2, backoff=None
)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def keyed(count: int, begin: int = 0, key: str | None = "a") -> list[NewMessage]:
    return [NewMessage(b"%d" % n, headers={"n": n}, key=key) for n in range(begin, begin + count)]


def come(db: Database, queue: Queue) -> list[int]:
    """What has become ready, taken and acknowledged."""
    found: list[int] = []
    while some := queue.receive_many(db, 100):
        queue.ack(db, some)
        found += (int(each.payload) for each in some)
    return found


# -- what counts ------------------------------------------------------------------------------


def test_an_ordering_key_with_a_rate_keeps_its_order(
    db: Database, queue: Queue, clock: StillClock
) -> None:
    queue.set_options(db, keys=KeyLimits(concurrency=1, rate="6/min, burst 2"))
    queue.enqueue_many(db, keyed(6))
    got: list[int] = []
    for _ in range(12):
        held = queue.receive_many(db, 9)
        assert len(held) <= 1
        if held and len(got) == 2:
            queue.release(db, held[0])
            held = queue.receive_many(db, 9)
        queue.ack(db, held)
        got += [int(each.payload) for each in held]
        sound(db, queue)
        clock.seconds += 5
    assert got == list(range(6))


def test_delayed_messages_count_when_they_are_due_and_redriven_ones_again(
    db: Database, queue: Queue, clock: StillClock
) -> None:
    for n in range(3):
        queue.enqueue(db, b"%d" % n, key="a", delay=60)
    assert queue.keys["a"].state(db).next_ms is None
    clock.seconds += 60
    (first,) = queue.receive_many(db, 9)
    assert queue.keys["a"].state(db).waiting == 2
    queue.reject(db, first, "bad")
    assert queue.retry(db).taken == 1
    assert queue.keys["a"].state(db).waiting == 3
    got = []
    for _ in range(3):
        clock.seconds += 10
        got += come(db, queue)
        sound(db, queue)
    assert (got[-1], len(set(got))) == (int(first.payload), 3)


# -- conflicts --------------------------------------------------------------------------------


def enqueuing(queue: Queue, key: str, tr: fdb.Transaction) -> None:
    queue.enqueue(tr, b"9", key=key)


def acking(queue: Queue, one: Delivery, tr: fdb.Transaction) -> None:
    queue.ack(tr, one)


@pytest.mark.parametrize("concurrency", [None, 2])
def test_producers_of_a_rated_key_with_a_backlog_conflict_with_nobody(
    db: Database, queue: Queue, clock: StillClock, concurrency: int | None
) -> None:
    queue.keys["a"].set(db, concurrency=concurrency)
    queue.enqueue_many(db, keyed(5))
    held = take(db, queue)
    clock.seconds += 10
    # Neither with a receive that lets the next one come
    producers = [partial(enqueuing, queue, "a") for _ in range(4)]
    assert not conflicts(db, [*producers, queue.receive, *producers])
    assert queue.keys["a"].state(db).waiting == 3 + 8
    # Nor with an end
    assert not conflicts(db, [*producers, partial(acking, queue, held), *producers])
    # Nor do those of different keys
    assert not conflicts(db, [partial(enqueuing, queue, f"key {n}") for n in range(8)])
    sound(db, queue)


def test_producers_of_a_rated_key_without_a_backlog_never_exceed_the_rate(
    db: Database, queue: Queue
) -> None:
    queue.set_options(db, keys=KeyLimits(rate="6/min, burst 3"))
    failed = conflicts(db, [lambda tr: queue.enqueue(tr, b"0", key="a") for _ in range(10)])
    assert failed == 9, "each that comes moves the time of the next"


# -- changes of rates -------------------------------------------------------------------------


def test_rates_that_make_no_sense_are_refused(db: Database, queue: Queue) -> None:
    bad: Any
    for bad in (
        "",
        "5",
        "0/s",
        "5/m",
        "1/s, burst 0",
        "1/s, burst 000000001" + "9" * 5_000,
        5,
        "٣/s",
    ):
        with pytest.raises(InvalidOptions, match="rate"):
            queue.keys["a"].set(db, rate=bad)
        with pytest.raises(InvalidOptions, match="rate"):
            queue.set_options(db, keys=KeyLimits(rate=bad))
    assert queue.keys.limited(db) == {}
    assert queue.keys["a"].set(db, rate="60000/min, burst 1000").rate


# -- clocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [86_400.0, -86_400.0])
def test_a_clock_that_is_a_day_off_neither_stops_a_key_nor_floods_it(
    db: Database, queue: Queue, space: fdb.Subspace, clock: StillClock, off: float
) -> None:
    wrong = Queue("jobs", space, clock=StillClock(wall_only=off))
    wrong.enqueue_many(db, keyed(4))
    assert come(db, wrong) == [0]
    assert come(db, queue) == []
    # (The wrong one goes by the database's time, which a clock that stands still is behind.)
    clock.seconds += 60
    assert come(db, queue) == [1]
    clock.seconds += 10
    assert come(db, queue) == [2]
    assert come(db, wrong) == []


# -- waiting ----------------------------------------------------------------------------------


def test_a_consumer_that_waits_gets_the_next_message_when_its_time_comes(
    db: Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "soon", root=space, keys=KeyLimits(concurrency=None, rate="20/s"))
    queue.enqueue_many(db, keyed(5))
    got = []
    for _ in range(5):
        found = take(db, queue, wait=DEADLINE)
        got.append(int(found.payload))
        queue.ack(db, found)
    assert got == [0, 1, 2, 3, 4]


# -- verification -----------------------------------------------------------------------------


@fdb.transactional
def add(tr: fdb.Transaction, queue: Queue, entry: bytes) -> None:
    due.add(tr, queue._keys, entry)


def lost_timer(db: Database, queue: Queue) -> None:
    del db[queue._keys.delayed.rows]


def timer_of_nothing(db: Database, queue: Queue) -> None:
    add(db, queue, queue._keys.entry(WORK, 5, What.GATE, "other"))


def late_timer(db: Database, queue: Queue) -> None:
    keys = queue._keys
    known = Paced.unpack(db[keys.rate("a")] or b"")
    late = Timer(known.timer.rank, known.timer.due_ms + 86_400_000)
    del db[keys.entry(*known.timer, What.GATE, "a")]
    add(db, queue, keys.entry(*late, What.GATE, "a"))
    db[keys.rate("a")] = replace(known, timer=late).pack()


def lost_rate(db: Database, queue: Queue) -> None:
    del db[queue._keys.rate.rows]
    del db[queue._keys.delayed.rows]


@pytest.mark.parametrize(
    ("harm", "kinds"),
    [
        (lost_timer, {"rate astray"}),
        (timer_of_nothing, {"timer astray"}),
        (late_timer, {"backlog stuck"}),
        (lost_rate, {"backlog stuck"}),
    ],
)
def test_what_would_stop_a_rated_key_is_found_and_mended(
    db: Database,
    queue: Queue,
    clock: StillClock,
    harm: Callable[[Database, Queue], None],
    kinds: set[str],
) -> None:
    queue.enqueue_many(db, keyed(4))
    got = come(db, queue)
    sound(db, queue)
    harm(db, queue)
    assert {each.kind for each in queue.admin.verify(db).deviations} == kinds
    assert all(each.repaired for each in queue.admin.repair(db).deviations)
    sound(db, queue)
    for _ in range(4):
        got += come(db, queue)
        clock.seconds += 10
    assert got == [0, 1, 2, 3]

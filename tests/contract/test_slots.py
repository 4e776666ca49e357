"""Slots of keys: as many messages of a key are out as its limit allows, and the others wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from fdbqueue import Delivery, KeyLimits, NewMessage, Queue
from fdbqueue.errors import InvalidArgument, InvalidOptions
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.limits import KeyBacklog
from tests.audit import sound
from tests.taking import payloads, take

Database = fdb.Database

pytestmark = pytest.mark.queue("jobs", keys=KeyLimits(concurrency=3), max_attempts=2, backoff=None)


def keyed(key: str | None, count: int, begin: int = 0) -> list[NewMessage]:
    return [NewMessage(b"%d" % n, key=key) for n in range(begin, begin + count)]


def counts(db: Database, queue: Queue, key: str = "a") -> tuple[int, int]:
    """How many messages of a key are out, and how many wait."""
    state = queue.keys[key].state(db)
    return len(state.out), state.waiting


def left(db: Database, queue: Queue) -> int:
    """How many rows there are of what is stored about keys, limits excepted."""
    kinds = (QueueKeys.waiting, QueueKeys.slot, QueueKeys.window, QueueKeys.backlog)
    ranges = [queue._keys.kind(kind) for kind in kinds]
    return sum(len(db.get_range(every.start, every.stop)) for every in ranges)


@pytest.mark.parametrize("many", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_other_keys_cost_an_operation_nothing_and_idle_ones_are_not_stored(
    db: Database,
    space: fdb.Subspace,
    clock: ManualClock,
    rows: list[int],
    many: int,
    embedded: bool,
) -> None:
    def costs(others: int) -> tuple[int, list[int]]:
        queue = Queue.create(
            db, f"beside {others}", root=space, keys=KeyLimits(concurrency=2), clock=clock
        )
        # Given keys of which all messages are done
        for begin in range(0, others, 500):
            idle = range(begin, min(begin + 500, others))
            queue.enqueue_many(db, [NewMessage(b"x", key=f"idle {n}") for n in idle])
            queue.ack(db, queue.receive_many(db, 500))
        every, once = queue._keys.all(), queue._keys.once.rows
        parts = (every.start, once.start), (once.stop, every.stop)
        stored = sum(len(db.get_range(*part)) for part in parts)
        # And a key with a backlog, in front of others that have messages
        queue.enqueue_many(db, keyed("a", 5))
        for begin in range(0, others, 500):
            standing = range(begin, min(begin + 500, others))
            queue.enqueue_many(db, [NewMessage(b"x", key=f"other {n // 3}") for n in standing])
        held: list[Delivery] = []
        operations: list[Callable[[], object]] = [
            lambda: queue.enqueue(db, b"5", key="a"),
            lambda: queue.enqueue(db, b"0", key="b"),
            lambda: queue.enqueue_many(db, keyed("c", 4)),
            lambda: held.extend(queue.receive_many(db, 2)),
            lambda: queue.ack(db, held[0]),
            lambda: queue.reject(db, held[1], "bad"),
            lambda: queue.keys["a"].set(db, concurrency=3),
            lambda: queue.keys["a"].state(db),
        ]
        found = []
        for operation in operations:
            rows.clear()
            operation()
            found.append(sum(rows))
        sound(db, queue)
        return stored, found

    (stored, few), (stored_beside_many, found) = costs(10), costs(many)
    assert stored == stored_beside_many
    # Whoever creates a queue meanwhile, on a cluster, has others read their options again.
    renewed = 0 if embedded else 2
    assert all(abs(one - other) <= renewed for one, other in zip(few, found, strict=True))


def test_a_backlog_delays_other_keys_by_the_slots_of_its_key(db: Database, queue: Queue) -> None:
    # Given a key with a backlog, which may be of any length
    queue.enqueue_many(db, keyed("noisy", 500))
    # When a message of another key comes
    queue.enqueue(db, b"quiet", key="quiet")
    # Then it stands behind those that are out, and behind no others
    assert payloads(queue.receive_many(db, 4)) == [b"0", b"1", b"2", b"quiet"]


# -- conflicts --------------------------------------------------------------------------------


def conflicts(db: Database, operations: Sequence[Callable[[fdb.Transaction], Any]]) -> int:
    """Of transactions that all begin before any commits, how many have to try again."""
    transactions = [db.create_transaction() for _ in operations]
    for operation, tr in zip(operations, transactions, strict=True):
        operation(tr)
    failed = 0
    for tr in transactions:
        try:
            tr.commit().wait()
        except fdb.FDBError as error:
            if error.code != 1020:
                raise
            failed += 1
    return failed


def enqueuing(queue: Queue, key: str | None, payload: bytes = b"x") -> Callable[[Any], Any]:
    return lambda tr: queue.enqueue(tr, payload, key=key)


def acking(queue: Queue, one: Delivery, tr: Any) -> None:
    queue.ack(tr, one)


@pytest.mark.parametrize("slots", [1, 3])
def test_producers_of_a_key_with_a_backlog_conflict_with_nobody(
    db: Database, queue: Queue, slots: int
) -> None:
    # Given a key with a backlog, of which a message is leased
    queue.keys["a"].set(db, concurrency=slots)
    queue.enqueue_many(db, keyed("a", slots + 5))
    held = take(db, queue)
    queue.enqueue_many(db, keyed(None, 5))
    # When many enqueue to it while others take, acknowledge and enqueue to other keys
    assert not conflicts(
        db,
        [
            *(enqueuing(queue, "a", b"%d" % n) for n in range(20)),
            lambda tr: queue.ack(tr, held),
            queue.receive,
            *(enqueuing(queue, f"other {n}") for n in range(5)),
            *(enqueuing(queue, "a", b"%d" % n) for n in range(20, 25)),
        ],
    )
    assert counts(db, queue) == (slots, 4 + 25)
    sound(db, queue)


def test_producers_of_different_keys_conflict_with_nobody(db: Database, queue: Queue) -> None:
    assert not conflicts(db, [enqueuing(queue, f"key {n}") for n in range(20)])
    # Nor where the backlogs of the keys begin
    for n in range(20):
        queue.enqueue_many(db, keyed(f"key {n}", 2))
    assert not conflicts(db, [enqueuing(queue, f"key {n}") for n in range(20)])
    assert left(db, queue) == 20 * (3 + 1 + 2)


def test_a_message_that_waits_for_a_slot_wakes_nobody(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 3))
    before = db.get(queue._keys.change)
    queue.enqueue(db, b"3", key="a")
    queue.enqueue_many(db, keyed("a", 2, 4))
    assert db.get(queue._keys.change) == before
    queue.enqueue_many(db, [*keyed("a", 1), *keyed("b", 1)])
    assert db.get(queue._keys.change) != before


def test_ends_without_a_backlog_conflict_with_nobody(db: Database, queue: Queue) -> None:
    queue.keys["a"].set(db, concurrency=10)
    queue.enqueue_many(db, keyed("a", 5))
    held = queue.receive_many(db, 5)
    assert not conflicts(db, [partial(acking, queue, one) for one in held])
    assert counts(db, queue) == (0, 0)


# -- changes of limits ------------------------------------------------------------------------


def test_a_higher_limit_lets_out_more_than_one_transaction_can(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 260))
    queue.keys["a"].set(db, concurrency=250)
    # A hundred come at once, and the others as consumers look for messages
    assert counts(db, queue) == (103, 157)
    while counts(db, queue)[1] > 10:
        assert queue.receive(db) is not None
    assert counts(db, queue) == (250, 10)
    queue.ack(db, queue.receive_many(db, 2))
    assert counts(db, queue) == (250, 8)
    sound(db, queue)


def test_limits_that_make_no_sense_are_refused(db: Database, queue: Queue) -> None:
    bad: Any
    for bad in (0, -1, 1_001, "5", 2.5, True):
        with pytest.raises(InvalidOptions):
            queue.keys["a"].set(db, concurrency=bad)
        with pytest.raises(InvalidOptions):
            queue.set_options(db, keys=KeyLimits(concurrency=bad))
    with pytest.raises(InvalidArgument):
        queue.keys["a"].set(db)
    nonsense: Any = {"speed": 5}
    with pytest.raises(TypeError):
        queue.keys["a"].set(db, **nonsense)
    nothing: Any = {"paused": None}
    with pytest.raises(InvalidArgument):
        queue.keys["a"].set(db, **nothing)
    with pytest.raises(InvalidArgument):
        queue.keys[""]
    assert queue.keys.limited(db) == {}


# -- windows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [None, 3])
def test_keys_take_turns_by_weight(db: Database, queue: Queue, concurrency: int | None) -> None:
    queue.set_options(db, keys=KeyLimits(concurrency=concurrency, window=1))
    queue.enqueue_many(db, [*keyed("a", 20), *keyed("b", 40, 100)])
    # Given a backlog of both, a weight lets messages out at once
    assert queue.keys["b"].set(db, weight=3).places == 3
    assert payloads(queue.peek(db, 9)) == [b"0", b"100", b"101", b"102"]
    shares = []
    for _ in range(4):
        got = []
        for _ in range(8):
            delivery = take(db, queue)
            got.append(delivery.message.key)
            queue.ack(db, delivery)
        shares.append((got.count("b"), got.count("a")))
        sound(db, queue)
    # Then each turn of one key stands beside three of the other, in any run of eight
    assert shares == [(6, 2)] * 4
    # And the weight of the queue is that of all others
    queue.set_options(db, keys=KeyLimits(window=2, weight=2))
    assert queue.keys["a"].state(db).limits.places == 4
    assert queue.keys["b"].state(db).limits.places == 6
    ready = [each.key for each in queue.peek(db, 20)]
    most = concurrency or 99
    assert (ready.count("a"), ready.count("b")) == (min(4, most), min(6, most))
    sound(db, queue)
    # When the weight falls, nothing is taken back, and none follows
    queue.keys["b"].reset(db)
    queue.set_options(db, keys=KeyLimits(weight=1))
    assert [each.key for each in queue.peek(db, 20)] == ready
    found = take(db, queue)
    assert len(queue.peek(db, 20)) == len(ready) - 1
    queue.ack(db, found)
    sound(db, queue)


def test_weights_that_make_no_sense_are_refused(db: Database, queue: Queue) -> None:
    given: Any
    for given in ({"weight": 2}, {"weight": 2, "window": None}):
        with pytest.raises(InvalidOptions, match="needs a window"):
            queue.keys["a"].set(db, **given)
    with pytest.raises(InvalidOptions, match="needs a window"):
        queue.set_options(db, keys=KeyLimits(weight=2))
    queue.set_options(db, keys=KeyLimits(window=2))
    bad: Any
    for bad in (0, -1, 1_001, "5", 2.5, True, None):
        with pytest.raises(InvalidOptions):
            queue.keys["a"].set(db, weight=bad)
        with pytest.raises(InvalidOptions):
            queue.set_options(db, keys=KeyLimits(weight=bad))
    with pytest.raises(InvalidOptions, match="more than 1,000 places"):
        queue.keys["a"].set(db, weight=501)
    # When a key has a weight, its window cannot go, nor grow beyond what a window may have
    queue.keys["a"].set(db, weight=500)
    for window in (None, 3):
        with pytest.raises(InvalidOptions):
            queue.keys["a"].set(db, window=window)
    assert queue.keys.limited(db) == {"a": {"weight": 500}}
    # And a larger window of the queue stops there
    queue.set_options(db, keys=KeyLimits(window=9))
    assert queue.keys["a"].state(db).limits.places == 1_000


@pytest.mark.parametrize("concurrency", [None, 8])
def test_takers_of_a_key_with_a_window_do_not_disturb_its_producers(
    db: Database, queue: Queue, concurrency: int | None
) -> None:
    queue.set_options(db, keys=KeyLimits(concurrency=concurrency, window=2))
    queue.enqueue_many(db, keyed("a", 8))
    held = take(db, queue)
    assert not conflicts(
        db,
        [
            *(enqueuing(queue, "a", b"%d" % n) for n in range(20)),
            queue.receive,
            # (An end relies on the window being full, if it frees a slot.)
            *([partial(acking, queue, held)] if concurrency is None else []),
            *(enqueuing(queue, "a", b"%d" % n) for n in range(20, 25)),
        ],
    )
    sound(db, queue)


# -- every way out ----------------------------------------------------------------------------


def test_what_waits_for_whom_can_be_seen(db: Database, queue: Queue, clock: ManualClock) -> None:
    ids = queue.enqueue_many(db, [*keyed("a", 5), *keyed("b", 4), *keyed("c", 3)])
    state = queue.keys["a"].state(db)
    assert (state.limits, state.own, state.waiting) == (KeyLimits(3), {}, 2)
    assert sorted(state.out.values()) == sorted(ids[:3])
    now_ms = clock.now_ms(db.create_transaction())
    assert state.oldest_ms is not None
    assert state.since_ms is not None
    assert now_ms - 60_000 < state.oldest_ms <= state.since_ms <= now_ms
    first, second = queue.keys.waiting(db)
    assert first == KeyBacklog("a", 2, state.since_ms)
    assert (second.key, second.waiting) == ("b", 1)
    assert queue.keys.waiting(db, 1) == [first]
    assert queue.keys.waiting(db, after="a") == [second]
    idle = queue.keys["c"].state(db)
    assert (len(idle.out), idle.waiting, idle.since_ms, idle.oldest_ms) == (3, 0, None, None)
    queue.keys["c"].set(db, concurrency=9)
    queue.keys["d"].pause(db)
    assert queue.keys.limited(db) == {"c": {"concurrency": 9}, "d": {"paused": True}}
    assert queue.keys.limited(db, after="c") == {"d": {"paused": True}}


def test_a_dead_letter_that_is_removed_frees_no_slot(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 5))
    for _ in range(2):
        queue.reject(db, queue.receive_many(db, 1)[0], "bad")
    assert counts(db, queue) == (3, 0)
    queue.purge(db, states="dead")
    assert counts(db, queue) == (3, 0)
    sound(db, queue)

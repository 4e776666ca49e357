"""Slots of keys: as many messages of a key are out as its limit allows, and the others wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fdbqueue import Delivery, Depth, Message, NewMessage, Queue, transactional, verify
from fdbqueue.errors import InvalidArgument, InvalidName, InvalidOptions
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.limits import KeyBacklog, KeyLimits

Database = fdb.Database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(db: Database, space: fdb.Subspace, clock: ManualClock) -> Queue:
    return Queue.create(
        db, "jobs", root=space, key_concurrency=3, max_attempts=2, backoff=None, clock=clock
    )


def keyed(key: str | None, count: int, begin: int = 0) -> list[NewMessage]:
    return [NewMessage(b"%d" % n, key=key) for n in range(begin, begin + count)]


def payloads(found: Sequence[Delivery | Message]) -> list[bytes]:
    return [each.payload for each in found]


def counts(db: Database, queue: Queue, key: str = "a") -> tuple[int, int]:
    """How many messages of a key are out, and how many wait."""
    state = queue.keys[key].state(db)
    return len(state.out), state.waiting


def left(db: Database, queue: Queue) -> int:
    """How many rows there are of what is stored about keys, limits excepted."""
    kinds = (Kind.WAITING, Kind.SLOT, Kind.WINDOW, Kind.BACKLOG)
    ranges = [queue._keys.kind(kind) for kind in kinds]
    return sum(len(db.get_range(every.start, every.stop)) for every in ranges)


def sound(db: Database, queue: Queue) -> None:
    assert verify(db, queue).deviations == ()


def test_as_many_messages_of_a_key_are_out_as_it_has_slots(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [*keyed("a", 5), *keyed("b", 1, 10), *keyed(None, 1, 20)])
    assert counts(db, queue) == (3, 2)
    found = queue.receive_many(db, 10)
    assert payloads(found) == [b"0", b"1", b"2", b"10", b"20"]
    # Then whoever ends one hands its slot to the next, whichever it was
    queue.ack(db, found[1])
    assert payloads(queue.receive_many(db, 10)) == [b"3"]
    queue.reject(db, found[0], "bad")
    assert payloads(queue.receive_many(db, 10)) == [b"4"]
    queue.reject(db, found[2], "bad", drop=True)
    assert counts(db, queue) == (2, 0)
    assert queue.receive_many(db, 10) == []
    sound(db, queue)


def test_messages_that_end_together_hand_all_their_slots_over(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [*keyed("a", 7), *keyed("b", 4, 10)])
    queue.ack_many(db, queue.receive_many(db, 10))
    assert payloads(queue.peek(db, 10)) == [b"3", b"4", b"5", b"13"]
    assert counts(db, queue) == (3, 1)
    sound(db, queue)


def test_a_key_that_drains_leaves_nothing(db: Database, queue: Queue) -> None:
    for key in ("a", "b", "c"):
        queue.enqueue_many(db, keyed(key, 8))
    assert left(db, queue) > 0
    while found := queue.receive_many(db, 100):
        queue.ack_many(db, found)
    assert queue.depth(db) == Depth(enqueued=24, done=24)
    assert left(db, queue) == 0


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
        queue = Queue.create(db, f"beside {others}", root=space, key_concurrency=2, clock=clock)
        # Given keys of which all messages are done
        for begin in range(0, others, 500):
            idle = range(begin, min(begin + 500, others))
            queue.enqueue_many(db, [NewMessage(b"x", key=f"idle {n}") for n in idle])
            queue.ack_many(db, queue.receive_many(db, 500))
        every, once = queue._keys.all(), queue._keys.kind(Kind.ONCE)
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
    held = queue.receive(db)
    assert held is not None
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


def test_a_message_is_stored_the_same_alone_and_in_a_list(
    db: Database, space: fdb.Subspace, clock: ManualClock
) -> None:
    def stored(name: str, enqueue: Callable[[Queue, NewMessage], str]) -> object:
        queue = Queue.create(
            db, name, root=space, key_concurrency=2, key_window=2, compression="none", clock=clock
        )
        queue.subscribe(db, "all", selector="n > 0")
        ids = [
            enqueue(queue, NewMessage(b"%d" % n, 3 + n % 2, {"n": n} if n else None, key="a"))
            for n in range(4)
        ]
        found = [queue.get(db, each) for each in ids]
        sound(db, queue)
        every = queue._keys.all()
        rows = list(db.get_range(every.start, every.stop))
        changes = [kv.value for kv in rows if kv.key.startswith(queue._keys.change)]
        kinds = [kv.key[len(queue._keys.prefix) :][:2] for kv in rows]
        states = [
            replace(each, message=replace(each.message, id="", enqueued_at_ms=0))
            for each in found
            if each
        ]
        return kinds, changes, queue.keys["a"].state(db).in_window, queue.depth(db), states

    assert stored(
        "alone",
        lambda queue, m: queue.enqueue(
            db, m.payload, priority=m.priority, headers=m.headers, key=m.key
        ),
    ) == stored("listed", lambda queue, m: queue.enqueue_many(db, [m])[0])


def test_a_producer_that_remembers_a_backlog_sees_that_it_is_gone(
    db: Database, queue: Queue, space: fdb.Subspace, clock: ManualClock
) -> None:
    # Given a producer that has met a backlog, which has been emptied since
    queue.enqueue_many(db, keyed("a", 4))
    queue.enqueue(db, b"4", key="a")
    other = Queue.open(db, "jobs", root=space, clock=clock)
    while found := other.receive_many(db, 10):
        other.ack_many(db, found)
    # When it enqueues again, then as many of its messages are out as may be
    for n in range(5, 10):
        queue.enqueue(db, b"%d" % n, key="a")
    assert counts(db, queue) == (3, 2)
    assert payloads(other.receive_many(db, 10)) == [b"5", b"6", b"7"]
    sound(db, queue)


def test_a_message_that_waits_for_a_slot_wakes_nobody(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 3))
    before = db.get(queue._keys.change)
    queue.enqueue(db, b"3", key="a")
    queue.enqueue_many(db, keyed("a", 2, 4))
    assert db.get(queue._keys.change) == before
    queue.enqueue_many(db, [*keyed("a", 1), *keyed("b", 1)])
    assert db.get(queue._keys.change) != before


def test_a_backlog_may_begin_in_a_transaction_that_has_written_history(
    db: Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "kept", root=space, key_concurrency=1, history_seconds=60)

    @transactional
    def place(tr: fdb.Transaction) -> None:
        for payload in (b"1", b"2", b"3"):
            queue.enqueue(tr, payload, key="k")
        queue.enqueue_many(tr, [NewMessage(b"4", key="k"), NewMessage(b"5", key="other")])

    place(db)
    found = queue.receive_many(db, 5)
    assert [delivery.payload for delivery in found] == [b"1", b"5"]
    assert not verify(db, queue).deviations


def test_those_that_begin_a_backlog_conflict_and_no_slot_is_given_twice(
    db: Database, queue: Queue
) -> None:
    failed = conflicts(db, [enqueuing(queue, "a") for _ in range(10)])
    assert failed >= 7, "three slots cannot be given to more"
    out, waiting = counts(db, queue)
    assert (out, waiting) == (10 - failed, 0)
    sound(db, queue)


def test_ends_without_a_backlog_conflict_with_nobody(db: Database, queue: Queue) -> None:
    queue.keys["a"].set(db, concurrency=10)
    queue.enqueue_many(db, keyed("a", 5))
    held = queue.receive_many(db, 5)
    assert not conflicts(db, [partial(acking, queue, one) for one in held])
    assert counts(db, queue) == (0, 0)


# -- changes of limits ------------------------------------------------------------------------


def test_a_higher_limit_lets_messages_out_at_once(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 10))
    assert queue.keys["a"].set(db, concurrency=5) == KeyLimits(5)
    assert counts(db, queue) == (5, 5)
    assert queue.keys["a"].set(db, concurrency=None) == KeyLimits(None)
    assert (counts(db, queue)[1], len(queue.peek(db, 20))) == (0, 10)
    sound(db, queue)


def test_a_higher_limit_lets_out_more_than_one_transaction_can(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 260))
    queue.keys["a"].set(db, concurrency=250)
    # A hundred come at once, and the others as consumers look for messages
    assert counts(db, queue) == (103, 157)
    while counts(db, queue)[1] > 10:
        assert queue.receive(db) is not None
    assert counts(db, queue) == (250, 10)
    queue.ack_many(db, queue.receive_many(db, 2))
    assert counts(db, queue) == (250, 8)
    sound(db, queue)


def test_a_lower_limit_lets_none_out_until_fewer_are(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 8))
    held = queue.receive_many(db, 3)
    queue.keys["a"].set(db, concurrency=1)
    for out, each in zip((2, 1, 1), held, strict=True):
        queue.ack(db, each)
        assert counts(db, queue)[0] == out
    assert payloads(queue.receive_many(db, 9)) == [b"3"]
    sound(db, queue)


def test_a_lower_limit_holds_for_a_key_whose_backlog_begins_later(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, keyed("a", 3))
    held = queue.receive_many(db, 3)
    queue.keys["a"].set(db, concurrency=2)
    queue.enqueue_many(db, keyed("a", 2, 10))
    assert counts(db, queue) == (3, 2)
    queue.ack(db, held[0])
    assert counts(db, queue) == (2, 2)
    queue.ack(db, held[1])
    assert counts(db, queue) == (2, 1)
    sound(db, queue)


def test_a_paused_key_lets_none_out(db: Database, queue: Queue) -> None:
    key = queue.keys["a"]
    queue.enqueue_many(db, keyed("a", 5))
    assert key.pause(db) == KeyLimits(3, paused=True)
    queue.enqueue(db, b"other", key="b")
    found = queue.receive_many(db, 9)
    assert payloads(found) == [b"0", b"1", b"2", b"other"], "what is ready is delivered"
    queue.ack_many(db, found)
    assert counts(db, queue) == (0, 2)
    queue.enqueue(db, b"5", key="a")
    assert queue.receive(db) is None
    sound(db, queue)
    assert key.resume(db) == KeyLimits(3)
    assert payloads(queue.receive_many(db, 9)) == [b"3", b"4", b"5"]
    assert queue.keys.limited(db) == {}
    sound(db, queue)


def test_a_key_that_was_paused_before_its_first_message_waits(db: Database, queue: Queue) -> None:
    queue.keys["a"].set(db, paused=True, concurrency=1)
    queue.enqueue_many(db, keyed("a", 2))
    assert counts(db, queue) == (0, 2)
    queue.keys["a"].set(db, paused=False)
    assert counts(db, queue) == (1, 1)
    queue.keys["a"].reset(db)
    assert counts(db, queue) == (2, 0)
    sound(db, queue)


@pytest.mark.parametrize("composed", [False, True], ids=["by itself", "in a transaction"])
def test_the_limit_of_the_queue_changes_for_all_keys(
    db: Database, queue: Queue, composed: bool
) -> None:
    for key in "abc":
        queue.enqueue_many(db, keyed(key, 6))
    queue.keys["c"].set(db, concurrency=1)
    if composed:
        tr = db.create_transaction()
        queue.set_options(tr, key_concurrency=5)
        tr.commit().wait()
        assert counts(db, queue, "a") == (3, 3)
        sound(db, queue)
        # Then a key follows after one of its messages has ended, and the others at a sweep
        queue.ack(db, queue.receive_many(db, 1)[0])
        queue.sweep(db)
        assert counts(db, queue, "a") == (5, 0)
    else:
        queue.set_options(db, key_concurrency=5)
        assert counts(db, queue, "a") == (5, 1)
    assert [counts(db, queue, key) for key in "bc"] == [(5, 1), (3, 3)]
    sound(db, queue)


def test_limits_that_make_no_sense_are_refused(db: Database, queue: Queue) -> None:
    bad: Any
    for bad in (0, -1, 1_001, "5", 2.5, True):
        with pytest.raises(InvalidOptions):
            queue.keys["a"].set(db, concurrency=bad)
        with pytest.raises(InvalidOptions):
            queue.set_options(db, key_concurrency=bad)
    with pytest.raises(InvalidArgument):
        queue.keys["a"].set(db)
    nonsense: Any = {"speed": 5}
    with pytest.raises(TypeError):
        queue.keys["a"].set(db, **nonsense)
    nothing: Any = {"paused": None}
    with pytest.raises(InvalidArgument):
        queue.keys["a"].set(db, **nothing)
    with pytest.raises(InvalidName):
        queue.keys[""]
    assert queue.keys.limited(db) == {}


# -- windows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [None, 4])
def test_a_window_lets_the_next_message_come_when_one_is_taken(
    db: Database, queue: Queue, concurrency: int | None
) -> None:
    queue.set_options(db, key_concurrency=concurrency, key_window=2)
    queue.enqueue_many(db, keyed("a", 7))
    queue.enqueue_many(db, [*keyed("b", 1, 10), *keyed(None, 1, 20)])
    # Then keys take turns: what comes next stands behind what is there
    assert payloads(queue.peek(db, 9)) == [b"0", b"1", b"10", b"20"]
    first = queue.receive_many(db, 2)
    assert payloads(queue.peek(db, 9)) == [b"10", b"20", b"2", b"3"]
    sound(db, queue)
    # And what comes back stands where it stood, beside the window
    queue.release_many(db, first)
    assert payloads(queue.peek(db, 9)) == [b"0", b"1", b"10", b"20", b"2", b"3"]
    assert queue.keys["a"].state(db).waiting == 3
    held = queue.receive_many(db, 9)
    sound(db, queue)
    more = queue.receive_many(db, 9)
    assert payloads(more) == ([b"4", b"5"] if concurrency is None else [])
    queue.ack_many(db, [*held, *more])
    while found := queue.receive(db):
        queue.ack(db, found)
    assert left(db, queue) == 0
    sound(db, queue)


def test_a_window_of_its_own_gives_a_key_as_many_more_turns(db: Database, queue: Queue) -> None:
    queue.set_options(db, key_concurrency=None, key_window=1)
    queue.keys["b"].set(db, window=3)
    queue.enqueue_many(db, [*keyed("a", 20), *keyed("b", 30, 100)])
    got = []
    for _ in range(24):
        delivery = queue.receive(db)
        assert delivery is not None
        got.append(len(delivery.payload) == 3)
        queue.ack(db, delivery)
    assert (got.count(True), got.count(False)) == (18, 6)
    sound(db, queue)


@pytest.mark.parametrize("concurrency", [None, 3])
def test_keys_take_turns_by_weight(db: Database, queue: Queue, concurrency: int | None) -> None:
    queue.set_options(db, key_concurrency=concurrency, key_window=1)
    queue.enqueue_many(db, [*keyed("a", 20), *keyed("b", 40, 100)])
    # Given a backlog of both, a weight lets messages out at once
    assert queue.keys["b"].set(db, weight=3).places == 3
    assert payloads(queue.peek(db, 9)) == [b"0", b"100", b"101", b"102"]
    shares = []
    for _ in range(4):
        got = []
        for _ in range(8):
            delivery = queue.receive(db)
            assert delivery is not None
            got.append(delivery.message.key)
            queue.ack(db, delivery)
        shares.append((got.count("b"), got.count("a")))
        sound(db, queue)
    # Then each turn of one key stands beside three of the other, in any run of eight
    assert shares == [(6, 2)] * 4
    # And the weight of the queue is that of all others
    queue.set_options(db, key_window=2, key_weight=2)
    assert queue.keys["a"].state(db).limits.places == 4
    assert queue.keys["b"].state(db).limits.places == 6
    ready = [each.key for each in queue.peek(db, 20)]
    most = concurrency or 99
    assert (ready.count("a"), ready.count("b")) == (min(4, most), min(6, most))
    sound(db, queue)
    # When the weight falls, nothing is taken back, and none follows
    queue.keys["b"].reset(db)
    queue.set_options(db, key_weight=1)
    assert [each.key for each in queue.peek(db, 20)] == ready
    found = queue.receive(db)
    assert found is not None
    assert len(queue.peek(db, 20)) == len(ready) - 1
    queue.ack(db, found)
    sound(db, queue)


def test_weights_that_make_no_sense_are_refused(db: Database, queue: Queue) -> None:
    given: Any
    for given in ({"weight": 2}, {"weight": 2, "window": None}):
        with pytest.raises(InvalidOptions, match="needs a window"):
            queue.keys["a"].set(db, **given)
    with pytest.raises(InvalidOptions, match="needs a window"):
        queue.set_options(db, key_weight=2)
    queue.set_options(db, key_window=2)
    bad: Any
    for bad in (0, -1, 1_001, "5", 2.5, True, None):
        with pytest.raises(InvalidOptions):
            queue.keys["a"].set(db, weight=bad)
        with pytest.raises(InvalidOptions):
            queue.set_options(db, key_weight=bad)
    with pytest.raises(InvalidOptions, match="more than 1,000 places"):
        queue.keys["a"].set(db, weight=501)
    # When a key has a weight, its window cannot go, nor grow beyond what a window may have
    queue.keys["a"].set(db, weight=500)
    for window in (None, 3):
        with pytest.raises(InvalidOptions):
            queue.keys["a"].set(db, window=window)
    assert queue.keys.limited(db) == {"a": {"weight": 500}}
    # And a larger window of the queue stops there
    queue.set_options(db, key_window=9)
    assert queue.keys["a"].state(db).limits.places == 1_000


@pytest.mark.parametrize("way", ["dequeue", "cancel", "put off", "purge"])
def test_what_is_ready_no_more_leaves_the_window(db: Database, queue: Queue, way: str) -> None:
    queue.set_options(db, key_concurrency=None, key_window=1)
    ids = queue.enqueue_many(db, keyed("a", 3))
    match way:
        case "dequeue":
            assert queue.dequeue_at_most_once(db) is not None
        case "cancel":
            assert queue.cancel(db, ids[0])
        case "put off":
            assert queue.edit(db, ids[0], delay=60)
        case "purge":
            assert queue.purge(db) == 3
    assert payloads(queue.peek(db, 9)) == ([] if way == "purge" else [b"1"])
    sound(db, queue)


def test_windows_change_while_the_queue_runs(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 9))
    queue.keys["a"].set(db, window=1, concurrency=None)
    # Then what was ready before does not count
    assert len(queue.peek(db, 9)) == 4
    queue.set_options(db, key_window=2)
    assert len(queue.peek(db, 9)) == 4
    queue.keys["a"].set(db, window=3)
    assert len(queue.peek(db, 9)) == 6
    queue.keys["a"].set(db, window=1)
    held = queue.receive_many(db, 6)
    assert payloads(queue.peek(db, 9)) == [b"6"]
    queue.keys["a"].reset(db)
    assert payloads(queue.peek(db, 9)) == [b"6"], "three slots are taken"
    queue.ack_many(db, held)
    assert payloads(queue.peek(db, 9)) == [b"6", b"7"]
    sound(db, queue)


@pytest.mark.parametrize("concurrency", [None, 8])
def test_takers_of_a_key_with_a_window_do_not_disturb_its_producers(
    db: Database, queue: Queue, concurrency: int | None
) -> None:
    queue.set_options(db, key_concurrency=concurrency, key_window=2)
    queue.enqueue_many(db, keyed("a", 8))
    held = queue.receive(db)
    assert held is not None
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


def test_a_message_keeps_its_slot_until_its_end(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, keyed("a", 4))
    queue.release(db, queue.receive_many(db, 1)[0])
    queue.release(db, queue.receive_many(db, 1)[0], delay=60)
    assert counts(db, queue) == (3, 1)
    assert payloads(queue.receive_many(db, 9)) == [b"1", b"2"]
    # Also when their leases expire
    clock.seconds += 61
    again = [one for _ in range(3) for one in queue.receive_many(db, 1)]
    assert payloads(again) == [b"0", b"1", b"2"]
    assert counts(db, queue) == (3, 1)
    for delivery in again:
        queue.reject(db, delivery, "bad")
    assert counts(db, queue) == (1, 0)
    sound(db, queue)


def test_a_redriven_message_takes_a_slot_again(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 5))
    queue.reject(db, queue.receive_many(db, 1)[0], "bad")
    assert counts(db, queue) == (3, 1)
    queue.dead.redrive(db)
    assert counts(db, queue) == (3, 2)
    got = []
    while found := queue.receive(db):
        got.append(found.payload)
        queue.ack(db, found)
    assert got == [b"1", b"2", b"3", b"4", b"0"]
    assert left(db, queue) == 0


def test_a_dead_letter_that_is_removed_frees_no_slot(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, keyed("a", 5))
    for _ in range(2):
        queue.reject(db, queue.receive_many(db, 1)[0], "bad")
    assert counts(db, queue) == (3, 0)
    queue.dead.purge(db)
    assert counts(db, queue) == (3, 0)
    sound(db, queue)


def test_messages_that_wait_can_be_cancelled_and_purged(db: Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, keyed("a", 6))
    assert queue.cancel(db, ids[4])
    assert queue.cancel(db, ids[5])
    assert counts(db, queue) == (3, 1)
    assert queue.cancel(db, ids[0]), "one that holds a slot"
    assert counts(db, queue) == (3, 0)
    queue.enqueue_many(db, keyed("a", 2, 10))
    held = queue.receive_many(db, 1)
    assert queue.purge(db) == 4
    assert counts(db, queue) == (1, 0)
    queue.ack_many(db, held)
    assert left(db, queue) == 0
    sound(db, queue)


def test_keys_keep_their_order_in_another_queue(
    db: Database, queue: Queue, space: fdb.Subspace
) -> None:
    other = Queue.create(db, "other", root=space)
    queue.enqueue_many(db, [*keyed("a", 7), *keyed("b", 2, 10)])
    assert queue.move(db, other).taken == 9
    assert left(db, queue) == 0
    got = []
    while found := other.receive_many(db, 10):
        got += payloads(found)
        other.ack_many(db, found)
    assert [each for each in got if len(each) == 1] == [b"%d" % n for n in range(7)]
    assert [each for each in got if len(each) == 2] == [b"10", b"11"]
    for each in (queue, other):
        sound(db, each)


def test_a_stream_plans_no_more_messages_of_a_key_than_it_has_slots(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [*keyed("a", 5), *keyed("b", 1, 10)])
    run = queue.plans.planner("stream")
    mark, seen = run.begin(db), []
    while (until := run.next(db, mark)) != mark:
        assert len(queue.keys["a"].state(db).out) <= 3
        pieces = run.pieces(db, mark, until, 1)
        pages = [page for piece in pieces for page in run.read(db, piece)]
        seen.append([each.envelope.payload for page in pages for each in page])
        mark = until
        sound(db, queue)
    assert seen == [[b"0", b"1", b"2", b"10"], [b"3", b"4"]]
    assert left(db, queue) == 0


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

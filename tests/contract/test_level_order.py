"""Queues whose levels are sorted by a header, and queues that keep the last value of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Bounds, Delivery, Depth, NewMessage, Queue
from fdbqueue.errors import (
    InvalidArgument,
    InvalidOptions,
    OptionsMismatch,
    QueueFull,
)
from fdbqueue.messages.enqueue.level_order import MAX_VALUE_BYTES
from fdbqueue.schema.codec import pack_index
from fdbqueue.schema.keys import MAX_SORTED_BYTES, sorted_by, sorted_length, sorted_position
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import HeaderValue, Position
from tests.audit import sound
from tests.taking import payloads, ready, take

Database = fdb.Database
Subspace = fdb.Subspace


@pytest.fixture
def reminders(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "reminders", root=space, sort="at", clock=clock, max_attempts=2)


@pytest.fixture
def prices(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "prices", root=space, last_value="of", clock=clock, max_attempts=2)


def at(value: HeaderValue, payload: bytes | None = None, **terms: Any) -> NewMessage:
    given = str(value).encode() if payload is None else payload
    return NewMessage(given, headers={"at": value}, **terms)


def price(of: HeaderValue, payload: bytes, **terms: Any) -> NewMessage:
    return NewMessage(payload, headers={"of": of}, **terms)


def dequeued(tr: fdb.Transaction, queue: Queue) -> bytes | None:
    message = queue.dequeue(tr)
    return None if message is None else message.payload


# -- sorted -----------------------------------------------------------------------------------


@pytest.mark.promise(3)
def test_messages_of_a_level_come_in_the_order_of_the_header(
    db: Database, reminders: Queue
) -> None:
    for value in ("b", 3, None, -1, "a", 3, 2**40, 2.5, True, "aa", -(2**40), ""):
        reminders.enqueue_many(db, [at(value)])
    reminders.enqueue(db, b"no header")
    reminders.enqueue(db, b"urgent", priority=9, headers={"at": "z"})
    assert [d.payload for d in reminders.receive_many(db, 100)] == [
        b"urgent",
        *(b"None", b"no header"),
        *(b"", b"a", b"aa", b"b"),
        *(b"-1099511627776", b"-1", b"3", b"3", b"1099511627776"),
        b"2.5",
        b"True",
    ]
    sound(db, reminders)


def test_equal_values_come_in_the_order_of_arrival_even_if_all_were_away(
    db: Database, reminders: Queue
) -> None:
    reminders.enqueue_many(db, [at(1, b"first"), at(1, b"second")])
    held = reminders.receive_many(db, 2)
    reminders.enqueue_many(db, [at(1, b"third")])
    reminders.release(db, held)
    reminders.enqueue_many(db, [at(1, b"fourth"), at(0, b"before")])
    assert ready(db, reminders) == [b"before", b"first", b"second", b"third", b"fourth"]
    sound(db, reminders)


def test_a_released_message_returns_among_those_that_came_since(
    db: Database, reminders: Queue, clock: ManualClock
) -> None:
    reminders.enqueue_many(db, [at(2), at(4)])
    held = reminders.receive_many(db, 2)
    reminders.enqueue_many(db, [at(1), at(3), at(5)])
    reminders.release(db, held[0])
    reminders.release(db, held[1], error="failed", delay=10)
    assert ready(db, reminders) == [b"1", b"2", b"3", b"5"]
    clock.seconds += 11
    reminders.admin.sweep(db)
    assert ready(db, reminders) == [b"1", b"2", b"3", b"4", b"5"]
    sound(db, reminders)


def test_a_delayed_and_a_redriven_message_take_their_places_in_the_order(
    db: Database, reminders: Queue, clock: ManualClock
) -> None:
    reminders.enqueue_many(db, [at(1, delay=10), at(0), at(2)])
    reminders.reject(db, take(db, reminders), "bad")
    clock.seconds += 11
    reminders.admin.sweep(db)
    assert ready(db, reminders) == [b"1", b"2"]
    assert reminders.retry(db).taken == 1
    assert ready(db, reminders) == [b"0", b"1", b"2"]
    sound(db, reminders)


def test_a_message_is_found_cancelled_edited_and_moved_by_its_id(
    db: Database, space: Subspace, reminders: Queue
) -> None:
    first, second, third = reminders.enqueue_many(db, [at("c"), at("b"), at("a")])
    found = reminders.get(db, second)
    assert found is not None
    assert found.message.payload == b"b"
    assert reminders.cancel(db, third)
    assert reminders.edit(db, first, priority=9)
    assert ready(db, reminders) == [b"c", b"b"]
    other = Queue.create(db, "other", root=space, sort="at")
    other.enqueue(db, b"bb", headers={"at": "bb"})
    assert reminders.move(db, other).taken == 2
    assert ready(db, other) == [b"c", b"b", b"bb"]
    assert reminders.depth(db).ready == 0
    sound(db, reminders, other)


def test_a_dequeue_conflicts_with_the_arrival_of_a_smaller_value(
    db: Database, reminders: Queue
) -> None:
    reminders.enqueue_many(db, [at(5)])
    tr = db.create_transaction()
    assert dequeued(tr, reminders) == b"5"
    reminders.enqueue_many(db, [at(4)])
    with pytest.raises(fdb.FDBError):
        tr.commit().wait()
    tr = db.create_transaction()
    assert dequeued(tr, reminders) == b"4"
    reminders.enqueue_many(db, [at(6)])
    tr.commit().wait()


def test_enqueues_do_not_conflict(db: Database, reminders: Queue) -> None:
    transactions = [db.create_transaction() for _ in range(4)]
    for n, tr in enumerate(transactions):
        reminders.enqueue_many(tr, [at(n % 2, b"%d" % n)])
    for tr in transactions:
        tr.commit().wait()
    assert sorted(ready(db, reminders)[:2]) == [b"0", b"2"]
    assert sorted(ready(db, reminders)[2:]) == [b"1", b"3"]
    sound(db, reminders)


def test_a_subscription_that_takes_sees_what_comes_in_behind_it(
    db: Database, reminders: Queue
) -> None:
    # Given a subscription that has skipped many messages
    reminders.enqueue_many(
        db, [NewMessage(b"x", headers={"at": n, "kind": "other"}) for n in range(100, 150)]
    )
    mine = reminders.subscriptions.open(db, "mine", selector="kind = 'mine'")
    assert mine.receive(db) is None
    # When one comes in before these
    reminders.enqueue(db, b"early", headers={"at": 1, "kind": "mine"})
    reminders.enqueue(db, b"late", headers={"at": 200, "kind": "mine"})
    # Then it is found, and first
    assert [d.payload for d in mine.receive_many(db, 5)] == [b"early", b"late"]
    sound(db, reminders)


def test_a_browser_goes_up_in_the_order_once_and_misses_what_comes_in_behind_it(
    db: Database, reminders: Queue
) -> None:
    reminders.enqueue_many(db, [at(2), at(4)])
    browser = reminders.subscriptions.open(db, "look", mode="browse")
    assert payloads(browser.browse(db, 1)) == [b"2"]
    reminders.enqueue_many(db, [at(1), at(3), at(5)])
    assert payloads(browser.browse(db, 9)) == [b"3", b"4", b"5"]
    assert payloads(reminders.browse(db)) == [b"1", b"2", b"3", b"4", b"5"]
    assert browser.browse(db, 9) == []


def test_a_full_sorted_queue_drops_the_first_of_the_order(db: Database, space: Subspace) -> None:
    queue = Queue.create(
        db,
        "q",
        root=space,
        sort="at",
        bounds=Bounds(messages=2, when_full="drop-oldest"),
        history_seconds=60,
    )
    queue.enqueue_many(db, [at(3), at(1)])
    queue.enqueue_many(db, [at(2)])
    assert ready(db, queue) == [b"2", b"3"]
    full = Queue.create(db, "full", root=space, sort="at", bounds=Bounds(messages=1))
    full.enqueue_many(db, [at(3)])
    with pytest.raises(QueueFull):
        full.enqueue_many(db, [at(1)])
    sound(db, queue, full)


def test_a_thousand_leases_of_the_longest_values_have_one_claim(
    db: Database, space: Subspace
) -> None:
    # Given values that take the most that a key may have of one, in a queue with a history
    queue = Queue.create(db, "q", root=space, sort="at", history_seconds=60)
    longest = [f"{n:053}" for n in range(1_000)]
    assert {sorted_length(each) for each in longest} == {MAX_SORTED_BYTES}
    messages = [at(each, b"%d" % n) for n, each in enumerate(longest)]
    for begin in range(0, len(messages), 250):
        queue.enqueue_many(db, messages[begin : begin + 250])
    # When they are taken together, extended, and returned
    held = queue.receive_many(db, 1_000)
    assert [d.payload for d in held] == [m.payload for m in messages]
    held = queue.extend(db, held, lease=60)
    queue.release(db, held)
    assert queue.depth(db).ready == len(messages)
    sound(db, queue)


@pytest.mark.parametrize("option", ["sort", "last_value"])
def test_a_value_that_is_too_long_is_refused_at_the_edge(
    db: Database, space: Subspace, option: str
) -> None:
    options: dict[str, Any] = {option: "at"}
    queue = Queue.create(db, "q", root=space, **options)
    most = MAX_SORTED_BYTES if option == "sort" else MAX_VALUE_BYTES
    fits = "x" * (most - sorted_length(""))
    queue.enqueue_many(db, [at(fits, b"fits")])
    several: list[dict[str, Any]] = [{}, {"delay": 10}, {"ttl": 10}]
    for terms in several:
        with pytest.raises(InvalidArgument, match=f"may have {most:,} bytes"):
            queue.enqueue_many(db, [at("a"), at(fits + "x", **terms)])
    stager = queue.streams.sink("load").stage(db, 1)
    with pytest.raises(InvalidArgument):
        stager.plain(b"x", 4, {"at": fits + "x"})
    with pytest.raises(InvalidArgument):
        stager.add(at(fits + "x", delay=10))
    assert queue.depth(db) == Depth(enqueued=1, ready=1, ready_bytes=4)


@pytest.mark.parametrize("option", ["sort", "last_value"])
def test_a_message_with_a_key_is_refused(db: Database, space: Subspace, option: str) -> None:
    options: dict[str, Any] = {option: "at"}
    queue = Queue.create(db, "q", root=space, **options)
    with pytest.raises(InvalidArgument, match="no messages with a key"):
        queue.enqueue(db, b"x", key="k")
    plain = Queue.create(db, "plain", root=space)
    plain.enqueue(db, b"x", key="k")
    with pytest.raises(InvalidArgument, match="no messages with a key"):
        plain.move(db, queue)
    assert plain.depth(db).ready == 1


def test_dead_letters_stay_where_the_other_queue_cannot_order_them(
    db: Database, space: Subspace
) -> None:
    grave = Queue.create(db, "grave", root=space, sort="at")
    queue = Queue.create(db, "q", root=space, dead_letter_queue="grave")
    queue.enqueue_many(db, [at("x" * 100, b"long"), at("b"), at("a", key="k")])
    for delivery in queue.receive_many(db, 3):
        queue.reject(db, delivery, "bad")
    assert payloads(one.message for one in queue.dead.list(db)) == [b"long"]
    assert ready(db, grave) == [b"a", b"b"]
    sound(db, queue, grave)


def test_a_sorted_queue_has_no_place_for_later_messages_only(
    db: Database, reminders: Queue
) -> None:
    (first,) = reminders.enqueue_many(db, [at(1)])
    for start in ("now", first):
        with pytest.raises(InvalidArgument, match="may come in anywhere"):
            reminders.subscriptions.open(db, "s", mode="browse", start=start)
    browser = reminders.subscriptions.open(db, "s", mode="browse")
    with pytest.raises(InvalidArgument, match="may come in anywhere"):
        browser.seek(db, "now")
    browser.seek(db, "first")
    assert payloads(browser.browse(db, 9)) == [b"1"]


# -- last values ------------------------------------------------------------------------------


def test_a_new_message_takes_the_place_of_the_one_before_at_the_end(
    db: Database, prices: Queue
) -> None:
    old, *_ = prices.enqueue_many(db, [price("tea", b"1"), price("salt", b"2")])
    prices.enqueue_many(db, [price(None, b"none"), NewMessage(b"no header")])
    prices.enqueue_many(db, [price("tea", b"3", priority=4)])
    assert ready(db, prices) == [b"2", b"none", b"no header", b"3"]
    assert prices.get(db, old) is None
    assert prices.depth(db) == Depth(enqueued=5, ready=4, purged=1, ready_bytes=15)
    sound(db, prices)


def test_the_newest_counts_whatever_the_levels(db: Database, prices: Queue) -> None:
    prices.enqueue_many(db, [price("tea", b"1", priority=9), price("tea", b"2", priority=0)])
    assert ready(db, prices) == [b"2"]
    prices.enqueue_many(db, [price("tea", b"3", priority=5)])
    assert ready(db, prices) == [b"3"]
    sound(db, prices)


def test_values_of_different_types_are_different(db: Database, prices: Queue) -> None:
    prices.enqueue_many(db, [price(of, b"x") for of in (1, 1.0, True, "1", 0, False, "")])
    assert prices.depth(db).ready == 7


ENDS: dict[str, Callable[[Database, Queue, Delivery], None]] = {
    "ack": lambda db, queue, d: queue.ack(db, d),
    "drop": lambda db, queue, d: queue.reject(db, d, "bad", drop=True),
    "dead": lambda db, queue, d: queue.reject(db, d, "bad"),
    "release": lambda db, queue, d: queue.release(db, d),
    "fail": lambda db, queue, d: queue.release(db, d, error="failed", delay=0),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
def test_a_leased_message_is_left_alone_and_ends_when_it_would_return(
    db: Database, prices: Queue, end: str, gone: bool
) -> None:
    prices.enqueue_many(db, [price("tea", b"1")])
    held = take(db, prices)
    prices.enqueue_many(db, [price("tea", b"2")])
    if gone:
        prices.ack(db, take(db, prices))
    sound(db, prices)
    ENDS[end](db, prices, held)
    assert ready(db, prices) == ([] if gone else [b"2"])
    depth = prices.depth(db)
    assert depth.purged == (end in ("drop", "release", "fail"))
    assert (depth.done, depth.dead) == ((end == "ack") + gone, end == "dead")
    sound(db, prices)
    if not gone:
        prices.ack(db, take(db, prices))
    prices.purge(db, states="dead")
    every = prices._keys.latest.rows
    assert not db.get_range(every.start, every.stop)


def test_a_dead_letter_is_redriven_only_if_no_newer_one_is_there(
    db: Database, prices: Queue
) -> None:
    prices.enqueue_many(db, [price("tea", b"1")])
    prices.reject(db, take(db, prices), "bad")
    prices.enqueue_many(db, [price("tea", b"2")])
    assert prices.retry(db).taken == 0
    prices.ack(db, take(db, prices))
    assert prices.retry(db).taken == 1
    assert ready(db, prices) == [b"1"]
    prices.enqueue_many(db, [price("tea", b"3")])
    assert ready(db, prices) == [b"3"]
    sound(db, prices)


def publish(db: Database, queue: Queue, *messages: NewMessage) -> None:
    sink = queue.streams.sink("load")
    stager = sink.stage(db, 0)
    for each in messages:
        stager.plain(each.payload, each.priority, each.headers)
    sink.publish(db, 0, [stager.finish()])


def test_producers_of_one_value_conflict_and_of_different_values_do_not(
    db: Database, prices: Queue
) -> None:
    def begin(of: str) -> fdb.Transaction:
        tr = db.create_transaction()
        prices.enqueue_many(tr, [price(of, of.encode())])
        return tr

    tea, salt, again = begin("tea"), begin("salt"), begin("tea")
    tea.commit().wait()
    salt.commit().wait()
    with pytest.raises(fdb.FDBError):
        again.commit().wait()
    assert prices.depth(db).ready == 2


# -- options and what is stored ---------------------------------------------------------------


def test_the_order_of_a_queue_is_fixed(db: Database, reminders: Queue, prices: Queue) -> None:
    with pytest.raises(OptionsMismatch, match="sort='at', which cannot become None"):
        reminders.set_options(db, sort=None)
    with pytest.raises(OptionsMismatch, match="last_value='of', which cannot become 'x'"):
        prices.set_options(db, last_value="x")
    with pytest.raises(OptionsMismatch):
        Queue.open(db, "reminders", root=reminders._root, sort="of")
    assert Queue.open(db, "reminders", root=reminders._root).options(db).sort == "at"


def test_last_values_and_bounds_exclude_each_other(
    db: Database, space: Subspace, prices: Queue
) -> None:
    with pytest.raises(InvalidOptions, match="'last_value': has no bounds"):
        Queue.create(db, "q", root=space, last_value="of", bounds=Bounds(messages=10))
    with pytest.raises(InvalidOptions, match="'last_value': has no bounds"):
        prices.set_options(db, bounds=Bounds(bytes=10))


@pytest.mark.parametrize("option", ["sort", "last_value"])
@pytest.mark.parametrize("header", ["", 5, True, ["of"], "x" * 201])
def test_only_the_name_of_a_header_is_an_order(
    db: Database, space: Subspace, option: str, header: object
) -> None:
    options: dict[str, Any] = {option: header}
    with pytest.raises(InvalidOptions, match="must be the name of a header"):
        Queue.create(db, "q", root=space, **options)


def test_verification_finds_a_message_at_a_wrong_place(db: Database, reminders: Queue) -> None:
    reminders.enqueue_many(db, [at(1), at(2)])
    first, *_ = reminders.peek(db, 1)
    key = reminders._keys.ready_key(Position.from_id(first.id))
    wrong = sorted_position(5, 7, 1)
    db[reminders._keys.ready_key(wrong)] = db[key] or b""
    del db[key]
    wild = Position(5, 300, bytes(8))
    db[reminders._keys.ready_key(wild)] = db[reminders._keys.ready_key(wrong)] or b""
    found = {(one.kind, one.subject) for one in reminders.admin.verify(db).deviations}
    assert {("out of order", wrong.to_id()), ("out of order", wild.to_id())} <= found


def test_verification_finds_an_arrival_that_could_be_given_again(
    db: Database, reminders: Queue
) -> None:
    reminders.enqueue_many(db, [at(1), at(2)])
    db[reminders._keys.tail(5)] = pack_index(1)
    (found,) = reminders.admin.verify(db).deviations
    assert (found.kind, found.detail) == ("tail too low", "its arrival 2 could be used again")
    assert reminders.admin.repair(db).ok
    sound(db, reminders)


PLANTED: dict[str, tuple[str, bool]] = {
    "the newest is unknown": ("value missing", True),
    "a mark is missing": ("value unmarked", True),
    "a mark of nobody": ("value astray", True),
    "a value of nobody": ("value astray", True),
    "the newest is marked": ("value astray", True),
    "an older one is ready": ("value replaced", False),
}


@pytest.mark.parametrize("what", PLANTED)
def test_verification_finds_wrong_records_of_last_values(
    db: Database, prices: Queue, what: str
) -> None:
    keys = prices._keys
    (old,) = prices.enqueue_many(db, [price("tea", b"1")])
    take(db, prices)
    (new,) = prices.enqueue_many(db, [price("tea", b"2")])
    gone = "05-000000000007-0011223344556677"
    plant: dict[str, Callable[[], None]] = {
        "the newest is unknown": partial(db.clear, keys.latest("tea")),
        "a mark is missing": partial(db.clear, keys.replaced("tea", old)),
        "a mark of nobody": partial(db.set, keys.replaced("tea", gone), b""),
        "a value of nobody": partial(db.set, keys.latest("oil"), gone.encode()),
        "the newest is marked": partial(db.set, keys.replaced("tea", new), b""),
        "an older one is ready": partial(db.set, keys.latest("tea"), old.encode()),
    }
    if what == "an older one is ready":
        del db[keys.replaced("tea", old)]
    plant[what]()
    kind, repaired = PLANTED[what]
    (found,) = prices.admin.verify(db).deviations
    assert found.kind == kind
    assert prices.admin.repair(db).ok == repaired
    if repaired:
        sound(db, prices)


@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(), st.text(max_size=12), st.integers(-(2**63) + 1, 2**63 - 1), st.floats()
        ),
        max_size=8,
    )
)
def test_the_order_is_that_of_the_tuple_layer(values: list[HeaderValue]) -> None:
    packed = [fdb.tuple.pack((value,)) for value in values]
    placed = [sorted_position(0, value, n) for n, value in enumerate(values, 1)]
    by_value = sorted(range(len(values)), key=lambda n: (packed[n], n))
    assert sorted(range(len(values)), key=lambda n: placed[n]) == by_value
    for n, position in enumerate(placed):
        value, arrival = sorted_by(position)
        assert (fdb.tuple.pack((value,)), arrival) == (packed[n], n + 1)
        assert len(position.random) > 10, "it is no number in a block"

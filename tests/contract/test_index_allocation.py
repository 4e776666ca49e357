"""Enqueues of long transactions beside readers that keep a place: none of them fails for ever.

Each test is a fixed interleaving, or a random one of a fixed seed.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable

import pytest

from fdbqueue import Queue
from fdbqueue.messages.enqueue import index_allocation
from fdbqueue.messages.streams.planning import Limits
from fdbqueue.store.binding import fdb
from fdbqueue.subscriptions import external_cursors
from fdbqueue.values.model import Position

Pass = Callable[[], object]


@pytest.fixture(params=["browser", "selector", "stream"])
def pass_all(
    request: pytest.FixtureRequest,
    db: fdb.Database,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> Pass:
    """A reader that passes every message that is there, and lets no more come in before."""
    if request.param == "browser":
        browser = queue.subscriptions.open(db, "browser", mode="browse")
        return lambda: browser.browse(db, 1_000)
    if request.param == "selector":
        monkeypatch.setattr("fdbqueue.subscriptions.acquire.MIN_SKIPPED", 1)
        selective = queue.subscriptions.open(db, "selective", selector="region = 'eu'")
        return lambda: selective.receive(db)

    def advance() -> object:
        # What a stream that keeps its places in its checkpoint does.
        return queue._read(
            db, lambda tr: external_cursors.advance(tr, queue._scope(tr), {}, Limits())
        )

    return advance


def attempts_until_committed(db: fdb.Database, work: Callable[[fdb.Transaction], None]) -> int:
    """How often the bindings' own loop runs a function until it is committed, at most ten."""
    attempts = 0

    @fdb.transactional
    def run(tr: fdb.Transaction) -> None:
        nonlocal attempts
        attempts += 1
        assert attempts <= 10, "it is starved"
        work(tr)

    run(db)
    return attempts


def test_a_long_transaction_commits_at_the_second_attempt_beside_producers_and_a_reader(
    db: fdb.Database, queue: Queue, pass_all: Pass
) -> None:
    def work(tr: fdb.Transaction) -> None:
        queue.enqueue(tr, b"long")
        for _ in range(5):  # What comes meanwhile, and is passed at once.
            queue.enqueue(db, b"short")
            pass_all()

    assert attempts_until_committed(db, work) == 2


def test_what_comes_after_a_leap_stands_behind_it(
    db: fdb.Database, queue: Queue, pass_all: Pass
) -> None:
    def work(tr: fdb.Transaction) -> None:
        queue.enqueue(tr, b"long")
        queue.enqueue(db, b"before")
        pass_all()

    attempts_until_committed(db, work)
    queue.enqueue(db, b"after")
    payloads = [message.payload for message in queue.browse(db)]
    assert payloads == [b"before", b"before", b"long", b"after"]


def test_several_enqueues_of_a_transaction_keep_their_order_when_they_leap(
    db: fdb.Database, queue: Queue, pass_all: Pass
) -> None:
    def work(tr: fdb.Transaction) -> None:
        queue.enqueue(tr, b"1")
        queue.enqueue_many(tr, [b"2", b"3"])
        queue.enqueue(tr, b"4")
        queue.enqueue(db, b"0")
        pass_all()

    attempts_until_committed(db, work)
    assert [message.payload for message in queue.browse(db)][2:] == [b"1", b"2", b"3", b"4"]


def test_of_many_long_transactions_one_after_another_only_the_first_is_tried_again(
    db: fdb.Database, queue: Queue, pass_all: Pass
) -> None:
    def work(tr: fdb.Transaction) -> None:
        queue.enqueue(tr, b"long")
        for _ in range(5):
            queue.enqueue(db, b"short")
            pass_all()

    attempts = [attempts_until_committed(db, work) for _ in range(10)]
    assert sum(attempts) <= 13, (
        "the first two times, and now and then one, if its leap was too short"
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_long_transactions_that_overlap_are_tried_less_than_twice_on_average(
    db: fdb.Database, queue: Queue, pass_all: Pass, at_once: int
) -> None:
    attempts, left = 0, 24
    open_ones: list[fdb.Transaction] = []
    while left:
        tr = db.create_transaction()
        while True:
            attempts += 1
            queue.enqueue(tr, b"long")
            open_ones.append(tr)
            for _ in range(3):
                queue.enqueue(db, b"short")
                pass_all()
            if len(open_ones) < at_once:
                break
            tr = open_ones.pop(0)
            try:
                tr.commit().wait()
            except fdb.FDBError as error:
                tr.on_error(error).wait()
                continue  # It is tried again, behind the others.
            left -= 1
            pass_all()
            break
    assert attempts <= 1.5 * 24


def test_a_leap_that_nobody_needs_any_more_is_forgotten(
    db: fdb.Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = queue.subscriptions.open(db, "browser", mode="browse")

    def work(tr: fdb.Transaction) -> None:
        queue.enqueue(tr, b"long")
        queue.enqueue(db, b"short")
        browser.browse(db, 1_000)

    assert attempts_until_committed(db, work) == 2

    def begin() -> int:
        last = Position.from_id(queue.enqueue(db, b"short")).index
        return Position.from_id(queue.enqueue(db.create_transaction(), b"long")).index - last

    assert begin() > 1, "it begins with the leap"
    monkeypatch.setattr(index_allocation, "_HALVED_VERSIONS", 1)
    queue.enqueue(db, b"so that the version moves on")
    assert begin() == 1


def test_brief_enqueues_leave_nothing_out(db: fdb.Database, queue: Queue, pass_all: Pass) -> None:
    def work(tr: fdb.Transaction) -> None:
        queue.enqueue(tr, b"long")
        queue.enqueue(db, b"short")
        pass_all()

    attempts_until_committed(db, work)
    indexes = [Position.from_id(queue.enqueue(db, b"short")).index for _ in range(3)]
    assert indexes == [*range(indexes[0], indexes[0] + 3)]


def test_what_is_known_of_a_transaction_goes_with_it(db: fdb.Database, queue: Queue) -> None:
    tr = db.create_transaction()
    queue.enqueue(tr, b"gone")
    tr.commit().wait()
    seen = weakref.ref(tr)
    del tr
    gc.collect()
    assert seen() is None


def test_a_transaction_object_that_is_used_again_and_again_goes_on_working(
    db: fdb.Database, queue: Queue
) -> None:
    tr = db.create_transaction()
    for n in range(30):
        queue.enqueue(tr, b"%d" % n)
        tr.commit().wait()
        tr.reset()
    assert [int(message.payload) for message in queue.browse(db)] == [*range(30)]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_tried_again_a_browser_sees_each_message_once_and_in_order(
    db: fdb.Database, queue: Queue, seed: int
) -> None:
    choices = random.Random(seed)
    browser = queue.subscriptions.open(db, "browser", mode="browse")
    open_ones: list[tuple[fdb.Transaction, int, str]] = []
    began: dict[str, int] = {}
    returned: dict[str, int] = {}
    seen: list[str] = []
    now = 0
    for now in range(120):
        step = choices.random()
        if step < 0.35 and len(open_ones) < 6:
            tr = db.create_transaction()
            open_ones.append((tr, now, queue.enqueue(tr, b"")))
        elif step < 0.65 and open_ones:
            tr, at, message = open_ones.pop(choices.randrange(len(open_ones)))
            try:
                tr.commit().wait()
            except fdb.FDBError as error:
                tr.on_error(error).wait()
                open_ones.append((tr, now, queue.enqueue(tr, b"")))
            else:
                began[message], returned[message] = at, now
        elif step < 0.85:
            seen += [message.id for message in browser.browse(db, choices.randrange(1, 4))]
        else:
            taken = queue.receive(db, at_most_once=True)
            if taken is not None and taken.id not in seen:
                began.pop(taken.id)  # Taken before the browser came by.
                returned.pop(taken.id)
    seen += [message.id for message in browser.browse(db, 1_000)]
    assert sorted(seen) == sorted(began)
    places = {message: place for place, message in enumerate(seen)}
    for one in seen:
        for other in seen:
            if returned[one] < began[other]:
                assert places[one] < places[other]

"""Enqueues of long transactions beside readers that keep a place: none of them fails for ever.

Each test is a fixed interleaving, or a random one of a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fdbqueue import Queue
from fdbqueue.messages.streams.planning import BatchLimits
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
            db,
            lambda tr: external_cursors.advance(
                tr, queue._scope(tr), external_cursors.PassedMessages({}), BatchLimits()
            ),
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


def test_brief_enqueues_leave_nothing_out(db: fdb.Database, queue: Queue, pass_all: Pass) -> None:
    def work(tr: fdb.Transaction) -> None:
        queue.enqueue(tr, b"long")
        queue.enqueue(db, b"short")
        pass_all()

    attempts_until_committed(db, work)
    indexes = [Position.from_id(queue.enqueue(db, b"short")).index for _ in range(3)]
    assert indexes == [*range(indexes[0], indexes[0] + 3)]


def test_a_transaction_object_that_is_used_again_and_again_goes_on_working(
    db: fdb.Database, queue: Queue
) -> None:
    tr = db.create_transaction()
    for n in range(30):
        queue.enqueue(tr, b"%d" % n)
        tr.commit().wait()
        tr.reset()
    assert [int(message.payload) for message in queue.browse(db)] == [*range(30)]

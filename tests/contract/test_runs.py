"""Two transactions that each want something of one row: which of them fail, and what comes of it.

Messages that were enqueued together share a row, also while one consumer has them. Whoever cuts the
row aborts whoever else does so meanwhile, and nobody else.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fdbqueue import Delivery, NewMessage, Queue
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.values.states import State
from tests.audit import sound
from tests.taking import take

CONFLICT = 1020
COUNT = 12
Step = Callable[[fdb.Transaction], object]


def filled(db: fdb.Database, queue: Queue) -> list[str]:
    return queue.enqueue_many(db, [NewMessage(b"%d" % n, headers={"n": n}) for n in range(COUNT)])


def rows(db: fdb.Database, queue: Queue, kind: Kind) -> int:
    every = queue._keys.kind(kind)
    return len(list(db.get_range(every.start, every.stop)))


def fails(db: fdb.Database, first: Step, second: Step) -> bool:
    """Whether a transaction with ``second`` fails because one with ``first`` commits before. Does
    ``second`` again then."""
    theirs, mine = db.create_transaction(), db.create_transaction()
    for tr in (theirs, mine):
        tr.get_read_version().wait()
    first(theirs)
    second(mine)
    theirs.commit().wait()
    failed = False
    try:
        mine.commit().wait()
    except fdb.FDBError as error:
        failed = error.code == CONFLICT
    if failed:
        fdb.transactional(second)(db)
    return failed


# -- ready ----------------------------------------------------------------------------------------


def gone(queue: Queue, ids: list[str], how: str, n: int) -> Step:
    """What removes message ``n``."""

    def matching(tr: fdb.Transaction) -> None:
        held = take(tr, queue, match=f"n = {n}")
        queue.ack(tr, held)

    def first(tr: fdb.Transaction) -> None:
        held = take(tr, queue)
        queue.ack(tr, held)

    ways: dict[str, Step] = {
        "cancel": lambda tr: queue.cancel(tr, ids[n]),
        "match": matching,
        "first": first,
    }
    return ways[how]


def test_a_message_that_returns_makes_nobody_fail_who_takes_others_of_its_row(
    db: fdb.Database, queue: Queue
) -> None:
    ids = filled(db, queue)
    held = take(db, queue)
    queue.release(db, queue.receive_many(db, 3))
    returns: Step = lambda tr: queue.release(tr, held)  # noqa: E731
    assert not fails(db, returns, gone(queue, ids, "cancel", 9))
    assert queue.depth(db).ready == COUNT - 1
    sound(db, queue)


def test_a_row_is_cut_once(db: fdb.Database, queue: Queue) -> None:
    # Given a row of which one message was cancelled: it is two now
    ids = filled(db, queue)
    fdb.transactional(gone(queue, ids, "cancel", 9))(db)
    assert rows(db, queue, QueueKeys.ready) == 2
    # When somebody takes one of the first, then others are expected to do so
    fdb.transactional(gone(queue, ids, "match", 5))(db)
    assert rows(db, queue, QueueKeys.ready) == 8 + 1
    fdb.transactional(gone(queue, ids, "match", 7))(db)
    assert rows(db, queue, QueueKeys.ready) == 7 + 1
    sound(db, queue)


# -- leased ---------------------------------------------------------------------------------------


def step(queue: Queue, held: list[Delivery], how: str, some: slice) -> Step:
    ways: dict[str, Step] = {
        "ack": lambda tr: queue.ack(tr, held[some]),
        "release": lambda tr: queue.release(tr, held[some]),
        "reject": lambda tr: queue.reject(tr, held[some], "bad"),
        "extend": lambda tr: queue.extend(tr, held[some], 60),
        "request": lambda tr: queue.cancel(tr, held[some][0].id),
    }
    return ways[how]


LOW, HIGH, ALL = slice(3, 5), slice(8, 9), slice(None)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Both cut the row.
        (("ack", LOW), ("ack", HIGH), True),
        (("release", HIGH), ("ack", LOW), True),
        (("ack", LOW), ("reject", HIGH), True),
        (("request", HIGH), ("ack", LOW), True),
        (("ack", LOW), ("request", HIGH), True),
        # An extension reads the row, and leaves it as it is.
        (("ack", LOW), ("extend", HIGH), True),
        (("extend", HIGH), ("ack", LOW), False),
        (("extend", ALL), ("ack", ALL), False),
        (("extend", HIGH), ("request", LOW), False),
        # They end one claim.
        (("extend", LOW), ("extend", HIGH), True),
    ],
)
def test_leases_of_one_row(
    db: fdb.Database,
    queue: Queue,
    first: tuple[str, slice],
    second: tuple[str, slice],
    expected: bool,
) -> None:
    filled(db, queue)
    held = queue.receive_many(db, COUNT)
    assert rows(db, queue, QueueKeys.lease) == 1
    assert fails(db, step(queue, held, *first), step(queue, held, *second)) is expected
    sound(db, queue)
    for each in held:  # None is lost, and none is settled twice.
        found = queue.get(db, each.id)
        if found is not None and found.state is State.LEASED:
            queue.ack(db, each)
    assert queue.depth(db).leased == 0
    sound(db, queue)


def test_once_a_row_of_leases_is_cut_their_settlements_do_not_meet(
    db: fdb.Database, queue: Queue
) -> None:
    filled(db, queue)
    held = queue.receive_many(db, COUNT)
    queue.ack(db, held[0])
    # The others have rows of their own now
    assert rows(db, queue, QueueKeys.lease) == COUNT - 1
    assert not fails(db, step(queue, held, "ack", LOW), step(queue, held, "ack", HIGH))
    assert not fails(
        db, step(queue, held, "ack", slice(1, 2)), step(queue, held, "extend", slice(5, 6))
    )
    sound(db, queue)


def test_what_stood_in_several_rows_is_never_one_lease(db: fdb.Database, queue: Queue) -> None:
    # Given a row that was cut into threes, and another one
    filled(db, queue)
    queue.release(db, queue.receive_many(db, 3), delay=0)
    filled(db, queue)
    before = rows(db, queue, QueueKeys.ready)
    # When all of them are taken at once, then each row is one of leases
    held = queue.receive_many(db, 2 * COUNT)
    assert len(held) == 2 * COUNT
    assert rows(db, queue, QueueKeys.lease) == before
    assert not fails(
        db, step(queue, held, "ack", slice(3, 6)), step(queue, held, "ack", slice(6, 9))
    )
    sound(db, queue)

"""A program of chains and groups goes on wherever it crashed."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

from fdbqueue import Clock, Queue, Then, context, fdb
from fdbqueue.testing import ManualClock, drain

NAMES = ["chapters", "books", "sales"]


class Crash(Exception):
    pass


class Mortal:
    """A database for a process that crashes after so many commits."""

    def __init__(self, db: fdb.Database, commits: int) -> None:
        self.db, self.left = db, commits

    def create_transaction(self) -> Any:
        tr: Any = self.db.create_transaction()
        commit = tr.commit

        def count() -> Any:
            self.left -= 1
            if self.left < 0:
                raise Crash
            return commit()

        tr.commit = count
        return tr


def program(db: Any, space: fdb.Subspace, clock: Clock) -> None:
    """Write three chapters, bind them, and sell the book."""
    chapters, books, sales = (Queue.open(db, name, root=space, clock=clock) for name in NAMES)
    chapters.enqueue_many(
        db, [b"one", b"two", b"three"], group=Then(b"a book", queue=books, name="my book")
    )
    drain(db, chapters, lambda chapter: None)
    drain(db, books, lambda book: context.then(sales, book))
    drain(db, sales, lambda book: None)


def test_every_step_happens_once_whichever_commit_the_process_dies_at(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    for commits in itertools.count():
        # Given a process that dies at this commit
        clock = ManualClock()
        mortal = Mortal(db, commits)
        with suppress(Crash):
            program(mortal, space, clock)

        # When its leases are over, and somebody starts it again
        clock.seconds += 60
        program(db, space, clock)

        # Then each step happened once
        queues = [Queue(name, root=space) for name in NAMES]
        assert [queue.depth(db).done for queue in queues] == [3, 1, 1]
        assert [queue.depth(db).enqueued for queue in queues] == [3, 1, 1]
        for queue in queues:
            queue.delete(db)
        if mortal.left >= 0:
            break
    assert commits > 10

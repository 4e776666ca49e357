"""Operations that run out of time: their outcome is known, or said to be unknown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from fdbqueue import Depth, Queue
from fdbqueue.errors import InvalidArgument, OperationTimedOut, OutcomeUnknown
from fdbqueue.store.binding import fdb
from tests.flaky import (
    TIMED_OUT_COMMITTED,
    TIMED_OUT_LOST,
    UNKNOWN_COMMITTED,
    UNKNOWN_LOST,
    CuttableDatabase,
    FlakyDatabase,
)


def flaky(db: fdb.Database, *plan: str | None) -> fdb.Database:
    return cast("fdb.Database", FlakyDatabase(db, plan))


@pytest.mark.parametrize("before", [(), (UNKNOWN_LOST,)])
def test_what_committed_as_its_time_ran_out_is_done_once(
    db: fdb.Database, queue: Queue, before: tuple[str, ...]
) -> None:
    plan = (*before, TIMED_OUT_COMMITTED)
    (first,) = queue.enqueue_many(flaky(db, *plan), [b"a"])
    assert [message.id for message in queue.peek(db, 9)] == [first]
    found = queue.receive(flaky(db, *plan))
    assert found is not None
    assert found.id == first
    queue.ack(flaky(db, *plan), found)
    assert queue.depth(db) == Depth(enqueued=1, done=1)


def test_an_unknown_outcome_that_runs_out_of_time_is_found_out(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue(flaky(db, UNKNOWN_COMMITTED, TIMED_OUT_LOST), b"a")
    assert queue.depth(db) == Depth(enqueued=1, ready=1, ready_bytes=1)


def test_what_did_not_commit_in_time_never_will(db: fdb.Database, queue: Queue) -> None:
    with pytest.raises(OperationTimedOut, match="nothing was written"):
        queue.enqueue(flaky(db, TIMED_OUT_LOST), b"a")
    assert queue.depth(db) == Depth()


class Slow:
    """Lends transactions of ``db``; the first commit is given up, and made later by ``arrive``."""

    def __init__(self, db: fdb.Database, arrives: Callable[[Slow], object]) -> None:
        self._db = db
        self._arrives = arrives
        self._late: Any = None
        self.code: int | None = None

    def create_transaction(self) -> fdb.Transaction:
        tr = self._db.create_transaction()
        commit = tr.commit

        def slow() -> Any:
            if self._late is None:
                self._late = (tr, commit)
                tr.on_error = self._give_up  # type: ignore[method-assign,assignment]
                raise fdb.FDBError(1031)
            self._arrives(self)
            return commit()

        tr.commit = slow  # type: ignore[method-assign]
        return tr

    @staticmethod
    def _give_up(error: fdb.FDBError) -> Any:
        """The client ends the transaction, and what it has sent is still under way."""
        raise error

    def arrive(self) -> None:
        """The first commit comes to its end."""
        if self.code is None:
            try:
                self._late[1]().wait()
                self.code = 0
            except fdb.FDBError as error:
                self.code = error.code


def test_a_commit_that_arrives_while_its_outcome_is_asked_for_counts(
    db: fdb.Database, queue: Queue
) -> None:
    slow = Slow(db, Slow.arrive)
    message_id = queue.enqueue(cast("fdb.Database", slow), b"a")
    assert slow.code == 0
    assert [message.id for message in queue.peek(db, 9)] == [message_id]


def test_a_commit_that_arrives_after_its_outcome_was_told_fails(
    db: fdb.Database, queue: Queue
) -> None:
    slow = Slow(db, lambda _: None)
    with pytest.raises(OperationTimedOut):
        queue.enqueue(cast("fdb.Database", slow), b"a")
    slow.arrive()
    assert slow.code == 1020
    assert queue.depth(db) == Depth()


def test_a_store_that_does_not_say_leaves_the_outcome_unknown(
    db: fdb.Database, queue: Queue
) -> None:
    store = CuttableDatabase(db)

    class Leaving:
        def create_transaction(self) -> fdb.Transaction:
            tr = store.create_transaction()
            commit = tr.commit

            def leave() -> Any:
                store.cut = True
                return commit()

            tr.commit = leave  # type: ignore[method-assign]
            return tr

    with pytest.raises(OutcomeUnknown):
        queue.enqueue(cast("fdb.Database", Leaving()), b"a")


def test_a_timeout_of_the_whole_database_is_a_deadline(
    db: fdb.Database, queue: Queue, store: str
) -> None:
    # Given a database whose transactions end after a moment
    limited = fdb.open(store)
    limited.options.set_transaction_timeout(1)
    try:
        # Then an operation ends with its result, or with nothing written
        done = 0
        for _ in range(20):
            try:
                queue.enqueue(limited, b"x")
                done += 1
            except OperationTimedOut:
                pass
    finally:
        limited.options.set_transaction_timeout(0)
    assert queue.depth(db).ready == done


@pytest.mark.parametrize("operation", ["receive", "enqueue", "ack", "depth", "dead"])
def test_each_operation_of_a_handle_with_a_deadline_ends(
    db: fdb.Database, queue: Queue, operation: str
) -> None:
    # Given a conflict that does not end
    queue.enqueue(db, b"a")
    delivery = queue.receive(db)
    assert delivery is not None
    limited = queue.within(0.2)

    class Busy:
        first: fdb.Transaction | None = None

        def create_transaction(self) -> fdb.Transaction:
            tr = db.create_transaction()
            commit = tr.commit

            def busy() -> Any:
                self.first = self.first or tr
                if self.first is tr:
                    raise fdb.FDBError(1020)
                return commit()

            tr.commit = busy  # type: ignore[method-assign]
            return tr

    store = cast("fdb.Database", Busy())
    run: dict[str, Callable[[], object]] = {
        "receive": lambda: limited.receive(store),
        "enqueue": lambda: limited.enqueue(store, b"b"),
        "ack": lambda: limited.ack(store, delivery),
        "depth": lambda: limited.depth(store),
        "dead": lambda: limited.dead.purge(store),
    }
    ended: list[BaseException] = []

    def call() -> None:
        try:
            run[operation]()
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    assert [type(error) for error in ended] == [OperationTimedOut]
    assert queue.depth(db).ready == 0


def test_a_deadline_must_be_a_time(queue: Queue) -> None:
    with pytest.raises(InvalidArgument):
        queue.within(-1)

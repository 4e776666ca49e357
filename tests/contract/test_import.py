from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from fdbqueue import Queue
from fdbqueue.errors import InvalidArgument, QueueNotFound, TakenOver
from fdbqueue.store.binding import fdb
from tests.flaky import CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST, FlakyDatabase

Database = fdb.Database

PLANS = [[CONFLICT], [UNKNOWN_COMMITTED], [UNKNOWN_LOST], [UNKNOWN_COMMITTED, CONFLICT]]


@pytest.mark.parametrize("plan", PLANS, ids=", ".join)
def test_messages_and_the_place_behind_them_are_one_commit(
    db: Database, queue: Queue, plan: Sequence[str]
) -> None:
    flaky = cast("Database", FlakyDatabase(db, plan))
    source = queue.streams.importer("orders.csv")
    assert source.place(db) == b""

    ids = source.enqueue(flaky, [b"a", b"b"], since=b"", until=b"2")
    source.enqueue(db, [b"c"], since=b"2", until=b"3")

    assert [message.id for message in queue.peek(db, 9)][:2] == ids
    assert source.place(db) == b"3"
    assert queue.depth(db).enqueued == 3


def test_an_import_that_is_elsewhere_enqueues_nothing(db: Database, queue: Queue) -> None:
    queue.streams.importer("a").enqueue(db, [b"1"], since=b"", until=b"1")

    with pytest.raises(TakenOver, match="'a'"):
        queue.streams.importer("a").enqueue(db, [b"1"], since=b"", until=b"1")

    assert queue.depth(db).enqueued == 1
    queue.streams.importer("b").enqueue(db, [b"1"], since=b"", until=b"1")
    assert queue.depth(db).enqueued == 2


def test_of_two_that_go_on_at_once_one_does(db: Database, queue: Queue) -> None:
    # Given one that has read the place and not yet committed
    source = queue.streams.importer("a")
    late = db.create_transaction()
    assert source.place(late) == b""

    # When another one goes on meanwhile
    source.enqueue(db, [b"1"], since=b"", until=b"1")

    # Then the first cannot commit
    queue.enqueue(late, b"1")
    with pytest.raises(fdb.FDBError) as raised:
        late.commit().wait()
    assert raised.value.code == 1020
    assert queue.depth(db).enqueued == 1


def test_a_forgotten_import_begins_anew(db: Database, queue: Queue) -> None:
    source = queue.streams.importer("a")
    source.enqueue(db, [b"1"], since=b"", until=b"1")
    source.forget(db)
    assert source.place(db) == b""


def test_an_import_needs_its_queue_and_a_place(db: Database, queue: Queue) -> None:
    source = queue.streams.importer("a")
    with pytest.raises(InvalidArgument):
        source.enqueue(db, [b"1"], since=b"", until=b"")
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        source.place(db)
    with pytest.raises(QueueNotFound):
        source.enqueue(db, [b"1"], since=b"", until=b"1")


@pytest.mark.parametrize(("since", "until"), [("", b"1"), (b"", "1"), (b"", 5)])
def test_a_place_that_is_no_bytes_is_refused(
    db: fdb.Database, queue: Queue, since: Any, until: Any
) -> None:
    with pytest.raises(InvalidArgument):
        queue.streams.importer("typo").enqueue(db, [b"1"], since=since, until=until)
    assert queue.depth(db).enqueued == 0

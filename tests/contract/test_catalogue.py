from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

import fdbqueue
from fdbqueue import Bounds, KeyLimits, Queue, QueueOptions
from fdbqueue.errors import (
    CorruptData,
    InvalidArgument,
    InvalidOptions,
    OptionsMismatch,
    QueueExists,
    QueueNotFound,
)
from fdbqueue.schema.keys import RootKeys
from fdbqueue.store.binding import fdb

Database = fdb.Database
Subspace = fdb.Subspace


def test_a_queue_is_created_once(db: Database, space: Subspace) -> None:
    Queue.create(db, "orders", root=space, levels=3)
    with pytest.raises(QueueExists, match="queue 'orders' already exists"):
        Queue.create(db, "orders", root=space)


def test_opening_creates_what_is_missing_unless_told_not_to(db: Database, space: Subspace) -> None:
    with pytest.raises(QueueNotFound, match="no queue 'orders'"):
        Queue.open(db, "orders", root=space, create=False)
    Queue.open(db, "orders", root=space, levels=3)
    queue = Queue.open(db, "orders", root=space, create=False)
    assert queue.options(db) == QueueOptions(levels=3)


def test_opening_with_other_options_is_an_error(db: Database, space: Subspace) -> None:
    Queue.create(db, "orders", root=space, levels=3, max_attempts=7)
    with pytest.raises(OptionsMismatch, match="levels=3, but was opened with levels=4"):
        Queue.open(db, "orders", root=space, levels=4)
    assert Queue.open(db, "orders", root=space, max_attempts=7).options(db).levels == 3


@pytest.mark.parametrize(
    ("stored", "given", "option"),
    [
        ({"last_value": "of"}, {"bounds": Bounds(messages=9)}, "bounds.messages"),
        ({"bounds": Bounds(messages=9)}, {"last_value": "of"}, "last_value"),
        (
            {"bounds": Bounds(messages=9, when_full="block")},
            {"bounds": Bounds(messages=None, when_full="block")},
            "bounds.messages",
        ),
        ({"keys": KeyLimits(window=9, weight=5)}, {"keys": KeyLimits(window=900)}, "keys.window"),
        ({"keys": KeyLimits(window=9, weight=5)}, {"keys": KeyLimits(weight=900)}, "keys.weight"),
        ({"bounds": Bounds(messages=9)}, {"bounds": Bounds(when_full="block")}, "bounds.when_full"),
    ],
)
def test_opening_with_options_that_go_together_with_none_stored_names_the_one_given(
    db: Database, space: Subspace, stored: Any, given: Any, option: str
) -> None:
    Queue.create(db, "orders", root=space, **stored)
    with pytest.raises(OptionsMismatch, match=rf"but was opened with {re.escape(option)}="):
        Queue.open(db, "orders", root=space, **given)


def test_opening_with_some_fields_of_a_group_compares_these(db: Database, space: Subspace) -> None:
    bounds, keys = Bounds(messages=9, when_full="block"), KeyLimits(window=9, weight=5)
    Queue.create(db, "orders", root=space, bounds=bounds, keys=keys)
    some: Any = {"bounds": Bounds(when_full="block"), "keys": KeyLimits(weight=5)}
    assert Queue.open(db, "orders", root=space, **some).options(db).bounds == bounds
    with pytest.raises(InvalidOptions, match=r"keys\.weight"):
        Queue.open(db, "orders", root=space, keys=KeyLimits(weight=5_000))


def test_bad_options_create_nothing(db: Database, space: Subspace) -> None:
    with pytest.raises(InvalidOptions, match="levels"):
        Queue.create(db, "orders", root=space, levels=0)
    with pytest.raises(InvalidOptions, match="unknown; the options are"):
        Queue.open(db, "orders", root=space, speed=9)  # type: ignore[call-arg]
    assert fdbqueue.list_queues(db, root=space) == []


def test_queues_are_listed_by_name(db: Database, space: Subspace) -> None:
    for name in ("b", "a", "ä/\u2603 x"):
        Queue.create(db, name, root=space)
    assert fdbqueue.list_queues(db, root=space) == ["a", "b", "ä/\u2603 x"]


def test_a_deleted_queue_leaves_nothing_and_is_found_gone(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "orders", root=space)
    neighbour = Queue.create(db, "orders2", root=space)
    neighbour.enqueue(db, b"stays")
    queue.enqueue(db, b"goes")
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        queue.enqueue(db, b"late")
    with pytest.raises(QueueNotFound):
        queue.delete(db)
    everything = RootKeys(space).queue("orders").all()
    assert db.get_range(everything.start, everything.stop) == []
    assert [m.payload for m in neighbour.peek(db)] == [b"stays"]


def test_an_operation_under_way_does_not_survive_the_deletion(
    db: Database, space: Subspace
) -> None:
    queue = Queue.create(db, "orders", root=space)
    tr = db.create_transaction()
    queue.enqueue(tr, b"late")
    queue.delete(db)
    with pytest.raises(fdb.FDBError) as caught:
        tr.commit().wait()
    assert caught.value.code == 1020


def test_a_queue_can_be_created_and_used_in_one_transaction(db: Database, space: Subspace) -> None:
    @fdb.transactional
    def both(tr: fdb.Transaction) -> Queue:
        queue = Queue.open(tr, "orders", root=space)
        queue.enqueue(tr, b"first")
        return queue

    assert [m.payload for m in both(db).peek(db)] == [b"first"]


def test_changed_options_reach_every_handle(db: Database, space: Subspace) -> None:
    mine = Queue.create(db, "orders", root=space, lease=5)
    yours = Queue.open(db, "orders", root=space)
    mine.set_options(db, lease=7, max_attempts=None)
    assert yours.options(db) == QueueOptions(lease=7.0, max_attempts=None)
    with pytest.raises(OptionsMismatch, match=r"levels=10, which cannot become 2"):
        mine.set_options(db, levels=2)


def test_another_format_is_refused(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "orders", root=space)
    meta = RootKeys(space).queue("orders").meta
    stored = db[meta] or b""
    for found in (0, 99):
        db[meta] = bytes([found]) + stored[1:]
        with pytest.raises(CorruptData, match=f"it has version {found}, not 1"):
            pickle.loads(pickle.dumps(queue)).enqueue(db, b"x")


def test_a_handle_can_be_pickled(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "orders", root=space)
    queue.enqueue(db, b"x")
    assert [m.payload for m in pickle.loads(pickle.dumps(queue)).peek(db)] == [b"x"]


def test_errors_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(QueueNotFound(name="orders")))
    assert str(error) == "there is no queue 'orders': create it first"


@pytest.mark.parametrize("name", ["\x01orders", "a" * 201, ""])
def test_names_are_checked_before_anything_is_written(
    db: Database, space: Subspace, name: str
) -> None:
    with pytest.raises(InvalidArgument):
        Queue.create(db, name, root=space)
    assert fdbqueue.list_queues(db, root=space) == []

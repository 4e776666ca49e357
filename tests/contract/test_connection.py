"""A connection of one's own: producers and services learn whether the store answers."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from fdbqueue import Connection
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from fdbqueue.store.connection import ConnectionState
from tests.flaky import CuttableDatabase
from tests.patience import eventually

SUSPENDED, LOST = ConnectionState.SUSPENDED, ConnectionState.LOST
RECONNECTED = ConnectionState.RECONNECTED


def asking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "fdbqueue-connection"]


def test_listeners_are_told_every_change_and_one_that_fails_harms_no_other(
    db: fdb.Database,
) -> None:
    store = CuttableDatabase(db)
    states: list[ConnectionState] = []
    connection = Connection(cast("fdb.Database", store), interval=0.01, lost_after=0.1)
    connection.listen(lambda _: 1 / 0)
    connection.listen(states.append)
    with connection:
        assert connection.usable
        store.cut = True
        eventually(lambda: LOST in states)
        assert not connection.usable
        store.cut = False
        eventually(lambda: RECONNECTED in states)
    assert states == [SUSPENDED, LOST, RECONNECTED]
    connection.forget(states.append)
    store.cut = True
    assert connection.check() is SUSPENDED
    assert states == [SUSPENDED, LOST, RECONNECTED]


def test_one_thread_asks_however_often_it_is_started(db: fdb.Database) -> None:
    before = asking()
    connection = Connection(db)
    with connection:
        connection.start()
        assert len(asking()) == len(before) + 1
    eventually(lambda: asking() == before)
    with connection:
        assert len(asking()) == len(before) + 1
    eventually(lambda: asking() == before)


@pytest.mark.parametrize("wrong", [{"interval": -1}, {"timeout": "soon"}, {"lost_after": None}])
def test_times_that_are_none_are_refused(db: fdb.Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Connection(db, **wrong)

"""A connection of one's own: producers and services learn whether the store answers."""

from __future__ import annotations

import os
import threading
from typing import Any, cast

import pytest

from fdbqueue import Connection
from fdbqueue.errors import InvalidArgument
from fdbqueue.store import connection as connections
from fdbqueue.store.binding import fdb
from fdbqueue.store.connection import ConnectionState
from tests.flaky import CuttableDatabase
from tests.patience import DEADLINE, eventually

CONNECTED, SUSPENDED = ConnectionState.CONNECTED, ConnectionState.SUSPENDED
LOST, RECONNECTED = ConnectionState.LOST, ConnectionState.RECONNECTED


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


def test_a_listener_that_checks_or_stops_the_connection_waits_for_nobody(db: fdb.Database) -> None:
    store = CuttableDatabase(db)
    connection = Connection(cast("fdb.Database", store), interval=0.01)
    first: list[ConnectionState] = []
    second: list[ConnectionState] = []

    def check_again(state: ConnectionState) -> None:
        first.append(state)
        if state is SUSPENDED:
            store.cut = False
            connection.check()
        else:
            connection.stop()

    connection.listen(check_again)
    connection.listen(second.append)
    store.cut = True
    with connection:
        eventually(lambda: len(second) == 2)
    assert first == second == [SUSPENDED, RECONNECTED]


def test_a_thread_that_was_stopped_ends_though_another_has_been_started(
    db: fdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STOP_SECONDS", 0.01)
    before, gate, told = len(asking()), threading.Event(), threading.Event()
    store = CuttableDatabase(db)
    connection = Connection(cast("fdb.Database", store), interval=0.01)

    def hang(_: ConnectionState) -> None:
        told.set()
        gate.wait(DEADLINE)

    connection.listen(hang)
    store.cut = True
    with connection:
        assert told.wait(DEADLINE)
    with connection:
        assert len(asking()) == before + 2
        gate.set()
        eventually(lambda: len(asking()) == before + 1)
    eventually(lambda: len(asking()) == before)


def test_a_forked_process_asks_by_itself(db: fdb.Database) -> None:
    connection = Connection(db)
    with connection, connection._changing, connection._telling:
        former = connection._asking
        assert former is not None
        former._process = os.getpid() - 1  # As a fork leaves it.
        connection.start()
        assert connection._asking is not former
        assert connection.check() is CONNECTED
        former.stopped = True

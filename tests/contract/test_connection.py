"""A connection of one's own: producers and services learn whether the store answers.

The tests of the blocking one run through that of asyncio, too, in a loop in another thread.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Self, cast

import pytest

from fdbqueue import Connection, aio
from fdbqueue.aio import driver
from fdbqueue.errors import InvalidArgument
from fdbqueue.store import connection as connections
from fdbqueue.store import tasks as store_tasks
from fdbqueue.store.binding import fdb
from fdbqueue.store.connection import ConnectionState
from tests.contract.test_aio import run
from tests.contract.test_aio_worker import until
from tests.flaky import CuttableDatabase
from tests.patience import DEADLINE, eventually

CONNECTED, SUSPENDED = ConnectionState.CONNECTED, ConnectionState.SUSPENDED
LOST, RECONNECTED = ConnectionState.LOST, ConnectionState.RECONNECTED


class Loop:
    """An event loop in a thread, and connections whose methods run in it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop")
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE)

    def connection(self, db: fdb.Database, **how: Any) -> LoopConnection:
        return LoopConnection(self, aio.Connection(aio.Database(db), **how))

    def close(self) -> None:
        assert not self.call(tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}


class LoopConnection:
    """As ``Connection``."""

    def __init__(self, loop: Loop, twin: aio.Connection) -> None:
        self._loop, self._twin = loop, twin

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._twin, name)
        if inspect.iscoroutinefunction(found):
            return lambda *args: self._loop.call(found(*args))
        return found

    def __enter__(self) -> Self:
        self._loop.call(self._twin.__aenter__())
        return self

    def __exit__(self, *how: object) -> None:
        self._loop.call(self._twin.__aexit__(*how))


class Kind:
    """A kind of connection. asking: how many threads or tasks ask."""

    def __init__(self, made: Callable[..., Any], asking: Callable[[], int]) -> None:
        self.made, self.asking = made, asking


def threads() -> int:
    return [each.name for each in threading.enumerate()].count("fdbqueue-connection")


@pytest.fixture(params=["threads", "asyncio"])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    if request.param == "threads":
        yield Kind(Connection, threads)
        return
    loop = Loop()
    try:
        yield Kind(loop.connection, lambda: len(driver._spawned))
    finally:
        loop.close()


def test_listeners_are_told_every_change_and_one_that_fails_harms_no_other(
    db: fdb.Database, kind: Kind
) -> None:
    store = CuttableDatabase(db)
    states: list[ConnectionState] = []
    connection = kind.made(store, interval=0.01, lost_after=0.1)
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


def test_one_thread_or_task_asks_however_often_it_is_started(db: fdb.Database, kind: Kind) -> None:
    before = kind.asking()
    connection = kind.made(db)
    for _ in range(2):
        with connection:
            connection.start()
            assert kind.asking() == before + 1
        eventually(lambda: kind.asking() == before)
    connection.stop()


def test_a_connection_that_is_suspect_is_asked_at_once(db: fdb.Database, kind: Kind) -> None:
    store = CuttableDatabase(db)
    with kind.made(store, interval=600, lost_after=6_000) as connection:
        eventually(lambda: not getattr(connection, "blocking", connection)._ask.is_set())
        store.cut = True
        connection.suspect()
        eventually(lambda: connection.state is SUSPENDED)


@pytest.mark.parametrize("wrong", [{"interval": -1}, {"timeout": "soon"}, {"lost_after": None}])
def test_times_that_are_none_are_refused(
    db: fdb.Database, kind: Kind, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        kind.made(db, **wrong)


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
    before, gate, told = threads(), threading.Event(), threading.Event()
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
        assert threads() == before + 2
        gate.set()
        eventually(lambda: threads() == before + 1)
    eventually(lambda: threads() == before)


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


# -- what is special about that of asyncio -----------------------------------------------------


def test_listeners_run_in_the_loop_one_after_another_and_may_check_and_stop(
    db: fdb.Database,
) -> None:
    store = CuttableDatabase(db)
    told: list[tuple[str, ConnectionState, int]] = []

    async def main() -> None:
        connection = aio.Connection(aio.Database(cast("fdb.Database", store)), interval=0.01)

        def tell(who: str, state: ConnectionState) -> None:
            told.append((who, state, threading.get_ident()))

        async def slow(state: ConnectionState) -> None:
            tell("slow", state)
            if state is SUSPENDED:
                store.cut = False
                assert await connection.check() is RECONNECTED
            else:
                await connection.stop()
            await asyncio.sleep(0.01)
            tell("slow", state)

        connection.listen(slow)
        connection.listen(partial(tell, "plain"))
        store.cut = True
        async with connection:
            await until(lambda: len(told) == 6)
        assert not await tasks()

    run(main())
    assert [(who, state) for who, state, _ in told] == [
        (who, state) for state in (SUSPENDED, RECONNECTED) for who in ("slow", "slow", "plain")
    ]
    assert {ident for _, _, ident in told} == {threading.get_ident()}


def test_a_listener_that_waits_for_what_is_cancelled_does_not_end_the_asking(
    db: fdb.Database,
) -> None:
    store = CuttableDatabase(db)
    states: list[ConnectionState] = []

    async def main() -> None:
        async def fail(_: ConnectionState) -> None:
            job = asyncio.ensure_future(asyncio.sleep(600))
            job.cancel()
            await job

        async with aio.Connection(
            aio.Database(cast("fdb.Database", store)), interval=0.01
        ) as connection:
            connection.listen(fail)
            connection.listen(states.append)
            store.cut = True
            await until(lambda: states)
            store.cut = False
            await until(lambda: len(states) == 2)

    run(main())
    assert states == [SUSPENDED, RECONNECTED]


def test_a_stop_cancels_a_listener_that_does_not_end_and_leaves_no_task(
    db: fdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STOP_SECONDS", 0.01)
    store = CuttableDatabase(db)
    store.cut = True
    ended: list[BaseException] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def hang(_: ConnectionState) -> None:
            begun.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError as error:
                ended.append(error)
                raise

        connection = aio.Connection(aio.Database(cast("fdb.Database", store)))
        connection.listen(hang)
        async with connection:
            await begun.wait()
        assert len(ended) == 1
        assert not await tasks()

        begun.clear()
        store.cut = False
        checking = asyncio.create_task(connection.check())
        await begun.wait()
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking
        assert len(ended) == 2

    run(main())


class Silent:
    """A store that answers nothing until a part of a transaction's time is over."""

    def __init__(self) -> None:
        self.asked = 0

    def create_transaction(self) -> SilentTransaction:
        self.asked += 1
        return SilentTransaction()


class SilentTransaction:
    def __init__(self) -> None:
        self.options, self.seconds = self, 0.0

    def set_timeout(self, milliseconds: int) -> None:
        self.seconds = milliseconds / 1000

    def get(self, _: bytes) -> SilentTransaction:
        return self

    def wait(self) -> None:
        mine = store_tasks.current.get()
        assert mine is not None
        # Long before its caller waits for it no longer, on a busy machine, too.
        timer = partial(threading.Timer, self.seconds / 10)
        mine.wait(lambda wake: timer(wake).start(), None, ends_early=False)
        raise fdb.FDBError(1031)


def test_a_store_that_does_not_answer_stops_neither_the_loop_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STOP_SECONDS", 0.01)
    store = Silent()

    async def main() -> None:
        connection = aio.Connection(aio.Database(cast("fdb.Database", store)), timeout=2)
        async with connection:
            await until(lambda: store.asked)
            assert connection.state is CONNECTED  # The loop goes on while it asks.
        assert connection.state is SUSPENDED
        assert not await tasks()

    run(main())

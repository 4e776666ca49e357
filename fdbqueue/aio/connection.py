"""The connection of asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeAlias

from msgspec import Struct

from ..store import connection, tasks
from ..store.connection import ConnectionState, Listener
from ..values.durations import Seconds
from .driver import GreenletRun, run
from .transactions import Database
from .twins import Twin, to_original

Call: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine in the loop, and returns when it has ended."""


def call(coroutine: Coroutine[Any, Any, None]) -> None:
    """Call a coroutine in an operation that a task runs."""
    mine = tasks.current.get()
    assert isinstance(mine, GreenletRun)
    mine.call(coroutine)


class Connection(Twin):
    """Whether the store answers: a task of the event loop asks it, and no thread::

        async with aio.Connection(db) as connection:
            connection.listen(lambda state: log.warning("the store is %s", state.value))

    Listeners may be coroutine functions. They are called in the loop, one after another.
    """

    blocking: connection.Connection
    _call: Call = staticmethod(call)

    def __init__(
        self,
        db: Database,
        *,
        interval: Seconds = connection.INTERVAL_SECONDS,
        timeout: Seconds = connection.TIMEOUT_SECONDS,
        lost_after: Seconds = connection.LOST_SECONDS,
        now: Callable[[], float] = connection.monotonic,
    ) -> None:
        super().__init__(
            connection.Connection(
                to_original(db), interval=interval, timeout=timeout, lost_after=lost_after, now=now
            )
        )

    @classmethod
    def called_by(cls, blocking: connection.Connection, call: Call) -> Self:
        """The twin of a connection whose listeners a thread may call, by ``call``."""
        made = cls.of(blocking)
        made._call = call
        return made

    @property
    def state(self) -> ConnectionState:
        """What is known of the connection."""
        return self.blocking.state

    @property
    def usable(self) -> bool:
        """Whether requests for work make sense now."""
        return self.blocking.usable

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with every new state, and wait for it if it is a coroutine function."""
        self.blocking.listen(_InLoop(listener, self._call))

    def forget(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self.blocking.forget(_InLoop(listener, self._call))

    def suspect(self) -> None:
        """Ask at once, after an error."""
        self.blocking.suspect()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start asking, if no task does. Waits for nothing."""
        await run(self.blocking.start)

    async def stop(self) -> None:
        """Stop asking. Waits until the task has ended: for a request in flight until it is
        answered, or its ``timeout`` is over; a listener that still runs after a second is
        cancelled. Called by a listener, it waits for nothing."""
        await run(self.blocking.stop)

    async def check(self) -> ConnectionState:
        """Ask once; returns the state that follows. Waits for the answer, and for listeners if
        there is news for them."""
        return await run(self.blocking.check)


class _InLoop(Struct, frozen=True):
    """A listener of asyncio, as one that the blocking connection calls."""

    listener: Listener
    call: Call

    def __call__(self, state: ConnectionState) -> None:
        self.call(self._tell(state))

    async def _tell(self, state: ConnectionState) -> None:
        mine = asyncio.current_task()
        try:
            told = self.listener(state)
            if inspect.isawaitable(told):
                await told
        except asyncio.CancelledError as error:
            if mine is None or mine.cancelling():
                raise
            # What it waited for was cancelled, and not what asks.
            raise RuntimeError("a listener was cancelled") from error

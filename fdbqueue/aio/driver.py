"""Runs the layer's operations, which wait as threads do, in tasks of asyncio.

An operation runs in a greenlet. Where it has to wait, the greenlet steps aside, and the task awaits
what wakes it. So each operation is written once, for threads and for tasks; SQLAlchemy's asyncio
extension works in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from ..errors import MissingPackage
from ..store import tasks

try:
    from greenlet import getcurrent, greenlet
except ImportError:
    raise MissingPackage(purpose="fdbqueue.aio", package="greenlet", extra="aio") from None

R = TypeVar("R")

tasks.used = True


class Waking:
    """What wakes a task, from any thread.

    woken: whether it has. seconds: how long to wait for that at most. ends_early: whether it ends
    when the task is cancelled.
    """

    __slots__ = ("_loop", "_waiter", "ends_early", "seconds", "woken")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float | None, *, ends_early: bool
    ) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self.woken = False
        self.seconds = seconds
        self.ends_early = ends_early

    def wake(self) -> None:
        """Wake the task; any thread may."""
        self.woken = True
        if self._waiter is not None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed.
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until then. Raises ``asyncio.CancelledError``; it can go on after that."""
        self._waiter = self._loop.create_future()
        if self.woken:
            return
        timer = None
        if self.seconds is not None and self.seconds < math.inf:
            timer = self._loop.call_later(self.seconds, self._end)
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()


class _Running:
    """An operation that runs in a greenlet of its own, for one task.

    cancelled: the error with which the task was cancelled. told: whether the operation knows.
    """

    __slots__ = ("_loop", "_task", "cancelled", "greenlet", "told")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task = getcurrent()
        self.cancelled: asyncio.CancelledError | None = None
        self.told = False
        self.greenlet = greenlet(self._run)
        self.greenlet.gr_context = copy_context()

    def _run(self, operation: Callable[[], Any], undo: Callable[[Any], object] | None) -> Any:
        tasks.current.set(self)
        result = operation()
        if self.cancelled is not None and not self.told and undo is not None:
            self.told = True
            undo(result)
        return result

    def wait(
        self, begin: Callable[[tasks.Wake], object], seconds: float | None, *, ends_early: bool
    ) -> bool:
        """As ``tasks.Task.wait``; called in the greenlet."""
        if ends_early:
            self._tell()
        waking = Waking(self._loop, seconds, ends_early=ends_early)
        begin(waking.wake)
        if not waking.woken and (seconds is None or seconds > 0):
            self._task.switch(waking)
            if ends_early:
                self._tell()
        return waking.woken

    def _tell(self) -> None:
        if self.cancelled is not None and not self.told:
            self.told = True
            raise self.cancelled

    async def wait_for(self, waking: Waking) -> None:
        """Wait for what the greenlet waits for; called in the task."""
        while not waking.woken:
            try:
                await waking.wait()
                return
            except asyncio.CancelledError as error:
                self.cancelled = self.cancelled or error
                if waking.ends_early and not self.told:
                    return


async def run(operation: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
    """Run an operation of the layer; the event loop goes on while it waits.

    undo: called with the result if the task was cancelled when the operation could no longer be
        stopped.

    A task that is cancelled ends what can end, such as waiting for a message, and waits for what
    cannot, such as a commit.
    """
    running = _Running(asyncio.get_running_loop())
    try:
        found = running.greenlet.switch(operation, undo)
        while not running.greenlet.dead:
            await running.wait_for(found)
            found = running.greenlet.switch()
    except Exception:
        if running.cancelled is not None:
            raise running.cancelled from None
        raise
    if running.cancelled is not None:
        raise running.cancelled
    result: R = found
    return result

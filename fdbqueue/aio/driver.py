"""Runs the layer's operations, which wait as threads do, in tasks of asyncio.

An operation runs in a greenlet. Where it has to wait, the greenlet steps aside, and the task awaits
what wakes it. So each operation is written once, for threads and for tasks; SQLAlchemy's asyncio
extension works in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine
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


_spawned: set[asyncio.Task[Any]] = set()
"""A loop does not keep its tasks alive."""


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


class _Called:
    """A coroutine that an operation has called; as ``Waking``."""

    __slots__ = ("ends_early", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.ends_early = False

    @property
    def woken(self) -> bool:
        return self.task.done()

    async def wait(self) -> None:
        try:
            await asyncio.wait([self.task])
        except asyncio.CancelledError:
            self.task.cancel()
            raise


class Running:
    """An operation that runs in a greenlet of its own, for one task.

    cancelled: the error with which the task was cancelled. told: whether the operation knows.
    """

    __slots__ = (
        "_called",
        "_ended_by",
        "_loop",
        "_refuses",
        "_task",
        "cancelled",
        "greenlet",
        "told",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task = getcurrent()
        self._called: _Called | None = None
        self._ended_by: BaseException | None = None
        self._refuses = False
        self.cancelled: asyncio.CancelledError | None = None
        self.told = False
        self.greenlet = greenlet(self._run)
        self.greenlet.gr_context = copy_context()

    async def run(self, operation: Callable[[], R], undo: Callable[[R], object] | None) -> R:
        """See ``run``."""
        try:
            found = self.greenlet.switch(operation, undo)
            while not self.greenlet.dead:
                await self._wait_for(found)
                found = self.greenlet.switch()
        except Exception:
            if self.cancelled is not None:
                raise self.cancelled from None
            raise
        if self.cancelled is not None:
            raise self.cancelled
        result: R = found
        return result

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

    @property
    def group(self) -> object:
        """As ``tasks.Task.group``: its loop."""
        return self._loop

    def spawn(self, operation: Callable[[], object]) -> Callable[[], object]:
        """As ``tasks.Task.spawn``."""
        task = self._loop.create_task(run(operation))
        _spawned.add(task)
        task.add_done_callback(_spawned.discard)
        return task.cancel

    def _tell(self) -> None:
        if self.cancelled is not None and not self.told:
            self.told = True
            raise self.cancelled

    async def _wait_for(self, waking: Waking | _Called) -> None:
        """Wait for what the greenlet waits for; called in the task."""
        while not waking.woken:
            try:
                await waking.wait()
                return
            except asyncio.CancelledError as error:
                self.cancelled = self.cancelled or error
                if waking.ends_early and not self.told:
                    return

    # -- coroutines that the operation calls -------------------------------------------------

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine, in a task that has the context of the operation; called in the greenlet.

        Raises what ended it, see ``interrupt``.
        """
        if self._refuses and self._ended_by is not None:
            coroutine.close()
            raise self._ended_by
        context = copy_context()
        context.run(tasks.current.set, None)
        task = self._loop.create_task(coroutine, context=context)
        self._called, self._ended_by = _Called(task), None
        self._task.switch(self._called)
        self._called = None
        if task.cancelled() and self._ended_by is not None:
            raise self._ended_by
        return task.result()

    def interrupt(self, error: BaseException, *, for_good: bool) -> None:
        """Cancel the coroutine that the operation has called: the operation gets ``error``. Called
        in the loop's thread.

        for_good: whether it can call no other.
        """
        self._refuses = for_good
        if self._called is not None or for_good:
            self._ended_by = error
        if self._called is not None:
            self._called.task.cancel()


async def run(operation: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
    """Run an operation of the layer; the event loop goes on while it waits.

    undo: called with the result if the task was cancelled when the operation could no longer be
        stopped.

    A task that is cancelled ends what can end, such as waiting for a message, and waits for what
    cannot, such as a commit.
    """
    return await Running(asyncio.get_running_loop()).run(operation, undo)

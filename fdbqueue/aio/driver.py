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
from ..store import tasks, world

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ImportError:
    raise MissingPackage(purpose="fdbqueue.aio", package="greenlet", extra="aio") from None

R = TypeVar("R")

tasks.used = True


MAX_IDLE = 64
"""Greenlets of a thread that are kept for further operations, since each maps memory for its own
stack."""

_ENDED = object()
"""What a greenlet switches to its task with at the end of an operation."""
_spawned: set[asyncio.Task[Any]] = set()
"""A loop does not keep its tasks alive."""


class _Idle(world.local):
    """The greenlets of a thread that wait for an operation."""

    def __init__(self) -> None:
        self.greenlets: list[greenlet] = []


_idle = _Idle()


class Waking:
    """What wakes a task, from any thread.

    woken: whether it has. seconds: how long to wait for that at most. ends_early: whether it ends
    when the task is cancelled.
    """

    __slots__ = ("_loop", "_thread", "_waiter", "ends_early", "seconds", "woken")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float | None, *, ends_early: bool
    ) -> None:
        self._loop = loop
        self._thread = world.get_ident()
        self._waiter: asyncio.Future[None] | None = None
        self.woken = False
        self.seconds = seconds
        self.ends_early = ends_early

    def wake(self) -> None:
        """Wake the task; any thread may."""
        self.woken = True
        if self._waiter is not None:
            # In its own thread the loop needs no signal to look.
            ours = world.get_ident() == self._thread
            with contextlib.suppress(RuntimeError):  # The loop may be closed.
                (self._loop.call_soon if ours else self._loop.call_soon_threadsafe)(self._end)

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until then. Raises ``asyncio.CancelledError``; it can go on after that."""
        self._waiter = self._loop.create_future()
        # Between the look and the future another thread may have woken it.
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


class _Pause:
    """One turn of the loop; as ``Waking``."""

    __slots__ = ("woken",)
    ends_early = False

    def __init__(self) -> None:
        self.woken = False

    async def wait(self) -> None:
        self.woken = True
        await asyncio.sleep(0)


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


class GreenletRun:
    """An operation that runs in a greenlet, for one task.

    cancelled: the error with which the task was cancelled. told: whether the operation knows.
    """

    __slots__ = (
        "_called",
        "_ended_by",
        "_error",
        "_loop",
        "_operation",
        "_refuses",
        "_result",
        "_task",
        "_undo",
        "cancelled",
        "told",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        operation: Callable[[], Any],
        undo: Callable[[Any], object] | None = None,
    ) -> None:
        self._loop = loop
        self._operation = operation
        self._undo = undo
        self._task = getcurrent()
        self._called: _Called | None = None
        self._ended_by: BaseException | None = None
        self._refuses = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.cancelled: asyncio.CancelledError | None = None
        self.told = False

    async def run(self) -> Any:
        """See ``run``."""
        idle = _idle.greenlets
        runner = idle.pop() if idle else greenlet(_run_each)
        runner.gr_context = copy_context()
        waking = runner.switch(self)
        while waking is not _ENDED:
            await self._wait_for(waking)
            waking = runner.switch()
        if len(idle) < MAX_IDLE:
            runner.gr_context = None
            idle.append(runner)
        error, self._error = self._error, None
        try:
            if self.cancelled is not None and (error is None or isinstance(error, Exception)):
                raise self.cancelled from None
            if error is not None:
                raise error
        finally:
            del error  # Its traceback has this frame.
        return self._result

    def perform(self) -> greenlet:
        """Run the operation; returns the greenlet of its task. Called in the greenlet."""
        tasks.current.set(self)
        try:
            self._result = self._operation()
            # The task was cancelled while it could not stop: nobody will get the result, such as a
            # leased message.
            if self.cancelled is not None and not self.told and self._undo is not None:
                self.told = True
                self._undo(self._result)
        except GreenletExit:
            raise  # Its task is gone.
        except BaseException as error:
            self._error = error
        return self._task

    def wait(
        self, begin: Callable[[tasks.Wake], object], seconds: float | None, *, ends_early: bool
    ) -> bool:
        """See ``tasks.Task.wait``; called in the greenlet."""
        if ends_early:
            self._tell()
        waking = Waking(self._loop, seconds, ends_early=ends_early)
        begin(waking.wake)
        if not waking.woken and (seconds is None or seconds > 0):
            self._task.switch(waking)
            if ends_early:
                self._tell()
        return waking.woken

    def pause(self) -> None:
        """See ``tasks.Task.pause``; called in the greenlet."""
        self._task.switch(_Pause())

    @property
    def group(self) -> object:
        """Its loop: the tasks of one loop run one at a time."""
        return self._loop

    def spawn(self, operation: Callable[[], object]) -> Callable[[], object]:
        """See ``tasks.Task.spawn``."""
        task = self._loop.create_task(run(operation))
        _spawned.add(task)
        task.add_done_callback(_spawned.discard)
        return task.cancel

    def _tell(self) -> None:
        if self.cancelled is not None and not self.told:
            self.told = True
            raise self.cancelled

    async def _wait_for(self, waking: Waking | _Called | _Pause) -> None:
        """Wait for what the greenlet waits for; called in the task."""
        while not waking.woken:
            try:
                await waking.wait()
                return
            except asyncio.CancelledError as error:
                self.cancelled = self.cancelled or error
                # Only what may end is told; a commit under way is waited for, so that its outcome
                # is known.
                if waking.ends_early and not self.told:
                    return

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine, in a task that has the context of the operation; called in the greenlet.

        Raises what ended it, see ``interrupt``.
        """
        if self._refuses and self._ended_by is not None:
            coroutine.close()
            raise self._ended_by
        context = copy_context()
        # The coroutine is a task of its own: operations that it runs must not switch this greenlet.
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


def _run_each(running: GreenletRun) -> None:
    """What a greenlet does: it runs one operation after another."""
    while True:
        task = running.perform()
        del running
        running = task.switch(_ENDED)


async def run(operation: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
    """Run an operation of the layer; the event loop goes on while it waits.

    undo: called with the result if the task was cancelled when the operation could no longer be
        stopped.

    A task that is cancelled ends what can end, such as waiting for a message, and waits for what
    cannot, such as a commit.
    """
    result: R = await GreenletRun(asyncio.get_running_loop(), operation, undo).run()
    return result

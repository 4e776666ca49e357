"""The tasks that call coroutine functions as handlers; plain functions are called in threads."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from functools import partial, update_wrapper
from typing import Any, TypeVar

from ..errors import UnknownJob
from ..store import tasks, world
from ..worker.attempt import Abandoned
from ..worker.handler_threads import HandlerThreads, too_late
from ..worker.handlers import Jobs
from ..worker.health import Loop
from ..worker.health.loops import TURN_SECONDS
from ..worker.shared_state import Assignment, SharedState
from .driver import GreenletRun
from .transactions import handling

R = TypeVar("R")

INTERRUPTED_SECONDS = 1.0
"""How long a handler that was interrupted may take to end, before another one has its place."""


class Handled:
    """A coroutine function as the worker calls it: the call returns when the coroutine does."""

    def __init__(self, function: Callable[..., Any], begin: Callable[[Any], Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._begin = begin

    def __call__(self, *args: Any) -> Any:
        coroutine = _result(handling(self._function, args))
        running = tasks.current.get()
        call = running.call if isinstance(running, GreenletRun) else self._begin
        result, error = call(coroutine)
        if error is not None:
            raise error
        return result


async def _result(coroutine: Coroutine[Any, Any, R]) -> tuple[R | None, BaseException | None]:
    """What a coroutine returns, or that with which it would have ended the loop."""
    try:
        return await coroutine, None
    # asyncio lets these end the loop, and with it all other handlers; here they fail one attempt.
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


class HandlerTasks(HandlerThreads):
    """Calls handlers that are coroutine functions in tasks of an event loop, and others in threads.

    One thread of the worker feeds both; a thread for plain functions is started when it is needed.
    """

    def __init__(
        self, state: SharedState, loop: asyncio.AbstractEventLoop, context: Context
    ) -> None:
        super().__init__(state)
        self._loop = loop
        self._context = context
        self._running: dict[Assignment, GreenletRun] = {}
        """What runs in tasks. Of the loop's thread, and read by others."""
        self._interrupted: dict[Assignment, float] = {}
        """When each handler was interrupted, by ``world.monotonic``."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._called: set[asyncio.Task[Any]] = set()
        self._turns = self._watched()
        self._abandoned = False
        self._idle = world.Event()
        self._plain: queue.SimpleQueue[Callable[[], bool] | None] = queue.SimpleQueue()
        self._threads = self._free = 0
        """How many threads call plain functions, and how many of them nothing is meant for. With
        the lock held."""

    def _watched(self) -> Loop | None:
        """The event loop, for probes: dead if a handler blocks it for longer than any may take."""
        limits = [
            each.policy.timeout
            for each in self.state.served
            if any(map(_is_coroutine, _functions(each.policy.handler.function)))
        ]
        if not limits or None in limits:
            return None
        longest = max(filter(None, limits))
        return self.state.watch(Loop("runs coroutines", patience=longest + TURN_SECONDS))

    def replace_stuck(self) -> None:
        """See ``HandlerThreads``; also find out whether the event loop comes round."""
        if self._turns is not None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed.
                self._loop.call_soon_threadsafe(self._turns.turn)
        super().replace_stuck()

    def start(self) -> None:
        """Start the thread that feeds the handlers."""
        self.state.spawn(self._feed, "feeder")

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop, and wait for it in another thread, as one that browses."""
        context = self._context.copy()
        for variable, value in copy_context().items():
            # What the calling thread has set goes before what the worker was started with.
            context.run(variable.set, value)

        async def call() -> R:
            task = self._loop.create_task(coroutine, context=context)
            self._called.add(task)
            try:
                return await task
            finally:
                self._called.discard(task)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def abandon(self) -> None:
        """Cancel the handlers that still run."""
        self._loop.call_soon_threadsafe(self._abandon)

    def ended(self, seconds: float) -> None:
        """Wait for so long at most until those have ended."""
        self._idle.wait(seconds)
        with self.state.lock:
            for _ in range(self._threads):
                self._plain.put(None)

    def _feed(self) -> None:
        """Begin all that can be begun, until it is time to go."""
        state = self.state
        while True:
            with state.lock:
                while not (found := self._ready()) and not state.stopping:
                    state.work.wait()
                plain = [each for each in found if not _suspends(each)]
                started = max(0, len(plain) - self._free)
                self._free += started - len(plain)
                self._threads += started
            if not found:
                return
            for job in plain:
                self._plain.put(partial(self.do, job))
            for _ in range(started):
                state.spawn(self._serve, "handler")
            self._schedule([each for each in found if each not in plain])

    def _ready(self) -> list[Assignment]:
        """All that can be begun now. The lock is held."""
        found: list[Assignment] = []
        while (each := self.state.next_job()) is not None:
            found.append(each)
        return found

    def _serve(self) -> None:
        """Call plain functions, until it is time to go."""
        while (do := self._plain.get()) is not None:
            free = self._context.copy().run(do)
            with self.state.lock:
                self._free += free
                self._threads -= not free
            if not free:
                return

    def _schedule(self, found: Sequence[Assignment], *, again: bool = False) -> None:
        """Begin tasks, in one step of the loop."""
        if found:
            self._loop.call_soon_threadsafe(
                partial(self._create, found, again), context=self._context.copy()
            )

    def _create(self, found: Sequence[Assignment], again: bool) -> None:
        for each in found:
            task = self._loop.create_task(self._do(each, again))
            # The loop keeps only weak references: without another, a task may be collected as it
            # runs.
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def _do(self, job: Assignment, again: bool) -> None:
        running = GreenletRun(self._loop, partial(self.do, job, again=again))
        self._running[job] = running
        if self._abandoned:
            running.interrupt(Abandoned(), for_good=True)
        try:
            await running.run()
        finally:
            del self._running[job]
            with self.state.lock:
                self._interrupted.pop(job, None)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._abandoned and not self._tasks:
            self._idle.set()

    def _abandon(self) -> None:
        self._abandoned = True
        for running in self._running.values():
            running.interrupt(Abandoned(), for_good=True)
        for task in self._called:
            task.cancel()
        if not self._tasks:
            self._idle.set()

    def _interrupts(self, job: Assignment, limit: float) -> bool:
        """Cancel a coroutine that takes longer than it may. The lock is held."""
        if not _suspends(job):
            return False
        now = world.monotonic()
        if job not in self._interrupted:
            self._interrupted[job] = now
            self._loop.call_soon_threadsafe(self._interrupt, job, job.began, limit)
        elif self._interrupted[job] < job.began:
            del self._interrupted[job]  # It has gone on with another message since.
            return self._interrupts(job, limit)
        return now - self._interrupted[job] < INTERRUPTED_SECONDS

    def _interrupt(self, job: Assignment, began: float, limit: float) -> None:
        running = self._running.get(job)
        if running is not None and job.began == began:
            running.interrupt(too_late(limit), for_good=False)

    def _replace(self, job: Assignment) -> None:
        """Go on with a job that another task, or thread, is stuck in."""
        if _suspends(job):
            self._schedule([job], again=True)
            return
        with self.state.lock:
            self._threads += 1
        self._plain.put(partial(self.do, job, again=True))
        self.state.spawn(self._serve, "handler-again")


def _suspends(job: Assignment) -> bool:
    function = job.served.policy.handler.function
    if isinstance(function, Jobs):
        try:
            function = function.named_by(job.deliveries[0]).function
        except UnknownJob:
            return False  # It fails at once, wherever it is called.
    return _is_coroutine(function)


def _functions(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The functions that a handler calls."""
    jobs = isinstance(function, Jobs) and function.jobs.values()
    return [each.function for each in jobs] if jobs else [function]


def _is_coroutine(function: Callable[..., Any]) -> bool:
    return isinstance(function, Handled)

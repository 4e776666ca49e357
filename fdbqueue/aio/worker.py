"""The worker of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any, Self, TypeVar

from ..errors import InvalidArgument
from ..store import tasks, world
from ..values.durations import Seconds
from ..values.text import names_meant
from ..worker import worker
from ..worker.channel import Channel as BlockingChannel
from ..worker.handler_threads import HandlerThreads
from ..worker.handlers import suspends
from ..worker.health import Address
from ..worker.shared_state import SharedState
from ..worker.terms import FAIL, FIELDS, RUN, TAKE, Fail, Run, Take
from . import driver
from .channel import Channel
from .connection import Connection, call
from .handler_tasks import Handled, HandlerTasks
from .handlers import Decorator, Handling
from .queues import Queue, Subscription
from .transactions import Database
from .twins import Twin, to_original

T = TypeVar("T")


class Worker(Twin):
    """Handles the messages of one or several queues: the twin of ``fdbqueue.Worker``.

    A handler may be a coroutine function. It runs in a task of the event loop, as many at once as
    ``concurrency`` says; if it takes a transaction, that is one of ``fdbqueue.aio``. Plain
    functions run in threads, and get what those of ``fdbqueue.Worker`` get.

    It runs from ``run`` to ``stop``, or as a context manager: ``async with``.
    """

    blocking: _Blocking

    @names_meant()
    def __init__(
        self,
        db: Database,
        concurrency: int = 8,
        *,
        name: str | None = None,
        priority: int = 0,
        prefetch: int | None = None,
        shutdown: Seconds = worker.SHUTDOWN_SECONDS,
        metrics: Any = None,
        health: Address | None = None,
    ) -> None:
        super().__init__(
            _Blocking(
                to_original(db),
                concurrency,
                name=name,
                priority=priority,
                prefetch=prefetch,
                shutdown=shutdown,
                metrics=metrics,
                health=health,
            )
        )

    @property
    def name(self) -> str:
        """Its name, as listings show it."""
        return self.blocking.name

    @property
    def concurrency(self) -> int:
        """How many messages are handled at once. Raises ``InvalidArgument`` when set while the
        worker runs."""
        return self.blocking.concurrency

    @concurrency.setter
    def concurrency(self, count: int) -> None:
        self.blocking.concurrency = count

    @property
    def prefetch(self) -> int:
        """How many messages of a queue it may hold besides those that it handles."""
        return self.blocking.prefetch

    @property
    def health(self) -> Address | None:
        """Where it answers probes; see ``fdbqueue.Worker.health``."""
        return self.blocking.health

    @health.setter
    def health(self, address: Address | None) -> None:
        self.blocking.health = address

    @property
    def connection(self) -> Connection:
        """Whether the store answers. Listeners may be coroutine functions, and are called in the
        loop."""
        return Connection.called_by(self.blocking.connection, self.blocking._call)

    async def described(self) -> list[str]:
        """The worker in one line, and each of its queues in another."""
        await self._read_options()
        return self.blocking.described()

    @names_meant(**FIELDS)
    def add(
        self,
        queue: Queue[T],
        handler: Handling[T] | None = None,
        *,
        take: Take = TAKE,
        run: Run = RUN,
        fail: Fail = FAIL,
    ) -> Self:
        """Handle the messages of ``queue`` with ``handler``, which may be a coroutine function;
        returns the worker. Arguments and errors are those of ``fdbqueue.Worker.add``.

        In an event loop that runs, it waits for nothing: the worker reads the options of the queue
        when it starts, or is asked for them, and what is wrong with them is raised then.
        """
        blocking: Any = handler
        self.blocking.add(to_original(queue), blocking, take=to_original(take), run=run, fail=fail)
        return self

    @names_meant(**FIELDS)
    def handler(
        self, queue: Queue[T], *, take: Take = TAKE, run: Run = RUN, fail: Fail = FAIL
    ) -> Decorator[T]:
        """A decorator: ``add`` the function as the handler of ``queue``; arguments as there."""

        def register(function: Any) -> Any:
            self.add(queue, function, take=take, run=run, fail=fail)
            return function

        return register

    async def channel(self, queue: Queue[Any], subscription: Subscription | None = None) -> Channel:
        """The credit of a queue or subscription that the worker handles."""
        await self._read_options()
        found = self.blocking.channel(to_original(queue), to_original(subscription))
        return Channel.of(found)

    async def run(self) -> None:
        """Handle messages until ``stop`` is called, SIGTERM or SIGINT arrives, or the task is
        cancelled.

        The first of them stops gracefully, as ``fdbqueue.Worker.run`` does, and the second stops at
        once. Handlers that still run when the ``shutdown`` seconds are over are cancelled, and
        their messages given back. Signals are for a loop in the main thread.
        """
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self.blocking._wake = lambda: _tell(loop, stopped)
        try:
            with _signals(loop, self.blocking._signalled):
                async with self:
                    if not self.blocking._stops:
                        await stopped.wait()
        finally:
            self.blocking._wake = None

    def stop(self) -> None:
        """Stop gracefully; the second call stops at once. Returns immediately; any thread."""
        self.blocking.stop()

    async def __aenter__(self) -> Self:
        self.blocking._loop = asyncio.get_running_loop()
        self.blocking._context = copy_context()
        async with self.blocking._adding:
            try:
                await self._in_thread(self.blocking.__enter__)
            except asyncio.CancelledError:
                await self._in_thread(self.blocking.__exit__)
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._in_thread(self.blocking.__exit__)

    async def _read_options(self) -> None:
        """Add what was added in a loop; one task at a time, so that each is added once."""
        async with self.blocking._adding:
            await driver.run(self.blocking._add)

    async def _in_thread(self, call: Callable[[], object]) -> None:
        """Let a thread wait, for handlers in the loop. If the task is cancelled meanwhile, stop at
        once."""
        cancelled = None
        # A thread of its own: the loop's default pool may be full of handlers that this waits for.
        with ThreadPoolExecutor(1, "fdbqueue-stop") as threads:
            called = asyncio.get_running_loop().run_in_executor(threads, call)
            while not called.done():
                try:
                    await asyncio.wait([called])
                except asyncio.CancelledError as error:
                    cancelled = error
                    self.blocking.stop()
        called.result()
        if cancelled is not None:
            raise cancelled


class _Blocking(worker.Worker):
    """The worker that ``Worker`` is the twin of. ``fdbq worker`` runs it in a loop of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = copy_context()
        self._tasks: HandlerTasks | None = None
        self._added: list[Callable[[], object]] = []
        """Handlers that were added in a loop, which does not wait for the store."""
        self._adding = asyncio.Lock()

    def add(
        self,
        queue: Any,
        handler: Any = None,
        *,
        take: Take = TAKE,
        run: Run = RUN,
        fail: Fail = FAIL,
    ) -> Self:
        """Add a handler; where a loop runs, once the worker starts."""
        add = partial(super().add, queue, handler, take=take, run=run, fail=fail)
        if asyncio._get_running_loop() is None or self._runtime is not None:
            self._add()
            add()
        else:
            self._handler(queue, handler, run)  # It may be wrong.
            self._added.append(add)
        return self

    def _add(self) -> None:
        while self._added:
            self._added[0]()
            # Only once it is added: after an error, the next call tries it again.
            del self._added[0]

    def __enter__(self) -> Self:
        self._add()
        return super().__enter__()

    def channel(self, queue: Any, subscription: Any = None) -> BlockingChannel:
        """Read the options that are still to be read, and return the credit."""
        self._add()
        return super().channel(queue, subscription)

    def described(self) -> list[str]:
        """Read the options that are still to be read, and describe the worker."""
        self._add()
        return super().described()

    def run(self) -> None:
        """Run in a loop of its own."""
        asyncio.run(Worker.of(self).run())

    def _called(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return Handled(handler, self._run_coroutine) if suspends(handler) else handler

    def _handlers(self, state: SharedState) -> HandlerThreads:
        if self._loop is None:
            raise InvalidArgument(
                argument="worker", value=self.name, problem="runs only in an event loop"
            )
        self._tasks = HandlerTasks(state, self._loop, self._context)
        return self._tasks

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Call a listener of the connection, in its thread or in a task that checks it."""
        if tasks.current.get() is not None:
            call(coroutine)
            return
        assert self._loop is not None
        try:
            called = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # The loop is closed.
            coroutine.close()
            raise
        called.result()

    def _run_coroutine(self, coroutine: Any) -> Any:
        assert self._tasks is not None
        return self._tasks.run(coroutine)


def _tell(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # The loop may be closed.
        loop.call_soon_threadsafe(stopped.set)


@contextmanager
def _signals(
    loop: asyncio.AbstractEventLoop, handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    if not world.in_main_thread():
        yield
        return
    numbers = signal.SIGTERM, signal.SIGINT
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, handler, number, None)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            # asyncio leaves the default action behind, whatever was there before.
            signal.signal(number, before[number])

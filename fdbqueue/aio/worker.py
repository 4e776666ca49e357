"""The worker of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any, Self

from ..consumers.credit import Credit
from ..errors import InvalidArgument
from ..values.durations import Seconds
from ..worker import worker
from ..worker.channel import Channel as BlockingChannel
from ..worker.handler_threads import HandlerThreads
from ..worker.handlers import suspends
from ..worker.state import State
from .driver import run
from .handler_tasks import Handled, HandlerTasks
from .queues import Queue, Subscription
from .transactions import Database
from .twins import Twin, to_original


class Channel(Twin):
    """As ``fdbqueue.Channel``."""

    blocking: BlockingChannel

    def __init__(self, credit: Credit) -> None:
        super().__init__(BlockingChannel(credit))

    @property
    def credit(self) -> Credit:
        """The credit as it is now."""
        return self.blocking.credit

    def grant(self, messages: int | None = None, bytes: int | None = None) -> None:
        """Let the worker take more, as ``fdbqueue.Channel.grant``."""
        self.blocking.grant(messages, bytes)

    def withdraw(self) -> None:
        """Let the worker take no more until more is granted."""
        self.blocking.withdraw()

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Deliver what is there, as ``fdbqueue.Channel.flush``."""
        await run(partial(self.blocking.flush, timeout))


class Worker(Twin):
    """As ``fdbqueue.Worker``: handles the messages of one or several queues.

    A handler may be a coroutine function. It runs in a task of the event loop, as many at once as
    ``concurrency`` says; if it takes a transaction, that is one of ``fdbqueue.aio``. Plain
    functions run in threads, and get what those of ``fdbqueue.Worker`` get.

    It runs from ``run`` to ``stop``, or as a context manager: ``async with``.
    """

    blocking: _Blocking

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
        """As ``fdbqueue.Worker.prefetch``."""
        return self.blocking.prefetch

    def described(self) -> list[str]:
        """The worker in one line, and each of its queues in another."""
        return self.blocking.described()

    def add(self, queue: Queue[Any], handler: Callable[..., object], **how: Any) -> Self:
        """As ``fdbqueue.Worker.add``; the handler may be a coroutine function. Returns the worker.

        Reads the options of the queue, for which the event loop waits: add handlers first.

        timeout: a coroutine that takes longer is cancelled, and its attempt has failed.
        """
        given = {name: to_original(value) for name, value in how.items()}
        self.blocking.add(to_original(queue), handler, **given)
        return self

    def handler(self, queue: Queue[Any], **how: Any) -> Callable[[Any], Any]:
        """A decorator: ``add`` the function as the handler of ``queue``; arguments as there."""

        def register(function: Any) -> Any:
            self.add(queue, function, **how)
            return function

        return register

    def channel(self, queue: Queue[Any], subscription: Subscription | None = None) -> Channel:
        """As ``fdbqueue.Worker.channel``."""
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
        try:
            await self._in_thread(self.blocking.__enter__)
        except asyncio.CancelledError:
            await self._in_thread(self.blocking.__exit__)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._in_thread(self.blocking.__exit__)

    async def _in_thread(self, call: Callable[[], object]) -> None:
        """Let a thread wait, for handlers in the loop. If the task is cancelled meanwhile, stop at
        once."""
        cancelled = None
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

    def run(self) -> None:
        """Run in a loop of its own."""
        asyncio.run(Worker.of(self).run())

    def _called(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return Handled(handler, self._run_coroutine) if suspends(handler) else handler

    def _handlers(self, state: State) -> HandlerThreads:
        if self._loop is None:
            raise InvalidArgument(
                argument="worker", value=self.name, problem="runs only in an event loop"
            )
        self._tasks = HandlerTasks(state, self._loop, self._context)
        return self._tasks

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
    """Handle SIGTERM and SIGINT, which is possible only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
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
            signal.signal(number, before[number])

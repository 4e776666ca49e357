"""A worker of the blocking API that runs in an event loop, and calls handlers in coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import Any, Self

from fdbqueue import aio
from fdbqueue.aio import worker
from fdbqueue.aio.twins import to_original


class LoopWorker(worker._Blocking):
    """Runs in a thread with a loop, from entering to leaving it. Each handler becomes a coroutine
    function, which waits for the handler in a thread."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._leave, self._left = threading.Event(), Future[None]()

    def _called(self, handler: Any) -> Callable[..., Any]:
        return super()._called(in_coroutine(handler) if callable(handler) else handler)

    def __enter__(self) -> Self:
        if self._loop is not None:
            return super().__enter__()
        entered: Future[None] = Future()
        self._leave, self._left = threading.Event(), Future[None]()
        threading.Thread(target=self._live, args=[entered], daemon=True).start()
        entered.result()
        return self

    def __exit__(self, *exception: object) -> None:
        if threading.current_thread().name.startswith("fdbqueue-stop"):
            super().__exit__(*exception)
            return
        self._leave.set()
        self._left.result()

    def _live(self, entered: Future[None]) -> None:
        async def live() -> None:
            try:
                async with aio.Worker.of(self):
                    entered.set_result(None)
                    await in_thread(self._leave.wait)
            finally:
                self._loop = None

        try:
            asyncio.run(live())
        except BaseException as error:
            (self._left if entered.done() else entered).set_exception(error)
        else:
            self._left.set_result(None)


def in_coroutine(handler: Any) -> Any:
    """A coroutine function that calls a handler in a thread."""

    @wraps(handler)
    async def handle(*args: Any) -> Any:
        return await in_thread(lambda: handler(*map(to_original, args)))

    return handle


async def in_thread(call: Callable[[], Any]) -> Any:
    """Let a thread call; unlike those of ``asyncio.to_thread``, no end of a loop waits for it."""
    done: Future[Any] = Future()
    done.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(done)

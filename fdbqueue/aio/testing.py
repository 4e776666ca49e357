"""The testing kit for asyncio. Needs pytest, and no plugin for asyncio.

Put ``pytest_plugins = ["fdbqueue.testing", "fdbqueue.aio.testing"]`` into the ``conftest.py`` at
the top of your tests. These fixtures are twins of those of ``fdbqueue.testing``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial, wraps
from typing import Any

import pytest

from ..store import tasks
from ..store.binding import fdb
from ..values.model import Message
from .driver import run
from .queues import Queue
from .transactions import Database, handling
from .twins import to_original

__all__ = ["fdbqueue_aio_db", "fdbqueue_aio_drain", "fdbqueue_aio_eager", "fdbqueue_aio_queue"]

Draining = Callable[..., Coroutine[Any, Any, list[Message]]]


@pytest.fixture
def fdbqueue_aio_db(fdbqueue_db: fdb.Database) -> Database:
    """The database of ``fdbqueue_db``."""
    return Database(fdbqueue_db)


@pytest.fixture
def fdbqueue_aio_queue(fdbqueue_queue: Callable[..., Any]) -> Callable[..., Queue[Any]]:
    """A function that creates queues, as ``fdbqueue_queue`` does. It does not wait."""
    return lambda *args, **options: Queue.of(fdbqueue_queue(*args, **options))


@pytest.fixture
def fdbqueue_aio_eager(fdbqueue_eager: Callable[..., None]) -> Callable[..., None]:
    """Handles messages at once: ``fdbqueue_aio_eager(queue, handler)``, which does not wait, for a
    coroutine function, too."""

    def register(queue: Any, handler: Callable[..., Any], **how: Any) -> None:
        fdbqueue_eager(to_original(queue), _plain(handler), **how)

    return register


@pytest.fixture
def fdbqueue_aio_drain(fdbqueue_drain: Callable[..., list[Message]]) -> Draining:
    """Handles all ready messages in this task: ``await fdbqueue_aio_drain(db, queue, handler)``.

    The arguments are those of ``fdbqueue.testing.drain``. The handler may be a coroutine function;
    a transactional one gets an ``aio.Transaction``.
    """

    async def drain(
        db: Database, queue: Queue[Any], handler: Callable[..., Any], **how: Any
    ) -> list[Message]:
        plain = _plain(handler)
        return await run(partial(fdbqueue_drain, db.blocking, to_original(queue), plain, **how))

    return drain


def _plain(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that waits where it stands for what a coroutine function returns."""
    if not inspect.iscoroutinefunction(handler):
        return handler

    @wraps(handler)
    def call(*args: Any) -> Any:
        return _finished(handling(handler, args))

    return call


def _finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    mine = tasks.current.get()
    if mine is None:
        return asyncio.run(coroutine)
    context = copy_context()
    context.run(tasks.current.set, None)  # The coroutine runs in a task of its own.
    task = asyncio.get_running_loop().create_task(coroutine, context=context)
    mine.wait(lambda wake: task.add_done_callback(lambda _: wake()), None, ends_early=False)
    return task.result()

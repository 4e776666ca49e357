"""How the layer waits: a thread stops, and a task of an event loop lets the others go on.

Whatever may take long waits here, or for a future in ``client``. Who runs the layer in tasks sets
``current``; see ``aio``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from . import world

if TYPE_CHECKING:
    from .._stubs import fdb

Wake = Callable[[], object]


class Task(Protocol):
    """What runs the layer beside others in one thread."""

    def wait(
        self, begin: Callable[[Wake], object], seconds: float | None, *, ends_early: bool
    ) -> bool:
        """Let others go on until it is woken, for at most ``seconds``; returns whether it was.

        begin: called with what wakes it, which any thread may call, at once or later, or never.
        ends_early: whether the wait ends with an exception where the task is cancelled; else the
            next one that does will.
        """

    def pause(self) -> None:
        """Let the others go on that can."""

    @property
    def group(self) -> object:
        """What runs it beside others: tasks of one group run one at a time."""

    def spawn(self, operation: Callable[[], object]) -> Callable[[], object]:
        """Run an operation in a task of its own; returns what cancels that."""


current: ContextVar[Task | None] = ContextVar("fdbqueue.task", default=None)
"""What runs the caller; None for a thread that may stop."""
used = False
"""Whether anything of this process may run the layer in tasks."""


def runner() -> object:
    """What runs the caller: a task of an event loop, or a thread."""
    if used:
        import asyncio  # which only those have imported who use tasks

        with suppress(RuntimeError):  # No loop runs in this thread.
            if (task := asyncio.current_task()) is not None:
                return task
    return world.get_ident()


class Event:
    """An event for which threads and tasks may wait."""

    __slots__ = ("_inner", "_wakes")

    def __init__(self) -> None:
        self._inner = world.Event()
        self._wakes: deque[Wake] = deque()

    def set(self) -> None:
        """Wake all who wait, now and later."""
        self._inner.set()
        while self._wakes:
            try:
                wake = self._wakes.popleft()
            except IndexError:
                return
            wake()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._inner.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, for at most ``seconds``; returns whether it is."""
        mine = current.get()
        if mine is None:
            return self._inner.wait(seconds)
        if not self._inner.is_set():
            mine.wait(self._begin, seconds, ends_early=True)
        return self._inner.is_set()

    def _begin(self, wake: Wake) -> None:
        self._wakes.append(wake)
        if self._inner.is_set():
            self.set()


def sleep(seconds: float) -> None:
    """Wait so many seconds."""
    mine = current.get()
    if mine is None:
        world.sleep(seconds)
    elif seconds > 0:
        mine.wait(lambda _: None, seconds, ends_early=True)


def until_ready(mine: Task, future: fdb.Future[Any]) -> None:
    """Wait in a task for a future of the store. What has been begun there is waited for also by a
    task that is cancelled, so that it is known what came of it."""
    mine.wait(lambda wake: future.on_ready(lambda _: wake()), None, ends_early=False)

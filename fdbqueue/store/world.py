"""The one door to the world: time, chance, threads, and what a process remembers.

Everything below the shell, the web pages and Spark gets these here, and nowhere else; a test holds
that. The names of this module are those of the current ``World``; callers look them up at each use
(``world.monotonic()``), never before. A simulation enters a world of its own, one for each process
that it simulates.
"""

from __future__ import annotations

import os
import random as _random
import threading
import time as _time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _store_time_ns() -> int:
    return _time.clock_gettime_ns(_time.CLOCK_REALTIME)


class _Event:
    """An event like ``threading.Event``, safe from signal handlers: one that raises in a thread
    never leaves another waiting. The only call in ``set`` that matters is of C."""

    __slots__ = ("_flag", "_sleep")

    def __init__(self) -> None:
        self._flag = False
        # Who waits acquires it. It is not a queue.SimpleQueue: if its timeout passes before it
        # sleeps, CPython (3.11 to 3.13) lets it sleep for ever.
        self._sleep = threading.Lock()
        self._sleep.acquire()

    def set(self) -> None:
        """Wake all who wait, now and later."""
        self._flag = True
        self._wake()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._flag

    def clear(self) -> None:
        """Undo every ``set`` until now."""
        self._flag = False
        self._sleep.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for at most ``timeout`` seconds; returns whether it is."""
        if self._flag:
            return True
        try:
            return self._sleep.acquire(timeout=-1 if timeout is None else max(0.0, timeout)) or (
                self._flag
            )
        finally:
            # It is acquired by one; who is woken, or interrupted then, wakes the next.
            if self._flag:
                self._wake()

    def _wake(self) -> None:
        try:  # noqa: SIM105 (suppress is Python, and can be interrupted before the release)
            self._sleep.release()
        except RuntimeError:
            pass  # Somebody is being woken already, and wakes the next.


class World:
    """What surrounds a process, and what the process remembers: here, those of the machine.

    store_time_ns: the wall clock of the machine that an embedded store counts as, which stays right
    where a program replaces ``time_ns``. memory: what ``remembered`` has made.
    """

    time: Callable[[], float] = staticmethod(_time.time)
    time_ns: Callable[[], int] = staticmethod(_time.time_ns)
    store_time_ns: Callable[[], int] = staticmethod(_store_time_ns)
    monotonic: Callable[[], float] = staticmethod(_time.monotonic)
    monotonic_ns: Callable[[], int] = staticmethod(_time.monotonic_ns)
    sleep: Callable[[float], None] = staticmethod(_time.sleep)
    urandom: Callable[[int], bytes] = staticmethod(os.urandom)
    get_ident: Callable[[], int] = staticmethod(threading.get_ident)
    in_main_thread: Callable[[], bool] = staticmethod(_in_main_thread)
    Lock: Any = threading.Lock
    RLock: Any = threading.RLock
    Condition: Any = threading.Condition
    Event: Any = _Event
    Thread: Any = threading.Thread
    local: Any = threading.local

    def __init__(self) -> None:
        self.random = _random.Random()
        self.memory: dict[Any, Any] = {}


_NAMES = [name for name in vars(World) if not name.startswith("_")]

if TYPE_CHECKING:
    from os import urandom as urandom
    from threading import Condition as Condition
    from threading import Lock as Lock
    from threading import RLock as RLock
    from threading import Thread as Thread
    from threading import get_ident as get_ident
    from threading import local as local
    from time import monotonic as monotonic
    from time import monotonic_ns as monotonic_ns
    from time import sleep as sleep
    from time import time as time
    from time import time_ns as time_ns

    Event = _Event
    in_main_thread, store_time_ns = _in_main_thread, _store_time_ns

current: World
"""The world of the process that runs."""
random: _random.Random
memory: dict[Any, Any] = {}
TIMEOUT_MAX = threading.TIMEOUT_MAX


def enter(world: World) -> None:
    """Make a world the current one."""
    names = globals()
    for name in _NAMES:
        names[name] = getattr(world, name)
    names["current"], names["random"], names["memory"] = world, world.random, world.memory


def remembered(kind: type[T]) -> T:
    """What this process remembers of a kind: made when it is first asked for."""
    found: T | None = memory.get(kind)
    if found is None:
        # Of two threads, the first that comes decides.
        found = memory.setdefault(kind, kind())
    return found


enter(World())
# A forked child remembers nothing, and does not draw its parent's random numbers.
os.register_at_fork(after_in_child=lambda: enter(World()))

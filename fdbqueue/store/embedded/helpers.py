"""The engine's helper threads, and what wakes them.

A signal handler that raises, and `PyThreadState_SetAsyncExc`, interrupt a thread of the program
anywhere in the engine. CPython (since 3.10) lets that happen at the beginning of a function, on the
way back of a loop, and after a call has returned, and nowhere else. So a `with` statement with a
lock of `threading`, which is written in C, never leaves it held; nor is a call of C lost that is
the first in a `finally`. What stands in Python, such as `threading.Condition`, can be left half. So
the engine uses no such thing where a thread of the program comes along, and gives what an
interrupted one has left to do to a thread of its own, which nothing interrupts.
"""

from __future__ import annotations

import logging
import os
import queue
from collections.abc import Callable
from typing import Any

from .. import world
from .store_errors import EngineError

log = logging.getLogger("fdbqueue.store.embedded")

_PAUSE_SECONDS = 0.1


class Helper:
    """A daemon thread that is started when it is needed.

    Args:
        name: the name of the thread.
        work: called over and over until it returns True. If it fails, that is logged, and it is
            called again a moment later, so it must leave a consistent state.
    """

    def __init__(self, name: str, work: Callable[[], bool]) -> None:
        self._name = name
        self._work = work
        self._lock = world.Lock()
        self._newest: object = None
        self.running = False

    def start(self) -> None:
        """Start the thread, unless it runs.

        The finisher does it: what `PyThreadState_SetAsyncExc` sends to a thread while it starts
        another, CPython may give to that other, which then dies while the first waits for it.

        Raises:
            EngineError: no thread can be started, for instance while the interpreter ends.
        """
        if self.running:
            return
        # The finisher cannot be asked to start itself, nor wait for itself.
        if self is finisher.helper or finisher.is_current():
            self._start()
        else:
            finisher.start()
            finisher.call(self._start)

    def _start(self) -> None:
        with self._lock:
            if self.running:
                return
            # A thread whose start was interrupted finds that it is not the newest, or not running.
            self._newest = number = object()
            thread = world.Thread(target=self._run, args=(number,), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise EngineError(f"the thread {self._name} cannot be started: {error}") from error
            self.running = True

    def leave(self, unless: Callable[[], bool]) -> bool:
        """Let the next `start` start a new thread, unless there is work. The work calls this before
        it returns True, so that no caller relies on a thread that is about to end."""
        with self._lock:
            self.running = unless()
            return not self.running

    def _run(self, number: object) -> None:
        with self._lock:
            if not self.running or number is not self._newest:
                return
        while True:
            try:
                if self._work():
                    return
            except BaseException:
                log.exception("%s failed, and continues", self._name)
                world.sleep(_PAUSE_SECONDS)


class HelperThread:
    """A thread that makes the calls it is given, one after another; it waits for more until told to
    stop.

    Attributes:
        put: gives it a call: a tuple of a function and its arguments. It is written in C: once it
            is called, nothing interrupts it.
        helper: the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.reset()

    def reset(self) -> None:
        """Forget the thread and its calls, as a forked child must, which has neither."""
        calls: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self.put = calls.put
        self._get = calls.get
        self._ident = 0
        self.helper = Helper(self._name, self._make_next)

    def start(self) -> None:
        """Start the thread, unless it runs. Raises ``EngineError`` if it cannot be started."""
        if not self.helper.running:
            self.helper.start()

    def is_current(self) -> bool:
        """Whether this is the thread."""
        return self._ident == world.get_ident()

    def call(self, function: Callable[[], object]) -> None:
        """Let the thread call a function, and wait until it has; raises what that raises.

        Whatever interrupts the caller is raised when the call is over.
        """
        outcome: list[BaseException | None] = []
        interruption: BaseException | None = None
        done = world.Lock()

        def make() -> None:
            raised = None
            try:
                function()
            except BaseException as error:
                raised = error
            outcome.append(raised)
            done.release()

        # A bare lock as a semaphore: `threading.Event` is written in Python, and an interruption
        # may leave it half.
        done.acquire()
        try:
            self.put((make,))
        except BaseException as error:
            # After it: nothing interrupts a call of C, nor what stands before it.
            interruption = error
        # The call is already queued, and uses what this frame holds: returning now would let it run
        # behind the caller's back.
        while not outcome:
            try:
                done.acquire()
            except BaseException as error:
                interruption = error
        raised = outcome[0] or interruption
        if raised is not None:
            raise raised

    def stop(self) -> None:
        """Let the thread end after the calls that it has; `start` starts another."""
        self.put(None)

    def _make_next(self) -> bool:
        self._ident = world.get_ident()
        call = self._get()
        if call is None:
            return self.helper.leave(unless=lambda: False)
        call[0](*call[1:])
        return False


finisher = HelperThread("fdbqueue-finisher")
"""Finishes what an interrupted thread has left; its calls do not wait."""

closer = HelperThread("fdbqueue-closer")
"""Closes stores, so that none is left half; its calls may wait for commits."""

os.register_at_fork(after_in_child=finisher.reset)
os.register_at_fork(after_in_child=closer.reset)

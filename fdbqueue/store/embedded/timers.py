"""One thread per process that calls functions later: backoff, timeouts, sweeping."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from .. import world
from .helpers import Helper

# Calls that were cancelled are swept out of the heap when there are more of them than others.
_FEW = 64


class TimedCall:
    """A call to make later, unless it is cancelled."""

    __slots__ = ("_timers", "function")

    def __init__(self, timers: Timers, function: Callable[[], object]) -> None:
        self._timers = timers
        self.function: Callable[[], object] | None = function

    def cancel(self) -> None:
        """Cancel the call, and drop its references."""
        if self.function is not None:
            self.function = None
            self._timers.note_cancelled()


class Timers:
    """A heap of calls to make, and the thread that makes them; the thread starts with the first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimedCall]] = []
        self._lock = world.Lock()
        self._changed = world.Event()
        self._order = itertools.count()
        self._cancelled = 0
        # Until when the thread sleeps. Not the first of the heap: who has added that may have been
        # interrupted before it could wake the thread.
        self._sleeps_until = 0.0
        self._helper = Helper("fdbqueue-timers", self._make_next)

    def __len__(self) -> int:
        return len(self._heap)

    def call_later(self, seconds: float, function: Callable[[], object]) -> TimedCall:
        """Call a function once, about so many seconds from now, on the timer thread.

        Raises:
            EngineError: no thread can be started.
        """
        return self.call_at(world.monotonic() + seconds, function)

    def call_at(self, when: float, function: Callable[[], object]) -> TimedCall:
        """Call a function once at a time of the monotonic clock."""
        if not self._helper.running:
            self._helper.start()
        call = TimedCall(self, function)
        with self._lock:
            if self._cancelled > _FEW and self._cancelled * 2 > len(self._heap):
                kept = [item for item in self._heap if item[2].function is not None]
                heapq.heapify(kept)
                self._heap = kept
                self._cancelled = 0
            # The number orders calls of the same time; they cannot be compared themselves.
            heapq.heappush(self._heap, (when, next(self._order), call))
            if when < self._sleeps_until:
                self._changed.set()
        return call

    def note_cancelled(self) -> None:
        """Note that one more call is cancelled."""
        # No lock: the garbage collector may call this anywhere, and a miscount is harmless.
        self._cancelled += 1

    def _make_next(self) -> bool:
        """Wait for the next call, and make it."""
        while True:
            # Before the heap is looked at: a call pushed after that sets it again.
            self._changed.clear()
            with self._lock:
                self._sleeps_until = self._heap[0][0] if self._heap else math.inf
                delay = self._sleeps_until - world.monotonic()
                if delay <= 0:
                    call = heapq.heappop(self._heap)[2]
                    break
            self._changed.wait(None if delay == math.inf else delay)
        # Taken once: a `cancel` from here on does nothing, and does not count.
        function, call.function = call.function, None
        if function is None:
            self._cancelled = max(0, self._cancelled - 1)
        else:
            function()
        return False

    def after_fork(self) -> None:
        """Forget the parent's calls and thread."""
        self.__init__()  # type: ignore[misc]


timers = Timers()

"""One thread per process that calls functions later: backoff, timeouts, sweeping."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Timers:
    """A heap of calls to make, and the thread that makes them; the thread starts with the first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._changed = threading.Condition(threading.Lock())
        self._order = itertools.count()
        self._thread: threading.Thread | None = None

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function once, about so many seconds from now, on the timer thread."""
        self.call_at(time.monotonic() + seconds, function)

    def call_at(self, when: float, function: Callable[[], object]) -> None:
        """Call a function once at a time of the monotonic clock."""
        with self._changed:
            item = (when, next(self._order), function)
            heapq.heappush(self._heap, item)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="fdbqueue-timers", daemon=True
                )
                self._thread.start()
            elif self._heap[0] is item:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while True:
                    if not self._heap:
                        self._changed.wait()
                        continue
                    delay = self._heap[0][0] - time.monotonic()
                    if delay <= 0:
                        break
                    self._changed.wait(delay)
                function = heapq.heappop(self._heap)[2]
            function()

    def after_fork(self) -> None:
        """Forget the parent's calls and thread."""
        self.__init__()  # type: ignore[misc]


timers = Timers()

"""The threads that help the engine: each survives what fails in it, and can start again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from .errors import EngineError

log = logging.getLogger("fdbqueue.store.embedded")

_PAUSE_SECONDS = 0.1


class Helper:
    """A daemon thread that is started when it is needed.

    Args:
        name: the name of the thread.
        work: what it does, over and over until it says True. What fails in it is logged, and it
            is called again a moment later: so it must leave everything fit for that.
    """

    def __init__(self, name: str, work: Callable[[], bool]) -> None:
        self._name = name
        self._work = work
        self._lock = threading.Lock()
        self.running = False

    def start(self) -> None:
        """Start the thread, unless it runs.

        Raises:
            EngineError: the system, or an interpreter that ends, gives no thread.
        """
        with self._lock:
            if self.running:
                return
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise EngineError(f"the thread {self._name} cannot be started: {error}") from error
            self.running = True

    def leave(self, unless: Callable[[], bool]) -> bool:
        """Let the next `start` start a thread, unless there is work; the work calls it before it
        says True, so that nobody who has just asked for it waits for a thread that ends."""
        with self._lock:
            self.running = unless()
            return not self.running

    def _run(self) -> None:
        while True:
            try:
                if self._work():
                    return
            except BaseException:
                log.exception("%s failed, and goes on", self._name)
                time.sleep(_PAUSE_SECONDS)

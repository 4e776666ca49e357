"""The engine's helper threads: each survives failures, and can start again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .. import world
from .errors import EngineError

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
        self.running = False

    def start(self) -> None:
        """Start the thread, unless it runs.

        Raises:
            EngineError: no thread can be started, for instance while the interpreter ends.
        """
        with self._lock:
            if self.running:
                return
            thread = world.Thread(target=self._run, name=self._name, daemon=True)
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

    def _run(self) -> None:
        while True:
            try:
                if self._work():
                    return
            except BaseException:
                log.exception("%s failed, and continues", self._name)
                world.sleep(_PAUSE_SECONDS)

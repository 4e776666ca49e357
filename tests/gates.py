"""Handlers that wait until a test lets them return."""

from __future__ import annotations

import threading

from fdbqueue import Message

from .patience import DEADLINE, eventually


class Gate:
    """A handler that waits at a gate for each message."""

    def __init__(self) -> None:
        self.entered: list[bytes] = []
        self._gate = threading.Semaphore(0)

    def __call__(self, message: Message) -> None:
        self.entered.append(message.payload)
        assert self._gate.acquire(timeout=DEADLINE)

    def let(self, count: int) -> None:
        """Let so many handlers return."""
        self._gate.release(count)

    def wait_for(self, count: int) -> list[bytes]:
        """What it was given, once that is ``count`` messages."""
        eventually(lambda: len(self.entered) >= count)
        return [*self.entered]

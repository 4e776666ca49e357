"""What a handler of asyncio knows, and leaves behind."""

from __future__ import annotations

from typing import Any

from ..queue.continuations import successors
from .queues import Queue
from .twins import to_original


class Context:
    """What a handler learns and says about its message: the twin of ``fdbqueue.context``."""

    @property
    def cancelled(self) -> bool:
        """Whether the message was cancelled."""
        return successors.context.cancelled

    def then(self, queue: Queue, payload: Any, **how: Any) -> None:
        """Enqueue a message once this one is acknowledged. It waits for nothing: no coroutine."""
        successors.context.then(to_original(queue), payload, **how)


context = Context()

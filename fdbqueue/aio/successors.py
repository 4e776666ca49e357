"""What a handler of asyncio knows, and leaves behind."""

from __future__ import annotations

from typing import Any

from ..queue.continuations import successors
from .queues import Queue
from .twins import to_original


class Context:
    """As ``fdbqueue.context``."""

    @property
    def cancelled(self) -> bool:
        """As ``fdbqueue.context.cancelled``."""
        return successors.context.cancelled

    def then(self, queue: Queue, payload: Any, **how: Any) -> None:
        """As ``fdbqueue.context.then``. It waits for nothing, so it is no coroutine."""
        successors.context.then(to_original(queue), payload, **how)


context = Context()

"""Futures as the bindings see them: opaque handles with a value, an error and callbacks.

Most are complete when they are made, because a read of a local file needs no waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .codes import FUTURE_NOT_SET, FUTURE_RELEASED, OPERATION_CANCELLED, Fault

Callback = Callable[[None], object]

# Guards the step from pending to done of every future; held for a few assignments only.
_step = threading.Lock()


class Future:
    """A future that is done: `value` or `error` (a Fault or any other exception) is set."""

    __slots__ = ("error", "kept", "value")

    ready = True

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error
        self.kept: Any = None

    def result(self) -> Any:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value

    def release(self) -> None:
        """Give up the value; a later look at it is an error."""
        if self.error is None:
            self.value = self.kept = None
            self.error = Fault(FUTURE_RELEASED)

    def call_when_ready(self, callback: Callback) -> None:
        """Call back once, now or when the future is done."""
        callback(None)

    def cancel(self) -> None:
        """Cancel what is pending; a future that is done stays as it is."""


class Pending(Future):
    """A future that another thread, or a later call, completes.

    Args:
        on_cancel: called once if the future is cancelled or destroyed before it is done.
    """

    __slots__ = ("_callbacks", "_on_cancel", "ready")

    def __init__(self, on_cancel: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.ready = False
        self._callbacks: list[Callback] = []
        self._on_cancel = on_cancel

    def result(self) -> Any:
        if not self.ready:
            raise Fault(FUTURE_NOT_SET)
        return super().result()

    def complete(self, value: Any = None, error: BaseException | None = None) -> bool:
        """Make it done, unless it is already; whether this call did."""
        with _step:
            if self.ready:
                return False
            self.value = value
            self.error = error
            callbacks, self._callbacks = self._callbacks, []
            self._on_cancel = None
            self.ready = True
        for callback in callbacks:
            callback(None)
        return True

    def fail(self, code: int) -> bool:
        """Make it done with a numbered error."""
        return self.complete(error=Fault(code))

    def call_when_ready(self, callback: Callback) -> None:
        with _step:
            if not self.ready:
                self._callbacks.append(callback)
                return
        callback(None)

    def cancel(self) -> None:
        hook = self._on_cancel
        if self.fail(OPERATION_CANCELLED) and hook is not None:
            hook()

    def release(self) -> None:
        if self.ready:
            super().release()


def failed(code: int) -> Future:
    """A future that is done with a numbered error."""
    return Future(error=Fault(code))


def after_fork() -> None:
    """Make the module usable in a forked child, whatever the parent's threads were doing."""
    global _step
    _step = threading.Lock()

"""Futures as the bindings see them: opaque handles with a value, an error and callbacks.

Most are complete when they are made, because a read of a local file needs no waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .codes import FUTURE_NOT_SET, FUTURE_RELEASED, OPERATION_CANCELLED, Fault

Callback = Callable[[None], object]


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

    It takes no lock: the garbage collector may destroy a future, and so cancel it, in the middle
    of anything that this thread is doing. Popping from a deque is the atomic step instead.
    """

    __slots__ = ("_callbacks", "_claim", "ready")

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self._callbacks: deque[Callback] = deque()
        self._claim = deque((True,))

    def result(self) -> Any:
        if not self.ready:
            raise Fault(FUTURE_NOT_SET)
        return super().result()

    def complete(self, value: Any = None, error: BaseException | None = None) -> bool:
        """Make it done, unless it is already; whether this call did."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        self.value = value
        self.error = error
        self.ready = True
        self._call_back()
        return True

    def _call_back(self) -> None:
        while True:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            callback(None)

    def fail(self, code: int) -> bool:
        """Make it done with a numbered error."""
        return self.complete(error=Fault(code))

    def call_when_ready(self, callback: Callback) -> None:
        self._callbacks.append(callback)
        if self.ready:
            self._call_back()

    def cancel(self) -> None:
        self.fail(OPERATION_CANCELLED)

    def release(self) -> None:
        if self.ready:
            super().release()


def failed(code: int) -> Future:
    """A future that is done with a numbered error."""
    return Future(error=Fault(code))

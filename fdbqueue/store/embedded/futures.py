"""Futures as the bindings see them: opaque handles with a value, an error and callbacks.

Most are complete when they are made, because a read of a local file needs no waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .. import world
from .codes import FUTURE_NOT_SET, FUTURE_RELEASED, OPERATION_CANCELLED, Fault
from .store_errors import EngineError

Callback = Callable[[None], object]
RELEASED = Fault(FUTURE_RELEASED)
"""The error of a future whose value was released."""


class Frame:
    """A running callback, and its future."""

    __slots__ = ("future",)

    def __init__(self, future: Future) -> None:
        self.future = future


class _Stack(world.local):
    """The callbacks that a thread is running, the innermost last."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []


_stack = _Stack()
# Those of all threads; usually there is none, and nothing to look up.
running: dict[Frame, None] = {}


def _run(callback: Callback, future: Future) -> None:
    frame, frames = Frame(future), _stack.frames
    depth = len(frames)
    try:
        running[frame] = None
        frames.append(frame)
        callback(None)
    finally:
        # Whatever interrupts this, the first statement, which calls nothing, is done.
        del frames[depth:]
        running.pop(frame, None)


def require_no_wait(future: Future) -> None:
    """Raise if a callback waits for a future that it started itself.

    A cluster's client runs callbacks on the one thread that completes futures, so there it hangs.
    """
    frames = _stack.frames
    # A callback of the future itself runs after it is done, and may read it.
    if future.frame in frames and not any(frame.future is future for frame in frames):
        raise EngineError(
            "a callback must not wait for a future that it starts: on a cluster it would wait for "
            "ever; continue in a callback of that future, or in another thread"
        )


class Future:
    """A future that is done: `value` or `error` (a Fault or any other exception) is set.

    Attributes:
        at_hand: whether the value may be taken as it is: there is no error, and no callback that
            must not wait.
        frame: the callback in which it was begun, if in any.
        kept: what the pointers given to the bindings point to, if not to the value itself.
    """

    at_hand = True
    ready = True
    error: BaseException | None = None
    frame: Frame | None = None
    kept: Any = None

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        if error is not None:
            self.error, self.at_hand = error, False
        if running:
            frames = _stack.frames
            if frames:
                self.frame, self.at_hand = frames[-1], False

    def result(self) -> Any:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value

    def call_when_ready(self, callback: Callback) -> None:
        """Call back once, now or when the future is done."""
        _run(callback, self)

    def cancel(self) -> None:
        """Cancel the future, unless it is done."""


class PendingFuture(Future):
    """A future that another thread, or a later call, completes.

    It takes no lock: the garbage collector may destroy a future, and so cancel it, in the middle
    of anything that this thread is doing. Popping from a deque is the atomic step instead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ready = self.at_hand = False
        self._callbacks: deque[Callback] = deque()
        self._claim = deque((True,))

    def result(self) -> Any:
        if not self.ready:
            raise Fault(FUTURE_NOT_SET)
        return super().result()

    def complete(self, value: Any = None, error: BaseException | None = None) -> bool:
        """Complete the future, unless it is done; returns whether this call did."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        self.value = value
        self.error = error
        # Last: whoever sees it takes value and error without a lock.
        self.ready = True
        self._call_back()
        return True

    def _call_back(self) -> None:
        while True:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            _run(callback, self)

    def fail(self, code: int) -> bool:
        """Complete the future with a numbered error."""
        return self.complete(error=Fault(code))

    def call_when_ready(self, callback: Callback) -> None:
        # Before looking at `ready`, as `complete` sets that before it takes callbacks: one of the
        # two sees this one, and taking it from the deque decides which calls it.
        self._callbacks.append(callback)
        if self.ready:
            self._call_back()

    def cancel(self) -> None:
        self.fail(OPERATION_CANCELLED)


def failed(code: int) -> Future:
    """A future that is done with a numbered error."""
    return Future(error=Fault(code))


def reported(function: Any, code: int) -> int:
    """Report an error code as the bindings asked for when they set a function's `errcheck`."""
    check = getattr(function, "errcheck", None)
    if check is not None:
        check(code, function, ())
    return code

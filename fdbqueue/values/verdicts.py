"""Verdicts: what is to become of a delivery that is not done.

A handler raises one. For the messages of a batch, several are given at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from traceback import TracebackException

from .backoff import check_delay
from .content import check_flag
from .durations import Seconds
from .text import shortened

TRACEBACK_BYTES = 4_000
_LIBRARY = str(Path(__file__).parents[1])


class Reject(Exception):
    """The message becomes a dead letter, or is gone if ``drop``. Raises ``InvalidArgument``."""

    def __init__(self, reason: str = "", *, drop: bool = False):
        super().__init__(*([reason] if reason else []))
        self.drop = check_flag("drop", drop)


class Retry(Exception):
    """The attempt failed, and the message is to be tried again.

    seconds: how long the message waits, 0 to ten years; by the backoff where None.

    Raises ``InvalidArgument``.
    """

    def __init__(
        self, reason: str = "the handler asks for a retry", *, seconds: Seconds | None = None
    ):
        super().__init__(reason)
        self.seconds = None if seconds is None else check_delay("seconds", seconds)


class Snooze(Exception):
    """The message is handled later, without a failed attempt. Raised by a handler of a batch, it is
    for the whole batch.

    seconds: how long the message waits, 0 to ten years.

    Raises ``InvalidArgument``.
    """

    def __init__(self, seconds: Seconds):
        self.seconds = check_delay("seconds", seconds)
        super().__init__(f"the handler waits for {self.seconds:g} s")


def text(error: BaseException) -> str:
    """An error in words; its own text may fail, too."""
    try:
        said = str(error)
        return f"{type(error).__name__}: {said}" if said else type(error).__name__
    except Exception:
        return type(error).__name__


def trace(error: BaseException) -> str:
    """``folded`` in up to 4,000 bytes, to be kept with a message."""
    return shortened(folded(error), TRACEBACK_BYTES)


def folded(error: BaseException) -> str:
    """A traceback without the library's own frames: it begins with the first one of the handler.
    Where there are no others, with all."""
    try:
        told = TracebackException.from_exception(error, compact=True)
        for each in _chain(told):
            theirs = [one for one in each.stack if not one.filename.startswith(_LIBRARY)]
            each.stack[:] = theirs or each.stack
        return "".join(told.format()).rstrip("\n")
    except Exception:  # Its own code may fail.
        return text(error)


def _chain(error: TracebackException) -> Iterator[TracebackException]:
    """An error, and all that it came of."""
    left = [error]
    while left:
        one = left.pop()
        yield one
        left += [each for each in (one.__cause__, one.__context__) if each is not None]
        left += one.exceptions or ()

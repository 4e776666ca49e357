"""An exception in the middle of a call, as a signal handler raises it, at a place that is chosen.

CPython lets that happen when a function begins, after a call has returned, and on the way back of a
loop. A profile function is called at the first two, and can raise there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


class Interrupted(BaseException):
    """What interrupts."""


class Interruption:
    """Interrupts this thread once, at the n-th place that it passes in files that count."""

    def __init__(self, number: int, counts: Callable[[str], bool]) -> None:
        self._left = number
        self._counts = counts
        self.came = False

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and self._counts(frame.f_code.co_filename):
            self._left -= 1
            if self._left < 0:
                sys.setprofile(None)
                self.came = True
                raise Interrupted

    def __enter__(self) -> Interruption:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

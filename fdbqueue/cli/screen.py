"""The alternate screen of a terminal, restored however the program ends or stops."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from . import terminal

if TYPE_CHECKING:
    from rich.text import Text


class Screen:
    """A full screen, as a context manager, which q ends.

    SIGTERM and SIGHUP raise ``terminal.Terminated``. Ctrl-Z restores the terminal until the program
    continues.
    """

    def __init__(self) -> None:
        from rich.live import Live

        self._console = terminal.console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._keys = sys.stdin.isatty()
        self._before: list[Any] | None = None
        self._drawing = self._suspending = False
        self._termination = terminal.termination_raises()

    def __enter__(self) -> Screen:
        self._termination.__enter__()
        self._enter()
        signal.signal(signal.SIGTSTP, self._suspend_requested)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # First: a Ctrl-Z while the terminal is restored would restore it twice.
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        self._restore()
        self._termination.__exit__(kind, error, at)

    @property
    def width(self) -> int:
        """How many columns it has."""
        return self._console.size.width

    def draw(self, lines: Iterable[Text]) -> None:
        """Replace the content of the screen."""
        from rich.console import Group

        self._drawing = True
        try:
            self._live.update(Group(*lines), refresh=True)
        finally:
            self._drawing = False
        # It came while the screen was drawn.
        if self._suspending:
            self._suspend()

    def quits_within(self, seconds: float) -> bool:
        """Wait some seconds; whether q is pressed meanwhile, or the terminal closed."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            step = min(left, terminal.LONGEST_SLEEP_SECONDS)
            if select.select([sys.stdin] * self._keys, [], [], step)[0]:
                # Not `sys.stdin.read`, whose buffer `select` does not see.
                keys = os.read(sys.stdin.fileno(), 64)
                if not keys or b"q" in keys:
                    return True
        return False

    def _enter(self) -> None:
        if self._keys:
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._live.start(refresh=True)

    def _restore(self) -> None:
        self._live.stop()
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _suspend_requested(self, number: int, frame: FrameType | None) -> None:
        # Finish a write in progress first: streams are not reentrant.
        self._suspending = True
        if not self._drawing:
            self._suspend()

    def _suspend(self) -> None:
        self._suspending = False
        self._restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when the program continues
        signal.signal(signal.SIGTSTP, self._suspend_requested)
        self._enter()

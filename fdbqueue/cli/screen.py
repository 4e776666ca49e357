"""The alternate screen of a terminal, given back by whatever ends or stops the program."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from . import terminal

if TYPE_CHECKING:
    from rich.text import Text


class Screen:
    """A screen that is drawn anew again and again, between enter and exit.

    keys: whether keys come at once and unseen. SIGTERM and SIGHUP raise ``terminal.Ended``; Ctrl-Z
    gives the terminal back until the program goes on.
    """

    def __init__(self, *, keys: bool = False) -> None:
        from rich.live import Live

        self._console = terminal.console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._keys = keys
        self._before: list[Any] | None = None
        self._drawing = self._stopping = False
        self._ending = terminal.ending()

    def __enter__(self) -> Screen:
        self._ending.__enter__()
        self._take()
        signal.signal(signal.SIGTSTP, self._asked_to_stop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        self._give_back()
        self._ending.__exit__(kind, error, at)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        found = self._console.size
        return found.width, found.height

    def draw(self, lines: Iterable[Text]) -> None:
        """Show these lines, and nothing else."""
        from rich.console import Group

        self._drawing = True
        try:
            self._live.update(Group(*lines), refresh=True)
        finally:
            self._drawing = False
        if self._stopping:
            self._stop()

    def _take(self) -> None:
        if self._keys:
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._live.start(refresh=True)

    def _give_back(self) -> None:
        self._live.stop()
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        # What is half written is written to its end first: a stream is not to be written to twice.
        self._stopping = True
        if not self._drawing:
            self._stop()

    def _stop(self) -> None:
        self._stopping = False
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # and here it goes on, when it does
        signal.signal(signal.SIGTSTP, self._asked_to_stop)
        self._take()

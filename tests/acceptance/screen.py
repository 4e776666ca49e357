"""A program in a pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from tests.patience import DEADLINE

HOME = b"\x1b[H"
CLEAR = (b"\x1b[2J", b"\x1b[J", b"\x1b[3J")
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


class Screen:
    """Runs a program whose terminal has a size; reads the frames that it draws from home on."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], width: int = 80, height: int = 24
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(width, height)
        environment = {
            name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")
        }
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(theirs)
        self.received = b""

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def resize(self, width: int, height: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    @property
    def frame(self) -> list[str]:
        """The lines of the last whole frame."""
        *_, frame, _ = [b"", b"", *self.received.split(HOME)]
        return self._lines(frame)

    @property
    def last(self) -> list[str]:
        """The lines of the last frame, be it whole or not."""
        return self._lines(self.received.split(HOME)[-1])

    def until(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """The first frame from now on that is as wanted."""
        deadline = time.monotonic() + DEADLINE
        while not wanted(self.last):
            assert time.monotonic() < deadline, "\n".join(self.last)
            assert self._read(), f"it ended: {self.received!r}"
        return self.last

    def shows(self, text: str) -> list[str]:
        """The first frame that has a text."""
        return self.until(lambda lines: any(text in line for line in lines))

    def receives(self, code: bytes) -> None:
        """Wait for a code; what came until then counts no more."""
        while code not in self.received:
            assert self._read(), f"it ended: {self.received!r}"
        self.received = self.received.partition(code)[2]

    def ended(self) -> int:
        """Its exit code, when it has ended."""
        while self._read():
            pass
        return self.process.wait(DEADLINE)

    def _read(self) -> bool:
        waiting = select.poll()
        waiting.register(self._ours, select.POLLIN)
        if not waiting.poll(DEADLINE * 1000):
            return False
        try:
            chunk = os.read(self._ours, 65_536)
        except OSError:  # how a pseudo-terminal says that its other side was closed
            return False
        self.received += chunk
        return bool(chunk)

    @staticmethod
    def _lines(frame: bytes) -> list[str]:
        text = _CODES.sub("", frame.decode(errors="replace"))
        return text.replace("\r", "").split("\n")

"""Runs one worker in several processes, under a parent that restarts and stops them.

The parent handles no messages. It restarts a process that fails, after longer and longer pauses;
with ``reload`` it restarts all when a source file changes. Each process is in a terminal session of
its own, so an interrupt reaches the parent alone, which passes it on. Processes stop by themselves
when the parent is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..health import Systemd
from .notices import Relay

TURN_SECONDS = 0.1
QUICK_SECONDS = 5.0
"""A process that ends sooner after its start has failed to start."""
MAX_WAIT_SECONDS = 30.0
PARENT = "FDBQUEUE_WORKER_PARENT"
"""The variable that names the parent to a process."""
NUMBER = "FDBQUEUE_WORKER_NUMBER"
"""The variable that tells a process how many others come before it."""
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}


@dataclass
class Slot:
    """The place of one process, and what it runs."""

    number: int
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    started: float = 0.0
    failures: int = 0
    over: bool = False


class Supervisor:
    """Runs commands, each in a process.

    commands: what to run, usually the same several times. reload: the directory of the source
        files to watch, if any.
    tell: called with each line to show. systemd: is told of all processes as of one service, if
        given.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        reload: Path | None,
        tell: Callable[[str], object],
        systemd: Systemd | None = None,
    ) -> None:
        self.slots = [Slot(n, [*command]) for n, command in enumerate(commands)]
        self.reload = reload
        self.tell = tell
        self._relay = None if systemd is None else Relay(systemd, len(self.slots))
        self._stops = 0
        self._told = 0

    def run(self) -> int:
        """Run until told to stop, or until all processes have ended; returns the exit code."""
        before = {
            number: signal.signal(number, self._signalled)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        seen = self._sources()
        code = 0
        try:
            while not code:
                if self._stops:
                    self._pass_on()
                    if not self._running():
                        return 0
                elif self.reload is not None and (now := self._sources()) != seen:
                    seen = now
                    self._renew()
                else:
                    code = self._tend()
                    if all(slot.over for slot in self.slots):
                        return 0
                self._pause(TURN_SECONDS)
            return code
        finally:
            self._end()
            if self._relay is not None:
                self._relay.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1

    def _tend(self) -> int:
        """Start processes that are due; returns the exit code of one that cannot start at all."""
        now = time.monotonic()
        for slot in self.slots:
            code = None if slot.process is None else slot.process.poll()
            if slot.process is None:
                if not slot.over and now >= slot.start_at:
                    self._start(slot)
            elif code is not None:
                slot.process = None
                quick = now - slot.started < QUICK_SECONDS
                if code == 0:
                    slot.over = True
                elif self.reload is not None:
                    slot.start_at = float("inf")
                    self.tell(f"a worker process ended with {code}; waiting for a change")
                elif quick and code > 0 and not slot.failures:
                    return code
                else:
                    slot.failures = slot.failures + 1 if quick else 1
                    wait = min(MAX_WAIT_SECONDS, 2.0 ** (slot.failures - 1))
                    slot.start_at = now + wait
                    self.tell(f"a worker process ended with {code}; another starts in {wait:g} s")
        return 0

    def _start(self, slot: Slot) -> None:
        heard = {} if self._relay is None else self._relay.environment(slot.number)
        slot.process = subprocess.Popen(
            slot.command,
            env={**os.environ, **heard, PARENT: str(os.getpid()), NUMBER: str(slot.number)},
            start_new_session=True,
        )
        slot.started = time.monotonic()

    def _running(self) -> list[subprocess.Popen[bytes]]:
        processes = [slot.process for slot in self.slots if slot.process is not None]
        return [process for process in processes if process.poll() is None]

    def _pause(self, seconds: float) -> None:
        """Wait between two turns, and tell systemd how the processes are."""
        if self._relay is not None:
            wanted = [slot.number for slot in self.slots if not slot.over]
            living = [slot for slot in self.slots if slot.process and slot.process.poll() is None]
            self._relay.turn(wanted, [slot.number for slot in living])
        time.sleep(seconds)

    def _pass_on(self) -> None:
        """Pass on each signal that this process received."""
        if self._relay is not None:
            self._relay.stopping()
        while self._told < self._stops:
            self._told += 1
            for process in self._running():
                process.send_signal(signal.SIGTERM)

    def _renew(self) -> None:
        self.tell("source files have changed: starting anew")
        self._end()
        for slot in self.slots:
            slot.process, slot.start_at, slot.over = None, 0.0, False

    def _end(self) -> None:
        """Stop all, gracefully unless told again."""
        running = self._running()
        for process in running:
            process.send_signal(signal.SIGTERM)
        stops = self._stops
        while self._running():
            if self._stops > stops:
                stops = self._stops
                for process in self._running():
                    process.send_signal(signal.SIGTERM)
            self._pause(TURN_SECONDS / 2)

    def _sources(self) -> dict[str, int]:
        """The source files, and when each last changed."""
        found: dict[str, int] = {}
        if self.reload is None:
            return found
        for directory, names, files in os.walk(self.reload):
            names[:] = [
                name
                for name in names
                if not name.startswith(".")
                and name not in _SKIPPED
                and not os.path.exists(os.path.join(directory, name, "pyvenv.cfg"))
            ]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(directory, name)
                    try:
                        found[path] = os.stat(path).st_mtime_ns
                    except OSError:
                        continue  # It has gone meanwhile.
        return found


def stop_with_parent(stop: Callable[[], object]) -> None:
    """Call ``stop`` when the parent is gone."""
    parent = os.environ.get(PARENT)
    if parent is None or not parent.isdigit():
        return

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(1.0)
        stop()

    threading.Thread(target=watch, name="fdbqueue-parent", daemon=True).start()

"""Runs one worker in several processes, under a parent that restarts and stops them.

The parent handles no messages. It restarts a process that fails, after longer and longer pauses;
with ``reload`` it restarts all when a source file changes. Each process is in a terminal session of
its own, so an interrupt reaches the parent alone, which passes it on. Processes stop by themselves
when the parent is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ...store import world
from ..health import Notices, Systemd
from .membership import TEXT_BYTES, Membership

TURN_SECONDS = 0.1
QUICK_SECONDS = 5.0
"""A process that ends sooner after its start has failed to start."""
MAX_WAIT_SECONDS = 30.0
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}
# Not forked: a child of a process with threads, and with a client of the store, would inherit locks
# that nobody releases.
_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Slot:
    """The place of one process, and what runs there."""

    place: Membership
    process: Any = None
    start_at: float = 0.0
    started: float = 0.0
    failures: int = 0
    over: bool = False

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.is_alive()


class Supervisor:
    """Runs a function in several processes.

    work: called in each of ``count`` processes with its place; must be picklable. reload: the
        directory of the source files to watch, if any.
    tell: called with each line to show. systemd: is told of all processes as of one service, if
        given.
    """

    def __init__(
        self,
        work: Callable[[Membership], object],
        count: int,
        reload: Path | None,
        tell: Callable[[str], object],
        systemd: Systemd | None = None,
    ) -> None:
        watchdog = None if systemd is None else systemd.watchdog
        self.work = work
        self.slots = [
            Slot(
                Membership(
                    number,
                    _SPAWN.Value("d", lock=False),
                    watchdog,
                    _SPAWN.Array("c", TEXT_BYTES + 1, lock=False),
                )
            )
            for number in range(count)
        ]
        self.reload = reload
        self.tell = tell
        self._notices = None if systemd is None else Notices(systemd, self)
        self._watchdog = watchdog
        self._stops = 0
        self._told = 0

    def run(self) -> int:
        """Run until told to stop, or until all processes have ended; returns the exit code."""
        before = {
            number: signal.signal(number, self._signalled)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        if self._notices is not None:
            self._notices.start()
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
                world.sleep(TURN_SECONDS)
            return code
        finally:
            self._end()
            if self._notices is not None:
                self._notices.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def dead(self, now: float) -> str | None:
        """Why the service must be started anew: a process that was ready has fallen silent."""
        since = now - (self._watchdog or now)
        silent = [each for each in self._running() if 0 < each.place.heard_at.value < since]
        return f"process {silent[0].place.number} gives no sign of life" if silent else None

    def unready(self, now: float) -> str | None:
        """Why the service is not ready: so it is while a process that is wanted is not."""
        ready = [each for each in self._running() if each.place.heard_at.value]
        if self._stops:
            return f"{len(self._running())} processes stop"
        wanted = [each for each in self.slots if not each.over]
        if len(ready) < len(wanted):
            return f"{len(ready)} of {len(self.slots)} processes are ready"
        return None

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1

    def _tend(self) -> int:
        """Start processes that are due; returns the exit code of one that cannot start at all."""
        now = world.monotonic()
        for slot in self.slots:
            code = None if slot.process is None else slot.process.exitcode
            if slot.process is None:
                if not slot.over and now >= slot.start_at:
                    self._start(slot)
            elif code is not None:
                ended, slot.process = _ended(slot, code), None
                quick = now - slot.started < QUICK_SECONDS
                began = slot.place.heard_at.value or slot.place.doing.value
                if code == 0:
                    slot.over = True
                elif self.reload is not None:
                    # With ``reload`` somebody is editing: the next change starts it.
                    slot.start_at = float("inf")
                    self.tell(f"{ended}; waiting for a change")
                # It fails at its first start, by itself, before it is ready or has a message: an
                # error in the set-up, which no restart mends.
                elif quick and code > 0 and not slot.failures and not began:
                    return int(code)
                else:
                    slot.failures = slot.failures + 1 if quick else 1
                    wait = min(MAX_WAIT_SECONDS, 2.0 ** (slot.failures - 1))
                    slot.start_at = now + wait
                    self.tell(f"{ended}; another starts in {wait:g} s")
        return 0

    def _start(self, slot: Slot) -> None:
        slot.place.heard_at.value, slot.place.doing.value = 0.0, b""
        slot.process = _SPAWN.Process(target=_alone, args=(self.work, slot.place))
        slot.process.start()
        slot.started = world.monotonic()

    def _running(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.runs]

    def _terminate(self) -> None:
        for slot in self._running():
            slot.process.terminate()

    def _pass_on(self) -> None:
        """Pass on each signal that this process received."""
        if self._notices is not None and not self._told:
            self._notices.stopping()
        while self._told < self._stops:
            self._told += 1
            self._terminate()

    def _renew(self) -> None:
        self.tell("source files have changed: starting anew")
        self._end()
        for slot in self.slots:
            slot.process, slot.start_at, slot.over = None, 0.0, False

    def _end(self) -> None:
        """Stop all, gracefully unless told again."""
        self._terminate()
        stops = self._stops
        while self._running():
            if self._stops > stops:
                stops = self._stops
                self._terminate()
            world.sleep(TURN_SECONDS / 2)

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


def _ended(slot: Slot, code: int) -> str:
    """How a process has ended, and what it handled when it last told."""
    how = f"ended with {code}"
    with contextlib.suppress(ValueError):
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else how
    held = slot.place.doing.value.decode(errors="replace")
    return f"worker process {slot.process.pid} {how}" + (f" as it handled {held}" if held else "")


def _alone(work: Callable[[Membership], object], place: Membership) -> None:
    # An interrupt at the terminal goes to the parent alone, which stops all in order.
    os.setsid()
    work(place)

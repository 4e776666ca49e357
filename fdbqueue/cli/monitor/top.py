"""``fdbq top``: a live view of all queues."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Annotated

import fdbqueue

from ...errors import QueueNotFound
from .. import context, durations, json_schema, terminal
from ..queues import overview
from .top_screen import Controls, Row, Snapshot, draw

TICK_SECONDS = 0.1
DETAILED = 100
"""With more queues than this, only those on the screen get their details read."""
STATUS_SECONDS = 5.0

_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left",
           b"\x1b[5~": "page up", b"\x1b[6~": "page down",
           b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left"}  # fmt: skip


def top(
    interval: Annotated[float, durations.option("Time between two updates.", 0.2)] = 2.0,
) -> None:
    """Watch all queues live: depths, rates and consumers.

    \b
    Keys:
      left, right   sort by another column
      r             reverse the order
      up, down      select a queue, to see its levels and consumers
      PgUp, PgDn    move by ten queues
      /             show only queues whose names contain a text
      ?             help
      space         update now
      q, Ctrl-C     quit

    Rates are messages per second since the previous update. Conflicts are those of the whole
    cluster; the embedded engine does not count them. In a pipe, use fdbq queue list --watch.

    \b
    Example:
      fdbq top --interval 1
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise terminal.CommandError("top needs a terminal: use fdbq queue list --watch 2 instead")
    from rich.text import Text

    from ..screen import Screen

    db = context.connect()
    watcher = Watcher(db, interval)
    controls = Controls()
    with Screen(keys=True) as screen:
        drawn: tuple[object, ...] = ()
        watcher.start()
        try:
            while True:
                snapshot = watcher.snapshot
                late = int(time.time() - snapshot.at) if time.time() - snapshot.at > 10 else 0
                seen = (snapshot.at, screen.size, late, replace(controls))
                if seen != drawn:
                    lines = draw(controls, snapshot, *screen.size, time.time())
                    watcher.wanted = {
                        row.name for row in controls.visible(snapshot.rows, screen.size[1])
                    }
                    screen.draw(
                        Text(line.text, style=line.style, no_wrap=True, overflow="crop")
                        for line in lines
                    )
                    drawn = (*seen[:-1], replace(controls))
                for key in _pressed(TICK_SECONDS):
                    if key == "q" and not controls.typing:
                        return
                    if key == " " and not controls.typing:
                        watcher.hurry.set()
                    controls.press(key, snapshot.rows)
                if watcher.failed is not None:
                    raise watcher.failed
        except KeyboardInterrupt:
            return


def _pressed(seconds: float) -> list[str]:
    """The keys pressed within some seconds."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    if not readable:
        return []
    data = os.read(sys.stdin.fileno(), 64)
    return parse_keys(data) if data else ["q"]  # the terminal has closed


def parse_keys(data: bytes) -> list[str]:
    """Decode the keys that a terminal sent: names of special keys, and characters."""
    keys = []
    while data:
        code = next((code for code in (data[:4], data[:3]) if code in _ARROWS), b"")
        keys.append(_ARROWS.get(code) or ("escape" if data == b"\x1b" else chr(data[0])))
        data = data[len(code) or 1 :]
    return keys


class Watcher:
    """Reads the queues repeatedly in its own thread, so that the screen never blocks."""

    def __init__(self, db: fdbqueue.fdb.Database, interval: float) -> None:
        self.snapshot = Snapshot(str(fdbqueue.describe(db)), time.time(), began=False)
        self.wanted: set[str] = set()
        self.hurry = threading.Event()
        self.failed: BaseException | None = None
        self._db = db
        self._interval = interval
        self._before: dict[str, tuple[float, int, int]] = {}
        self._status: tuple[float, float | None] = (0.0, None)

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="fdbq-top", daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                rows, conflicts = self._rows(), self._conflicts()
                self.snapshot = Snapshot(self.snapshot.store, time.time(), rows, conflicts)
                self.hurry.wait(self._interval)
                self.hurry.clear()
        except BaseException as error:
            self.failed = error

    def _rows(self) -> list[Row]:
        found = [*overview.surveyed(self._db)]
        now = time.monotonic()
        rows = []
        for name, seen in found:
            rate_in, rate_out = self._rates(name, seen, now)
            detailed = len(found) <= DETAILED or name in self.wanted
            oldest_ms, consumers = self._details(name) if detailed else (None, {})
            rows.append(
                Row(name, seen.levels, seen.options.paused, rate_in, rate_out, oldest_ms, consumers)
            )
        return rows

    def _rates(
        self, name: str, seen: fdbqueue.queue.overview.Surveyed, now: float
    ) -> tuple[float, float]:
        depth = seen.depth
        at, enqueued, done = self._before.get(name, (now, depth.enqueued, depth.done))
        self._before[name] = now, depth.enqueued, depth.done
        passed = now - at
        if passed <= 0:
            return 0.0, 0.0
        return max(0, depth.enqueued - enqueued) / passed, max(0, depth.done - done) / passed

    def _details(self, name: str) -> tuple[int | None, dict[str, int]]:
        queue = context.queue(name)
        try:
            oldest = queue.ready_since_ms(self._db)
            present = queue.consumers(self._db)
        except QueueNotFound:  # it was deleted a moment ago
            return None, {}
        states = Counter(json_schema.consumer_state(each) or "registered" for each in present)
        age = None if oldest is None else fdbqueue.Clock().wall_ms() - oldest
        return age, dict(sorted(states.items()))

    def _conflicts(self) -> float | None:
        from fdbqueue.store import status

        read_at, conflicts = self._status
        if time.monotonic() - read_at > STATUS_SECONDS:
            conflicts = status.conflicts(self._db)
            self._status = time.monotonic(), conflicts
        return conflicts

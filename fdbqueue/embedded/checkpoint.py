"""The engine's own schedule for moving SQLite's log into the file.

SQLite would checkpoint inside the commit that passes a thousand pages, and, while a reader holds
an old snapshot, inside every commit from then on. Here a thread does it beside the commits. The
log starts over by itself when a commit finds it wholly moved and no reader in it; where readers
always overlap, the thread holds the commit lock for a moment and waits for them, longer the
larger the log has grown. No reader lasts over five seconds, so the log has a bound.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from .store import StoreFile

# Sixteen mebibytes of log, at a page for each mutation and one more for each commit.
_PAGES_BETWEEN = 4000
_IDLE_SECONDS = 2.0
_MEBIBYTE = 1 << 20
# Log size, and how long to wait for readers so that it can start over: at first as long as other
# processes keep idle snapshots open, then as long as a transaction may read.
_PATIENCE = ((1024 * _MEBIBYTE, 5500), (64 * _MEBIBYTE, 600))
_SHRINK_BYTES = 4 * _MEBIBYTE


class Checkpointer:
    """Moves the log of one store into its file, on a thread of its own.

    Args:
        drop_idle: called before waiting for readers, to close snapshots that nobody uses.
    """

    def __init__(self, file: StoreFile, drop_idle: Callable[[], None]) -> None:
        self._file = file
        self._drop_idle = drop_idle
        self._leaked: sqlite3.Connection | None = None
        self._reset()

    def _reset(self) -> None:
        self._pages = 0
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None

    def note(self, mutations: int) -> None:
        """Note that a group of so many mutations was committed."""
        self._pages += 1 + mutations
        if self._pages >= _PAGES_BETWEEN or self._thread is None:
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="fdbqueue-checkpoint", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        self._connection = self._file.connect()
        at_rest = True
        while True:
            woken = self._wake.wait(None if at_rest else _IDLE_SECONDS)
            self._wake.clear()
            if not woken:
                self._drop_idle()
                small = self._file.log_bytes() <= _SHRINK_BYTES
                at_rest = self._checkpoint("PASSIVE" if small else "TRUNCATE")
                continue
            at_rest = False
            if self._pages < _PAGES_BETWEEN:
                continue
            self._pages = 0
            self._checkpoint("PASSIVE")
            size = self._file.log_bytes()
            for limit, milliseconds in _PATIENCE:
                if size > limit:
                    self._start_over(milliseconds)
                    break

    def _start_over(self, milliseconds: int) -> None:
        self._file.shared.lock()
        try:
            self._drop_idle()
            self._checkpoint("TRUNCATE", milliseconds)
        finally:
            self._file.shared.unlock()

    def _checkpoint(self, mode: str, milliseconds: int = 0) -> bool:
        """Move what can be moved; whether that was all of the log."""
        assert self._connection is not None
        try:
            self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
            row = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error:
            # Nothing is lost: what was not moved stays in the log, and the next turn tries again.
            return False
        busy, logged, moved = row
        return not busy and bool(logged == moved)

    def after_fork(self) -> None:
        """Forget the parent's thread and connection."""
        self._leaked = self._connection
        self._reset()



"""The engine's own schedule for moving SQLite's log into the file.

SQLite would checkpoint inside the commit that passes a thousand pages, and, while a reader holds
an old snapshot, inside every commit from then on. Here a thread does it beside the commits. The
log starts over by itself when a commit finds it wholly moved and no reader in it; where readers
always overlap, the thread holds the commit lock for a moment and waits for them, longer the
larger the log has grown. Where that was in vain, it comes again much later: a reader that is
stopped, by a debugger say, lets the log grow, but takes hardly any time from those who commit.
"""

from __future__ import annotations

import logging
import sqlite3

from ... import world
from ..helpers import Helper
from ..store_errors import EngineError, StoreFileError
from ..transactions.commit_requests import CommitRequest
from .file import PAGE_BYTES, StoreFile
from .snapshots import Snapshots
from .versions import keep_reserve

log = logging.getLogger("fdbqueue.store.embedded")

# Some ten mebibytes of log. A longer one moves pages that are written often less often, but takes
# longer until it is no longer extended, and does not stay in the processor's caches.
_PAGES_BETWEEN = 4_000
_IDLE_SECONDS = 2.0
_MEBIBYTE = 1 << 20
# Log size, and how many milliseconds to wait for readers so that it can start over: at first hardly
# at all, then as long as other processes keep idle snapshots open.
_PATIENCE = ((96 * _MEBIBYTE, 600), (16 * _MEBIBYTE, 5))
# After waiting in vain, how many times as long nobody waits again, at first and at most.
_FIRST_REST, _LONGEST_REST = 32, 1024


class Checkpointer:
    """Moves the log of one store into its file, on a thread of its own.

    Args:
        snapshots: the unused ones are closed before waiting for readers, and unused connections
            when the store becomes idle.
    """

    def __init__(self, file: StoreFile, snapshots: Snapshots) -> None:
        self._file = file
        self._snapshots = snapshots
        self._reset()

    def _reset(self) -> None:
        self._pages = 0
        self._rest, self._rest_until = _FIRST_REST, 0.0
        self._moving = world.Lock()
        self._wake = world.Event()
        self._helper = Helper("fdbqueue-checkpoint", self._turn)
        self._connection: sqlite3.Connection | None = None

    def note(self, requests: list[CommitRequest]) -> None:
        """Note what a group has committed."""
        for request in requests:
            # Rather too many: mutations of one page count each. Too early a turn costs less than a
            # long log.
            self._pages += 1 + len(request.mutations) + request.size // PAGE_BYTES
        if self._pages >= _PAGES_BETWEEN or not self._helper.running:
            self._wake.set()
            try:
                self._helper.start()
            except EngineError as error:
                # The commit is made, and the log only grows until a later one finds a thread.
                log.warning("the log of %s is not moved for now: %s", self._file.path, error)

    def _turn(self) -> bool:
        woken = self._wake.wait(_IDLE_SECONDS)
        # Before anything is looked at: what is noted from here on wakes the next turn.
        self._wake.clear()
        if self._file.shared.closed:
            return self._helper.leave(unless=lambda: False)
        if not woken:
            return self._come_to_rest()
        if self._pages >= _PAGES_BETWEEN:
            self._pages = 0
            keep_reserve(self._file.shared.path)
            self._checkpoint("PASSIVE")
            # What was committed meanwhile, so that little is left to move under the lock.
            self._checkpoint("PASSIVE")
            self._keep_small()
        return False

    def _keep_small(self) -> None:
        size = self._file.log_bytes()
        if world.monotonic() < self._rest_until:
            return
        for limit, milliseconds in _PATIENCE:
            if size > limit:
                if self._start_over(milliseconds):
                    self._rest = _FIRST_REST
                else:
                    # The wait was under the commit lock: resting 32 times as long keeps its share
                    # of the time at 3 %.
                    self._rest_until = world.monotonic() + milliseconds / 1000 * self._rest
                    self._rest = min(self._rest * 2, _LONGEST_REST)
                return

    def _come_to_rest(self) -> bool:
        """After a while without commits, move the rest of the log, close connections, and end."""
        self._snapshots.drop_idle(also_kept=False)
        # Not done while someone commits or reads from the log: the next quiet turn tries again.
        if not self._checkpoint("TRUNCATE"):
            return False
        with self._moving:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        self._snapshots.close_pool()
        # A commit since then has seen this thread running, and counts on it.
        return self._helper.leave(unless=self._wake.is_set)

    def _start_over(self, milliseconds: int) -> bool:
        """Let the log start over; returns whether no reader was in the way for so long."""

        def start_over() -> bool:
            self._snapshots.drop_idle(also_kept=True)
            # It keeps its size: overwriting costs less than extending.
            return self._checkpoint("RESTART", milliseconds)

        return bool(self._file.shared.hold(start_over))

    def _checkpoint(self, mode: str, milliseconds: int = 0) -> bool:
        """Move as much of the log as possible; returns whether that was all."""
        try:
            with self._moving:
                if self._connection is None:
                    self._connection = self._file.connect()
                # It applies to the wait for readers: RESTART asks the busy handler until they are
                # gone.
                self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
                row = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except (sqlite3.Error, StoreFileError):
            # Nothing is lost: the rest stays in the log, and the next turn tries again.
            return False
        busy, logged, moved = row
        return not busy and bool(logged == moved)

    def wake(self) -> None:
        """Make the thread look at once."""
        self._wake.set()

    def before_fork(self) -> None:
        """Close the connection, and open none until after the fork."""
        self._moving.acquire()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def after_fork(self, in_child: bool) -> None:
        """Continue after a fork; the child starts afresh."""
        if in_child:
            self._reset()
        else:
            self._moving.release()

"""What the database says of the time, so that one machine's wrong clock is not believed.

A cluster's controller notes its wall clock and the version every ten seconds
(``\\xff\\x02/timeKeeper``); the embedded engine has the same keys. A process reads the newest note
now and then, and its monotonic clock carries it from there.

Versions carry a note only to the moment at which it is read. They advance by a million a second,
but jump by a hundred seconds at a recovery, which the time keeper notes some seconds later: an old
note says when it is at least, and its version when it is at most. Of a process that has read a
fresh one before, that one still holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from .binding import FAILURES, fdb
from .keys import TIME_KEEPER, parse_time_keeper

BELIEVED_MS = 60_000
"""How far a wall clock may be from what the database says and be believed."""
ASKED_SECONDS = 30.0
"""How often a process asks."""
DOUBTED_SECONDS = 5.0
"""How often it asks while it does not believe its own clock."""
_FRESH_MS = 30_000
_READ_MS = 2_000


@dataclass(frozen=True, slots=True)
class Told:
    """The time by the database, between two bounds, in milliseconds since the epoch.

    at: when it was asked, by the monotonic clock, in seconds.
    """

    least_ms: int
    most_ms: int
    at: float

    @property
    def fresh(self) -> bool:
        """Whether the note was new, so that both bounds are the same."""
        return self.least_ms == self.most_ms

    def later(self, at: float, ahead_ms: int = 0) -> Told:
        """The same at a later moment, when versions have perhaps jumped ahead besides."""
        ms = int((at - self.at) * 1000)
        return Told(self.least_ms + ms, self.most_ms + ms + ahead_ms, at)

    def believes(self, wall_ms: int) -> bool:
        """Whether a wall clock is near enough."""
        return self.least_ms - BELIEVED_MS <= wall_ms <= self.most_ms + BELIEVED_MS


def told(notes: Sequence[tuple[int, int]], version: int, at: float) -> Told | None:
    """What notes, of a wall clock in seconds and a version, say at a version; None if nothing.

    The newest is the one with the highest version: a controller whose clock was ahead has left
    notes of a time to come.
    """
    known = [(noted, seconds) for seconds, noted in notes if noted <= version]
    if not known:
        return None
    noted, seconds = max(known)
    most_ms = seconds * 1000 + (version - noted) // 1000
    fresh = most_ms - seconds * 1000 <= _FRESH_MS
    return Told(most_ms if fresh else seconds * 1000, most_ms, at)


class TimeKeeper:
    """What one database says, as one process knows it."""

    def __init__(self) -> None:
        self._told: Told | None = None
        self._asked_at = -ASKED_SECONDS
        self._asking = threading.Lock()

    def now_ms(self, db: fdb.Database, wall_ms: int, ahead_ms: int = 0) -> int:
        """``wall_ms`` if the database bears it out, or says nothing; else the database's time.

        ahead_ms: how far the database's versions have been moved, by a test.
        """
        for patience in (ASKED_SECONDS, DOUBTED_SECONDS):
            now = time.monotonic()
            if now - self._asked_at >= patience:
                self._ask(db, wall_ms)
                now = time.monotonic()
            if self._told is None:
                return wall_ms
            present = self._told.later(now, ahead_ms)
            if present.believes(wall_ms):
                return wall_ms
        return present.most_ms

    def _ask(self, db: fdb.Database, wall_ms: int) -> None:
        # Who finds another asking goes on with what is known; only the first answer is waited for.
        if not self._asking.acquire(blocking=self._told is None):
            return
        try:
            found = _read(db.create_transaction(), wall_ms)
            if found is not None and (found.fresh or self._told is None or not self._told.fresh):
                self._told = found
            self._asked_at = time.monotonic()
        finally:
            self._asking.release()


def _read(tr: fdb.Transaction, wall_ms: int) -> Told | None:
    """Ask once. Two reads at once: the last note, and the last before this machine's time."""
    try:
        tr.options.set_read_system_keys()
        tr.options.set_read_lock_aware()
        tr.options.set_timeout(_READ_MS)
        own = fdb.tuple.pack((max(0, wall_ms + BELIEVED_MS) // 1000,), TIME_KEEPER)
        ranges = [
            tr.snapshot.get_range(TIME_KEEPER, end, limit=1, reverse=True)
            for end in (TIME_KEEPER + b"\xff", own)
        ]
        notes = [parse_time_keeper(kv) for found in ranges for kv in found]
        return told(notes, tr.get_read_version().wait(), time.monotonic())
    except (*FAILURES, ValueError, TypeError):
        return None


_keepers: WeakKeyDictionary[fdb.Database, TimeKeeper] = WeakKeyDictionary()


def now_ms(db: fdb.Database, wall_ms: int, ahead_ms: int = 0) -> int:
    """The time, as ``TimeKeeper.now_ms`` of a database says it."""
    keeper = _keepers.get(db)
    if keeper is None:
        keeper = _keepers.setdefault(db, TimeKeeper())
    return keeper.now_ms(db, wall_ms, ahead_ms)

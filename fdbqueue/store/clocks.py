"""The clocks that the queue reads: the database's version, and the wall.

One machine's wrong wall clock is not believed. A cluster's controller notes its wall clock and the
version every ten seconds; the embedded engine answers as if it did. A process reads the newest
note now and then, and its monotonic clock carries it from there.

Versions carry a note only to the moment at which it is read. They advance by a million a second,
but jump by a hundred seconds at a recovery, which the time keeper notes some seconds later: an old
note says when it is at least, and its version when it is at most. Of a process that has read a
fresh one before, that one still holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import CorruptData
from .binding import FAILURES, fdb
from .tuple_elements import pack_int, parse_int

VERSIONS_PER_SECOND = 1_000_000
"""FoundationDB's versions advance by about this many a second while the cluster is well."""
METADATA_VERSION = b"\xff/metadataVersion"
"""Comes with the read version, so reading it costs no round trip; written when META is."""
TIME_KEEPER = b"\xff\x02/timeKeeper/map/"
"""Where a cluster notes, every ten seconds, its wall clock and its version."""
BELIEVED_MS = 60_000
"""How far a wall clock may be from what the database says and be believed."""
ASKED_SECONDS = 30.0
"""How often a process asks."""
DOUBTED_SECONDS = 5.0
"""How often it asks while it does not believe its own clock, or was told nothing."""
_FRESH_MS = 30_000
_READ_MS = 2_000


class Moment(NamedTuple):
    """A moment by both clocks: the database's version, and the wall clock in milliseconds."""

    version: int
    wall_ms: int


class Told(NamedTuple):
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
        at, known = time.monotonic(), self._told
        if known is not None and at - self._asked_at < ASKED_SECONDS:
            ms = wall_ms - int((at - known.at) * 1000)
            if known.least_ms - BELIEVED_MS <= ms <= known.most_ms + ahead_ms + BELIEVED_MS:
                return wall_ms
        present = None
        for patience in (ASKED_SECONDS, DOUBTED_SECONDS):
            if self._is_due(patience):
                self._ask(db, wall_ms, patience)
            if self._told is not None:
                present = self._told.later(time.monotonic(), ahead_ms)
                if present.believes(wall_ms):
                    return wall_ms
        return wall_ms if present is None else present.most_ms

    def tells(self, db: fdb.Database, wall_ms: int) -> bool:
        """Whether the database says anything, so that what ``now_ms`` returns is borne out."""
        self.now_ms(db, wall_ms)
        return self._told is not None

    def _is_due(self, patience: float) -> bool:
        return time.monotonic() - self._asked_at >= patience

    def _ask(self, db: fdb.Database, wall_ms: int, patience: float) -> None:
        # Who finds another asking goes on with what is known; only the first answer is waited for.
        if not self._asking.acquire(blocking=self._told is None):
            return
        try:
            if not self._is_due(patience):  # Another asked while this one waited.
                return
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
        own = TIME_KEEPER + pack_int(max(0, wall_ms + BELIEVED_MS) // 1000)
        ranges = [
            tr.snapshot.get_range(TIME_KEEPER, end, limit=1, reverse=True)
            for end in (TIME_KEEPER + b"\xff", own)
        ]
        notes = [parse_note(kv) for found in ranges for kv in found]
        return told(notes, tr.get_read_version().wait(), time.monotonic())
    except (*FAILURES, CorruptData):
        return None


def parse_note(kv: fdb.KeyValue) -> tuple[int, int]:
    """The wall clock of a cluster in seconds, and its version then."""
    return parse_int(kv.key, len(TIME_KEEPER))[0], parse_int(kv.value, 0)[0]


_KEEPER = "_fdbqueue_time_keeper"
"""The attribute of a database that holds its ``TimeKeeper``."""


def _keeper(db: fdb.Database) -> TimeKeeper:
    found: TimeKeeper = db.__dict__.setdefault(_KEEPER, TimeKeeper())
    return found


class Clock:
    """The clocks of this machine and its database; tests replace them.

    Leases, delays and times to live go by ``now_ms``, on which all machines agree to a minute,
    however wrong a machine's own clock is. How long something takes within a process is measured
    by ``time.monotonic``.
    """

    def monotonic(self) -> float:
        """Seconds by a clock that never steps: for durations inside of a process."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """This machine's wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def version(self, tr: fdb.Transaction) -> int:
        """The transaction's read version; the first read of a transaction fetches it anyway."""
        return int(tr.get_read_version().wait()) + self.versions_ahead()

    def versions_ahead(self) -> int:
        """How far ``version`` is ahead of the database; the time of the database is then, too."""
        return 0

    def now_ms(self, tr: fdb.Transaction | fdb.Database) -> int:
        """The time in milliseconds since the epoch, for what other machines will judge.

        That is this machine's wall clock, as long as it is within a minute of what the database
        says (a cluster's time keeper), else the time by the database. A process asks the database
        every half minute, in a transaction of its own. One that says nothing, because its time
        keeper is disabled or the transaction is a tenant's, leaves the wall clock to be believed.
        """
        db = tr.db if isinstance(tr, fdb.Transaction) else tr
        keeper: TimeKeeper = db.__dict__.get(_KEEPER) or _keeper(db)
        return keeper.now_ms(db, self.wall_ms(), self.versions_ahead() // 1000)

    def told(self, tr: fdb.Transaction) -> bool:
        """Whether the database says what time it is, so that ``now_ms`` is right to a minute."""
        return _keeper(tr.db).tells(tr.db, self.wall_ms())


SYSTEM_CLOCK = Clock()

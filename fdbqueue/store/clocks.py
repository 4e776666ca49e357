"""Clocks: the database's version, and the wall clock.

A wrong wall clock on one machine is not believed. Every ten seconds a cluster's time keeper notes
its wall clock and the version; the embedded engine answers as if it did. A process reads the newest
note now and then, and carries it forward by its monotonic clock.

The version carries a note forward only to the moment of the read. Versions advance by a million a
second, but jump by a hundred seconds at a recovery, and the time keeper notes that some seconds
later. So an old note gives a lower bound of the time, and its version an upper bound. A fresh note
that the process read before stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import CorruptData
from . import client, tasks, world
from .binding import FAILURES, fdb, require
from .client import pack_int, parse_int

VERSIONS_PER_SECOND = 1_000_000
"""FoundationDB's versions advance by about this many a second while the cluster is well."""
METADATA_VERSION = b"\xff/metadataVersion"
"""Comes with the read version, without a round trip; every change of META writes it."""
TIME_KEEPER = b"\xff\x02/timeKeeper/map/"
"""The time keeper's notes: every ten seconds, the wall clock and the version."""
BELIEVED_MS = 60_000
"""How far a believed wall clock may be from the database's time."""
ASKED_SECONDS = 30.0
"""How often a process reads the notes."""
DOUBTED_SECONDS = 5.0
"""How often it reads them while it does not believe its own clock, or found none."""
_FRESH_MS = 30_000
_READ_MS = 2_000


class Moment(NamedTuple):
    """A moment by both clocks: the database's version, and the wall clock in milliseconds."""

    version: int
    wall_ms: int


class DatabaseTime(NamedTuple):
    """The database's time, between two bounds, in milliseconds since the epoch.

    at: the moment of the read, in seconds of the monotonic clock.
    """

    least_ms: int
    most_ms: int
    at: float

    @property
    def fresh(self) -> bool:
        """Whether the note was new, so that both bounds are the same."""
        return self.least_ms == self.most_ms

    def later(self, at: float, ahead_ms: int = 0) -> DatabaseTime:
        """The same at a later moment; ``ahead_ms``: how far versions may have jumped."""
        ms = int((at - self.at) * 1000)
        return DatabaseTime(self.least_ms + ms, self.most_ms + ms + ahead_ms, at)

    def believes(self, wall_ms: int) -> bool:
        """Whether a wall clock is close enough."""
        return self.least_ms - BELIEVED_MS <= wall_ms <= self.most_ms + BELIEVED_MS


def told(notes: Sequence[tuple[int, int]], version: int, at: float) -> DatabaseTime | None:
    """The time at a version, by notes of (wall clock in seconds, version); None without notes.

    The newest note is that with the highest version: a time keeper whose clock was ahead left notes
    of future times.
    """
    known = [(noted, seconds) for seconds, noted in notes if noted <= version]
    if not known:
        return None
    noted, seconds = max(known)
    most_ms = seconds * 1000 + (version - noted) // 1000
    fresh = most_ms - seconds * 1000 <= _FRESH_MS
    return DatabaseTime(most_ms if fresh else seconds * 1000, most_ms, at)


class TimeKeeper:
    """The time of one database, as this process knows it."""

    def __init__(self) -> None:
        self.told: DatabaseTime | None = None
        self.asked_at = -ASKED_SECONDS
        self._mutex = world.Lock()
        self._answered: tasks.Event | None = None
        """Set when whoever asks now has an answer; None if nobody asks."""

    def now_ms(self, db: fdb.Database, wall_ms: int, ahead_ms: int = 0) -> int:
        """``wall_ms`` if it is believed or there are no notes; else the database's time.

        ahead_ms: how far a test has moved the database's versions.
        """
        present = None
        for patience in (ASKED_SECONDS, DOUBTED_SECONDS):
            if self._is_due(patience):
                self._ask(db, wall_ms)
            if self.told is not None:
                present = self.told.later(world.monotonic(), ahead_ms)
                if present.believes(wall_ms):
                    return wall_ms
        return wall_ms if present is None else present.most_ms

    def tells(self, db: fdb.Database, wall_ms: int) -> bool:
        """Whether there are notes, so that ``now_ms`` is right to a minute."""
        self.now_ms(db, wall_ms)
        return self.told is not None

    def _is_due(self, patience: float) -> bool:
        return world.monotonic() - self.asked_at >= patience

    def _ask(self, db: fdb.Database, wall_ms: int) -> None:
        # While one thread or task asks, others use what is known; all wait for the first answer.
        mine, others = tasks.Event(), None
        try:
            with self._mutex:
                others = self._answered
                if others is None:
                    self._answered = mine
            if others is not None:
                if self.told is None:
                    others.wait(_READ_MS / 1000)
                return
            found = _read(client.begin(db), wall_ms)
            # An old note gives wide bounds: it must not replace a fresh one that was carried
            # forward.
            if found is not None and (found.fresh or self.told is None or not self.told.fresh):
                self.told = found
            self.asked_at = world.monotonic()
        finally:
            if self._answered is mine:
                self._answered = None
                mine.set()


def _read(tr: fdb.Transaction, wall_ms: int) -> DatabaseTime | None:
    """Read two notes at once: the last one, and the last one before this machine's time."""
    try:
        tr.options.set_read_system_keys()
        tr.options.set_read_lock_aware()
        tr.options.set_timeout(_READ_MS)
        # The last note may be of a time keeper whose clock was ahead; the last before this
        # machine's time is the other candidate.
        own = TIME_KEEPER + pack_int(max(0, wall_ms + BELIEVED_MS) // 1000)
        ranges = [
            tr.snapshot.get_range(TIME_KEEPER, end, limit=1, reverse=True)
            for end in (TIME_KEEPER + b"\xff", own)
        ]
        notes = [parse_note(kv) for found in ranges for kv in found]
        return told(notes, tr.get_read_version().wait(), world.monotonic())
    except (*FAILURES, CorruptData):
        return None


def parse_note(kv: fdb.KeyValue) -> tuple[int, int]:
    """The wall clock, in seconds, and the version of a note."""
    return parse_int(kv.key, len(TIME_KEEPER))[0], parse_int(kv.value, 0)[0]


_KEEPER = "_fdbqueue_time_keeper"
"""The attribute of a database that holds its ``TimeKeeper``."""


def _keeper(db: fdb.Database) -> TimeKeeper:
    require(db)
    found: TimeKeeper = db.__dict__.setdefault(_KEEPER, TimeKeeper())
    return found


class Clock:
    """The clocks of this machine and its database; tests replace them.

    Leases, delays and times to live use ``now_ms``, on which all machines agree to a minute,
    however wrong a machine's own clock is. Durations within a process use ``monotonic``.
    """

    def monotonic(self) -> float:
        """Seconds of a clock that never steps."""
        return world.monotonic()

    def wall_ms(self) -> int:
        """This machine's wall clock in milliseconds since the epoch."""
        return world.time_ns() // 1_000_000

    def version(self, tr: fdb.Transaction) -> int:
        """The transaction's read version, which its first read fetches anyway."""
        return int(tr.get_read_version().wait()) + self.versions_ahead()

    def versions_ahead(self) -> int:
        """How far ``version``, and the database's time with it, is ahead of the database."""
        return 0

    def now_ms(self, tr: fdb.Transaction | fdb.Database) -> int:
        """The time in milliseconds since the epoch, as all machines agree on it.

        This machine's wall clock if it is within a minute of the database's time, else that time. A
        process reads the database's time every half minute, in a transaction of its own. Without
        notes (the time keeper is disabled, or the transaction belongs to a tenant) the wall clock
        is believed.
        """
        db = tr.db if isinstance(tr, fdb.Transaction) else tr
        keeper: TimeKeeper = getattr(db, _KEEPER, None) or _keeper(db)
        known, wall_ms, at = keeper.told, self.wall_ms(), world.monotonic()
        if known is not None and at - keeper.asked_at < ASKED_SECONDS:
            # As ``DatabaseTime.believes``.
            ms = wall_ms - (at - known.at) * 1000
            if known.least_ms - BELIEVED_MS <= ms <= known.most_ms + BELIEVED_MS:
                return wall_ms
        return keeper.now_ms(db, wall_ms, self.versions_ahead() // 1000)

    def told(self, tr: fdb.Transaction) -> bool:
        """Whether the database tells its time, so that ``now_ms`` is right to a minute."""
        return _keeper(tr.db).tells(tr.db, self.wall_ms())


SYSTEM_CLOCK = Clock()

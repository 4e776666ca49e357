"""Snapshots: read transactions of SQLite, shared by the transactions that began at the same state.

A snapshot that is still current serves the next transaction as well, so that reading costs one
statement and not four. An open snapshot keeps SQLite's log from starting over; therefore idle ones
are closed soon, and none outlives the five seconds that a transaction may read.
"""

from __future__ import annotations

import logging
import resource
import sqlite3
import sys
from _thread import allocate_lock as Lock
from collections import deque
from collections.abc import Iterator
from typing import Any

from ... import world
from ..codes import TOO_OLD, Fault
from ..store_errors import EngineError
from ..timers import timers
from . import sampling
from .file import StoreFile, store_error
from .known import KnownValues, remember
from .rows import SIZES, Row
from .versions import ANNOUNCED, FLOOR, TICK_AFTER, TURN, VersionClock

log = logging.getLogger("fdbqueue.store.embedded")

# A transaction reads for at most this long, as on a cluster.
LIFETIME = 5.0
_IDLE_SECONDS = 0.25
_SWEEP_SECONDS = 0.25
_POOLED_CONNECTIONS = 16
_FEWEST_OPEN = 3
_KEPT = 16
# How long to try to get a turn, and how often.
_TURN_SECONDS, _TURN_PAUSE_SECONDS = 1.0, 0.0002
_LARGE_LOG_BYTES = 4 << 20
_LARGEST_PAGE = 4096
_PAGE_BYTES = 256 << 10
# How many keys of a range are measured before a sample stands for the rest.
_MEASURED = 10_000

_NEWEST = "SELECT max(version) FROM recent"


class Snapshot:
    """The state of the store at one moment; several transactions may read it."""

    __slots__ = (
        "_known",
        "_lock",
        "_path",
        "_table",
        "began",
        "cursor",
        "expires",
        "newest",
        "users",
    )

    def __init__(
        self, cursor: sqlite3.Cursor, file: StoreFile, known: KnownValues, now: float
    ) -> None:
        self.cursor: sqlite3.Cursor | None = cursor
        self._path = file.path
        self._table = file.table
        self._lock = Lock()
        self.users = 0
        self.began = now
        self.expires = 0.0
        cursor.execute("BEGIN")
        self.newest: int = cursor.execute(_NEWEST).fetchone()[0]
        self._known = known.at(self.newest)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        with self._lock:
            if self.cursor is None:
                raise Fault(TOO_OLD)
            known = self._known
            if key in known:
                return known[key]
            try:
                value = self._table.get(self.cursor, key)
            except sqlite3.Error as error:
                raise store_error(self._path, error) from error
            remember(known, key, value)
            return value

    def edge(self, begin: bytes, end: bytes, last: bool) -> bytes | None:
        """The first or last key of a range."""
        found, _ = self._page(begin, end, last, 1, 1)
        return found[0][0] if found else None

    def range(
        self, begin: bytes, end: bytes, reverse: bool, rows: int, size: int
    ) -> tuple[list[Row], bool]:
        """The rows of a range, and whether a limit ended them: a number of rows (0: none) or of
        bytes (-1: none)."""
        bytes_limit = size if size >= 0 else sys.maxsize
        found, left = self._page(begin, end, reverse, rows or -1, bytes_limit)
        return found, left <= 0 or (rows > 0 and len(found) == rows)

    def rows(
        self, begin: bytes, end: bytes, reverse: bool = False, rows: int = 0, size: int = 0
    ) -> Iterator[Row]:
        """The keys and values of a range, in order or in reverse order.

        Args:
            rows, size: how many rows, and bytes, the caller takes at most, if it knows; a long
                range is read in pages of that size.
        """
        rows = wanted = rows or _LARGEST_PAGE
        size = size or _PAGE_BYTES
        while begin < end:
            page, left = self._page(begin, end, reverse, wanted, size)
            yield from page
            # Neither limit was reached, so the range has ended.
            if left > 0 and len(page) < wanted:
                return
            # More is needed only if own writes hide some of the rows.
            wanted = wanted - len(page) or rows
            if reverse:
                end = page[-1][0]
            else:
                begin = page[-1][0] + b"\0"

    def _page(
        self, begin: bytes, end: bytes, reverse: bool, count: int, size: int
    ) -> tuple[list[Row], int]:
        """The next rows of a range, and how many bytes they leave of a size."""
        with self._lock:
            if self.cursor is None:
                raise Fault(TOO_OLD)
            try:
                return self._table.page(self.cursor, begin, end, reverse, count, size)
            except sqlite3.Error as error:
                raise store_error(self._path, error) from error

    def sizes(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, int]]:
        """The keys of a range with the size of each key and value together.

        Of a long range the first thousands, and then a sample that represents the rest.
        """
        keys = self._sizes(SIZES, (begin, end, _MEASURED))
        yield from keys
        if len(keys) == _MEASURED:
            sample = self._sizes(sampling.IN_RANGE, (keys[-1][0] + b"\0", end))
            yield from ((key, size * sampling.SHARE) for key, size in sample)

    def _sizes(self, statement: str, arguments: tuple[Any, ...]) -> list[tuple[bytes, int]]:
        with self._lock:
            if self.cursor is None:
                raise Fault(TOO_OLD)
            try:
                return self.cursor.execute(statement, arguments).fetchall()
            except sqlite3.Error as error:
                raise store_error(self._path, error) from error

    def end(self) -> sqlite3.Cursor | None:
        """End the snapshot; returns its cursor, or None if that is unusable."""
        with self._lock:
            cursor, self.cursor = self.cursor, None
            if cursor is not None:
                try:
                    cursor.execute("ROLLBACK")
                except sqlite3.Error as error:
                    log.warning("dropping a connection: %s", error)
                    cursor.close()
                    cursor.connection.close()
                    return None
        return cursor


def _most_open() -> int:
    """How many snapshots may be open; with two descriptors each, they use half of the limit."""
    return max(_FEWEST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


class Snapshots:
    """The open snapshots of one store in this process.

    Attributes:
        current: the newest snapshot, which the next transaction may share, or None.
        known: what the snapshots and commits of this process share of what they read.
    """

    def __init__(self, file: StoreFile, clock: VersionClock) -> None:
        self._file = file
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        self._lock = world.Lock()
        self.current: Snapshot | None = None
        # In order of their beginning.
        self._open: dict[Snapshot, None] = {}
        self.known = KnownValues()
        self._released: deque[Snapshot] = deque()
        self._kept: deque[Snapshot] = deque()
        # Cursors, each on a connection of its own.
        self._pool: list[sqlite3.Cursor] = []
        self._sweeping = False

    def acquire(self) -> tuple[Snapshot, int]:
        """A snapshot of everything committed, and its read version."""
        words = self._file.shared.words
        nanoseconds = world.monotonic_ns()
        now = nanoseconds * 1e-9
        behind = self._clock.base + nanoseconds // 1000 - words[FLOOR]
        # The version of a reader must not be much older than the present, or leases and limits by
        # version would last too long.
        if behind > TICK_AFTER:
            self._tick()
        elif behind < 0:
            self._clock.catch_up(words[FLOOR])
        with self._lock:
            if self._released:
                self._drop_released()
            # Before the snapshot is begun: what that lacks has then committed at a version above
            # the floor.
            floor = words[FLOOR]
            snapshot = self.current
            if (
                snapshot is None
                or snapshot.newest != words[ANNOUNCED]
                or snapshot.cursor is None
                # A checkpoint that holds the commit lock until old readers are gone must not be
                # kept waiting by one that is used again and again.
                or now - snapshot.began > _IDLE_SECONDS
            ):
                if snapshot is not None and snapshot.users == 0:
                    self._close(snapshot)
                snapshot = self.current = self._begin(now)
            snapshot.users += 1
            snapshot.expires = now + LIFETIME
            if not self._sweeping:
                self._sweep_later()
            return snapshot, max(snapshot.newest, floor)

    def take_turn(self, seconds: float) -> int:
        """Let no commit be made for so long, but those that give what this returns; 0 if that could
        not be had. A snapshot that is taken then stays the newest."""
        shared, until = self._file.shared, world.monotonic() + _TURN_SECONDS

        def take() -> int:
            if shared.is_turn():
                return 0
            shared.words[TURN] = world.monotonic_ns() + int(seconds * 1e9)
            return shared.words[TURN]

        while world.monotonic() < until:
            turn = shared.hold(take, wait=False)
            if turn or shared.closed:
                return turn or 0
            world.sleep(_TURN_PAUSE_SECONDS)
        return 0

    def acquire_at(self, version: int) -> Snapshot | None:
        """An open snapshot that is exactly the state at a version, if there is one.

        The current state qualifies if nothing was committed after the version; an older open
        snapshot does if the commit that ended its time came after the version.
        """
        current, read_version = self.acquire()
        # Nothing was committed between: the current state is that of the version.
        if current.newest <= version <= read_version:
            return current
        self.release(current)
        if version > read_version:
            return None
        with self._lock:
            older = [s for s in self._open if s.newest <= version and s.cursor is not None]
            if not older:
                return None
            best = max(older, key=lambda s: s.newest)
            if self._committed_between(best.newest, version):
                return None
            best.users += 1
            return best

    def _committed_between(self, after: int, upto: int) -> bool:
        try:
            cursor = self._pool.pop() if self._pool else self._file.connect().cursor()
            row = cursor.execute(
                "SELECT 1 FROM recent WHERE version > ? AND version <= ? LIMIT 1", (after, upto)
            ).fetchone()
        except sqlite3.Error as error:
            raise store_error(self._file.path, error) from error
        self._pool.append(cursor)
        return row is not None

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot whose read version the program knows, and may ask for again.

        Keeps a few, and only while the log is small, because it cannot start over under them.
        """
        with self._lock:
            if snapshot in self._kept or snapshot.cursor is None:
                return
            snapshot.users += 1
            self._kept.append(snapshot)
            if len(self._kept) > _KEPT:
                self._released.append(self._kept.popleft())
                self._drop_released()

    def _drop_kept(self) -> None:
        self._released.extend(self._kept)
        self._kept.clear()

    def release(self, snapshot: Snapshot) -> None:
        """Release a snapshot after a transaction."""
        # The garbage collector may destroy a transaction while this thread holds the lock; so the
        # next call, or the sweep, finds the snapshot in the queue.
        self._released.append(snapshot)

    def lend(self) -> tuple[sqlite3.Cursor, int]:
        """A cursor to commit with, until `take_back`, and the newest version that it sees.

        If the current snapshot has no users, it is its cursor, still in its transaction: SQLite
        keeps what it has read of the file. Otherwise the version is 0, and there is no transaction.
        """
        with self._lock:
            self._drop_released()
            snapshot = self.current
            if snapshot is not None and snapshot.users == 0 and snapshot.cursor is not None:
                self.current = None
                self._open.pop(snapshot, None)
                cursor, snapshot.cursor = snapshot.cursor, None
                return cursor, snapshot.newest
            return (self._pool.pop() if self._pool else self._file.connect().cursor()), 0

    def take_back(self, cursor: sqlite3.Cursor) -> None:
        """Take back a cursor, whose transaction is over."""
        with self._lock:
            self._pool.append(cursor)

    def _drop_released(self) -> None:
        while self._released:
            snapshot = self._released.popleft()
            snapshot.users -= 1
            if snapshot.users == 0 and snapshot is not self.current:
                self._close(snapshot)

    def _begin(self, now: float) -> Snapshot:
        if len(self._open) >= _FEWEST_OPEN and len(self._open) >= _most_open():
            # Its transactions find themselves too old, and are retried.
            self._close(next(iter(self._open)))
        try:
            cursor = self._pool.pop() if self._pool else self._file.connect().cursor()
            snapshot = Snapshot(cursor, self._file, self.known, now)
        except sqlite3.Error as error:
            raise store_error(self._file.path, error) from error
        self._open[snapshot] = None
        return snapshot

    def _close(self, snapshot: Snapshot) -> None:
        if snapshot is self.current:
            self.current = None
        self._open.pop(snapshot, None)
        cursor = snapshot.end()
        if cursor is None:
            return
        if len(self._pool) < min(_POOLED_CONNECTIONS, _most_open()):
            self._pool.append(cursor)
        else:
            cursor.connection.close()

    def drop_idle(self, also_kept: bool) -> None:
        """Close unused snapshots, so that a checkpoint can complete."""
        with self._lock:
            if also_kept:
                self._drop_kept()
            self._drop_released()
            if self.current is not None and self.current.users == 0:
                self._close(self.current)

    def _sweep(self) -> None:
        now = world.monotonic()
        with self._lock:
            self._sweeping = False
            if self._kept and self._file.log_bytes() > _LARGE_LOG_BYTES:
                self._drop_kept()
            while self._kept and now > self._kept[0].expires:
                self._released.append(self._kept.popleft())
            self._drop_released()
            for snapshot in list(self._open):
                unused = 0.0 if snapshot.users else LIFETIME - _IDLE_SECONDS
                if now > snapshot.expires - unused:
                    self._close(snapshot)
            if self._open:
                self._sweep_later()

    def _sweep_later(self) -> None:
        try:
            timers.call_later(_SWEEP_SECONDS, self._sweep)
            self._sweeping = True
        except EngineError as error:
            # The next transaction tries again; until then idle snapshots stay open.
            log.warning("idle snapshots stay open for now: %s", error)

    def _tick(self) -> None:
        """Advance the floor to the present, unless someone is committing just now."""
        shared = self._file.shared
        shared.hold(lambda: shared.raise_floor(self._clock.now()), wait=False)

    def close_pool(self) -> None:
        """Close the connections that no snapshot uses."""
        with self._lock:
            self._close_pool()

    def _close_pool(self) -> None:
        while self._pool:
            self._pool.pop().connection.close()

    def before_fork(self) -> None:
        """Close every connection, used or not, and open none until after the fork."""
        # Held over the fork: a lock that another thread holds at that moment would stay held in the
        # child for ever.
        self._lock.acquire()
        self._drop_kept()
        self._drop_released()
        for snapshot in list(self._open):
            self._close(snapshot)
        self._close_pool()

    def after_fork(self, in_child: bool) -> None:
        """Continue after a fork; the child starts afresh."""
        if in_child:
            self._reset()
        else:
            self._lock.release()

"""One group of requests as one transaction of SQLite: the check for conflicts, and the statements.

Everything here happens under the commit lock.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable

from ... import world
from ..codes import NOT_COMMITTED, TOO_OLD, Fault
from ..store_errors import StoreFailed
from ..transactions import atomic
from ..transactions.commit_requests import CommitRequest
from . import rows, sampling
from .conflicts import RecentCommits, encode, has_ranges
from .file import StoreFile, store_error
from .known import Values
from .snapshots import Snapshots
from .versions import (
    ANNOUNCED,
    FLOOR,
    RANGES,
    SLEEPERS,
    TOUCHED,
    UNLOGGED,
    VERSIONS_PER_SECOND,
    VersionClock,
    slot_of,
)

log = logging.getLogger("fdbqueue.store.embedded")

# Longer than a transaction may live, so that no live one finds the log cut short.
_KEEP_VERSIONS = 10 * VERSIONS_PER_SECOND
_TRIM_EVERY = 256
# Some hundred thousand years of versions; SQLite's numbers end at twice as many.
_LAST_VERSION = 1 << 62
# A look at the size of the log takes longer than some commits that extend it.
_EXTEND_EVERY = 8

_LOG = "INSERT INTO recent (version, written) VALUES (?, ?)"
_LOGGED = "SELECT 1 FROM recent WHERE version = ?"
_LOG_FROM = "SELECT version, written FROM recent WHERE version >= ? ORDER BY version"
# The newest commit before that stays: it may be the last one that a process knows, and its version
# must stay readable.
_LOG_TRIM = "DELETE FROM recent WHERE version < (SELECT max(version) FROM recent WHERE version < ?)"


class Writer:
    """Writes groups to one store, each with a cursor that the snapshots lend."""

    def __init__(self, file: StoreFile, clock: VersionClock, snapshots: Snapshots) -> None:
        self._file = file
        self._clock = clock
        self._snapshots = snapshots
        self._recent = RecentCommits(file.newest)
        self._groups = 0
        self._lent: sqlite3.Cursor | None = None
        self.seconds = 0.0
        """How long SQLite took for the last commit."""

    def _judge(self, request: CommitRequest, accepted: list[CommitRequest]) -> int:
        """The error code that a request must fail with, or 0."""
        read_version, reads = request.read_version, request.reads
        if read_version is None or not reads:
            return 0
        # What was written before is not in the log any more: whether it conflicts cannot be told.
        if read_version < self._recent.complete_from:
            return TOO_OLD
        later = self._recent.since(read_version, reads)
        if accepted:
            later = later + [earlier.writes for earlier in accepted]
        touching = (written for written in later if written.intersects(reads))
        if request.report:
            request.conflicting = list(touching)
            return NOT_COMMITTED if request.conflicting else 0
        return NOT_COMMITTED if next(touching, None) is not None else 0

    def made(self, version: int) -> bool:
        """Whether the commit of a version was made."""
        cursor, sees = self._snapshots.lend()
        if sees:
            cursor.execute("ROLLBACK")
        try:
            made = cursor.execute(_LOGGED, (version,)).fetchone() is not None
        except sqlite3.Error as error:
            raise store_error(self._file.path, error) from error
        self._snapshots.take_back(cursor)
        return made

    @property
    def oldest(self) -> int:
        """The version that a transaction must have read at, or after, to be judged."""
        return self._recent.complete_from

    def write(
        self, group: list[CommitRequest], note: Callable[[int], None] | None = None
    ) -> list[CommitRequest]:
        """Commit a group; returns those that are made. Each of the others has its error.

        note: called with the version when all outcomes are known, before the commit is made.

        Raises:
            sqlite3.Error: nothing of the group is committed.
        """
        words = self._file.shared.words
        # No call stands between these two: else whom an interruption hits here would leave the
        # cursor to nobody.
        self._lent, sees = self._snapshots.lend()
        cursor = self._lent
        try:
            # Its cursor still reads the newest state, and may write from there without a new
            # transaction.
            if sees != words[ANNOUNCED]:
                _begin(cursor)
            accepted = self._write(cursor, group, note)
        except BaseException:
            self.give_up()
            raise
        self._lent = None
        self._snapshots.take_back(cursor)
        return accepted

    def give_up(self) -> None:
        """Undo what was begun and not committed, as if this process had died there."""
        cursor = self._lent
        if cursor is None:
            return
        # Unless it was closed, and the rest interrupted.
        with contextlib.suppress(sqlite3.ProgrammingError):
            if cursor.connection.in_transaction:
                _roll_back(cursor)
                # It announced a commit that will not come: others would wait for it.
                self._file.shared.words[ANNOUNCED] = self._recent.newest
            cursor.connection.close()
        self._lent = None

    def _write(
        self,
        cursor: sqlite3.Cursor,
        group: list[CommitRequest],
        note: Callable[[int], None] | None,
    ) -> list[CommitRequest]:
        recent, shared = self._recent, self._file.shared
        words, version = shared.words, self._next_version(cursor)
        accepted = self._accepted(group, version)
        if note is not None:
            # Before the commit: if this process dies right after it, the outcomes are there.
            note(version)
        if not accepted:
            cursor.execute("ROLLBACK")
            return accepted
        known = self._snapshots.known
        values = known.after(recent.newest)
        try:
            record = _store(cursor, accepted, version, self._file.table, values)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            # A checkpoint has started the log over since the snapshot was taken.
            _begin(cursor)
            values = known.after(recent.newest)
            record = _store(cursor, accepted, version, self._file.table, values)
        self._groups += 1
        # Also after the first: many processes make only a few.
        if self._groups % _TRIM_EVERY == 1:
            cursor.execute(_LOG_TRIM, (version - _KEEP_VERSIONS,))
            recent.trim(version - _KEEP_VERSIONS)
        # Before the slots and the commit, so that no reader takes a state for current that this
        # commit is about to replace.
        words[ANNOUNCED] = version
        try:
            for request in accepted:
                for slot in request.slots if request.plain else _slots(request):
                    words[slot] += 1
        except ValueError as error:  # One is as high as it can be.
            raise self._senseless() from error
        words[TOUCHED] = version
        if self._groups % _EXTEND_EVERY == 1 and self._file.synchronous == "full":
            self._file.extend_log()
        begun = world.monotonic()
        cursor.execute("COMMIT")
        self.seconds = world.monotonic() - begun
        if words[SLEEPERS]:
            shared.wake()
        recent.append(version, accepted[0].writes if len(accepted) == 1 else record)
        known.learn(version, values)
        words[FLOOR] = version
        for request in accepted:
            request.version = version
        return accepted

    def _next_version(self, cursor: sqlite3.Cursor) -> int:
        """The version of the next commit. Learns of those of other processes."""
        recent, words = self._recent, self._file.shared.words
        if words[ANNOUNCED] != recent.newest:
            recent.top_up(cursor.execute(_LOG_FROM, (recent.newest,)))
            recent.trim(recent.newest - _KEEP_VERSIONS)
        version = self._clock.now()
        # Above those of commits that failed, too: watches take the number touched for seen.
        if version <= recent.newest or version <= words[FLOOR] or version <= words[TOUCHED]:
            version = max(recent.newest, words[FLOOR], words[TOUCHED]) + 1
            self._clock.catch_up(version)
        # The clock may have caught up with such a number before.
        if version > _LAST_VERSION:
            raise self._senseless()
        return version

    def _accepted(self, group: list[CommitRequest], version: int) -> list[CommitRequest]:
        """Those of a group that conflict with nothing, in their order, stamped with the version;
        the others are refused."""
        accepted: list[CommitRequest] = []
        for request in group:
            # Nothing was committed since it read: then only its own group can conflict with it.
            stale = request.read_version is not None and request.read_version < self._recent.newest
            refusal = self._judge(request, accepted) if stale or accepted else 0
            if refusal:
                request.error = Fault(refusal)
            else:
                request.order = len(accepted)
                if not request.plain:
                    request.stamp(version)
                accepted.append(request)
        return accepted

    def _senseless(self) -> StoreFailed:
        return StoreFailed(self._file.path, "its -lock file makes no sense; remove it")


def _roll_back(cursor: sqlite3.Cursor) -> None:
    try:
        cursor.execute("ROLLBACK")
    except sqlite3.Error as error:
        # To close it undoes as much, once it runs no statement.
        log.warning("a connection is given up: %s", error)
        cursor.close()


def _begin(cursor: sqlite3.Cursor) -> None:
    """Begin to write at the newest state."""
    if cursor.connection.in_transaction:
        cursor.execute("ROLLBACK")
    cursor.execute("BEGIN IMMEDIATE")


def _store(
    cursor: sqlite3.Cursor,
    accepted: list[CommitRequest],
    version: int,
    table: rows.Table,
    values: Values,
) -> bytes:
    """Apply requests, and add their line to the log; returns the line."""
    for request in accepted:
        if request.plain:
            if request.clears:
                cursor.executemany(rows.CLEAR, request.clears)
                for (key,) in request.clears:
                    if key in values:
                        values[key] = None
            written = [*request.rows]
            for key, value, _ in written:
                if key in values:
                    values[key] = value
            for op, key, operand in request.changes:
                row = _change(cursor, op, key, operand, table, values)
                if row is not None:
                    written.append(row)
            if written:
                cursor.executemany(rows.SET, written)
            if request.sampled:
                sampling.note(cursor, request.sampled)
        else:
            _apply(cursor, request, table, values)
            request.record = encode(request.writes)
    record = accepted[0].record
    if len(accepted) > 1:
        # Those with ranges first, so that the first byte tells whether there are any.
        records = sorted((request.record for request in accepted), key=has_ranges, reverse=True)
        record = b"".join(records)
    cursor.execute(_LOG, (version, record))
    return record


def _slots(request: CommitRequest) -> Iterable[int]:
    """The slots of what a request writes, each once.

    Not of its conflict ranges: a write without one also wakes watches.
    """
    slots = set()
    logged = request.writes.ranges
    for op, key, operand in request.mutations:
        if op == atomic.CLEAR_RANGE and operand not in (None, key + b"\0"):
            slots.add(RANGES)
            if next(logged.gaps(key, operand), None) is not None:
                slots.add(UNLOGGED)
        else:
            slots.add(slot_of(key))
    return slots


def _apply(
    cursor: sqlite3.Cursor, request: CommitRequest, table: rows.Table, values: Values
) -> None:
    """Apply mutations of any type one by one."""
    for op, key, operand in request.mutations:
        if op == atomic.CLEAR_RANGE and operand is not None:
            cursor.execute(rows.CLEAR_RANGE, (key, operand))
            sampling.note_clear_range(cursor, key, operand)
            # Which of the known keys lie in the range is not worth a look: all are read again.
            values.clear()
            continue
        if op not in (atomic.SET, atomic.CLEAR_RANGE):
            row = _change(cursor, op, key, operand, table, values)
            value = values[key]
        else:
            value = operand
            row = None if value is None else (key, value, rows.checksum(key, value))
            if key in values:
                values[key] = value
        if row is not None:
            cursor.execute(rows.SET, row)
        elif value is None:
            cursor.execute(rows.CLEAR, (key,))
        if sampling.chosen(key):
            sampling.note(cursor, [(key, None if value is None else len(key) + len(value))])


def _change(
    cursor: sqlite3.Cursor,
    op: int,
    key: bytes,
    operand: bytes | None,
    table: rows.Table,
    values: Values,
) -> tuple[bytes, bytes, int] | None:
    """What an atomic operation makes of a key, which is known then; returns the row, or None if the
    value stays as it was, or goes.

    Not as a function that SQLite calls: that would swallow what a signal handler raises in it.
    """
    old = values[key] if key in values else table.get(cursor, key)
    # However long it is, and however many there are: the same transaction may change it again.
    value = values[key] = atomic.apply(op, old, operand)
    if value is None or value == old:
        return None
    return key, value, rows.checksum(key, value)

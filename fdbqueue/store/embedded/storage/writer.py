"""One group of requests as one transaction of SQLite: the check for conflicts, and the statements.

Everything here happens under the commit lock.
"""

from __future__ import annotations

import logging
import sqlite3

from ..codes import NOT_COMMITTED, TOO_OLD, Fault
from ..transactions import atomic
from ..transactions.commit_requests import CommitRequest
from ..transactions.ranges import KeySet
from . import sampling
from .conflicts import RecentCommits, encode
from .file import StoreFile
from .versions import ANNOUNCED, FLOOR, RANGES, TOUCHED, VERSIONS_PER_SECOND, Clock, slot_of

log = logging.getLogger("fdbqueue.store.embedded")

# Longer than a transaction may live, so that no live one finds the log cut short.
_KEEP_VERSIONS = 10 * VERSIONS_PER_SECOND
_TRIM_EVERY = 256

_GET = "SELECT v FROM kv WHERE k = ?"
_SET = "INSERT INTO kv VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
_CLEAR = "DELETE FROM kv WHERE k = ?"
_CLEAR_RANGE = "DELETE FROM kv WHERE k >= ? AND k < ?"
_LOG = "INSERT INTO recent VALUES (?, ?)"
_LOG_FROM = "SELECT version, written FROM recent WHERE version >= ? ORDER BY version"
# The newest commit before that stays: it may be the last one that a process knows, and its version
# must stay readable.
_LOG_TRIM = "DELETE FROM recent WHERE version < (SELECT max(version) FROM recent WHERE version < ?)"
_BULK_FROM = 4


Written = tuple[KeySet, int, int]
"""What a group wrote: its keys, and how many mutations and bytes."""


class Writer:
    """Writes groups to one store, on a connection of its own."""

    def __init__(self, file: StoreFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._recent = RecentCommits(file.newest)
        self.reset()

    def reset(self) -> None:
        """Forget the connection, which a forked child must not use."""
        self._connection: sqlite3.Connection | None = None
        self._groups = 0

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _roll_back(self, cursor: sqlite3.Cursor) -> None:
        try:
            cursor.execute("ROLLBACK")
        except sqlite3.Error as error:
            # To close it undoes as much, and the next group gets another one.
            log.warning("a connection is given up: %s", error)
            self.close()

    def _judge(self, request: CommitRequest, accepted: list[CommitRequest]) -> int:
        """The error code that a request must fail with, or 0."""
        read_version, reads = request.read_version, request.reads
        if read_version is None or not reads:
            return 0
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

    def write(self, group: list[CommitRequest]) -> Written | None:
        """Commit a group; returns None if every request is refused, with the reason in each.

        Raises:
            sqlite3.Error: nothing of the group is committed.
        """
        shared = self._file.shared
        recent = self._recent
        connection = self._connection
        if connection is None:
            connection = self._connection = self._file.connect()
            self._cursor = connection.cursor()
        cursor = self._cursor
        cursor.execute("BEGIN IMMEDIATE")
        try:
            if shared.words[ANNOUNCED] != recent.newest:
                recent.top_up(cursor.execute(_LOG_FROM, (recent.newest,)))
                recent.trim(recent.newest - _KEEP_VERSIONS)
            version = self._clock.now()
            least = max(recent.newest, shared.words[FLOOR]) + 1
            if version < least:
                version = least
                self._clock.catch_up(version)
            accepted: list[CommitRequest] = []
            for request in group:
                refusal = self._judge(request, accepted)
                if refusal:
                    request.error = Fault(refusal)
                else:
                    if accepted:
                        request.order = len(accepted)
                    _apply(cursor, request, version)
                    accepted.append(request)
            if not accepted:
                cursor.execute("ROLLBACK")
                return None
            written = accepted[0].writes
            if len(accepted) > 1:
                written = _union(accepted)
            cursor.execute(_LOG, (version, encode(written)))
            self._groups += 1
            # Also after the first: many processes make only a few.
            if self._groups % _TRIM_EVERY == 1:
                cursor.execute(_LOG_TRIM, (version - _KEEP_VERSIONS,))
                recent.trim(version - _KEEP_VERSIONS)
            shared.words[ANNOUNCED] = version
            for request in accepted:
                _touch(shared.words, request, version)
            shared.words[TOUCHED] = version
            cursor.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                self._roll_back(cursor)
                shared.words[ANNOUNCED] = recent.newest
            raise
        recent.append(version, written)
        shared.raise_floor(version)
        mutations = size = 0
        for request in accepted:
            request.version = version
            mutations += len(request.mutations)
            size += request.size
        return written, mutations, size


def _union(requests: list[CommitRequest]) -> KeySet:
    union = KeySet()
    for request in requests:
        union.update(request.writes)
    return union


def _touch(words: memoryview[int], request: CommitRequest, version: int) -> None:
    """Raise the slots of what a request writes, each once.

    Not of its conflict ranges: a write without one also wakes watches.
    """
    mutations = request.mutations
    if len(mutations) == 1 and mutations[0][0] == atomic.SET:
        words[slot_of(mutations[0][1])] += 1
        return
    slots = set()
    for op, key, operand in mutations:
        if op == atomic.CLEAR_RANGE and operand is not None:
            slots.add(RANGES)
        elif op == atomic.SET_VERSIONSTAMPED_KEY:
            slots.add(slot_of(atomic.stamped(key, atomic.stamp(version, request.order))))
        else:
            slots.add(slot_of(key))
    for slot in slots:
        words[slot] += 1


def _apply(cursor: sqlite3.Cursor, request: CommitRequest, version: int) -> None:
    mutations = request.mutations
    if len(mutations) > _BULK_FROM and all(op == atomic.SET for op, _, _ in mutations):
        rows = [(key, operand) for _, key, operand in mutations if operand is not None]
        cursor.executemany(_SET, rows)
        sampling.note_set(cursor, rows)
        return
    for op, name, operand in mutations:
        key, value = name, operand
        if op == atomic.SET:
            pass
        elif op == atomic.CLEAR_RANGE:
            if operand is not None:
                cursor.execute(_CLEAR_RANGE, (key, operand))
                sampling.note_clear_range(cursor, key, operand)
                continue
        elif op == atomic.SET_VERSIONSTAMPED_VALUE:
            assert operand is not None
            value = atomic.stamped(operand, atomic.stamp(version, request.order))
        elif op == atomic.SET_VERSIONSTAMPED_KEY:
            key = atomic.stamped(name, atomic.stamp(version, request.order))
            request.writes.keys.add(key)
        else:
            row = cursor.execute(_GET, (key,)).fetchone()
            old = None if row is None else row[0]
            value = atomic.apply(op, old, operand)
            if value == old:
                continue
        if value is None:
            cursor.execute(_CLEAR, (key,))
            sampling.note_clear(cursor, key)
        else:
            cursor.execute(_SET, (key, value))
            if sampling.chosen(key):
                sampling.note_set(cursor, [(key, value)])

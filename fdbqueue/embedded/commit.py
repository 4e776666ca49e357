"""Commits: the check for conflicts, and one SQLite transaction for all threads that wait.

The thread that finds nobody committing becomes the leader. It commits every request that is
waiting, with one transaction of SQLite and one fsync, as the proxies of a cluster batch; whoever
arrives meanwhile forms the next group. A request that conflicts is left out of its group, and a
failure of SQLite in a group is retried request by request, so that it hits only its cause.

The fsync follows after the commit lock is given back, so that processes do not wait for each
other's. Until it is done, others may see a commit that a crash of the machine could undo; but
then it has not returned, and whatever they commit on top of it stands behind it in the same log,
so that none of theirs is durable without it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

from . import atomic
from .codes import COMMIT_UNKNOWN, NOT_COMMITTED, TOO_OLD, Fault
from .conflicts import RecentCommits, encode
from .ranges import KeySet
from .store import StoreFile, store_error, sync
from .versions import ANNOUNCED, FLOOR, VERSIONS_PER_SECOND, Clock

Mutation = tuple[int, bytes, bytes | None]
"""Type, key, and operand; for CLEAR_RANGE the end of the range, or None for the one key."""

# Longer than a transaction may live, so that no live one finds the log cut short.
_KEEP_VERSIONS = 10 * VERSIONS_PER_SECOND
_TRIM_EVERY = 256

_GET = "SELECT v FROM kv WHERE k = ?"
_SET = "INSERT INTO kv VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
_CLEAR = "DELETE FROM kv WHERE k = ?"
_CLEAR_RANGE = "DELETE FROM kv WHERE k >= ? AND k < ?"
_LOG = "INSERT INTO recent VALUES (?, ?)"
_LOG_FROM = "SELECT version, written FROM recent WHERE version >= ? ORDER BY version"
_LOG_TRIM = "DELETE FROM recent WHERE version < ?"
_BULK_FROM = 4
_GATHER_SHARE = 0.5
_GATHER_STEP = 0.00005


class CommitRequest:
    """What a transaction asks to commit, and what became of it."""

    # The outcome; class attributes, because most requests change few of them.
    conflicting: Sequence[KeySet] = ()
    version = -1
    order = 0
    error: BaseException | None = None
    done = False
    turn: threading.Lock | None = None

    def __init__(
        self,
        read_version: int | None,
        reads: KeySet,
        writes: KeySet,
        mutations: Sequence[Mutation],
        size: int,
        report: bool = False,
    ) -> None:
        self.read_version = read_version
        self.reads = reads
        self.writes = writes
        self.mutations = mutations
        self.size = size
        self.report = report


class Committer:
    """Commits requests to one store, one group at a time.

    Args:
        committed: called after each group, outside of all locks, with what it wrote.
        wrote: called with the number of mutations and bytes of each group.
    """

    def __init__(
        self,
        file: StoreFile,
        clock: Clock,
        committed: Callable[[KeySet], None],
        wrote: Callable[[int, int], None],
    ) -> None:
        self._file = file
        self._clock = clock
        self._committed = committed
        self._wrote = wrote
        self._recent = RecentCommits(file.newest)
        self._reset()

    def _reset(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: list[CommitRequest] = []
        self._leading = False
        # How many threads took part in the last group or waited behind it, and how long it took.
        self._expected = 1
        self._seconds = 0.0
        self._connection: sqlite3.Connection | None = None
        self._log: int | None = None
        self._groups = 0

    def commit(self, request: CommitRequest) -> None:
        """Commit a request; returns when it is done, with its outcome in the request."""
        with self._mutex:
            self._waiting.append(request)
            if self._leading:
                request.turn = threading.Lock()
                request.turn.acquire()
            else:
                self._leading = True
        if request.turn is not None:
            # Released when the request is done, or when it is this thread's turn to lead.
            request.turn.acquire()
            if request.done:
                return
        self._lead(request)

    def _gather(self) -> None:
        """Wait a moment for the threads that took part last time, so that they share one fsync.

        Without this two half groups alternate, and each pays for a whole fsync. A thread that
        commits alone never waits here.
        """
        deadline = time.monotonic() + self._seconds * _GATHER_SHARE
        while len(self._waiting) < self._expected and time.monotonic() < deadline:
            time.sleep(_GATHER_STEP)

    def _lead(self, request: CommitRequest) -> None:
        group: list[CommitRequest] = []
        begun = time.monotonic()
        try:
            if self._expected > 1 and self._file.synchronous == "full":
                self._gather()
                begun = time.monotonic()
            with self._mutex:
                group, self._waiting = self._waiting, []
            self._commit_group(group)
        finally:
            with self._mutex:
                if request in self._waiting:
                    # An interrupt came before the group was formed; the others still want a leader.
                    self._waiting.remove(request)
                successor = self._waiting[0] if self._waiting else None
                self._leading = successor is not None
                self._expected = len(group) + len(self._waiting)
                self._seconds = time.monotonic() - begun
            if successor is not None and successor.turn is not None:
                successor.turn.release()
            for member in group:
                if not member.done:
                    member.done = True
                    if member.version < 0 and member.error is None:
                        member.error = Fault(COMMIT_UNKNOWN)
                if member.turn is not None:
                    member.turn.release()

    def _commit_group(self, group: list[CommitRequest]) -> None:
        try:
            written = self._write(group)
        except sqlite3.Error as error:
            if len(group) > 1:
                for request in group:
                    self._commit_group([request])
                return
            group[0].error = store_error(self._file.path, error)
            return
        if written is None:
            return
        if self._log is not None:
            try:
                sync(self._log)
            except OSError:
                for request in group:
                    if request.error is None:
                        request.error = Fault(COMMIT_UNKNOWN)
        self._committed(written)

    def _judge(self, request: CommitRequest, accepted: list[CommitRequest]) -> int:
        """The error code that a request must fail with, or 0."""
        read_version, reads = request.read_version, request.reads
        if read_version is None or not reads:
            return 0
        if read_version < self._recent.complete_from:
            return TOO_OLD
        later = self._recent.since(read_version)
        if accepted:
            later = later + [earlier.writes for earlier in accepted]
        for written in later:
            if written.intersects(reads):
                if not request.report:
                    return NOT_COMMITTED
                request.conflicting = [*request.conflicting, written]
        return NOT_COMMITTED if request.conflicting else 0

    def _write(self, group: list[CommitRequest]) -> KeySet | None:
        shared = self._file.shared
        recent = self._recent
        shared.lock()
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._file.connect()
                self._cursor = connection.cursor()
                # The first statement makes sure that there is a log.
                self._cursor.execute(_LOG_TRIM, (0,))
                self._log = self._file.open_log()
            cursor = self._cursor
            cursor.execute("BEGIN IMMEDIATE")
            try:
                if shared.words[ANNOUNCED] != recent.newest:
                    recent.top_up(cursor.execute(_LOG_FROM, (recent.newest,)))
                version = max(recent.newest + 1, shared.words[FLOOR] + 1, self._clock.now())
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
                if self._groups % _TRIM_EVERY == 0:
                    cursor.execute(_LOG_TRIM, (version - _KEEP_VERSIONS,))
                    recent.trim(version - _KEEP_VERSIONS)
                shared.words[ANNOUNCED] = version
                cursor.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    cursor.execute("ROLLBACK")
                    shared.words[ANNOUNCED] = recent.newest
                raise
            recent.append(version, written)
            shared.raise_floor(version)
            mutations = size = 0
            for request in accepted:
                request.version = version
                mutations += len(request.mutations)
                size += request.size
        finally:
            shared.unlock()
        self._wrote(mutations, size)
        return written

    def close(self) -> None:
        """Close the connection; the caller holds the commit lock."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            if self._log is not None:
                os.close(self._log)
                self._log = None

    def after_fork(self, in_child: bool) -> None:
        """Go on, in the child as if newly made."""
        if in_child:
            self._reset()


def _union(requests: list[CommitRequest]) -> KeySet:
    union = KeySet()
    for request in requests:
        union.update(request.writes)
    return union


def _apply(cursor: sqlite3.Cursor, request: CommitRequest, version: int) -> None:
    mutations = request.mutations
    if len(mutations) > _BULK_FROM and all(op == atomic.SET for op, _, _ in mutations):
        cursor.executemany(_SET, [(key, operand) for _, key, operand in mutations])
        return
    for op, key, operand in mutations:
        if op == atomic.SET:
            cursor.execute(_SET, (key, operand))
        elif op == atomic.CLEAR_RANGE:
            if operand is None:
                cursor.execute(_CLEAR, (key,))
            else:
                cursor.execute(_CLEAR_RANGE, (key, operand))
        elif op == atomic.SET_VERSIONSTAMPED_VALUE:
            assert operand is not None
            value = atomic.stamped(operand, atomic.stamp(version, request.order))
            cursor.execute(_SET, (key, value))
        elif op == atomic.SET_VERSIONSTAMPED_KEY:
            final = atomic.stamped(key, atomic.stamp(version, request.order))
            request.writes.keys.add(final)
            cursor.execute(_SET, (final, operand))
        else:
            row = cursor.execute(_GET, (key,)).fetchone()
            old = None if row is None else row[0]
            new = atomic.apply(op, old, operand)
            if new is None:
                if old is not None:
                    cursor.execute(_CLEAR, (key,))
            elif new != old:
                cursor.execute(_SET, (key, new))

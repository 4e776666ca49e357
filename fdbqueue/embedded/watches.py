"""Watches: who waits for a change of which key, and the thread that notices the changes.

One thread per store looks at a number in shared memory, 125 times a second and only while some
watch is armed. When a commit of any process moved that number it compares the watched keys with
their values at the newest state. A commit of this process that touches a watched key wakes the
thread at once.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable

from .conflicts import decode
from .futures import Pending
from .ranges import KeySet
from .store import StoreFile
from .versions import ANNOUNCED

_POLL_SECONDS = 0.008
# With so few watched keys it is cheaper to look at them than at the log of what was written.
_FEW_KEYS = 32
# A commit announced by a process that died before making it is waited for no longer than this.
_LOST_COMMIT_SECONDS = 1.0


class Watch(Pending):
    """A future that is done when the value of a key is no longer what a transaction saw.

    Attributes:
        key: the watched key.
        value_seen: the value that the transaction saw, its own earlier writes included.
    """

    __slots__ = ("_forget", "key", "value_seen")

    def __init__(self, key: bytes, value: bytes | None, forget: Callable[[Watch], object]) -> None:
        super().__init__()
        self.key = key
        self.value_seen = value
        self._forget = forget

    def complete(self, value: object = None, error: BaseException | None = None) -> bool:
        completed = super().complete(value, error)
        if completed:
            self._forget(self)
        return completed


class Watches:
    """The armed watches of one store in this process."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._by_key: dict[bytes, set[Watch]] = {}
        self._fresh: list[Watch] = []
        self._gone: deque[Watch] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None

    def arm(self, watch: Watch) -> None:
        """Watch from now on; a change since the transaction's snapshot is noticed as well."""
        with self._lock:
            if watch.ready:
                return
            self._by_key.setdefault(watch.key, set()).add(watch)
            self._fresh.append(watch)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="fdbqueue-watches", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def disarm(self, watch: Watch) -> None:
        """Forget a watch that is done or cancelled."""
        # The thread does it: the garbage collector may call this while this thread holds the lock.
        self._gone.append(watch)

    def _forget_gone(self) -> None:
        while self._gone:
            watch = self._gone.popleft()
            watches = self._by_key.get(watch.key)
            if watches is not None:
                watches.discard(watch)
                if not watches:
                    del self._by_key[watch.key]

    def committed(self, written: KeySet) -> None:
        """Note what this process has just committed."""
        watched = self._by_key
        if not watched:
            return
        with self._lock:
            touched = not written.keys.isdisjoint(watched) or (
                bool(written.ranges) and any(key in written.ranges for key in watched)
            )
        if touched:
            self._wake.set()

    def _run(self) -> None:
        shared = self._file.shared
        seen = 0
        waiting_since = 0.0
        while True:
            if self._gone:
                with self._lock:
                    self._forget_gone()
            self._wake.wait(_POLL_SECONDS if self._by_key else None)
            woken = self._wake.is_set()
            if woken:
                self._wake.clear()
            announced = shared.words[ANNOUNCED]
            if announced == seen and not woken:
                continue
            newest = self._examine(seen)
            if newest >= announced:
                seen = announced
                waiting_since = 0.0
            elif not waiting_since:
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since > _LOST_COMMIT_SECONDS:
                seen = announced

    def _examine(self, seen: int) -> int:
        """Complete the watches whose key has changed; the newest version looked at."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            keys = set(self._by_key)
        with self._reading:
            newest, values = self._read(seen, keys, {watch.key for watch in fresh})
        changed: list[Watch] = []
        with self._lock:
            for key, value in values.items():
                changed.extend(
                    watch for watch in self._by_key.get(key, ()) if watch.value_seen != value
                )
        for watch in changed:
            watch.complete()
        return newest

    def _read(
        self, seen: int, keys: set[bytes], fresh: set[bytes]
    ) -> tuple[int, dict[bytes, bytes | None]]:
        """The newest version, and the values at it of the keys that may have changed."""
        if self._connection is None:
            self._connection = self._file.connect()
        cursor = self._connection.cursor()
        cursor.execute("BEGIN")
        try:
            newest: int = cursor.execute("SELECT max(version) FROM recent").fetchone()[0]
            if len(keys) > _FEW_KEYS:
                keys = fresh | self._touched(cursor, seen, keys)
            values: dict[bytes, bytes | None] = {}
            for key in keys:
                row = cursor.execute("SELECT v FROM kv WHERE k = ?", (key,)).fetchone()
                values[key] = None if row is None else row[0]
        finally:
            cursor.execute("ROLLBACK")
            cursor.close()
        return newest, values

    def _touched(self, cursor: sqlite3.Cursor, seen: int, keys: set[bytes]) -> set[bytes]:
        rows = cursor.execute(
            "SELECT version, written FROM recent WHERE version >= ? ORDER BY version", (seen,)
        ).fetchall()
        if not rows or rows[0][0] != seen:
            return keys
        touched: set[bytes] = set()
        for _, data in rows[1:]:
            written = decode(data)
            touched |= written.keys & keys
            if written.ranges:
                touched.update(key for key in keys if key in written.ranges)
        return touched

    def before_fork(self) -> None:
        """Close the connection, and let nobody open one until after the fork."""
        self._reading.acquire()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def after_fork(self, in_child: bool) -> None:
        """Go on; the child has none of the parent's watches."""
        if in_child:
            self._reset()
        else:
            self._reading.release()

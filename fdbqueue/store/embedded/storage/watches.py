"""Watches of keys, and the thread that notices changes.

One thread per store sleeps until a commit of any process moves a number in shared memory, only
while some watch is armed. When the commit moved the slot of a watched key as well, the thread
compares the key with its value at the newest state; when it cleared a range, the keys that the log
of recent commits shows to be in it. It looks at most 125 times a second, and 1,000 times in the
tenth of a second after a watch was armed, but for commits of this process that touch a watched key:
those wake it at once.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from ... import world
from ..futures import PendingFuture
from ..helpers import Helper
from ..store_errors import EngineError, StoreFailed, StoreFileError
from ..transactions.commit_requests import CommitRequest
from ..transactions.ranges import NO_RANGES, RangeSet
from .conflicts import decode, has_ranges
from .file import StoreFile, store_error
from .versions import ANNOUNCED, RANGES, TOUCHED, UNLOGGED, slot_of

log = logging.getLogger("fdbqueue.store.embedded")

# How long to sleep at most; a system without futexes cannot.
_SLEEP_SECONDS = 0.25
_FALLING_ASLEEP_SECONDS, _WAKES = 0.0001, 100
_POLL_SECONDS = 0.008
# Most watches are armed just before their key changes.
_EAGER_SECONDS, _EAGER_POLL_SECONDS = 0.1, 0.001
# How long the thread keeps looking without watches, since new ones often follow.
_LINGER_SECONDS = 0.5
# How long to wait for an announced commit, whose process may have died before making it.
_LOST_COMMIT_SECONDS = 1.0
# How long to retry watched keys that cannot be read before their watches fail.
_UNREADABLE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class Watch(PendingFuture):
    """A future that is done when the value of a key differs from what a transaction saw.

    Attributes:
        key: the watched key.
        value_seen: the value that the transaction saw, its own earlier writes included.
        seen: what ``Watches.count`` gave for the key then.
        version: the version at which the key had the value; known once the watch is armed.
    """

    def __init__(self, key: bytes, value: bytes | None, forget: Callable[[Watch], object]) -> None:
        super().__init__()
        self.key = key
        self.value_seen = value
        self.seen = (0, 0)
        self.version = 0
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
        self._lock = world.Lock()
        self._reading = world.Lock()
        # In the order in which they came: sets would complete them in any.
        self._by_key: dict[bytes, dict[Watch, None]] = {}
        self._by_slot: dict[int, dict[bytes, None]] = {}
        # What the slots of watched keys were when their values were compared; None: some never.
        self._noted: dict[int, int | None] = {}
        self._cleared = (0, 0)
        self._gone: deque[Watch] = deque()
        self._wake = world.Event()
        self._asleep = True
        self._sleeping = False
        self._armed_at = 0.0
        # Commits up to the first are seen; up to the second some may not have been made yet.
        self._seen = self._looked = 0
        self._looked_at = 0.0
        self._waiting_since = self._idle_since = self._failing_since = 0.0
        self._helper = Helper("fdbqueue-watches", self._look)
        self._connection: sqlite3.Connection | None = None

    def count(self, key: bytes) -> tuple[int, int]:
        """How many commits have written to the slot of a key, and how many cleared ranges."""
        words = self._file.shared.words
        return words[slot_of(key)], words[RANGES]

    def arm(self, watch: Watch, version: int, own: bool) -> None:
        """Start a watch; it also notices changes since the transaction's snapshot.

        version: that of the commit, or of the snapshot if nothing was committed.
        own: whether the value that it saw is the one that its transaction has committed. If that
            commit alone has written to the slot since, nothing can have changed.
        """
        watch.version = version
        try:
            self._helper.start()
        except EngineError as error:
            watch.complete(error=error)
        with self._lock:
            if watch.ready:
                return
            self._by_key.setdefault(watch.key, {})[watch] = None
            self._armed_at = world.monotonic()
            slot = slot_of(watch.key)
            keys = self._by_slot.setdefault(slot, {})
            keys[watch.key] = None
            writes, clears = watch.seen
            # Somebody else has written to the slot since: the key must be compared once before its
            # watch can rest.
            if not own or self.count(watch.key) != (writes + 1, clears):
                self._noted[slot] = None
            elif len(keys) == len(self._by_key[watch.key]) == 1:
                self._noted[slot] = writes + 1
            wakes = self._asleep or self._noted[slot] is None
        if wakes:
            self.wake()

    def disarm(self, watch: Watch) -> None:
        """Forget a watch that is done or cancelled."""
        # The thread does it: the garbage collector may call this while this thread holds the lock.
        self._gone.append(watch)

    def _forget_gone(self) -> None:
        while self._gone:
            watch = self._gone.popleft()
            watches = self._by_key.get(watch.key)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._by_key[watch.key]
                    self._forget_key(watch.key)

    def _forget_key(self, key: bytes) -> None:
        slot = slot_of(key)
        # An arming that was interrupted has left less.
        keys = self._by_slot.get(slot, {})
        keys.pop(key, None)
        if not keys:
            self._by_slot.pop(slot, None)
            self._noted.pop(slot, None)

    def committed(self, requests: list[CommitRequest]) -> None:
        """Note what this process has just committed."""
        watched = self._by_key
        if not watched:
            return
        with self._lock:
            touched = any(
                not written.keys.isdisjoint(watched)
                or (bool(written.ranges) and any(key in written.ranges for key in watched))
                for written in (request.writes for request in requests)
            )
        if touched:
            self._wake.set()

    def _look(self) -> bool:
        """Wait a moment, and look."""
        if self._file.shared.closed:
            return self._end()
        self._wait()
        self.look()
        return False

    def look(self) -> None:
        """Complete the watches whose keys have changed."""
        shared = self._file.shared
        if self._gone:
            with self._lock:
                self._forget_gone()
        woken = self._wake.is_set()
        if woken:
            self._wake.clear()
        touched = shared.words[TOUCHED]
        if touched == self._seen and not woken:
            return
        self._looked = touched
        raised = self._raised()
        cleared = shared.words[RANGES], shared.words[UNLOGGED]
        if raised or cleared != self._cleared:
            # Read after the slots: whatever commit raised one of them is announced by now.
            announced = shared.words[ANNOUNCED]
            try:
                if not self._examine(raised, cleared, announced):
                    return
            except (sqlite3.Error, StoreFileError) as error:
                self._try_again(error)
                return
        self._failing_since = self._waiting_since = 0.0
        self._seen, self._cleared = touched, cleared

    def _wait(self) -> None:
        """Sleep until there may be something to see, and it is time to look again."""
        now = world.monotonic()
        if self._by_key:
            self._idle_since = 0.0
        elif not self._idle_since:
            self._idle_since = now
        elif now - self._idle_since > _LINGER_SECONDS:
            self._asleep = True
            # A watch that was armed before it could see that.
            if not self._by_key:
                self._wake.wait()
        shared = self._file.shared
        self._sleeping = True
        if not self._wake.is_set():
            complete = self._looked == self._seen
            shared.sleep(self._looked, _SLEEP_SECONDS if complete else self._pause())
        self._sleeping = False
        pause = self._pause()
        self._asleep = shared.made is None and pause == _POLL_SECONDS
        self._wake.wait(max(pause - (world.monotonic() - self._looked_at), 0.0))
        self._asleep = False
        self._looked_at = world.monotonic()

    def _pause(self) -> float:
        eager = world.monotonic() - self._armed_at < _EAGER_SECONDS
        return _EAGER_POLL_SECONDS if eager else _POLL_SECONDS

    def _end(self) -> bool:
        """Fail all watches of a store that is being closed."""
        with self._lock:
            armed = [watch for watches in self._by_key.values() for watch in watches]
        for watch in armed:
            watch.complete(error=StoreFailed(self._file.path, "this process has closed it"))
        with self._lock:
            self._forget_gone()
            return self._helper.leave(unless=lambda: bool(self._by_key))

    def wake(self) -> None:
        """Make the thread look at once."""
        self._wake.set()
        made = self._file.shared.made
        for _ in range(_WAKES):
            # It may have decided to sleep, and not sleep yet.
            if made is None or not self._sleeping or made.wake_own():
                return
            world.sleep(_FALLING_ASLEEP_SECONDS)

    def _try_again(self, error: sqlite3.Error | StoreFileError) -> None:
        """Look again in a moment; fail all watches if their keys stay unreadable."""
        problem = (
            error if isinstance(error, StoreFileError) else store_error(self._file.path, error)
        )
        if not self._failing_since:
            self._failing_since = world.monotonic()
            log.warning("cannot read watched keys, retrying: %s", problem)
        elif world.monotonic() - self._failing_since > _UNREADABLE_SECONDS:
            self._failing_since = 0.0
            with self._lock:
                failed = [watch for watches in self._by_key.values() for watch in watches]
            for watch in failed:
                watch.complete(error=problem)
        world.sleep(_PAUSE_SECONDS)
        self._wake.set()

    def _raised(self) -> dict[int, int]:
        """The slots of watched keys that may have changed, with what they are now."""
        words = self._file.shared.words
        with self._lock:
            now = ((slot, words[slot], noted) for slot, noted in self._noted.items())
            return {slot: count for slot, count, noted in now if count != noted}

    def _examine(self, raised: dict[int, int], cleared: tuple[int, int], announced: int) -> bool:
        """Complete the watches whose key has changed; returns whether it saw all commits.

        An announced commit that stays away was lost with its process, if nobody holds the lock.
        """
        shared = self._file.shared
        overdue = bool(self._waiting_since)
        overdue = overdue and world.monotonic() - self._waiting_since > _LOST_COMMIT_SECONDS
        look = partial(self._read, raised, cleared)
        found = shared.hold(look, wait=False) if overdue else None
        newest, values = found or look()
        complete = found is not None or newest >= announced
        changed: list[Watch] = []
        with self._lock:
            for key, value in values.items():
                for watch in self._by_key.get(key, ()):
                    # One that was armed meanwhile may have seen a newer state.
                    if watch.value_seen != value and watch.version <= newest:
                        changed.append(watch)
            for slot, count in raised.items() if complete else ():
                keys = self._by_slot.get(slot)
                # Not those of a watch that was armed meanwhile.
                if keys and keys.keys() <= values.keys():
                    self._noted[slot] = count
        for watch in changed:
            # Outside the lock: what a callback does may arm or cancel a watch of this store.
            watch.complete()
        if not complete and not self._waiting_since:
            self._waiting_since = world.monotonic()
        return complete

    def _read(
        self, raised: Iterable[int], cleared: tuple[int, int]
    ) -> tuple[int, dict[bytes, bytes | None]]:
        """The newest version, and the values that the keys that may have changed have at it."""
        with self._reading:
            return self._read_all(raised, cleared)

    def _read_all(
        self, raised: Iterable[int], cleared: tuple[int, int]
    ) -> tuple[int, dict[bytes, bytes | None]]:
        if self._connection is None:
            self._connection = self._file.connect()
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN")
            newest: int = cursor.execute("SELECT max(version) FROM recent").fetchone()[0]
            ranges = self._cleared_ranges(cursor, cleared)
            with self._lock:
                keys = {key: None for slot in raised for key in self._by_slot.get(slot, ())}
                if ranges is None:
                    keys.update(dict.fromkeys(self._by_key))
                elif ranges:
                    keys.update((key, None) for key in self._by_key if key in ranges)
            values: dict[bytes, bytes | None] = {}
            for key in keys:
                values[key] = self._file.table.get(cursor, key)
            cursor.execute("ROLLBACK")
            cursor.close()
        except sqlite3.Error:
            connection, self._connection = self._connection, None
            connection.close()
            raise
        return newest, values

    def _cleared_ranges(self, cursor: sqlite3.Cursor, cleared: tuple[int, int]) -> RangeSet | None:
        """What commits have cleared since the last look; None where the log does not say."""
        ranges, unlogged = cleared
        if ranges == self._cleared[0]:
            return NO_RANGES
        oldest: int = cursor.execute("SELECT min(version) FROM recent").fetchone()[0]
        if unlogged != self._cleared[1] or oldest > self._seen:
            return None
        found = RangeSet()
        for (data,) in cursor.execute(
            "SELECT written FROM recent WHERE version > ?", (self._seen,)
        ):
            if has_ranges(data):
                for begin, end in decode(data).ranges:
                    found.add(begin, end)
        return found

    def before_fork(self) -> None:
        """Close the connection, and open none until after the fork."""
        self._reading.acquire()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def after_fork(self, in_child: bool) -> None:
        """Continue after a fork; the child has none of the parent's watches."""
        if in_child:
            self._reset()
        else:
            self._reading.release()

"""Versions of the database, the commit lock, and the numbers that processes share.

A sidecar file beside the store does two jobs. It is the lock that lets one process commit at a
time: `flock` queues in the kernel without polling, and is freed when its holder dies. And it is
mapped into memory, so that a process sees in nanoseconds what the others have committed.

The lock belongs to an open file, not to a thread or a process. The thread that leads the commits of
a process takes it on `descriptor`, and all others on an open file of their own (`hold`): so it
separates threads as it does processes. To release it where it is not held does no harm; so a
`finally` that begins with that leaves it held in no case.

Three rules make read versions correct without asking SQLite:

* `announced` is raised, under the lock, before SQLite commits. While it equals the newest version
  in a snapshot, that snapshot is current and no newer commit has begun.
* `floor` is raised, under the lock, when a version has been handed out: after a commit, or by a
  tick. Every later commit takes a version above it.
* A reader reads `floor` first and opens its snapshot second. So any commit that the snapshot lacks
  came after the floor was read, at a version above it.

Watches need not ask SQLite at every commit. Each key belongs to one of some thousand slots, a
number that each commit writing the key raises after `announced` and before `touched`, and so before
SQLite commits.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import stat
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from typing import TypeVar
from zlib import crc32

from ... import world
from ..store_errors import NotAStoreFile, NotWritable
from .futex import futex

VERSIONS_PER_SECOND = 1_000_000
_LONGEST_TURN_NS = 1_000_000_000
# A read version older than this is advanced first, as a cluster's empty commit batches do.
TICK_AFTER = VERSIONS_PER_SECOND // 20
# A new store starts out older than any transaction, so that no version before it can be read.
_FIRST_VERSION = 100 * VERSIONS_PER_SECOND

_Result = TypeVar("_Result")
_MAGIC = int.from_bytes(b"fdbqlock", "little")
_WORD_MAGIC, ANNOUNCED, FLOOR, TOUCHED, RANGES, BOXES, LOG_ROOM, GATHERED = range(8)
FIRST_SLOT = 8
SLOTS = 4096
ROUND = FIRST_SLOT + SLOTS
UNLOGGED, SLEEPERS, POSTS, EXPECTED, TURN, STORE = range(ROUND + 1, ROUND + 7)

MOST_BOXES = 32
BOX_BYTES = 8 << 10
FIRST_BOX = -(-8 * (STORE + 1) // mmap.PAGESIZE) * mmap.PAGESIZE
_SIZE = FIRST_BOX + MOST_BOXES * BOX_BYTES

RESERVE_BYTES = 32 << 20
"""What a store keeps of its disk; on a small one, up to half of what is free. More than the log has
grown to: it may have to be moved into the file, before anything can be removed there."""

# To look at, not to read, which may not be allowed.
_NAMES = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class Sidecar:
    """The sidecar file: a lock between processes and shared memory.

    Attributes:
        descriptor: the open file on which the leader of this process locks.
        directory: its directory, or None where that cannot be opened.
        words: the shared memory. `words[ANNOUNCED]` is the version of the newest commit that is
            made or under way, `words[FLOOR]` a version that every later commit will be above.
            `words[TOUCHED]` is the newest commit whose slots are raised, `words[RANGES]` the slot
            of all keys in ranges, `words[BOXES]` how many boxes of the mailbox are in use, and
            `words[LOG_ROOM]` up to which size SQLite's log was extended, `words[GATHERED]` how many
            processes took part in the last commit or waited behind it. The slots follow, then
            `words[ROUND]`, which moves when the holder of the lock has answered or leaves it,
            `words[UNLOGGED]`, how many ranges were cleared that the log of commits lacks,
            `words[SLEEPERS]`, whether some process may sleep until the next commit,
            `words[POSTS]`, which moves with each post, `words[EXPECTED]`, for how many posts the
            holder of the lock waits, `words[TURN]`, until when one transaction alone may commit,
            in nanoseconds of the monotonic clock, or 0, `words[STORE]`, the identity of the store,
            or 0, and then the boxes.
        has_boxes: whether there are boxes.
        made: `words[TOUCHED]` as what watches sleep on. None where the system has no futex, and
            once the store is closed.
        rounds, posts: likewise `words[ROUND]`, for those that have posted, and `words[POSTS]`.
    """

    def __init__(self, path: str, store: os.stat_result | None = None) -> None:
        self.path = path
        self.closed = False
        self._held: set[io.FileIO] = set()
        self._open(store)

    def _open(self, store: os.stat_result | None = None) -> None:
        # A link in the place of the sidecar could make this process write to any file of its user.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self.descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotAStoreFile(self.path, "it is a symbolic link") from error
            raise
        try:
            self._check(store)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.directory: int | None = None
        with contextlib.suppress(OSError):
            self.directory = os.open(os.path.dirname(self.path), _NAMES)
        if os.fstat(self.descriptor).st_size >= _SIZE and self._map(has_boxes=True):
            return
        try:
            flock(self.descriptor, LOCK_EX)
            if not self._map(self._make_room()):
                # The magic number is written last: until then others find the file not prepared,
                # and wait for the lock.
                self.words[ANNOUNCED] = self.words[FLOOR] = 0
                self.words[_WORD_MAGIC] = _MAGIC
        finally:
            flock(self.descriptor, LOCK_UN)

    def _map(self, has_boxes: bool) -> bool:
        """Map the file into memory; returns whether it is prepared."""
        self.has_boxes = has_boxes
        self.map = mmap.mmap(self.descriptor, _SIZE if has_boxes else FIRST_BOX)
        self.words = memoryview(self.map).cast("q")
        self.made = futex(self.map, 8 * TOUCHED)
        self.rounds = futex(self.map, 8 * ROUND)
        self.posts = futex(self.map, 8 * POSTS)
        return bool(self.words[_WORD_MAGIC] == _MAGIC)

    def _check(self, store: os.stat_result | None) -> None:
        """Leave alone what is no sidecar, and let nobody use it who may not use the store."""
        found = os.fstat(self.descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            # A second name could lead others to another lock for the same store.
            raise NotAStoreFile(self.path, "it is not a regular file with one name")
        head = os.pread(self.descriptor, 8, 0)
        if head.strip(b"\0") and head != _MAGIC.to_bytes(8, "little"):
            raise NotAStoreFile(self.path, "something else stands where its lock should")
        if store is None:
            return
        mode = stat.S_IMODE(store.st_mode) & 0o666
        if (found.st_uid, found.st_gid) != (store.st_uid, store.st_gid):
            # Only the superuser gives a file away; its group, whoever belongs to that.
            for owner in (store.st_uid, -1):
                with contextlib.suppress(PermissionError):
                    os.fchown(self.descriptor, owner, store.st_gid)
                    break
        if stat.S_IMODE(found.st_mode) != mode:
            try:
                os.fchmod(self.descriptor, mode)
            except PermissionError as error:
                raise NotWritable(
                    self.path, "its permissions are not those of the store"
                ) from error

    def is_in_place(self) -> bool:
        """Whether it is still the file that other processes find."""
        return self.closed or os.fstat(self.descriptor).st_nlink == 1

    def names_changed(self) -> tuple[int, int] | None:
        """When a name in the directory was last made, removed or changed, or the directory moved;
        None if that is not known."""
        if self.closed or self.directory is None:
            return None
        found = os.fstat(self.directory)
        return found.st_mtime_ns, found.st_ctime_ns

    def _make_room(self) -> bool:
        """Extend the file if need be; returns whether there is room for the boxes.

        The room is allocated: to write to a mapped page that finds none left kills the process.
        """
        size = os.fstat(self.descriptor).st_size
        if size < _SIZE:
            try:
                os.posix_fallocate(self.descriptor, 0, _SIZE)
            except (AttributeError, OSError):
                while size < FIRST_BOX:
                    size += os.pwrite(self.descriptor, bytes(FIRST_BOX - size), size)
                return False
        return True

    def hold(self, work: Callable[[], _Result], wait: bool = True) -> _Result | None:
        """Do some work under the commit lock; None if it is not done.

        wait: whether to wait while somebody else has the lock.
        """
        try:
            file = io.FileIO(self.path)
        except OSError as error:
            # What a signal handler raises, such as a TimeoutError, has no number.
            if error.errno is None:
                raise
            return None
        with contextlib.suppress(BlockingIOError), file as own:
            try:
                # A forked child closes it.
                self._held.add(own)
                flock(own, LOCK_EX if wait else LOCK_EX | LOCK_NB)
                # Else processes that have opened the store at another time do not meet here.
                if not self.closed and os.path.sameopenfile(own.fileno(), self.descriptor):
                    return work()
            finally:
                flock(own, LOCK_UN)
                self._held.discard(own)
        return None

    def is_turn(self) -> bool:
        """Whether some transaction has its turn. A number that is far off is of another boot."""
        return -_LONGEST_TURN_NS < world.monotonic_ns() - self.words[TURN] < 0

    def raise_floor(self, version: int) -> None:
        """Raise the floor; only under the lock."""
        if version > self.words[FLOOR]:
            self.words[FLOOR] = version

    def sleep(self, touched: int, seconds: float) -> None:
        """Sleep until the next commit is made, or for so many seconds.

        touched: what the number was when the caller looked; if it has moved, this returns at once.
        """
        made = self.made
        if made is not None:
            # A commit that sees no sleeper has moved the number before, so that none falls asleep.
            self.words[SLEEPERS] = 1
            made.wait(touched, seconds)

    def wake(self) -> None:
        """Wake who sleeps; a commit does it when it is made, if `words[SLEEPERS]` says so."""
        self.words[SLEEPERS] = 0
        if self.made is not None:
            self.made.wake()

    def close(self) -> None:
        """Close the file, while no thread of this process commits.

        Running threads find copies of the numbers, and can commit nothing.
        """
        # A copy: threads that still read a number find one, instead of memory that is gone.
        self.words = memoryview(bytearray(self.words)).cast("q")
        self.closed = True
        self.wake()
        self.made = self.rounds = self.posts = None
        # The mapping goes with the last thread that reads it just now, and the boxes with it.
        del self.map
        self.has_boxes = False
        self._let_go()

    def _let_go(self) -> None:
        os.close(self.descriptor)
        if self.directory is not None:
            os.close(self.directory)

    def reopen(self) -> None:
        """Reopen the file in a forked child, which would otherwise share the parent's lock."""
        self.words.release()
        self.map.close()
        self._let_go()
        for file in self._held:
            file.close()
        self._held.clear()
        self._open()


def slot_of(key: bytes) -> int:
    """The word that is raised when a key is written."""
    return FIRST_SLOT + crc32(key) % SLOTS


def free_bytes(path: str) -> int:
    """How much room the disk of a file has."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def keep_reserve(path: str) -> None:
    """Keep some room of the disk behind what is mapped of a sidecar, unless it does so."""
    with contextlib.suppress(AttributeError, OSError), open(path, "r+b") as sidecar:
        if os.fstat(sidecar.fileno()).st_size <= _SIZE:
            os.posix_fallocate(sidecar.fileno(), _SIZE, min(RESERVE_BYTES, free_bytes(path) // 2))


def release_reserve(path: str) -> None:
    """Give the room that a sidecar keeps back to the disk."""
    with contextlib.suppress(OSError):
        os.truncate(path, min(os.path.getsize(path), _SIZE))


class VersionClock:
    """Turns time into versions: about a million a second, steady in this process.

    The wall clock gives the first version when the process opens the store; from then on the
    monotonic clock advances it, so that a step of the wall clock moves no version. Processes that
    are behind catch up with the one that is ahead.
    """

    def __init__(self, created: float, newest: int) -> None:
        wall = int((world.time() - created) * VERSIONS_PER_SECOND) + _FIRST_VERSION
        # Never below the newest version of the file: a wall clock that was set back must not hand
        # out versions twice.
        self.base = max(newest, wall) - world.monotonic_ns() // 1000

    def now(self) -> int:
        """The version of the present moment."""
        return self.base + world.monotonic_ns() // 1000

    def catch_up(self, version: int) -> None:
        """Catch up with a version that another process has handed out.

        Otherwise versions would stand still until this clock arrives there.
        """
        self.base = max(self.base, version - world.monotonic_ns() // 1000)

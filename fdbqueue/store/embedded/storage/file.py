"""The SQLite file: how it is opened, checked, created, and which connections use it.

Tables: `kv` holds the keys and values (see `rows`); `recent` holds what each commit of the last
seconds wrote, under its version, and always at least the newest version; `meta` says when the store
was created, and its identity, a random number; `sample` holds the sizes of some keys.

What stands beside the file must be its own. The sidecar repeats the identity, and so does each row
of `recent`: where SQLite takes the newest from the log of another store, it differs from `meta`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock

from ... import world
from ..store_errors import (
    NoDirectory,
    NotAStoreFile,
    NotWritable,
    OtherFormat,
    StoreCorrupt,
    StoreFailed,
    StoreFileError,
    StoreFull,
    StoreMisplaced,
)
from . import rows, sampling
from .versions import ANNOUNCED, LOG_ROOM, STORE, Sidecar, free_bytes, keep_reserve, release_reserve

APPLICATION_ID = 0x46445151
FORMAT = 3
SYNCHRONOUS_MODES = ("full", "normal")
# How long SQLite itself waits for a lock. The commit lock keeps writers apart, so only a
# checkpoint that restarts the log, or recovery after a crash, is ever waited for here.
_ESCAPED = {ord(sign): f"%{ord(sign):02x}" for sign in "%?#"}
"""What has a meaning in a URI of SQLite."""
BUSY_SECONDS = 10.0
PAGE_BYTES = 4096
# SQLite's longest path, with the name of its log.
_LONGEST_PATH = 512 - len("-journal") - 1
_MOUNTS = "/proc/self/mountinfo"
_CACHE_KIB = 16 * 1024
# In seconds since the epoch, for a file that says it was made after it.
_END_OF_TIME = 1e11
# What the log shrinks to when it starts over after having grown.
_LOG_LIMIT_BYTES = 48 << 20
# The size from which the log is extended ahead of commits, and by how much at most.
_SMALL_LOG_BYTES = 64 << 10
_LONGEST_STEP_BYTES = 1 << 20
_ZEROS = bytes(PAGE_BYTES)
# File systems note times no more finely than the kernel's clock ticks.
_SETTLED_NS = 50_000_000

_IDENTITIES = 1 << 47
_IDENTITY = """SELECT
    (SELECT value FROM meta WHERE name = 'identity'),
    (SELECT store FROM recent ORDER BY version DESC LIMIT 1)"""
_SCHEMA = (
    rows.TABLE,
    """CREATE TABLE recent (
    version INTEGER PRIMARY KEY, written BLOB NOT NULL, store INTEGER NOT NULL DEFAULT {identity}
)""",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value NUMERIC NOT NULL) WITHOUT ROWID",
    sampling.TABLE,
)
# What locality reads on a cluster: here the whole key space is one shard.
_SHARD_MAP = ((b"\xff/keyServers/", b""), (b"\xff/keyServers/\xff\xff", b""))


def store_error(path: str, error: BaseException) -> StoreFileError:
    """The engine's own error for a failure that SQLite or the system reported."""
    if isinstance(error, StoreFileError):
        return error
    detail = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    shortage = _shortage()
    if shortage and (isinstance(error, OSError) or code == sqlite3.SQLITE_CANTOPEN):
        return StoreFailed(path, shortage)
    if code == sqlite3.SQLITE_NOTADB:
        return NotAStoreFile(path, detail)
    # A value of another type than was written, or not even text, means damage.
    if code == sqlite3.SQLITE_CORRUPT or isinstance(error, TypeError | UnicodeDecodeError):
        return StoreCorrupt(path, detail)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return NotWritable(path, detail)
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(path, detail)
    if code == sqlite3.SQLITE_IOERR and error_is_write(error):
        return StoreFull(path, detail)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(path, detail)
    if isinstance(error, PermissionError):
        return NotWritable(path, detail)
    return StoreFailed(path, detail)


def _shortage() -> str:
    """Whether the process is out of file descriptors, which SQLite does not tell."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return f"{error.strerror}: allow more (ulimit -n), or hold fewer transactions open"
    return ""


def error_is_write(error: BaseException) -> bool:
    """Whether SQLite failed to write: a file-size limit shows as this, not as a full disk."""
    return getattr(error, "sqlite_errorcode", 0) in (
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    )


def _require_writable(path: str) -> None:
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise NoDirectory(path)
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise NotWritable(path, f"its path is longer than {_LONGEST_PATH} bytes")
    # The superuser may write anything; a store whose mode says read-only is meant to stay as it is.
    for name in (path, directory):
        try:
            mode = os.stat(name).st_mode
        except FileNotFoundError:
            continue
        if not mode & 0o222 or not os.access(name, os.W_OK):
            raise NotWritable(path, "" if name == path else f"the directory {name} is read-only")
        if name == path and not stat.S_ISREG(mode):
            raise NotAStoreFile(path, "it is not a regular file")


def _require_one_name(path: str) -> None:
    """Refuse a file that others may know by another name: they would have another log and lock."""
    names = os.stat(path).st_nlink
    if names > 1:
        raise StoreMisplaced(path, f"it has {names} names (hard links); keep one")
    place = os.fsencode(path)
    # Names are bytes, of any encoding, with spaces and the like escaped.
    with contextlib.suppress(OSError), open(_MOUNTS, "rb") as mounts:
        mounted = (line.split()[4].decode("unicode_escape").encode("latin-1") for line in mounts)
        if place in mounted:
            raise StoreMisplaced(path, "it is mounted by itself; mount its directory")


def _open(path: str, mode: str = "rw") -> sqlite3.Connection:
    """A connection to a file that exists; none is ever created."""
    name = f"file:{path.translate(_ESCAPED)}?mode={mode}"
    return sqlite3.connect(
        name, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def _check_identity(path: str) -> int:
    """Refuse what is no store of this format; returns its identity, or 0 if it is to be made."""
    _require_one_name(path)
    # One that may write would move the log into the file when it is closed.
    connection = _open(path, "ro")
    try:
        # All at one instant: another process may be making the store.
        connection.execute("BEGIN")
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION_ID and (application or found or tables):
            raise NotAStoreFile(path)
        if application == APPLICATION_ID and found != FORMAT:
            raise OtherFormat(path, found, FORMAT)
        if found:
            identity, newest = connection.execute(_IDENTITY).fetchone()
            if identity != newest:
                raise StoreMisplaced(path, "its log (-wal) is of another store; remove it")
            return int(identity)
        return 0
    finally:
        connection.close()


@contextlib.contextmanager
def _all_or_nothing(connection: sqlite3.Connection) -> Iterator[None]:
    # IMMEDIATE takes the write lock at once: of two processes that make the same store, the second
    # waits, and then finds it made.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class StoreFile:
    """One store file: its path, its sidecar, and the way to connect to it.

    Args:
        path: the file; it is created if it does not exist, for its owner alone; its directory is
            not.
        synchronous: "full" makes every commit durable when it returns; "normal" may lose the last
            commits when the machine (not the process) crashes, and is never corrupt.
        checks: whether to check the checksums of what is read.

    Raises:
        StoreFileError: the subclass says why the file cannot be used.
    """

    def __init__(self, path: str, synchronous: str = "full", checks: bool = True) -> None:
        if synchronous not in SYNCHRONOUS_MODES:
            raise ValueError(f"synchronous must be one of {SYNCHRONOUS_MODES}: {synchronous!r}")
        self.path = os.path.realpath(path)
        self.synchronous = synchronous
        self.table = rows.Table(self.path, checks)
        self.created = 0.0
        self._names: tuple[int, int] | None = None
        self.newest = 0
        _require_writable(self.path)
        try:
            self._prepare()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise store_error(self.path, error) from error

    def connect(self) -> sqlite3.Connection:
        """A new connection, set up as every connection of the engine is."""
        if self.shared.closed:
            raise sqlite3.ProgrammingError("this process has closed the store")
        misplaced = self.misplaced()
        if misplaced is not None:
            raise misplaced
        connection = _open(self.path)
        # There is none, unless the file is damaged.
        connection.text_factory = bytes
        for setting in (
            "wal_autocheckpoint = 0",
            f"synchronous = {self.synchronous}",
            f"cache_size = -{_CACHE_KIB}",
            # Each commit of another process would undo the mapping, and each snapshot pay for it.
            "mmap_size = 0",
            "secure_delete = off",
            "temp_store = memory",
            # Whether each cell of a page that is read lies within it.
            "cell_size_check = on",
            # Of macOS alone: there, fsync leaves the data in the disk's own cache.
            f"fullfsync = {self.synchronous == 'full':d}",
            f"checkpoint_fullfsync = {self.synchronous == 'full':d}",
            f"journal_size_limit = {_LOG_LIMIT_BYTES}",
        ):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def misplaced(self) -> StoreMisplaced | None:
        """What is wrong if the file or its sidecar is not the one that was opened."""
        self._names = self._settled()
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return StoreMisplaced(self.path, "it was removed while it was open")
        except OSError as error:
            # What a signal handler raises, such as a TimeoutError, has no number.
            if error.errno is None:
                raise
            return StoreMisplaced(self.path, f"it cannot be reached any more: {error.strerror}")
        if (found.st_dev, found.st_ino) != self._identity:
            return StoreMisplaced(self.path, "it was replaced while it was open")
        if found.st_nlink > 1:
            return StoreMisplaced(self.path, "another name (hard link) was made while it was open")
        if not self.shared.is_in_place():
            return StoreMisplaced(
                self.path, "its -lock file was removed or linked while it was open"
            )
        return None

    def undisturbed(self) -> bool:
        """Whether all names in its directory are as they were when `misplaced` looked."""
        return self._names is not None and self.shared.names_changed() == self._names

    def _settled(self) -> tuple[int, int] | None:
        """When the names last changed, if another change would certainly have another time."""
        changed = self.shared.names_changed()
        if changed is None or max(changed) > world.time() * 1e9 - _SETTLED_NS:
            return None
        return changed

    def log_bytes(self) -> int:
        """The size of SQLite's write-ahead log."""
        try:
            return os.stat(self.path + "-wal").st_size
        except FileNotFoundError:
            return 0

    def extend_log(self) -> None:
        """Extend SQLite's log with zeros if commits have come to its end.

        The fsync of a commit that extends a file also waits for the file system's journal, which
        takes twice as long, and much longer on a busy disk. SQLite ignores what follows the last
        commit in its log. Call this only in a transaction that writes: then nobody else does.
        """
        words = self.shared.words
        try:
            log = os.open(self.path + "-wal", os.O_WRONLY | os.O_CLOEXEC)
            try:
                # Not by `stat`: after one, Linux notes the precise time of the next write, and its
                # fsync writes the inode, too.
                size = os.lseek(log, 0, os.SEEK_END)
                if size < words[LOG_ROOM]:
                    words[LOG_ROOM] = size
                if size <= max(words[LOG_ROOM], _SMALL_LOG_BYTES):
                    return
                end = size + min(size, _LONGEST_STEP_BYTES)
                # Page by page: Linux caches what is written at once as one unit, and later writes
                # of a page take longer in a large one.
                while size < end:
                    size += os.pwrite(log, _ZEROS, size)
                    words[LOG_ROOM] = size
            finally:
                os.close(log)
        except OSError as error:
            # If there is no room, commits extend the log as long as they can. What a signal handler
            # raises, such as a TimeoutError, is no error of the system, and has no number.
            if error.errno is None:
                raise

    def _prepare(self) -> None:
        # A file that is something else must be refused before a sidecar appears beside it.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, flags, 0o600))
        identity = 0
        if os.path.getsize(self.path) > 0:
            identity = _check_identity(self.path)
        elif self.log_bytes() > 0:
            raise StoreCorrupt(self.path, "it is empty, and the log beside it is not")
        _require_one_name(self.path)
        found = os.stat(self.path)
        self._identity = found.st_dev, found.st_ino
        self.shared = Sidecar(self.path + "-lock", found)
        if identity and self.shared.words[STORE] not in (0, identity):
            raise StoreMisplaced(
                self.path, "its -lock file is of another store; remove it if no process has it open"
            )
        descriptor, locked = self.shared.descriptor, False
        try:
            # Its holder may be stopped; a store that is prepared is opened all the same.
            with contextlib.suppress(BlockingIOError):
                flock(descriptor, LOCK_EX | LOCK_NB)
                locked = True
            connection = self.connect()
            try:
                found = connection.execute("PRAGMA user_version").fetchone()[0]
                if found == 0 and not locked:
                    flock(descriptor, LOCK_EX)
                    locked = True
                    found = connection.execute("PRAGMA user_version").fetchone()[0]
                if found == 0:
                    self._create(connection)
                self._load(connection, locked)
            finally:
                connection.close()
        finally:
            flock(descriptor, LOCK_UN)

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = wal")
        identity = self.shared.words[STORE] = world.random.randrange(1, _IDENTITIES)
        with _all_or_nothing(connection):
            for statement in _SCHEMA:
                connection.execute(statement.format(identity=identity))
            connection.execute("INSERT INTO meta VALUES ('created', ?)", (world.time(),))
            connection.execute("INSERT INTO meta VALUES ('identity', ?)", (identity,))
            connection.execute("INSERT INTO recent (version, written) VALUES (1, x'')")
            shards = ((key, value, rows.checksum(key, value)) for key, value in _SHARD_MAP)
            connection.executemany(rows.SET, shards)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")

    def _load(self, connection: sqlite3.Connection, locked: bool) -> None:
        self.shared.words[STORE] = connection.execute(_IDENTITY).fetchone()[0]
        row = connection.execute("SELECT value FROM meta WHERE name = 'created'").fetchone()
        newest = connection.execute("SELECT max(version) FROM recent").fetchone()[0]
        created = row[0] if row else None
        known = created if isinstance(created, int | float) else 0.0
        if not 0 < known < _END_OF_TIME or newest is None:
            raise StoreCorrupt(self.path, "it does not say how old it is")
        self.created = float(known)
        self.newest = newest
        if locked:
            # There is no commit under way, so every announced one is made or lost.
            self.shared.words[ANNOUNCED] = self.newest
            self.shared.raise_floor(self.newest)


def check(path: str) -> None:
    """Check whether a path can be opened as a store, without creating anything.

    Raises:
        StoreFileError: the subclass says why not.
    """
    resolved = os.path.realpath(path)
    _require_writable(resolved)
    if os.path.exists(resolved) and os.path.getsize(resolved) > 0:
        try:
            _check_identity(resolved)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise store_error(resolved, error) from error


def use_reserve(path: str) -> bool:
    """Let a store whose disk is full write again: give back the room that it keeps, and move its
    log into the file, so that it starts over. Returns whether there is room now."""
    resolved = os.path.realpath(path)
    release_reserve(resolved + "-lock")
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_open(resolved)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return free_bytes(resolved) > PAGE_BYTES


def restore_reserve(path: str) -> None:
    """Keep room for the next time that the disk is full, if there is some."""
    keep_reserve(os.path.realpath(path) + "-lock")


def damages(path: str) -> list[str]:
    """What is wrong with the data of a store; reads all of it, while others may use it."""
    try:
        with contextlib.closing(_open(os.path.realpath(path))) as connection:
            return list(rows.damages(connection))
    except sqlite3.Error as error:
        return [str(error)]

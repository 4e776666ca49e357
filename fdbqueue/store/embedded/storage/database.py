"""An open store, and the database handles that the bindings hold on it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable

from ... import world
from .. import open_stores
from ..codes import INVALID_OPTION, INVALID_OPTION_VALUE, TOO_MANY_WATCHES, Fault
from ..helpers import closer, finisher
from ..store_errors import EngineError, StoreFileError
from ..timers import timers
from ..transaction_options import (
    ABSOLUTE_WATCHES,
    DEFAULT_WATCHES,
    KNOWN_DATABASE_OPTIONS,
    MAX_WATCHES,
    TRANSACTION_DEFAULTS,
    TransactionOptions,
    integer,
)
from ..transactions.commit_requests import CommitRequest
from .checkpoint import Checkpointer
from .commit import Committer
from .file import SYNCHRONOUS_MODES, StoreFile
from .snapshots import Snapshots
from .versions import VersionClock
from .watches import Watch, Watches

SYNCHRONOUS_VARIABLE = "FDBQUEUE_SYNCHRONOUS"
CHECKSUMS_VARIABLE = "FDBQUEUE_CHECKSUMS"


class OpenStore:
    """What one process keeps for one store file."""

    def __init__(self, path: str, synchronous: str, checks: bool = True) -> None:
        # Where none can be started, as while the interpreter ends, the store still opens: whoever
        # needs one of them asks again, and gets the error.
        with contextlib.suppress(EngineError):
            finisher.start()
            closer.start()
        self.file = StoreFile(path, synchronous, checks)
        self.clock = VersionClock(self.file.created, self.file.newest)
        self.snapshots = Snapshots(self.file, self.clock)
        self.watches = Watches(self.file)
        self.checkpointer = Checkpointer(self.file, self.snapshots)
        self.committer = Committer(self.file, self.clock, self.snapshots, self._made)

    def _made(self, requests: list[CommitRequest]) -> None:
        self.checkpointer.note(requests)
        self.watches.committed(requests)

    def before_fork(self) -> None:
        """Close every connection to the file.

        SQLite's account of the locks that this process holds is copied to a child, but the locks
        are not. With nothing open at the moment of the fork, the account is empty on both sides.
        A transaction that was reading finds itself too old, and is retried.
        """
        # First: no group may be in the middle of a commit when its connection closes.
        self.committer.section.acquire()
        self.snapshots.before_fork()
        self.watches.before_fork()
        self.checkpointer.before_fork()

    def after_fork(self, in_child: bool) -> None:
        """Continue after a fork; the child loses what the parent had begun."""
        self.committer.after_fork(in_child)
        self.checkpointer.after_fork(in_child)
        self.watches.after_fork(in_child)
        self.snapshots.after_fork(in_child)
        if in_child:
            self.file.shared.reopen()
        else:
            self.committer.section.release()

    def close(self) -> None:
        """Release all files and threads; open transactions and watches fail."""
        self.before_fork()
        # Between the two, while nothing of the store is open and nobody commits.
        self.file.shared.close()
        self.after_fork(in_child=False)
        self.watches.wake()
        self.checkpointer.wake()
        self.committer.lane.stop()


def open_store(path: str, synchronous: str | None = None) -> OpenStore:
    """Open a store, or return the one that this process has open already.

    Args:
        path: the file; created if it does not exist.
        synchronous: "full" or "normal"; by default what FDBQUEUE_SYNCHRONOUS says, else "full".

    Raises:
        StoreFileError: the subclass says why the file cannot be used.
    """
    mode = synchronous or _synchronous()
    # One store a file, whatever it is called: `close_store` and the handlers of forks must find all
    # that this process has open of it.
    real = os.path.realpath(path)
    with open_stores.lock:
        store: OpenStore | None = open_stores.find(real)
        if store is None:
            checks = _checks()
            store = open_stores.stores[real] = OpenStore(real, mode.lower(), checks)
        return store


def _synchronous() -> str:
    """How durable the commits of this process are, unless it says so for a store."""
    text = os.environ.get(SYNCHRONOUS_VARIABLE) or "full"
    if text.lower() not in SYNCHRONOUS_MODES:
        raise ValueError(f"{SYNCHRONOUS_VARIABLE} must be full or normal: {text!r}")
    return text


def _checks() -> bool:
    """Whether this process checks what it reads."""
    text = os.environ.get(CHECKSUMS_VARIABLE) or "on"
    if text.lower() not in ("on", "off"):
        raise ValueError(f"{CHECKSUMS_VARIABLE} must be on or off: {text!r}")
    return text.lower() == "on"


def close_store(path: str) -> None:
    """Close a store, if this process has it open; it can be opened again."""
    real = os.path.realpath(path)

    def close() -> None:
        with open_stores.lock:
            store: OpenStore | None = open_stores.find(real)
            if store is not None:
                store.close()
                del open_stores.stores[store.file.path]

    # Elsewhere, since a signal in the middle would leave a store half closed, yet listed as open.
    _undisturbed(close)
    # The bindings keep a database for each path, which would be a dead one.
    bindings = sys.modules.get("fdb.impl")
    if bindings is not None:
        with bindings.cacheLock:
            for name in [name for name in bindings.open_databases if name is not None]:
                if os.path.realpath(name) == real:
                    del bindings.open_databases[name]


def _leave() -> None:
    """Close all stores when the process ends: SQLite empties the log of whoever closes last."""
    with open_stores.lock:
        for store in open_stores.stores.values():
            store.close()
        open_stores.stores.clear()


atexit.register(_leave)


class EmbeddedDatabase:
    """A handle of the bindings on an open store, with the defaults of its transactions."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self.defaults: list[tuple[int, bytes | None]] = []
        self.options = TransactionOptions()
        self._max_watches = DEFAULT_WATCHES
        self._watches: set[Watch] = set()

    def set_option(self, option: int, value: bytes | None) -> None:
        """Set a database option; most are defaults of transaction options."""
        if option not in KNOWN_DATABASE_OPTIONS:
            raise Fault(INVALID_OPTION)
        options = self.options.copy()
        if option in TRANSACTION_DEFAULTS:
            options.set(TRANSACTION_DEFAULTS[option], value)
            self.defaults.append((TRANSACTION_DEFAULTS[option], value))
        elif option == MAX_WATCHES:
            self._max_watches = integer(value, 0, ABSOLUTE_WATCHES)
        elif option in (26, 27):
            if value:
                raise Fault(INVALID_OPTION_VALUE)
            options.snapshot_reads_writes += 1 if option == 26 else -1
            options.changed = True
        # A copy, assigned whole: a transaction that begins meanwhile copies either all of the old
        # ones or all of the new ones.
        self.options = options

    def new_watch(self, key: bytes, value: bytes | None) -> Watch:
        """Start a watch that counts against the limit until it is done."""
        if len(self._watches) >= self._max_watches:
            raise Fault(TOO_MANY_WATCHES)
        watch = Watch(key, value, self._forget)
        self._watches.add(watch)
        return watch

    def _forget(self, watch: Watch) -> None:
        # No lock: the garbage collector may call this anywhere.
        self._watches.discard(watch)
        self.store.watches.disarm(watch)


def _undisturbed(work: Callable[[], object]) -> None:
    """Do what must not be left half where nothing interrupts it."""
    try:
        closer.start()
    except EngineError:
        work()
    else:
        closer.call(work)


def _before_fork() -> None:
    # Held until after the fork, so that no thread opens a store between.
    open_stores.lock.acquire()
    for store in open_stores.stores.values():
        store.before_fork()


def _after_fork(in_child: bool) -> None:
    if in_child:
        open_stores.lock = world.Lock()
        timers.after_fork()
    for path, store in list(open_stores.stores.items()):
        try:
            store.after_fork(in_child)
        except (OSError, StoreFileError):
            # Its files are gone: the child has it not open. The others must not stay locked.
            store.file.shared.closed = True
            del open_stores.stores[path]
    if not in_child:
        open_stores.lock.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(in_child=False),
    after_in_child=lambda: _after_fork(in_child=True),
)

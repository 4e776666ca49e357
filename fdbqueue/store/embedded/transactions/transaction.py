"""The state of a transaction, the checks before every call, and its options.

The operations are functions in the modules beside this one: `read_view` decides what to read at,
`reads` and `writes` are the operations, `lifecycle` commits, retries and ends. Those whose names
begin with `fdb_transaction_` are functions of the C library, called with the number of a
transaction in `live`. Each holds the lock and first checks, in FoundationDB's order: an error left
by an earlier call, use during or after a commit, a cancellation, a timeout. A transaction that is
`plain` has nothing to check, and no option that an operation must ask for.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Sequence
from typing import Any

from ... import world
from .. import codes
from ..codes import Fault
from ..futures import PendingFuture
from ..storage.database import EmbeddedDatabase
from ..storage.snapshots import Snapshot
from ..storage.watches import Watch
from ..timers import TimedCall, timers
from ..transaction_options import PERSISTENT, READ_YOUR_WRITES_DISABLE, TIMEOUT
from .commit_requests import Mutation
from .ranges import KeySet, Range
from .size_limits import RANGE_BYTES, SPECIAL, SYSTEM
from .write_map import WriteMap

Handle = Any
"""The number of a transaction."""

FIRST_DELAY = 0.01
NO_VERSION = -1
# Represents every empty list; appending first makes a new one.
NONE: list[Any] = []
# What a retry does not change.
_LASTING = frozenset(
    {"database", "store", "lock", "options", "begun", "persistent", "retries", "delay", "conflicts"}
    | {"committed_version", "conflicting"}
)


class EmbeddedTransaction:
    """One transaction of the bindings, usable by several threads under its lock.

    Attributes:
        begun: when the timeout began to run, by the monotonic clock.
        snapshot: what it reads, once it has read; opened by `view`.
        writes: its own writes, and the conflict ranges that they take.
        reads: the keys and ranges whose change makes its commit fail.
    """

    # What a new transaction starts with; the lists are made when they are first needed.

    plain = True
    """Whether none of the next four is set, and no option to ask for: one test in every call."""
    deferred = 0
    fault = 0
    commit_started = False
    deadline = 0.0

    read_version: int | None = None
    read_until = 0.0
    read_anything = False
    read_error: Exception | None = None
    """A read that failed makes the commit fail too."""

    direct: list[Mutation] = NONE
    """The mutations, when they are not read back."""
    stamped_keys: list[bytes] = NONE
    approximate = 0
    """How large the commit will be, roughly."""

    watching: list[Watch] = NONE
    waiting: list[PendingFuture] = NONE
    """The pending futures, which end with the transaction."""
    alarm: TimedCall | None = None
    """What lets them fail when the time is up."""
    stamps: list[PendingFuture] = NONE
    stamp_error = 0

    committed = False
    order = 0
    """The place of the commit among those of the same version."""
    commit_error = 0
    """An error for the commit only."""

    # These outlive a retry.
    committed_version = NO_VERSION
    """Of the last commit that was made, unless one without writes came later."""
    conflicting: Sequence[Range] = ()
    """The ranges read that made the last commit fail, if it was asked to report them."""
    persistent: list[tuple[int, bytes | None]] = NONE
    retries = 0
    delay = FIRST_DELAY
    conflicts = 0
    """How many attempts in a row have conflicted."""
    turn = 0
    """See ``Snapshots.take_turn``."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self.database = database
        self.store = database.store
        self.lock = RLock()
        self.options = database.options
        if self.options.changed:
            self.plain = False
        self.begun = world.monotonic()
        self.snapshot: Snapshot | None = None
        self.writes = WriteMap()
        self.reads = KeySet()
        if self.options.timeout:
            self.restart_timeout()

    def clear(self) -> None:
        """Forget everything but what a retry keeps."""
        if self.alarm is not None:
            self.alarm.cancel()
        # What is not set falls back to the class: a new transaction makes no lists.
        kept = {name: value for name, value in vars(self).items() if name in _LASTING}
        vars(self).clear()
        vars(self).update(kept)
        self.snapshot = None
        self.writes = WriteMap()
        self.reads = KeySet()

    # The order of these checks is the client's: the bindings' tests can tell the difference.

    def check(self) -> None:
        """Raise what the transaction must fail with now."""
        if self.deferred:
            raise Fault(self.deferred)
        self.check_use()
        self.check_fault()

    def check_use(self) -> None:
        """Raise if the transaction is used during or after its commit."""
        if self.commit_started:
            if not self.fault and not self.options.reuse_during_commit:
                self.fail_all(codes.USED_DURING_COMMIT)
            raise Fault(codes.USED_DURING_COMMIT)

    def check_fault(self) -> None:
        """Raise if the transaction was cancelled, has failed or is out of time."""
        if not self.fault and self._is_out_of_time():
            self.fail_all(codes.TIMED_OUT)
        if self.fault:
            raise Fault(self.fault)

    def _is_out_of_time(self) -> bool:
        return bool(self.deadline) and world.monotonic() >= self.deadline

    def fail_all(self, code: int) -> None:
        """Fail every pending future and every later call, until the transaction is reset."""
        self.fault = code
        self.plain = False
        for future in self.take_waiting():
            future.fail(code)

    def defer(self, error: Fault) -> None:
        """Let the next call that can fail report an error of one that cannot."""
        if not self.deferred:
            self.deferred = error.code
            self.plain = False

    # Options

    def set_option(self, option: int, value: bytes | None) -> None:
        """Set an option; a bad value is reported by the next call that can fail."""
        with self.lock:
            if self.deferred:
                return
            try:
                if option == TIMEOUT and self._is_out_of_time():
                    # A new timeout does not undo one that has fired.
                    self.fail_all(codes.TIMED_OUT)
                # Writes that reads would no longer see have been read back, or may have been: too
                # late, as on a cluster.
                if option == READ_YOUR_WRITES_DISABLE and (self.read_anything or self.writes):
                    raise Fault(codes.INVALID_OPERATION)
                self.options = self.options.having(option, value)
                if self.options.changed:
                    self.plain = False
                if option == TIMEOUT:
                    self.restart_timeout()
                if option in PERSISTENT:
                    self.persistent = [*self.persistent, (option, value)]
            except Fault as error:
                self.defer(error)

    def restore_options(self) -> None:
        """Go back to the defaults and to the options that persist."""
        self.options = self.database.options
        if self.persistent:
            for option, value in self.persistent:
                self.options = self.options.having(option, value)
        if self.options.changed:
            self.plain = False
        if self.options.timeout:
            self.restart_timeout()

    def restart_timeout(self) -> None:
        """Count the timeout from the beginning of the transaction."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        timeout = self.options.timeout
        if not timeout:
            self.deadline = 0.0
            return
        self.deadline = self.begun + timeout
        self.plain = False
        if self.waiting:
            self.alarm = timers.call_at(self.deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        with self.lock:
            if not self.fault and self._is_out_of_time():
                self.fail_all(codes.TIMED_OUT)

    def wait_with(self, future: PendingFuture) -> None:
        """Let a pending future end with the transaction."""
        if self.deadline and self.alarm is None:
            self.alarm = timers.call_at(self.deadline, self._on_deadline)
        if not self.waiting:
            self.waiting = []
        self.waiting.append(future)

    def take_waiting(self) -> list[PendingFuture]:
        """Take the pending futures off the transaction."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        waiting, self.waiting = self.waiting, NONE
        return waiting

    # Limits and conflicts

    @property
    def read_limit(self) -> bytes:
        """The first key that may not be read."""
        return SPECIAL if self.options.read_system_keys else SYSTEM

    @property
    def write_limit(self) -> bytes:
        """The first key that may not be written."""
        return SPECIAL if self.options.write_system_keys else SYSTEM

    def note_read_range(self, begin: bytes, end: bytes) -> None:
        """Conflict with later writes in a range, except where own writes make them irrelevant."""
        if begin >= end:
            return
        if self.options.read_your_writes_disabled:
            self.reads.add_range(begin, end)
            return
        if not self.writes.shadows:
            self.reads.add_range(begin, end)
            self.approximate += len(begin) + len(end) + RANGE_BYTES
            return
        # What the transaction has overwritten itself cannot make its result depend on others.
        for part in self.writes.unmodified(begin, end):
            self.reads.add_range(*part)
            self.approximate += len(begin) + len(end) + RANGE_BYTES


live: dict[Handle, EmbeddedTransaction] = {}
"""The transactions of this process by their handles."""

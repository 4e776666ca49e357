"""A transaction: its state, its options, its writes, and the way to commit and retry it.

Every method that the bindings reach checks first, in FoundationDB's order: an error that an
earlier call left behind, use while or after a commit, a cancellation, a timeout.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from . import atomic, codes, faults, special
from .codes import Fault
from .commit import CommitRequest, Mutation
from .database import Database
from .errors import StoreError
from .futures import Future, Pending, failed
from .options import PERSISTENT, Options
from .ranges import KeySet, Range
from .reading import Reader, Selector, key_conflict, range_conflict
from .snapshots import LIFETIME, Snapshot
from .timers import timers
from .versions import ANNOUNCED, VERSIONS_PER_SECOND
from .watches import Watch
from .writemap import WriteMap

SYSTEM = b"\xff"
SPECIAL = b"\xff\xff"
METADATA_VERSION = b"\xff/metadataVersion"
_METADATA_OPERAND = b"\0" * 14
KEY_LIMIT = 10_000
SYSTEM_KEY_LIMIT = 30_000
# A tenant's prefix, which raw access makes room for.
_PREFIX_BYTES = 8
# What the client counts for a mutation and for a conflict range beside their keys and values.
_MUTATION_BYTES = 44
_RANGE_BYTES = 24
_FIRST_DELAY = 0.01
_DELAY_GROWTH = 2.0
_SHORT_DELAY = 0.01
_FUTURE_PATIENCE = 1.0
_NO_VERSION = -1
# Stands for every list that is still empty; whoever appends makes a new one first.
_NONE: list[Any] = []
# What every successful commit returns; nothing can be changed or released in it.
_DONE = Future()
# What a retry does not change.
_LASTING = frozenset(
    {"database", "_store", "_lock", "_options", "_begun", "_persistent", "_retries", "_delay"}
)


def _write_key_limit(key: bytes, raw_access: bool) -> int:
    if key.startswith(SYSTEM):
        return SYSTEM_KEY_LIMIT
    return KEY_LIMIT + (_PREFIX_BYTES if raw_access else 0)


def _longest(key: bytes) -> int:
    """The longest key that can exist beside a key; longer ones are cut or ignored."""
    return _write_key_limit(key, True)


def _cut(key: bytes) -> bytes:
    limit = _longest(key)
    return key if len(key) <= limit else key[: limit + 1]


class Transaction:
    """One transaction of the bindings, usable by several threads."""

    # What a new transaction starts with; the lists are made when they are first needed.

    # True when any of the next four needs a look; one test on the way of every call.
    _guarded = False
    _deferred = 0
    _fault = 0
    _commit_started = False
    _deadline = 0.0
    _read_version: int | None = None
    _read_until = 0.0
    _read_anything = False
    _read_error: Exception | None = None
    _direct: list[Mutation] = _NONE
    _watching: list[Watch] = _NONE
    _waiting: list[Pending] = _NONE
    _stamps: list[Pending] = _NONE
    _stamped_keys: list[bytes] = _NONE
    _order = 0
    _stamp_error = 0
    _approximate = 0
    _committed_version = _NO_VERSION
    _commit_error = 0
    _conflicting: Sequence[KeySet] = ()

    # These outlive a retry.
    _persistent: list[tuple[int, bytes | None]] = _NONE
    _retries = 0
    _delay = _FIRST_DELAY

    def __init__(self, database: Database) -> None:
        self.database = database
        self._store = database.store
        self._lock = threading.RLock()
        self._options = database.options
        self._begun = time.monotonic()
        self._snapshot: Snapshot | None = None
        self._writes = WriteMap()
        self._reads = KeySet()
        if self._options.timeout:
            self._restart_timeout()

    def _clear_state(self) -> None:
        kept = {name: value for name, value in vars(self).items() if name in _LASTING}
        vars(self).clear()
        vars(self).update(kept)
        self._snapshot = None
        self._writes = WriteMap()
        self._reads = KeySet()

    # The order of these checks is the client's: the bindings' tests can tell the difference.

    def _check(self) -> None:
        if self._deferred:
            raise Fault(self._deferred)
        self._check_use()
        self._check_fault()

    def _check_use(self) -> None:
        if self._commit_started:
            if not self._fault and not self._options.reuse_during_commit:
                self._fail_all(codes.USED_DURING_COMMIT)
            raise Fault(codes.USED_DURING_COMMIT)

    def _check_fault(self) -> None:
        if not self._fault and self._deadline and time.monotonic() >= self._deadline:
            self._fail_all(codes.TIMED_OUT)
        if self._fault:
            raise Fault(self._fault)

    def _fail_all(self, code: int) -> None:
        """Let every pending future and every later call fail, until the transaction is reset."""
        self._fault = code
        self._guarded = True
        waiting, self._waiting = self._waiting, _NONE
        for future in waiting:
            future.fail(code)

    def _defer(self, error: Fault) -> None:
        if not self._deferred:
            self._deferred = error.code
            self._guarded = True

    # Options and life cycle

    def set_option(self, option: int, value: bytes | None) -> None:
        """Set an option; a bad value is reported by the next call that can fail."""
        with self._lock:
            if self._deferred:
                return
            try:
                if option == 500 and self._deadline and time.monotonic() >= self._deadline:
                    # A new timeout does not undo one that has fired.
                    self._fail_all(codes.TIMED_OUT)
                if option == 51 and (self._read_anything or self._writes):
                    raise Fault(codes.INVALID_OPERATION)
                options = self._options.copy()
                options.set(option, value)
                self._options = options
                if option == 500:
                    self._restart_timeout()
                if option in PERSISTENT:
                    self._persistent = [*self._persistent, (option, value)]
            except Fault as error:
                self._defer(error)

    def _restart_timeout(self) -> None:
        timeout = self._options.timeout
        if not timeout:
            self._deadline = 0.0
            return
        self._deadline = self._begun + timeout
        self._guarded = True
        if self._waiting:
            timers.call_at(self._deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        with self._lock:
            if self._deadline and not self._fault and time.monotonic() >= self._deadline:
                self._fail_all(codes.TIMED_OUT)

    def _wait_with(self, future: Pending) -> None:
        """Let a pending future share the fate of the transaction."""
        if not self._waiting:
            self._waiting = []
        self._waiting.append(future)
        if self._deadline:
            timers.call_at(self._deadline, self._on_deadline)

    def cancel(self) -> None:
        """Cancel the transaction until it is reset."""
        with self._lock:
            if not self._fault:
                self._fail_all(codes.CANCELLED)

    def reset(self) -> None:
        """Make the transaction as new."""
        with self._lock:
            self._start_over()
            self._clear_state()
            self._options = self.database.options
            self._persistent = _NONE
            self._retries = 0
            self._delay = _FIRST_DELAY
            self._begun = time.monotonic()
            if self._options.timeout:
                self._restart_timeout()

    def destroy(self) -> None:
        """End the transaction; called when the bindings drop their last reference."""
        if self._snapshot is not None or self._waiting or self._watching:
            self._abandon(codes.CANCELLED)

    def _start_over(self) -> None:
        """End what the transaction was doing, for a reset or a retry."""
        # The client drops its promise of a versionstamp before it cancels anything.
        for stamp in self._stamps:
            stamp.fail(codes.BROKEN_PROMISE)
        self._abandon(codes.CANCELLED)

    def _abandon(self, code: int) -> None:
        self._release_snapshot()
        waiting, self._waiting = self._waiting, _NONE
        watching, self._watching = self._watching, _NONE
        for future in (*waiting, *watching):
            future.fail(code)

    def _release_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._store.snapshots.release(snapshot)

    def _retry_state(self) -> None:
        """Start over after an error, keeping the options that persist."""
        self._abandon(codes.CANCELLED)
        self._clear_state()
        self._options = self.database.options
        if self._persistent:
            options = self._options.copy()
            for option, value in self._persistent:
                options.set(option, value)
            self._options = options
        if self._options.timeout:
            self._restart_timeout()

    # Versions

    def set_read_version(self, version: int) -> None:
        """Read at a given version instead of the newest."""
        with self._lock:
            if self._deferred:
                return
            if self._read_version is not None:
                self._defer(Fault(codes.READ_VERSION_SET))
            elif version <= 0:
                self._defer(Fault(codes.VERSION_INVALID))
            else:
                self._read_version = version

    def get_read_version(self) -> Future:
        """The version that reads see."""
        with self._lock:
            try:
                if self._guarded:
                    if self._deferred:
                        raise Fault(self._deferred)
                    self._check_fault()
                if self._read_version is None:
                    self._store.snapshots.keep(self._open_snapshot())
                return Future(self._read_version)
            except Exception as error:
                return Future(error=error)

    def _open_snapshot(self) -> Snapshot:
        snapshots = self._store.snapshots
        if faults.active is not None:
            faults.active.before_read()
        if self._read_version is None:
            self._snapshot, self._read_version = snapshots.acquire()
            self._read_until = time.monotonic() + LIFETIME
        else:
            age = self._age(self._read_version)
            if age > LIFETIME:
                raise Fault(codes.TOO_OLD)
            if age < 0:
                # A storage server waits as long for a version before it gives up.
                time.sleep(min(-age, _FUTURE_PATIENCE))
                age = self._age(self._read_version)
            self._snapshot = snapshots.acquire_at(self._read_version)
            if self._snapshot is None:
                raise Fault(codes.TOO_OLD if age >= 0 else codes.FUTURE_VERSION)
            self._read_until = time.monotonic() + LIFETIME - max(age, 0.0)
        return self._snapshot

    def _age(self, version: int) -> float:
        return (self._store.clock.now() - version) / VERSIONS_PER_SECOND

    def get_committed_version(self) -> int:
        """The version of the commit, or -1 if there was none or nothing was written."""
        version = self._committed_version
        if version == self._store.file.shared.words[ANNOUNCED]:
            # The program may read at this version later, when it is no longer the newest.
            with contextlib.suppress(StoreError):
                snapshot, _ = self._store.snapshots.acquire()
                self._store.snapshots.keep(snapshot)
                self._store.snapshots.release(snapshot)
        return version

    def get_versionstamp(self) -> Future:
        """The versionstamp of the commit, once it is made."""
        with self._lock:
            try:
                if self._guarded:
                    self._check()
            except Fault as error:
                return failed(error.code)
            future = Pending()
            self._wait_with(future)
            self._stamps = [*self._stamps, future]
            return future

    # Reads

    @property
    def _read_limit(self) -> bytes:
        return SPECIAL if self._options.read_system_keys else SYSTEM

    @property
    def _write_limit(self) -> bytes:
        return SPECIAL if self._options.write_system_keys else SYSTEM

    def _reader(self, snapshot: int) -> Reader:
        """What reads must go through now; opens the snapshot with the first read."""
        self._read_anything = True
        view = self._snapshot
        if view is None:
            view = self._open_snapshot()
        elif time.monotonic() > self._read_until:
            raise Fault(codes.TOO_OLD)
        elif faults.active is not None:
            faults.active.before_read()
        options = self._options
        hidden = options.read_your_writes_disabled or (
            snapshot and options.snapshot_reads_writes <= 0
        )
        return Reader(
            view, None if hidden else self._writes, self._read_limit, options.bypass_unreadable
        )

    def get(self, key: bytes, snapshot: int) -> Future:
        """The value of a key, or None."""
        with self._lock:
            try:
                if key.startswith(SPECIAL):
                    return Future(special.get(self, key))
                if self._guarded:
                    self._check()
                if key >= SYSTEM and key >= self._read_limit and key != METADATA_VERSION:
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                if len(key) > KEY_LIMIT and len(key) > _longest(key):
                    return Future(None)
            except Fault as error:
                return failed(error.code)
            try:
                return Future(self._get(key, snapshot))
            except Exception as error:
                return self._failed_read(error)

    def _failed_read(self, error: Exception) -> Future:
        """A read that failed makes the commit fail too, with the same error."""
        if self._read_error is None:
            self._read_error = error
        return Future(error=error)

    def _get(self, key: bytes, snapshot: int) -> bytes | None:
        self._read_anything = True
        view = self._snapshot
        if view is None:
            view = self._open_snapshot()
        elif time.monotonic() > self._read_until:
            raise Fault(codes.TOO_OLD)
        elif faults.active is not None:
            faults.active.before_read()
        writes = self._writes
        options = self._options
        if options.read_your_writes_disabled:
            if not snapshot:
                self._reads.keys.add(key)
            return view.get(key)
        if (snapshot and options.snapshot_reads_writes <= 0) or not writes.shadows:
            if not snapshot:
                self._note_read_key(key)
            return view.get(key)
        if writes.unreadable.begins and not options.bypass_unreadable and key in writes.unreadable:
            raise Fault(codes.UNREADABLE)
        if writes.stack(key) is not None:
            old = None
            if not writes.is_independent(key):
                old = view.get(key)
                if not snapshot:
                    self._note_read_key(key)
            return writes.value(key, old)
        if key in writes.cleared:
            return None
        if not snapshot:
            self._note_read_key(key)
        return view.get(key)

    def _note_read_key(self, key: bytes) -> None:
        self._reads.keys.add(key)
        self._approximate += 2 * len(key) + 1 + _RANGE_BYTES

    def _note_read_range(self, begin: bytes, end: bytes) -> None:
        if begin >= end:
            return
        if self._options.read_your_writes_disabled:
            self._reads.add_range(begin, end)
            return
        for part in self._writes.unmodified(begin, end):
            self._reads.add_range(*part)
            self._approximate += len(begin) + len(end) + _RANGE_BYTES

    def get_key(self, key: bytes, or_equal: int, offset: int, snapshot: int) -> Future:
        """The key that a selector stands for."""
        with self._lock:
            try:
                if self._guarded:
                    self._check()
                limit = self._read_limit
                if key > limit:
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            except Fault as error:
                return failed(error.code)
            try:
                selector = Selector.of(key, or_equal, offset)
                found = self._reader(snapshot).resolve(selector).key
                if not snapshot:
                    self._note_read_range(*key_conflict(selector, found))
                return Future(min(found, limit))
            except Exception as error:
                return self._failed_read(error)

    def get_range(
        self,
        begin_key: bytes,
        begin: Selector,
        end_key: bytes,
        end: Selector,
        limit: int,
        byte_limit: int,
        snapshot: int,
        reverse: int,
    ) -> Future:
        """The rows between two selectors, and whether there may be more."""
        with self._lock:
            try:
                if begin_key.startswith(SPECIAL) and end_key.startswith(SPECIAL):
                    rows = special.get_range(self, begin, end, limit, bool(reverse))
                    return Future((rows, False))
                if self._guarded:
                    self._check()
                legal = self._read_limit
                if begin_key > legal or end_key > legal:
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                if limit < -1 or byte_limit < -1:
                    raise Fault(codes.LIMITS_INVALID)
                if begin.offset >= end.offset and begin.key >= end.key:
                    return Future(([], False))
            except Fault as error:
                return failed(error.code)
            try:
                reader = self._reader(snapshot)
                result = reader.range(begin, end, limit, byte_limit, bool(reverse))
                if not snapshot:
                    self._note_read_range(*range_conflict(begin, end, result, bool(reverse), legal))
                return Future((result.rows, result.more))
            except Exception as error:
                return self._failed_read(error)

    def get_estimated_range_size(self, begin: bytes, end: bytes) -> Future:
        """The size in bytes of the keys and values in a range."""
        with self._lock:
            try:
                if begin > end:
                    raise Fault(codes.INVERTED_RANGE)
                if self._guarded:
                    self._check()
                return Future(sum(size for _, size in self._sizes(begin, end)))
            except Exception as error:
                return Future(error=error)

    def get_range_split_points(self, begin: bytes, end: bytes, chunk: int) -> Future:
        """Keys that cut a range into chunks of about a given size, its ends included."""
        with self._lock:
            try:
                if begin > end:
                    raise Fault(codes.INVERTED_RANGE)
                if self._guarded:
                    self._check()
                if begin > self._read_limit or end > self._read_limit:
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                points = [begin]
                filled = 0
                for key, size in self._sizes(begin, end):
                    if filled >= chunk:
                        points.append(key)
                        filled = 0
                    filled += size
                if points[-1] != end:
                    points.append(end)
                return Future(points)
            except Exception as error:
                return Future(error=error)

    def _sizes(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, int]]:
        """The sizes of the rows in a range now, whatever version the transaction reads at."""
        snapshot, _ = self._store.snapshots.acquire()
        try:
            yield from snapshot.sizes(begin, end)
        finally:
            self._store.snapshots.release(snapshot)

    def get_addresses_for_key(self, key: bytes) -> Future:
        """Where a key is stored."""
        with self._lock:
            try:
                if self._guarded:
                    self._check()
                return Future([b"127.0.0.1:4500"])
            except Fault as error:
                return failed(error.code)

    # Writes. What is wrong with one is reported by the next call that can fail.

    def set(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        with self._lock:
            try:
                if self._guarded:
                    if self._deferred:
                        return
                    self._check_use()
                if key >= SYSTEM:
                    if key == METADATA_VERSION:
                        raise Fault(codes.INVALID_OPERATION)
                    if key.startswith(SPECIAL):
                        special.write(self, key)
                        return
                    if key >= self._write_limit:
                        raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                conflict = self._takes_conflict()
                size = len(key)
                self._approximate += size + len(value) + _MUTATION_BYTES
                if conflict:
                    self._approximate += _RANGE_BYTES + 2 * size + 1
                self._require_size(key, value)
                if self._options.read_your_writes_disabled:
                    self._write_directly(atomic.SET, key, value, conflict)
                    return
                self._writes.mutate(atomic.SET, key, value, conflict)
                if self._watching:
                    self._trigger(key, key + b"\0", value, known=True)
            except Fault as error:
                self._defer(error)

    def _require_size(self, key: bytes, value: bytes) -> None:
        if len(key) > KEY_LIMIT and len(key) > _write_key_limit(key, self._options.raw_access):
            raise Fault(codes.KEY_TOO_LARGE)
        if len(value) > atomic.VALUE_LIMIT:
            raise Fault(codes.VALUE_TOO_LARGE)

    def _takes_conflict(self) -> bool:
        """Whether the present write conflicts; the option against it holds for one write."""
        if not self._options.next_write_no_conflict:
            return True
        self._options = self._options.copy()
        self._options.next_write_no_conflict = False
        return False

    def _write_directly(self, op: int, key: bytes, value: bytes | None, conflict: bool) -> None:
        if not self._direct:
            self._direct = []
        self._direct.append((op, key, value))
        if conflict:
            if op == atomic.CLEAR_RANGE and value is not None:
                self._writes.conflicts.add_range(key, value)
            else:
                self._writes.conflicts.keys.add(key)

    def atomic_op(self, key: bytes, operand: bytes, op: int) -> None:
        """Apply an atomic mutation to a key."""
        with self._lock:
            try:
                if self._guarded and self._deferred:
                    return
                conflict = self._takes_conflict()
                if self._guarded:
                    self._check_use()
                if key == METADATA_VERSION:
                    if op != atomic.SET_VERSIONSTAMPED_VALUE or operand != _METADATA_OPERAND:
                        raise Fault(codes.INVALID_OPERATION)
                elif key >= self._write_limit:
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                if op not in atomic.ATOMIC_TYPES:
                    raise Fault(codes.INVALID_MUTATION)
                self._require_size(key, operand)
                op = atomic.modern(op)
                if op == atomic.SET_VERSIONSTAMPED_KEY:
                    key = self._stamped_key(key)
                    conflict = False
                elif op == atomic.SET_VERSIONSTAMPED_VALUE:
                    atomic.stamp_offset(operand)
                self._approximate += len(key) + len(operand) + _MUTATION_BYTES
                if conflict:
                    self._approximate += _RANGE_BYTES + 2 * len(key) + 1
                if self._options.read_your_writes_disabled:
                    self._write_directly(op, key, operand, conflict)
                    return
                self._writes.mutate(op, key, operand, conflict)
                if self._watching:
                    self._trigger(key, key + b"\0", None, known=False)
            except Fault as error:
                self._defer(error)

    def _stamped_key(self, key: bytes) -> bytes:
        """Note a versionstamped key: nothing that it may become can be read back."""
        version = self._read_version or 0
        begin, end = atomic.stamp_range(key, version, self._read_limit)
        if not self._stamped_keys:
            self._stamped_keys = []
        self._stamped_keys.append(key)
        if not self._options.read_your_writes_disabled and begin < end:
            self._writes.make_unreadable(begin, end)
        offset = atomic.stamp_offset(key)
        after = offset + atomic.STAMP_BYTES
        return key[:offset] + atomic.stamp(version, 0) + key[after:]

    def clear(self, key: bytes) -> None:
        """Clear a key."""
        with self._lock:
            try:
                if self._guarded and self._deferred:
                    return
                conflict = self._takes_conflict()
                if self._guarded:
                    self._check_use()
                if key.startswith(SPECIAL):
                    special.write(self, key)
                    return
                if key >= self._write_limit:
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                if len(key) > _longest(key):
                    return
                if self._options.read_your_writes_disabled:
                    self._write_directly(atomic.CLEAR_RANGE, key, None, conflict)
                    return
                size = 2 * len(key) + 1
                self._approximate += (size + _RANGE_BYTES) * (2 if conflict else 1)
                self._writes.clear(key, key + b"\0", conflict)
                if self._watching:
                    self._trigger(key, key + b"\0", None, known=True)
            except Fault as error:
                self._defer(error)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clear a range."""
        with self._lock:
            try:
                if self._guarded and self._deferred:
                    return
                if begin > end:
                    raise Fault(codes.INVERTED_RANGE)
                conflict = self._takes_conflict()
                if self._guarded:
                    self._check_use()
                if begin.startswith(SPECIAL) and end.startswith(SPECIAL):
                    special.write(self, begin)
                    return
                limit = self._write_limit
                if begin > limit or end > limit:
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                size = len(begin) + len(end)
                self._approximate += size + _MUTATION_BYTES
                if conflict:
                    self._approximate += _RANGE_BYTES + size
                begin, end = _cut(begin), _cut(end)
                if begin >= end:
                    return
                if self._options.read_your_writes_disabled:
                    self._write_directly(atomic.CLEAR_RANGE, begin, end, conflict)
                    return
                self._writes.clear(begin, end, conflict)
                if self._watching:
                    self._trigger(begin, end, None, known=True)
            except Fault as error:
                self._defer(error)

    def add_conflict_range(self, begin: bytes, end: bytes, kind: int) -> int:
        """Add a read (0) or write (1) conflict range; an error code for what cannot be a range."""
        if begin > end:
            return codes.INVERTED_RANGE
        if kind not in (0, 1):
            return codes.INVALID_OPERATION
        with self._lock:
            try:
                if self._guarded:
                    if self._deferred:
                        return 0
                    self._check_use()
                limit = self._write_limit if kind else self._read_limit
                metadata = (METADATA_VERSION, METADATA_VERSION + b"\0")
                if (begin > limit or end > limit) and (kind or (begin, end) != metadata):
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                begin, end = _cut(begin), _cut(end)
                if begin >= end:
                    return 0
                if kind:
                    self._approximate += len(begin) + len(end) + _RANGE_BYTES
                    self._writes.conflicts.add_range(begin, end)
                else:
                    self._note_read_range(begin, end)
            except Fault as error:
                self._defer(error)
        return 0

    def get_approximate_size(self) -> Future:
        """How large the commit will be, roughly."""
        with self._lock:
            if self._deferred:
                return failed(self._deferred)
            return Future(self._approximate)

    def refuse(self, code: int) -> None:
        """Let every use fail, for a transaction that can do nothing."""
        self._defer(Fault(code))

    def fail_commit(self, code: int) -> None:
        """Let the commit fail, and nothing before it."""
        self._commit_error = code

    # Watches

    def watch(self, key: bytes) -> Future:
        """A future that is done once the value of the key has changed."""
        with self._lock:
            try:
                if self._guarded:
                    self._check()
                if self._options.read_your_writes_disabled:
                    raise Fault(codes.WATCHES_DISABLED)
                if key >= SPECIAL or (key >= self._read_limit and key != METADATA_VERSION):
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
                if len(key) > _write_key_limit(key, self._options.raw_access):
                    raise Fault(codes.KEY_TOO_LARGE)
                watch = self.database.new_watch(key, self._get(key, snapshot=0))
                if not self._watching:
                    self._watching = []
                self._watching.append(watch)
                return watch
            except Exception as error:
                return Future(error=error)

    def _trigger(self, begin: bytes, end: bytes, value: bytes | None, known: bool) -> None:
        """A write of this transaction that changes a watched value is a change like any other."""
        changed = [
            watch
            for watch in self._watching
            if begin <= watch.key < end and (not known or watch.value_seen != value)
        ]
        self._watching = [watch for watch in self._watching if watch not in changed]
        for watch in changed:
            watch.complete()

    # Commit and retry

    def commit(self) -> Future:
        """Commit; done when this returns."""
        with self._lock:
            try:
                if self._guarded:
                    self._check()
                self._commit_started = self._guarded = True
                if self._commit_error:
                    raise Fault(self._commit_error)
                if self._read_error is not None:
                    raise self._read_error
                request = self._request()
            except Exception as error:
                if self._commit_started:
                    self._finish(error)
                return Future(error=error)
            try:
                if request is not None:
                    self._commit(request)
                else:
                    self._stamp_error = codes.NO_COMMIT_VERSION
            except Exception as error:
                self._finish(error)
                return Future(error=error)
            self._finish(None)
            return _DONE

    def _request(self) -> CommitRequest | None:
        options = self._options
        writes = self._writes
        if not writes and not self._direct:
            return None
        if options.read_your_writes_disabled:
            mutations: Sequence[Mutation] = self._direct
        else:
            mutations = writes.mutations()
        if not mutations and not writes.conflicts:
            return None
        return CommitRequest(
            self._read_version,
            self._reads,
            writes.conflicts,
            mutations,
            self._approximate,
            options.report_conflicting_keys,
        )

    def _commit(self, request: CommitRequest) -> None:
        if self._options.read_only:
            raise Fault(codes.READ_ONLY)
        if self._approximate > self._options.size_limit and (
            _commit_size(request) > self._options.size_limit
        ):
            raise Fault(codes.TRANSACTION_TOO_LARGE)
        if request.read_version is not None:
            self._require_young(request.read_version)
        # A commit reads no more. A snapshot kept open while it waits for the commit lock would
        # keep whoever holds that lock, to let the log start over, waiting for this transaction.
        if self._snapshot is not None:
            self._release_snapshot()
        if self._store.snapshots.current is not None:
            self._store.snapshots.drop_idle(also_kept=False)
        if faults.active is not None:
            faults.active.commit(self._store.committer, request)
        else:
            self._store.committer.commit(request)
        if request.error is not None:
            self._conflicting = request.conflicting
            raise request.error
        self._committed_version = request.version
        self._order = request.order

    def _require_young(self, read_version: int) -> None:
        """A cluster forgets after five seconds what a transaction could conflict with."""
        if self._snapshot is not None:
            if time.monotonic() > self._read_until:
                raise Fault(codes.TOO_OLD)
        elif self._store.clock.now() - read_version > LIFETIME * VERSIONS_PER_SECOND:
            raise Fault(codes.TOO_OLD)

    def _stamp(self) -> bytes:
        return atomic.stamp(self._committed_version, self._order)

    def _finish(self, error: BaseException | None) -> None:
        if self._snapshot is not None:
            self._release_snapshot()
        if not self._waiting and not self._watching:
            if error is not None:
                self._stamp_error = codes.INVALID_VERSION
            return
        waiting, self._waiting = self._waiting, _NONE
        watching, self._watching = self._watching, _NONE
        if error is not None:
            self._stamp_error = codes.INVALID_VERSION
        for future in waiting:
            if self._stamp_error:
                future.fail(self._stamp_error)
            else:
                future.complete(self._stamp())
        for watch in watching:
            if error is not None:
                watch.complete(error=error)
            else:
                self._store.watches.arm(watch)

    def on_error(self, code: int) -> Future:
        """Wait and start over if the error is worth a retry; otherwise fail with it."""
        with self._lock:
            try:
                self._check_fault()
                exhausted = 0 <= self._options.max_retries <= self._retries
                self._retries += 1
                if exhausted:
                    raise Fault(code)
                delay = self._next_delay(code)
            except Fault as error:
                if not self._fault:
                    self._fail_all(codes.CANCELLED)
                return failed(error.code)
            self._start_over()
            future = Pending()
            self._wait_with(future)
        timers.call_later(delay, lambda: self._retry(future))
        return future

    def _next_delay(self, code: int) -> float:
        if code == 0:
            raise Fault(codes.INVALID_OPERATION)
        if code in codes.SHORT_DELAY:
            return min(_SHORT_DELAY, self._options.max_delay)
        if code not in codes.BACKOFF:
            raise Fault(code)
        delay = self._delay * random.random()
        self._delay = min(self._delay * _DELAY_GROWTH, self._options.max_delay)
        return delay

    def _retry(self, future: Pending) -> None:
        with self._lock:
            if future.ready:
                return
            self._waiting = [other for other in self._waiting if other is not future]
            self._retry_state()
        future.complete(None)

    # What the special keys tell about a transaction

    @property
    def options(self) -> Options:
        """The options in force."""
        return self._options

    def read_conflicts(self) -> list[Range]:
        """The ranges that the transaction has read."""
        return list(self._reads.coalesced())

    def write_conflicts(self) -> list[Range]:
        """The ranges that the transaction writes, versionstamped keys as ranges."""
        written = self._writes.conflicts.coalesced()
        for key in self._stamped_keys:
            if self._committed_version != _NO_VERSION:
                final = atomic.stamped(key, self._stamp())
                written.add(final, final + b"\0")
            else:
                written.add(*atomic.stamp_range(key, self._read_version or 0, self._read_limit))
        return list(written)

    def conflicting_ranges(self) -> list[Range]:
        """The ranges read that made the last commit fail, if it was asked to report them."""
        found = KeySet().coalesced()
        for begin, end in self._reads.coalesced():
            single = KeySet()
            single.add_range(begin, end)
            if any(written.intersects(single) for written in self._conflicting):
                found.add(begin, end)
        return list(found)


def _commit_size(request: CommitRequest) -> int:
    size = sum(
        _MUTATION_BYTES + len(key) + (len(operand) if operand is not None else len(key) + 1)
        for _, key, operand in request.mutations
    )
    for conflicts in (request.reads, request.writes):
        for begin, end in conflicts.coalesced():
            size += _RANGE_BYTES + len(begin) + len(end)
    return size

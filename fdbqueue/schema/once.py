"""Running a transaction exactly once, even if the outcome of a commit is unknown.

After ``commit_unknown_result`` a retry loop repeats a function that may have committed. Here every
attempt writes its number to a record, ONCE. After an unknown outcome the next attempt first reads
the record; if an earlier attempt committed, its result is returned. When the outcome is known, the
next operation of the process takes the record over, and goes on to count: a new key for each would
cost more, to write and to remove.

A transaction that times out during its commit may still commit later. So each attempt has a read
conflict on its record, and a client that must know the outcome commits a write conflict on it:
afterwards the record is there, or never will be.

This module also tells the attempts at a transaction apart. The bindings retry with the same
transaction object, which then reads at another version; object and version identify an attempt, in
the caller's retry loop as in ours.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar, TypeVarTuple

from msgspec import Struct, field

from ..errors import (
    OperationTimedOut,
    OutcomeUnknown,
    OwnWritesUnseen,
    TransactionShared,
    TransactionTooLarge,
    TransactionTooSlow,
)
from ..store import binding, client, world
from ..store.binding import FAILURES, fdb
from .keys import Minute, OnceKeys, QueueKeys, Record

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

KEPT_MINUTES = 10
"""For how many minutes, by the database's version, a record is kept at least."""

_VERSIONS_PER_MINUTE = 60_000_000
_TOO_LARGE = 2101
TOO_OLD = 1007
_TIMED_OUT = 1031
_SNAPSHOT_RYW_ENABLE = 600
MAX_TOO_OLD = 20
"""How often a transaction may be too old before it is given up, 100 seconds later. Those that read
half as much at each attempt come to a single row before that."""
_ASKING_MS = 5_000
"""How long to ask for the outcome of a commit that timed out."""

_LONGEST_MS = 2**31 - 1
_NUMBER_BYTES = 8

TRUSTED_SECONDS = 20.0
"""How long a process uses the minute that it read last, for the keys of new records."""

LET_OUT_ROWS = 500
LET_OUT_BYTES = 300_000
"""The most messages, and their bytes, that the ends of others let out in one transaction."""
MAX_SWEPT = 1_000
"""For how many queues a process remembers when it last removed their old records."""


class _Swept(dict[bytes, int]):
    """The minute up to which this process has last removed old records, by their prefix."""


_listeners: list[weakref.ref[Callable[[int], object]]] = []


def on_retry(listener: Callable[[int], object]) -> None:
    """Call ``listener`` with the error's code before each retry of a transaction, for metrics.

    Keeps only a weak reference to it.
    """
    held = weakref.WeakMethod if hasattr(listener, "__self__") else weakref.ref
    # Replaced in place, by one assignment: another thread may be going through it.
    _listeners[:] = [known for known in _listeners if known() is not None] + [held(listener)]


class TransactionAttempt(Struct, eq=False):
    """One attempt at a transaction.

    version: its read version; 0 until ``version`` reads it. retries: how often the transaction was
    retried. before: how many versions have passed since the previous attempt, 0 if unknown. taken:
    the READY keys that it has removed. given: the last index that it allocated, by the level's TAIL
    key. deaths: of how many messages it has made dead letters. let_out_rows, let_out_bytes: how
    much it may still let out of what waits. ours: whether an ``Operation`` runs and retries the
    transaction. brief: whether only an operation of the package runs in it. changed: whether it has
    changed messages. sees: whether it is known to see that. thread: the thread in which it has.
    """

    version: int = 0
    retries: int = 0
    previous: int = 0
    ours: bool = False
    brief: bool = False
    taken: set[bytes] = field(default_factory=set)
    given: dict[bytes, int] = field(default_factory=dict)
    deaths: int = 0
    let_out_rows: int = LET_OUT_ROWS
    let_out_bytes: int = LET_OUT_BYTES
    changed: bool = False
    sees: bool = False
    thread: int = 0

    @property
    def before(self) -> int:
        return self.version - self.previous if self.previous and self.version else 0

    def take(self, tr: fdb.Transaction, keys: QueueKeys, key: bytes) -> None:
        """Note that a ready message is removed. Raises ``OwnWritesUnseen`` and
        ``TransactionShared``."""
        self.own()
        if key in self.taken:
            self._doubt(tr, keys)
        self.taken.add(key)

    def put_back(self, key: bytes) -> None:
        """Note that a message is ready again at its position."""
        self.taken.discard(key)

    def give(self, tr: fdb.Transaction, keys: QueueKeys, tail: bytes, begin: int, end: int) -> None:
        """Note that indexes of a level are allocated. Raises ``OwnWritesUnseen`` and
        ``TransactionShared``."""
        self.own()
        if tail in self.given and begin <= self.given[tail]:
            self._doubt(tr, keys)
        self.given[tail] = end - 1

    def own(self) -> None:
        """Raise ``TransactionShared`` if another thread has changed messages in it."""
        thread = world.get_ident()
        if self.thread not in (0, thread):
            raise TransactionShared
        self.thread = thread

    def _doubt(self, tr: fdb.Transaction, keys: QueueKeys) -> None:
        """An earlier write is missing: the transaction does not see its own writes, or this is a
        new attempt that happens to read at the same version."""
        _insist(tr, keys)
        # Treated as a retry: ``place`` then leaps, as it would had the bindings told of the new
        # attempt.
        self.retries += 1
        self.taken.clear()
        self.given.clear()


_KNOWN = "_fdbqueue_attempt"
"""The attribute of a transaction that holds its ``TransactionAttempt``."""


def attempt(tr: fdb.Transaction) -> TransactionAttempt:
    """The current attempt of a transaction. No round trip after a read."""
    known: TransactionAttempt | None = tr.__dict__.get(_KNOWN)
    if known is not None and known.ours:
        return known
    # The bindings retry with the same object, so only a new read version tells that this is another
    # attempt.
    version = int(tr.get_read_version().wait())
    if known is None:
        known = TransactionAttempt(version)
    elif known.version == version:
        return known
    else:
        known = TransactionAttempt(version, known.retries + 1, known.version)
    tr.__dict__[_KNOWN] = known
    return known


def is_ours(tr: fdb.Transaction) -> bool:
    """Whether an ``Operation`` runs a transaction, and the caller has no part in it."""
    known: TransactionAttempt | None = tr.__dict__.get(_KNOWN)
    return known is not None and known.ours


def insist(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Raise ``OwnWritesUnseen`` if a transaction does not see its own writes. No round trip."""
    if not is_ours(tr):
        _insist(tr, keys)


def change(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Note that the transaction changes messages. The second change relies on having read the
    first, whole: raises ``OwnWritesUnseen`` and ``TransactionShared``. No round trip."""
    known = attempt(tr)
    # The package's own functions change messages once in a transaction, and set no options.
    if known.brief:
        return
    known.own()
    # Only at the second change, so that a transaction with one never pays for the probe.
    if known.changed and not known.sees:
        _insist(tr, keys)
        known.sees = True
    known.changed = True


def _insist(tr: fdb.Transaction, keys: QueueKeys) -> None:
    probe = keys.fence(0, 0)  # which nobody reads
    tr[probe] = b"?"
    seen = tr.snapshot.get(probe).present()  # Either option hides it, and this adds no conflict.
    del tr[probe]
    if not seen:
        raise OwnWritesUnseen


def version(tr: fdb.Transaction) -> int:
    """The version at which a transaction reads. No round trip after a read."""
    known: TransactionAttempt | None = tr.__dict__.get(_KNOWN)
    if known is None or not known.ours:
        known = attempt(tr)
    if not known.version:
        known.version = int(tr.get_read_version().wait())
    return known.version


class Witness(NamedTuple):
    """What tells that an attempt has committed: its mark stands in the value of a key.

    Nobody else writes the mark there: it is random, or the number of the attempt in its record.
    read: a key that the attempt has read, with a conflict.
    """

    key: bytes
    mark: bytes
    read: bytes

    def stands(self, tr: fdb.Transaction) -> bool:
        """Whether the mark is there."""
        value = tr.get(self.key).value
        return value is not None and self.mark in value


class Operation(Generic[R]):
    """One operation in a transaction of its own, retried until it commits, exactly once::

        operation = Operation(db, keys)
        while not operation.done:
            try:
                operation.commit(body(operation.tr))
            except FAILURES as error:
                operation.recover(error)
        return operation.result

    body: has no effect outside its transaction. The result is what it returned in the attempt that
        committed.
    brief: whether it does nothing but an operation of the package, and so takes little time.

    All attempts together may take ``keys.timeout`` seconds; where None, the database's own option
    limits each. Conflicts are retried until then. A transaction that is too large, or was too old
    ``MAX_TOO_OLD`` times, is not retried.
    """

    __slots__ = (
        "_committing",
        "_record",
        "_too_old",
        "_witness",
        "_witnesses",
        "db",
        "done",
        "keys",
        "result",
        "tr",
    )

    result: R

    def __init__(self, db: fdb.Database, keys: OnceKeys, *, brief: bool = True) -> None:
        if binding.forked:
            binding.check_process()
        self.db = db
        self.keys = keys
        self.done = False
        self.tr = tr = transaction(db, keys.timeout)
        _see(tr)
        tr.__dict__[_KNOWN] = TransactionAttempt(ours=True, brief=brief)
        self._committing = False
        self._too_old = 0
        # Taken before the transaction reads: it would conflict with a later end of the one before.
        # A record that is free, or a new one; None if the minute is too old, and must be read
        # again.
        self._record: Record | None = None
        minute = keys.latest
        if (
            minute.database is db
            and minute.until >= world.monotonic()
            and minute.process is world.current
        ):
            try:
                # ``pop`` is atomic: two threads never write the same record at once.
                self._record = minute.free.pop()
            except IndexError:
                self._record = keys.new(minute)
        self._witness: Callable[[], Witness] | None = None
        self._witnesses: list[tuple[Witness, R]] = []

    def commit(
        self, result: R, wrote: bool = True, witness: Callable[[R], Witness] | None = None
    ) -> None:
        """Commit the attempt.

        result: the operation's result if this attempt commits. wrote: whether the attempt wrote
        anything that must not be written twice. witness: leads from the result to what tells
        whether the attempt has committed; then no record is needed.
        """
        tr, sweeping = self.tr, False
        self.result, self._witness = result, None
        if wrote and witness is not None:
            self._witness = partial(witness, result)
        # What wrote nothing may be done twice: it needs no record.
        elif wrote:
            record = self._record
            if record is None:
                minute = self._read_minute()
                sweeping = world.remembered(_Swept).get(self.keys.prefix) != minute.number
                if sweeping:
                    self._sweep(minute.number)
                self._record = record = self.keys.new(minute)
            # Before the write: reading one's own write is no conflict.
            number = record.attempts.to_bytes(_NUMBER_BYTES, "little")
            tr.add_read_conflict_key(record.key)
            tr.set(record.key, number)
            record.attempts += 1
            self._witness = partial(Witness, record.key, number, record.key)
        self._committing = True
        # Up to here any failure is known to have written nothing; ``_committing`` says that this
        # holds no more.
        tr.commit().wait()
        record = self._record
        if record is not None:
            if sweeping:
                swept = world.remembered(_Swept)
                if len(swept) >= MAX_SWEPT:
                    swept.clear()
                swept[self.keys.prefix] = record.minute.number
            # Only now: while its outcome is open, another operation must not write its own number
            # there.
            record.minute.free.append(record)
        self.done = True

    def _read_minute(self) -> Minute:
        """Read the minute under which new records stand for ``TRUSTED_SECONDS``.

        So most operations need not read their version. A minute that is a little old shortens the
        time for which a record is kept, and ``_look_back`` goes by the record's own minute.
        """
        return self.keys.keep(self.db, _minute(self.tr), world.monotonic() + TRUSTED_SECONDS)

    def recover(self, error: Exception) -> None:
        """Prepare the next attempt after one of ``FAILURES``; done if an earlier one has committed.

        Raises, with nothing written, ``TransactionTooLarge``, ``TransactionTooSlow``,
        ``OperationTimedOut``, and the error itself if it cannot be retried. Raises
        ``OutcomeUnknown`` if the store does not answer, or the record may have been removed.
        """
        while True:
            if not isinstance(error, fdb.FDBError):
                self._give_up(error)
                return
            if error.code == _TOO_LARGE:
                raise TransactionTooLarge(problem="the transaction has too many bytes") from None
            # Once unknown, always unknown: a later failure does not settle this one.
            # Kept over all further retries: the attempt may still commit while later ones run,
            # until a read conflict or ``_settle`` ends that.
            if self._committing and self._witness is not None and _maybe_committed(error):
                self._witnesses.append((self._witness(), self.result))
            self._committing = False
            self._too_old += error.code == TOO_OLD
            try:
                # ``on_error`` would retry for ever what never gets done within five seconds.
                if self._too_old == MAX_TOO_OLD:
                    raise error
                self.tr.on_error(error).wait()
            except fdb.FDBError as last:
                self._give_up(last)
                return
            for known in list(_listeners):
                tell = known()
                if tell is not None:
                    tell(error.code)
            # ``on_error`` has reset the transaction, its options too.
            self._begin_again()
            if not self._witnesses:
                return
            try:
                self._look_back()
                return
            except FAILURES as another:
                # The look back may itself fail, even with an unknown outcome of its own: it is
                # recovered from like the attempt.
                error = another

    def _begin_again(self) -> None:
        _see(self.tr)
        last: TransactionAttempt = self.tr.__dict__[_KNOWN]
        retries, brief = last.retries + 1, last.brief
        self.tr.__dict__[_KNOWN] = TransactionAttempt(0, retries, last.version, True, brief)

    def _give_up(self, last: Exception) -> None:
        """Done if an attempt has committed; raises if none has."""
        for witness, result in self._witnesses:
            if _settle(self.db, witness):
                self.result, self.done = result, True
                return
        if isinstance(last, fdb.FDBError) and last.code == _TIMED_OUT:
            raise OperationTimedOut(seconds=self.keys.timeout) from last
        if self._too_old == MAX_TOO_OLD:
            raise TransactionTooSlow(times=self._too_old) from last
        raise last

    def _look_back(self) -> None:
        """Done if an earlier attempt has committed. The reads conflict with one in flight."""
        for witness, result in self._witnesses:
            if witness.stands(self.tr):
                self.result, self.done = result, True
                return
        # An earlier minute is that of another cluster, to which the database has switched.
        record = self._record
        # Old records are swept: then a missing one says nothing about whether its attempt
        # committed.
        if record is not None and not 0 <= _minute(self.tr) - record.minute.number < KEPT_MINUTES:
            raise OutcomeUnknown(minutes=KEPT_MINUTES)

    def _sweep(self, minute: int) -> None:
        # Records of later minutes come from another cluster, with copied data.
        for gone in (
            self.keys.before(minute - KEPT_MINUTES),
            self.keys.since(minute + KEPT_MINUTES),
        ):
            self.tr.clear_range(gone.start, gone.stop)


def run(
    db: fdb.Database,
    keys: OnceKeys,
    body: Callable[[fdb.Transaction, *Ts], R],
    *terms: *Ts,
    wrote: Callable[[R], bool] | None = None,
    brief: bool = True,
) -> R:
    """Run ``body`` with ``terms`` as an ``Operation``; returns the result.

    wrote: tells from a result whether anything was written that must not be written twice; where
        None, always.

    Spans transactions. Raises what ``Operation.recover`` raises.
    """
    operation: Operation[R] = Operation(db, keys, brief=brief)
    while not operation.done:
        try:
            result = body(operation.tr, *terms)
            operation.commit(result, wrote is None or wrote(result))
        except FAILURES as error:
            operation.recover(error)
    return operation.result


def transaction(db: fdb.Database, timeout: float | None) -> fdb.Transaction:
    """A transaction that may take, with its retries, ``timeout`` seconds."""
    tr = client.begin(db)
    if timeout is not None:
        _limit(tr, timeout)
    return tr


def _see(tr: fdb.Transaction) -> None:
    """Let a transaction see its own writes, whatever its database's options say. A retry resets the
    option."""
    # By number, past the bindings' option object: this runs for every transaction.
    tr.capi.fdb_transaction_set_option(tr.tpointer, _SNAPSHOT_RYW_ENABLE, None, 0)


def _limit(tr: fdb.Transaction, seconds: float) -> None:
    tr.options.set_timeout(int(min(max(1, seconds * 1000), _LONGEST_MS)))


def _maybe_committed(error: fdb.FDBError) -> bool:
    return error.code == _TIMED_OUT or bool(fdb.predicates.is_maybe_committed(error))


def _minute(tr: fdb.Transaction) -> int:
    return version(tr) // _VERSIONS_PER_MINUTE


def _settle(db: fdb.Database, witness: Witness) -> bool:
    """Whether an attempt has committed; if not, it never will.

    Raises ``OutcomeUnknown`` if the store does not answer.
    """
    try:
        tr = client.begin(db)
        tr.options.set_timeout(_ASKING_MS)
        while True:
            try:
                if witness.stands(tr):
                    return True
                # The attempt in flight has read this key with a conflict: once this commits, it
                # never can.
                tr.add_write_conflict_key(witness.read)
                tr.commit().wait()
                return False
            except fdb.FDBError as error:
                tr.on_error(error).wait()
    except FAILURES:
        raise OutcomeUnknown(minutes=KEPT_MINUTES) from None

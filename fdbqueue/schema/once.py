"""Exactly once, also when the outcome of a commit is unknown.

``commit_unknown_result`` makes a retry loop run a function again that may have committed. Here
every attempt writes its number under a token; an attempt that follows an unknown outcome reads
that key first, and if an earlier one did commit, returns what that one returned.

A transaction that ran out of time while it committed may still commit later, which nobody waits
for. So every attempt also has a read conflict on its record, and who wants to know the outcome
commits a write conflict on it: then the record is there, or never will be.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

from ..errors import OperationTimedOut, OutcomeUnknown, TransactionTooLarge, TransactionTooSlow
from ..store.binding import check_process, fdb
from .codec.atomic import pack_index, unpack_index
from .keys import OnceKeys

R = TypeVar("R")

TOKEN_BYTES = 16
KEPT_MINUTES = 10
"""How long, in minutes of the database's version, the record of a commit is kept at least."""

_VERSIONS_PER_MINUTE = 60_000_000
_TOO_LARGE = 2101
TOO_OLD = 1007
_TIMED_OUT = 1031
MAX_TOO_OLD = 20
"""How often a transaction may have lasted too long: 100 seconds are lost by then. Those that ask
for half as much each time come to one row before that."""
_ASKING_MS = 5_000
"""How long to ask for the outcome of a commit that ran out of time."""

MAX_SWEPT = 1_000
"""Queues of which a process remembers when it last removed their old records."""

_swept: dict[bytes, int] = {}
_listeners: list[weakref.ref[Callable[[int], object]]] = []


def on_retry(listener: Callable[[int], object]) -> None:
    """Call ``listener``, as long as somebody else holds it, with the error's code whenever a
    transaction is about to be retried; for metrics."""
    held = weakref.WeakMethod if hasattr(listener, "__self__") else weakref.ref
    _listeners[:] = [known for known in _listeners if known() is not None] + [held(listener)]


def run(
    db: fdb.Database,
    keys: OnceKeys,
    body: Callable[[fdb.Transaction], R],
    *,
    wrote: Callable[[R], bool] = lambda _: True,
) -> R:
    """Run ``body`` in a transaction of its own, exactly once; retry until it commits.

    body: must have no effect outside its transaction; what it returns for the attempt that
        committed is returned.
    wrote: whether a result means that something was written that must not be written twice.

    All attempts together may take ``keys.timeout`` seconds, or each as long as the database's
    own option says.

    Conflicts are retried until then. What repeating does not cure is not: a transaction that is
    too large, or that lasts too long ``MAX_TOO_OLD`` times.

    Spans transactions. Raises ``TransactionTooLarge``; ``TransactionTooSlow``, or
    ``OperationTimedOut`` if it did not end in time, and nothing was written; ``OutcomeUnknown`` if
    that cannot be told, or the records of this call's attempts may have been removed before it
    could look for them; ``fdb.FDBError`` for what cannot be retried.
    """
    check_process()
    tr = transaction(db, keys)
    token = os.urandom(TOKEN_BYTES)
    minute: int | None = None
    results: list[R] = []
    unknown = False
    too_old = 0
    while True:
        committing = False
        try:
            # No record, no harm: what wrote none may happen twice.
            if unknown and minute is not None:
                committed = _committed(tr, keys, minute, token)
                if committed is not None:
                    return results[committed]
            result = body(tr)
            if not wrote(result):
                committing = True
                tr.commit().wait()
                return result
            now = _minute(tr)
            minute = now if minute is None else minute
            record = keys.key(minute, token)
            tr.add_read_conflict_key(record)  # before it is written: what is one's own is no read
            tr[record] = pack_index(len(results))
            results.append(result)
            sweeping = _swept.get(keys.prefix) != now
            if sweeping:
                # Those of minutes to come are of another cluster, from which the data was copied.
                for gone in (keys.before(now - KEPT_MINUTES), keys.since(now + KEPT_MINUTES)):
                    tr.clear_range(gone.start, gone.stop)
            committing = True
            tr.commit().wait()
            if sweeping:
                if len(_swept) >= MAX_SWEPT:
                    _swept.clear()
                _swept[keys.prefix] = now
            return result
        except fdb.FDBError as error:
            if error.code == _TOO_LARGE:
                raise TransactionTooLarge(problem="the transaction has too many bytes") from None
            # Once unknown, always unknown: a later attempt that fails says nothing of this one.
            unknown = unknown or (committing and _maybe_committed(error))
            too_old += error.code == TOO_OLD
            try:
                if too_old == MAX_TOO_OLD:
                    raise error
                tr.on_error(error).wait()
            except fdb.FDBError as last:
                if last.code != _TIMED_OUT and too_old < MAX_TOO_OLD:
                    raise
                if unknown and minute is not None:
                    committed = _settle(db, keys, minute, token)
                    if committed is not None:
                        return results[committed]
                if last.code == _TIMED_OUT:
                    raise OperationTimedOut(seconds=keys.timeout) from last
                raise TransactionTooSlow(times=too_old) from last
            for known in list(_listeners):
                tell = known()
                if tell is not None:
                    tell(error.code)


def _maybe_committed(error: fdb.FDBError) -> bool:
    return error.code == _TIMED_OUT or bool(fdb.predicates.is_maybe_committed(error))


def transaction(db: fdb.Database, keys: OnceKeys) -> fdb.Transaction:
    """A transaction that may take, with its retries, ``keys.timeout`` seconds."""
    tr = db.create_transaction()
    if keys.timeout is not None:
        tr.options.set_timeout(max(1, int(keys.timeout * 1000)))
    return tr


def _minute(tr: fdb.Transaction) -> int:
    return int(tr.get_read_version().wait()) // _VERSIONS_PER_MINUTE


def _settle(db: fdb.Database, keys: OnceKeys, minute: int, token: bytes) -> int | None:
    """The number of the attempt that committed; None if none did, and then none will.

    Raises ``OutcomeUnknown`` where the store does not say.
    """
    record = keys.key(minute, token)
    try:
        tr = db.create_transaction()
        tr.options.set_timeout(_ASKING_MS)
        while True:
            try:
                value = tr.get(record).value
                if value is not None:
                    return unpack_index(value)
                tr.add_write_conflict_key(record)
                tr.commit().wait()
                return None
            except fdb.FDBError as error:
                tr.on_error(error).wait()
    except fdb.FDBError:
        raise OutcomeUnknown(minutes=KEPT_MINUTES) from None


def _committed(tr: fdb.Transaction, keys: OnceKeys, minute: int, token: bytes) -> int | None:
    """The number of the attempt that committed. The read conflicts with one still in flight."""
    value = tr.get(keys.key(minute, token)).value
    if value is not None:
        return unpack_index(value)
    if _minute(tr) >= minute + KEPT_MINUTES:
        raise OutcomeUnknown(minutes=KEPT_MINUTES)
    return None

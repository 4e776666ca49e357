"""The end of a transaction, or its new start: commit, retry, reset, cancellation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ... import world
from .. import codes, faults, futures
from ..codes import Fault
from ..futures import Future, PendingFuture, failed
from ..storage import background
from ..storage.conflicts import conflicting
from ..storage.versions import ANNOUNCED
from ..store_errors import EngineError, StoreFileError
from ..timers import timers
from . import atomic, read_view
from .commit_requests import CommitRequest, Mutation
from .size_limits import MUTATION_BYTES, RANGE_BYTES
from .transaction import FIRST_DELAY, NO_VERSION, NONE, EmbeddedTransaction, Handle, live

_DELAY_GROWTH = 2.0
_SHORT_DELAY = 0.01
# What every successful commit returns; nothing can be changed or released in it.
_DONE = Future()


def fdb_transaction_commit(
    handle: Handle, begin: Callable[[EmbeddedTransaction, CommitRequest], Future] | None = None
) -> Future:
    """Commit; done when this returns, unless ``begin`` is given, which then begins to."""
    tr = live[handle]
    with tr.lock:
        try:
            if not tr.plain:
                tr.check()
            tr.commit_started, tr.plain = True, False
            if tr.commit_error:
                raise Fault(tr.commit_error)
            # As on a cluster: a read that failed makes the commit fail, even if the program went on
            # without it.
            if tr.read_error is not None:
                raise tr.read_error
            request = _request(tr)
            if request is not None and begin is not None:
                return begin(tr, request)
            if request is not None:
                _commit(tr, request)
            else:
                tr.stamp_error = codes.NO_COMMIT_VERSION
                tr.committed_version = NO_VERSION
        except Exception as error:
            if tr.commit_started:
                _finish(tr, error)
            return Future(error=error)
        if tr.snapshot is not None or tr.waiting or tr.watching:
            _finish(tr, None)
        return Future() if futures.running else _DONE


def commit_in_background(handle: Handle) -> Future:
    """Commit while another thread waits for the file: as on a cluster, the future is done later."""
    return fdb_transaction_commit(handle, _begin)


def _begin(tr: EmbeddedTransaction, request: CommitRequest) -> Future:
    future = PendingFuture()
    _commit(tr, request, partial(_end, tr, request, future))
    return future


def _end(tr: EmbeddedTransaction, request: CommitRequest, future: PendingFuture) -> None:
    """End a commit that was made in the background."""
    error = None
    with tr.lock:
        if request.error is not None:
            error = _failure(tr, request)
        else:
            tr.committed, tr.committed_version, tr.order = True, request.version, request.order
        _finish(tr, error)
    future.complete(error=error)


def _request(tr: EmbeddedTransaction) -> CommitRequest | None:
    options = tr.options
    writes = tr.writes
    if not writes.stacks and not writes and not tr.direct:
        return None
    if options.read_your_writes_disabled:
        mutations: Sequence[Mutation] = tr.direct
    else:
        mutations = writes.mutations()
    if not mutations and not writes.conflicts:
        return None
    request = CommitRequest(tr.read_version, tr.reads, writes.conflicts, mutations, tr.approximate)
    if not tr.direct:
        request.prepare()
    if options.report_conflicting_keys:
        request.report = True
    if tr.deadline:
        request.deadline = tr.deadline
    request.its_turn = tr.turn
    return request


def _commit(
    tr: EmbeddedTransaction, request: CommitRequest, then: Callable[[], object] | None = None
) -> None:
    """Commit; where ``then`` is given, in the background, and it is called at the end."""
    options, store = tr.options, tr.store
    if options.read_only:
        raise Fault(codes.READ_ONLY)
    # The exact size is added up only where the rough one is too large.
    if tr.approximate > options.size_limit and _commit_size(request) > options.size_limit:
        raise Fault(codes.TRANSACTION_TOO_LARGE)
    if request.read_version is not None:
        read_view.require_young(tr)
    # A commit reads nothing more.
    snapshot, tr.snapshot = tr.snapshot, None
    if snapshot is not None:
        store.snapshots.release(snapshot)
    if then is not None:
        if faults.active is None:
            background.commit(store.committer, request, then)
        else:
            faults.background.start()
            faults.background.put((_commit_with_faults, tr, request, then))
        return
    if faults.active is not None:
        faults.active.commit(store.committer, request)
    else:
        store.committer.commit(request)
    if request.error is not None:
        raise _failure(tr, request)
    tr.committed, tr.committed_version, tr.order = True, request.version, request.order


def _commit_with_faults(
    tr: EmbeddedTransaction, request: CommitRequest, then: Callable[[], object]
) -> None:
    try:
        if faults.active is not None:
            faults.active.commit(tr.store.committer, request)
        else:
            tr.store.committer.commit(request)
    except Exception as error:
        request.error = error
    then()


def _failure(tr: EmbeddedTransaction, request: CommitRequest) -> BaseException:
    """Why a request was not committed."""
    if request.conflicting:
        tr.conflicting = list(conflicting(tr.reads, request.conflicting))
    assert request.error is not None
    return request.error


def _commit_size(request: CommitRequest) -> int:
    size = sum(
        MUTATION_BYTES + len(key) + (len(operand) if operand is not None else len(key) + 1)
        for _, key, operand in request.mutations
    )
    for conflicts in (request.reads, request.writes):
        for begin, end in conflicts.coalesced():
            size += RANGE_BYTES + len(begin) + len(end)
    return size


def _finish(tr: EmbeddedTransaction, error: BaseException | None) -> None:
    if tr.snapshot is not None:
        read_view.release(tr)
    if error is not None:
        tr.stamp_error = codes.INVALID_VERSION
    if not tr.waiting and not tr.watching:
        return
    watching, tr.watching = tr.watching, NONE
    for future in tr.take_waiting():
        if tr.stamp_error:
            future.fail(tr.stamp_error)
        else:
            future.complete(stamp(tr))
    version = max(tr.committed_version, tr.read_version or 0)
    for watch in watching:
        if error is not None:
            watch.complete(error=error)
        else:
            own = tr.writes.sets(watch.key, watch.value_seen)
            tr.store.watches.arm(watch, version, own)


def stamp(tr: EmbeddedTransaction) -> bytes:
    """The versionstamp of a transaction that is committed."""
    return atomic.stamp(tr.committed_version, tr.order)


def fdb_transaction_get_versionstamp(handle: Handle) -> Future:
    """The versionstamp of the commit, once it is made."""
    tr = live[handle]
    with tr.lock:
        try:
            tr.check()
        except Fault as error:
            return failed(error.code)
        future = PendingFuture()
        try:
            tr.wait_with(future)
        except EngineError as error:
            return Future(error=error)
        tr.stamps = [*tr.stamps, future]
        return future


def fdb_transaction_get_committed_version(handle: Handle, out: Any) -> int:
    """The version of the commit, or -1 if there was none or nothing was written."""
    tr = live[handle]
    version = tr.committed_version
    if version == tr.store.file.shared.words[ANNOUNCED]:
        # The program may read at this version later, when it is no longer the newest.
        with contextlib.suppress(StoreFileError):
            snapshot, _ = tr.store.snapshots.acquire()
            tr.store.snapshots.keep(snapshot)
            tr.store.snapshots.release(snapshot)
    out._obj.value = version
    return 0


def fdb_transaction_on_error(handle: Handle, code: int) -> Future:
    """Wait and start over if the error is worth a retry; otherwise fail with it."""
    tr = live[handle]
    code = codes.validated(code)
    with tr.lock:
        try:
            tr.check_fault()
            exhausted = 0 <= tr.options.max_retries <= tr.retries
            tr.retries += 1
            if exhausted:
                raise Fault(code)
            delay = _next_delay(tr, code)
            tr.conflicts = tr.conflicts + 1 if code == codes.NOT_COMMITTED else 0
        except Fault as error:
            if not tr.fault:
                tr.fail_all(codes.CANCELLED)
            return failed(error.code)
        _start_over(tr)
        future = PendingFuture()
        try:
            tr.wait_with(future)
            timers.call_later(delay, lambda: _retry(tr, future))
        except EngineError as error:
            _abandon(tr)
            return Future(error=error)
    return future


def _next_delay(tr: EmbeddedTransaction, code: int) -> float:
    if code == 0:
        raise Fault(codes.INVALID_OPERATION)
    if code in codes.SHORT_DELAY:
        return min(_SHORT_DELAY, tr.options.max_delay)
    if code not in codes.BACKOFF:
        raise Fault(code)
    delay = tr.delay * world.random.random()
    tr.delay = min(tr.delay * _DELAY_GROWTH, tr.options.max_delay)
    return delay


def _retry(tr: EmbeddedTransaction, future: PendingFuture) -> None:
    with tr.lock:
        # Cancelled or reset while it waited: the transaction is no longer what is to be retried.
        if future.ready:
            return
        tr.waiting = [other for other in tr.waiting if other is not future]
        try:
            _abandon(tr)
            tr.clear()
            tr.restore_options()
        except Exception as error:
            future.complete(error=error)
    future.complete(None)


def fdb_transaction_cancel(handle: Handle) -> None:
    """Cancel the transaction until it is reset."""
    tr = live[handle]
    with tr.lock:
        if not tr.fault:
            tr.fail_all(codes.CANCELLED)


def fdb_transaction_reset(handle: Handle) -> None:
    """Make the transaction like new."""
    tr = live[handle]
    with tr.lock:
        _start_over(tr)
        tr.clear()
        tr.persistent = NONE
        tr.retries = tr.conflicts = 0
        tr.delay = FIRST_DELAY
        tr.begun = world.monotonic()
        tr.restore_options()


def fdb_transaction_destroy(handle: Handle) -> None:
    """End the transaction; called when the bindings drop their last reference."""
    tr = live.pop(handle, None)
    if tr is not None and (tr.snapshot is not None or tr.waiting or tr.watching):
        _abandon(tr)


def _start_over(tr: EmbeddedTransaction) -> None:
    """End what the transaction was doing, for a reset or a retry."""
    # The client drops its promise of a versionstamp before it cancels anything.
    for future in tr.stamps:
        future.fail(codes.BROKEN_PROMISE)
    _abandon(tr)


def _abandon(tr: EmbeddedTransaction) -> None:
    read_view.release(tr)
    watching, tr.watching = tr.watching, NONE
    for future in (*tr.take_waiting(), *watching):
        future.fail(codes.CANCELLED)

"""The read version of a transaction, and its snapshot."""

from __future__ import annotations

from ... import world
from .. import codes, faults
from ..codes import Fault
from ..futures import Future
from ..storage.snapshots import LIFETIME, Snapshot
from ..storage.versions import VERSIONS_PER_SECOND
from .transaction import EmbeddedTransaction, Handle, live

_FUTURE_PATIENCE = 1.0
# After how many conflicts in a row a transaction gets its turn, and how long the first one lasts;
# each further one lasts twice as long. Where four processes want one key, one transaction in ten
# comes so far; turns for more of them would halve what they do together.
_CONFLICTS = 8
_TURN_SECONDS = 0.02


def fdb_transaction_set_read_version(handle: Handle, version: int) -> None:
    """Read at a given version instead of the newest."""
    tr = live[handle]
    with tr.lock:
        if tr.deferred:
            return
        if tr.read_version is not None:
            tr.defer(Fault(codes.READ_VERSION_SET))
        elif version <= 0:
            tr.defer(Fault(codes.VERSION_INVALID))
        else:
            tr.read_version = version


def fdb_transaction_get_read_version(handle: Handle) -> Future:
    """The version that reads see."""
    tr = live[handle]
    with tr.lock:
        try:
            if not tr.plain:
                if tr.deferred:
                    raise Fault(tr.deferred)
                tr.check_fault()
            if tr.read_version is None:
                # The program knows the version now, and may ask another transaction to read at it.
                tr.store.snapshots.keep(_open(tr))
            return Future(tr.read_version)
        except Exception as error:
            return Future(error=error)


def current(tr: EmbeddedTransaction) -> Snapshot:
    """The snapshot to read now; opens it with the first read.

    Raises:
        Fault: the transaction is too old to read, or a fault was injected.
    """
    tr.read_anything = True
    snapshot = tr.snapshot
    if snapshot is None:
        return _open(tr)
    if world.monotonic() > tr.read_until:
        raise Fault(codes.TOO_OLD)
    if faults.active is not None:
        faults.active.before_read()
    return snapshot


def _open(tr: EmbeddedTransaction) -> Snapshot:
    snapshots = tr.store.snapshots
    if faults.active is not None:
        faults.active.before_read()
    if tr.read_version is None:
        # Without turns a slow transaction on a hot key would conflict for ever: on a cluster
        # distance is as random as here scheduling is not.
        if tr.conflicts >= _CONFLICTS:
            tr.turn = snapshots.take_turn(_TURN_SECONDS * 2 ** min(tr.conflicts - _CONFLICTS, 5))
        tr.snapshot, tr.read_version = snapshots.acquire()
        tr.read_until = tr.snapshot.expires
    else:
        age = _age(tr)
        if age > LIFETIME:
            raise Fault(codes.TOO_OLD)
        if age < 0:
            # A storage server waits as long for a version before it gives up.
            world.sleep(min(-age, _FUTURE_PATIENCE))
            age = _age(tr)
        tr.snapshot = snapshots.acquire_at(tr.read_version)
        if tr.snapshot is None:
            raise Fault(codes.TOO_OLD if age >= 0 else codes.FUTURE_VERSION)
        tr.read_until = world.monotonic() + LIFETIME - max(age, 0.0)
    return tr.snapshot


def _age(tr: EmbeddedTransaction) -> float:
    assert tr.read_version is not None
    return (tr.store.clock.now() - tr.read_version) / VERSIONS_PER_SECOND


def require_young(tr: EmbeddedTransaction) -> None:
    """Raise if a commit can no longer know what the transaction's reads conflict with.

    A cluster forgets that after five seconds.
    """
    if tr.snapshot is not None:
        if world.monotonic() > tr.read_until:
            raise Fault(codes.TOO_OLD)
    elif tr.read_version is not None and _age(tr) > LIFETIME:
        raise Fault(codes.TOO_OLD)


def release(tr: EmbeddedTransaction) -> None:
    """Release the snapshot, if there is one."""
    snapshot, tr.snapshot = tr.snapshot, None
    if snapshot is not None:
        tr.store.snapshots.release(snapshot)

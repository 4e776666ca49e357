"""Removing messages without delivering them."""

from __future__ import annotations

from ..schema.codec.delayed import unpack_delayed
from ..schema.codec.lookup import Turn
from ..schema.keys import Kind
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.states import PURGE_DEAD, PURGE_DELAYED, PURGE_READY, State
from . import transitions
from .delivery import scan
from .transaction_budget import PAGE_BYTES

BATCH = 500
"""The most messages that one transaction removes."""
REMOVED = {State.READY: PURGE_READY, State.DELAYED: PURGE_DELAYED, State.DEAD: PURGE_DEAD}


@transactional
def ready(tr: fdb.Transaction, scope: Scope) -> int:
    """Remove up to 500 of the first ready messages; returns how many it removed.

    Those waiting for a slot of their key go first, or each would become ready in the meantime.
    Conflicts like a dequeue of as many messages.
    """
    keys = scope.keys
    backlogs = keys.kind(Kind.WAITING)
    waiting = []
    room = PAGE_BYTES
    for kv in tr.get_range(backlogs.start, backlogs.stop, limit=BATCH):
        room -= len(kv.value)
        if room < 0:
            break
        del tr[kv.key]
        turn = Turn(*keys.waiting.parse(kv.key))
        waiting.append(StoredMessage(*unpack_delayed(kv.value), turn=turn))
    if waiting:
        transitions.record(tr, scope, PURGE_READY, waiting)
        return len(waiting)
    taken = scan.conflicting(tr, scope.keys, scan.first(tr, scope.keys, BATCH), BATCH, PAGE_BYTES)
    scan.remove(tr, scope.keys, taken)
    transitions.record(tr, scope, PURGE_READY, taken)
    return len(taken)

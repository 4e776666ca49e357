"""Removing messages without delivering them."""

from __future__ import annotations

from ..binding import fdb
from ..codec import unpack_delayed
from ..keys import Kind
from ..states import PURGE_READY
from . import dequeue, life
from .scope import Scope, Standing

BATCH = 500
"""Messages that one transaction removes, or fewer that fill it."""


@fdb.transactional
def ready(tr: fdb.Transaction, scope: Scope, limit: int = BATCH) -> int:
    """Remove up to ``limit`` first ready messages; returns how many there were.

    Those that wait for others of their ordering key go first, or each would become ready before
    it goes. Conflicts like a dequeue of as many messages.
    """
    keys = scope.keys
    lines = keys.kind(Kind.GROUP)
    waiting = []
    for kv in tr.get_range(lines.start, lines.stop, limit=limit):
        del tr[kv.key]
        waiting.append(Standing(*unpack_delayed(kv.value)))
    if waiting:
        life.moved(tr, scope, PURGE_READY, waiting)
        return len(waiting)
    taken = dequeue.conflicting(tr, scope.keys, dequeue.first(tr, scope.keys, limit))
    dequeue.remove(tr, scope.keys, taken)
    life.moved(tr, scope, PURGE_READY, taken)
    return len(taken)

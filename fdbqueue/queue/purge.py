"""Removing messages without delivering them."""

from __future__ import annotations

from ..binding import fdb
from ..states import PURGE_READY
from . import dequeue, life
from .scope import Scope

BATCH = 500
"""Messages that one transaction removes; at 90 kB each they are read in several pieces."""


@fdb.transactional
def ready(tr: fdb.Transaction, scope: Scope, limit: int = BATCH) -> int:
    """Remove the first ``limit`` ready messages; returns how many there were.

    Conflicts like a dequeue of as many messages.
    """
    taken = dequeue.standing(scope.keys, dequeue.first(tr, scope.keys, limit))
    dequeue.remove(tr, scope.keys, taken)
    life.moved(tr, scope, PURGE_READY, taken)
    return len(taken)

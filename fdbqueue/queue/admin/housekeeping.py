"""Housekeeping now, in as many transactions as it takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...consumers import eviction, promotion, wakeups
from ...errors import ExpiredBacklog
from ...messages import auto_delete, history, time_to_live
from ...messages.slots import hand_over
from ...messages.transaction_budget import Done
from ...schema import change_counters, due
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.model import Swept
from ..queue_base import Handle, composed

R = TypeVar("R")


def sweep(handle: Handle, db: fdb.Database) -> Swept:
    """Promote what is due, remove expired messages, results and groups, dead consumers and rows
    staged a week ago, and delete the queue if it is unused and has ``auto_delete``."""
    promoted = expired = 0
    while _moved(done := handle._run(db, partial(_promote, handle), wrote=_moved)):
        promoted, expired = promoted + done.ready, expired + done.expired
    while handle._run(db, partial(_skip_unreadable, handle), wrote=bool):
        pass
    refill(handle, db)
    if handle._read(db, lambda tr: due.shared(tr, handle._keys)):
        refill_shared(handle, db)
    evict_dead(handle, db)
    from ...messages.streams import undecided  # most programs stage nothing

    staged = _pages(handle, db, undecided.expire)
    deleted = composed(
        db,
        handle._root_keys.once,
        lambda tr: auto_delete.delete_if_idle(tr, handle._scope(tr)),
        wrote=bool,
    )
    return Swept(promoted, expired, staged, deleted)


def refill(handle: Handle, db: fdb.Database) -> int:
    """Give free slots to messages that wait, of all keys whose limits have changed."""
    return _pages(handle, db, hand_over.refill)


def refill_shared(handle: Handle, db: fdb.Database) -> int:
    """The same of the limits that queues share."""
    return _pages(handle, db, hand_over.refill_shared)


def evict_dead(handle: Handle, db: fdb.Database, *, first: bool = False) -> list[bytes]:
    """Remove consumers of dead processes from all queues of the root; returns those of the queue.

    first: whether to stop after the first transaction that removes any of the queue.
    """
    found: list[bytes] = []
    leaving = None
    while True:
        evicted = handle._run(
            db,
            lambda tr: eviction.evict_dead(tr, handle._scope(tr), leaving),  # noqa: B023
            wrote=lambda evicted: bool(evicted.consumers),
        )
        found += (consumer for queue, consumer in evicted.consumers if queue == handle.name)
        leaving = evicted.leaving
        if not (evicted.consumers or evicted.more) or (found and first):
            return found


def past_backlog(handle: Handle, db: fdb.Database, take: Callable[[], R]) -> R:
    """Take messages, after removing expired ones if too many of them come first."""
    while True:
        try:
            return take()
        except ExpiredBacklog:
            # In transactions of its own: the backlog of expired messages is larger than one that
            # also receives can remove.
            sweep(handle, db)


def _promote(handle: Handle, tr: fdb.Transaction) -> Done:
    scope = handle._scope(tr)
    history.trim(tr, scope)
    return promotion.promote(tr, scope, promotion.reads(tr, scope))


def _moved(done: Done) -> bool:
    return done.moved + done.tidied > 0


def _skip_unreadable(handle: Handle, tr: fdb.Transaction) -> int:
    return time_to_live.skip_unreadable(tr, handle._scope(tr))


def _pages(
    handle: Handle,
    db: fdb.Database,
    step: Callable[[fdb.Transaction, Scope, bytes], tuple[int, bytes]],
) -> int:
    """Take a step from page to page to the end; returns the sum of the counts."""
    total, begin = 0, b""

    def page(tr: fdb.Transaction) -> tuple[int, bytes]:
        return step(tr, handle._scope(tr), begin)

    while True:
        count, begin = handle._run(db, page, wrote=lambda done: done[0] > 0)
        total += count
        if not begin:
            return total


def look_again(tr: fdb.Transaction, scope: Scope) -> None:
    """Let sleeping consumers look again: the first through the bell, the others when woken."""
    change_counters.ring(tr, scope)
    # A hundred at once, which wake the rest: a transaction that woke thousands would not fit.
    wakeups.wake(tr, scope.keys, wakeups.reads(tr, scope.keys, wakeups.MAX_WOKEN))

"""Doing at once what happens to a queue by itself, in as many transactions as it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..consumers import promotion, registry
from ..errors import ExpiredBacklog
from ..messages import auto_delete, history, time_to_live
from ..schema import once
from ..store.binding import fdb
from ..values.model import Swept
from .handle import Handle, composed

R = TypeVar("R")


def sweep(handle: Handle, db: fdb.Database) -> Swept:
    """Promote what is due, dispose of what has expired, remove consumers that are dead and what was
    staged a week ago, and delete the queue if it is to go."""
    keys = handle._keys.once
    promoted, expired, begin = 0, 0, b""
    while True:
        done = once.run(
            db, keys, lambda tr: _promote(tr, handle), wrote=lambda done: done.moved > 0
        )
        promoted += done.ready
        if not done.moved:
            break

    def skip(tr: fdb.Transaction) -> int:
        return time_to_live.skip_unreadable(tr, handle._scope(tr))

    while once.run(db, keys, skip, wrote=bool):
        pass

    def dispose(tr: fdb.Transaction) -> tuple[int, bytes]:
        return time_to_live.sweep(tr, handle._scope(tr), begin)

    while True:
        count, begin = once.run(db, keys, dispose, wrote=lambda done: done[0] > 0)
        expired += count
        if not begin:
            break
    evict_dead(handle, db)

    from ..messages.streams import undecided  # most programs stage nothing

    def expire(tr: fdb.Transaction) -> tuple[int, bytes]:
        return undecided.expire(tr, handle._scope(tr), begin)

    staged, begin = 0, b""
    while True:
        count, begin = once.run(db, keys, expire, wrote=lambda done: done[0] > 0)
        staged += count
        if not begin:
            break
    deleted = composed(
        db,
        handle._root_keys.once,
        lambda tr: auto_delete.delete_if_idle(tr, handle._scope(tr)),
        wrote=bool,
    )
    return Swept(promoted, expired, staged, deleted)


def evict_dead(handle: Handle, db: fdb.Database, *, first: bool = False) -> list[bytes]:
    """Remove consumers of dead processes, below the whole root; returns those of the queue.

    first: whether to end with the first transaction that removes any of the queue.
    """
    found: list[bytes] = []
    while True:
        evicted = once.run(
            db,
            handle._keys.once,
            lambda tr: registry.evict_dead(tr, handle._scope(tr)),
            wrote=lambda evicted: bool(evicted.consumers),
        )
        found += (consumer for queue, consumer in evicted.consumers if queue == handle.name)
        if not (evicted.consumers or evicted.more) or (found and first):
            return found


def past_backlog(handle: Handle, db: fdb.Database, take: Callable[[], R]) -> R:
    """Take messages; where too many before them have expired, once those are disposed of."""
    while True:
        try:
            return take()
        except ExpiredBacklog:
            sweep(handle, db)


def _promote(tr: fdb.Transaction, handle: Handle) -> promotion.Promoted:
    scope = handle._scope(tr)
    history.trim(tr, scope)
    return promotion.promote_all(tr, scope, promotion.look(tr, scope))

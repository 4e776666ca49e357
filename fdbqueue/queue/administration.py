"""Changing waiting messages, and deleting a queue: methods of ``Queue``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from ..consumers import wakeups
from ..errors import InvalidArgument, TransactionTooLarge
from ..messages import editing, inspection, lookup, transitions
from ..messages import purge as purges
from ..messages.delivery import cancellation
from ..messages.slots import release
from ..schema import catalogue
from ..store.binding import fdb
from ..values.durations import Seconds
from ..values.states import State
from .handle import Handle, Transactor, composed
from .validation import due

R = TypeVar("R")


# -- one message -----------------------------------------------------------------------------


def cancel(queue: Handle, tr: Transactor, message_id: str) -> bool:
    """Remove a ready or delayed message; returns whether it was removed.

    A leased message is never delivered again: if it is acknowledged, it is done; else it ends with
    its lease. Its handler sees that as ``context.cancelled``, and ``get`` says so. It gives up its
    unique key. Messages of a plan, and dead letters, stay. One or two round trips, three for a
    leased message. Conflicts with whatever moves the message, and with settlements of its row of
    leases; the first time that a queue cancels a leased message, with every concurrent operation
    on the queue. Raises ``InvalidArgument`` if it is not an id, or that of a schedule's next tick;
    ``QueueNotFound``.
    """

    def remove(tr: fdb.Transaction) -> State | None:
        scope = queue._scope(tr)
        reads = lookup.reads(tr, queue._keys, message_id)
        found = lookup.find(tr, scope, reads)
        _check_no_tick(found)
        if found is None:
            return State.LEASED if cancellation.request(tr, scope, reads) else None
        state = inspection.take_out(tr, scope, found)
        if state is not None:
            transitions.record(tr, scope, purges.REMOVED[state], [found.message])
        return state

    return queue._run(tr, remove, wrote=bool) in (State.READY, State.DELAYED)


def edit(
    queue: Handle,
    tr: Transactor,
    message_id: str,
    *,
    priority: int | None = None,
    delay: Seconds | None = None,
    at: datetime | None = None,
) -> bool:
    """Change the priority of a waiting message, or when it is due; returns whether it was changed.

    priority: in another level it goes behind all others; in the same level it keeps its place.
    delay, at: as in ``enqueue``, from now on; 0 makes it ready now. A ready message returns to
        its place when it is due. One with a key or limits gives up its slots until then, and comes
        in behind all others.

    It keeps its id. Leased messages and dead letters stay unchanged. Two or three round trips.
    Conflicts with whatever moves the message. Raises ``InvalidArgument``,
    ``InvalidPriority``, ``QueueNotFound``.
    """

    def change(tr: fdb.Transaction) -> bool:
        scope = queue._scope(tr)
        due_ms = None
        if delay is not None or at is not None:
            due_ms = due(delay or 0.0, at, scope.now_ms(tr)) or 0
        found = lookup.find(tr, scope, lookup.reads(tr, queue._keys, message_id))
        _check_no_tick(found)
        if found is None or not editing.editable(found):
            return False
        waiting = wakeups.reads(tr, queue._keys, 1)
        editing.edit(tr, scope, found, priority, due_ms)
        wakeups.wake(tr, queue._keys, waiting)
        return True

    return queue._run(tr, change, wrote=bool)


def _check_no_tick(found: lookup.Found | None) -> None:
    name = None if found is None else found.message.envelope.schedule
    if found is not None and name is not None:
        raise InvalidArgument(
            argument="id",
            value=found.message.id,
            problem=f"it is the next tick of schedule {name}: pause, change or delete that",
        )


# -- the queue -------------------------------------------------------------------------------


def delete(queue: Handle, tr: Transactor) -> None:
    """As ``Queue.delete``."""
    keys = queue._root_keys

    def remove(tr: fdb.Transaction) -> None:
        if release.holds(tr, queue._keys):
            release.leave(tr, queue._scope(tr))
        catalogue.delete(tr, keys, queue.name)

    try:
        composed(tr, keys.once, remove)
    except TransactionTooLarge:
        if isinstance(tr, fdb.Transaction):
            raise
        purge(queue, tr)
        composed(tr, keys.once, remove)


def purge(
    queue: Handle,
    db: fdb.Database,
    *,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Remove all ready messages; returns how many.

    progress: called after each transaction with how many were removed so far; stops by returning
        False.

    Spans transactions of up to 500 messages, until the queue is empty; messages enqueued meanwhile
    are removed, too. Raises ``QueueNotFound``.
    """

    def remove(tr: fdb.Transaction) -> int:
        return purges.ready(tr, queue._scope(tr))

    removed = 0
    while count := queue._run(db, remove, wrote=bool):
        removed += count
        if progress is not None and progress(removed) is False:
            break
    return removed

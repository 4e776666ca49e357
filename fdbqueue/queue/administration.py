"""Administration of a queue, for operators and their tools: methods of ``Queue``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from ..consumers import eviction, wakeups
from ..consumers.registry import Consumer
from ..errors import InvalidArgument, TransactionTooLarge
from ..messages import editing, inspection, lookup, transitions
from ..messages import purge as purges
from ..messages.delivery import cancellation
from ..messages.slots import release
from ..schema import catalogue, changes
from ..schema.codec.consumers import ConsumerRef
from ..schema.scope import Scope
from ..store.binding import fdb
from ..values.durations import Seconds
from ..values.model import Swept
from ..values.states import State
from .admin import housekeeping
from .handle import Handle, Transactor, composed
from .validation import due

R = TypeVar("R")

_MANY_CLAIMS = "the consumers may hold too many messages: call it with a database"


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


def pause(queue: Handle, tr: Transactor) -> None:
    """Suspend receiving: the queue looks empty, and waiting consumers keep waiting.

    Messages can still be enqueued, and leases settled. Conflicts with every concurrent operation
    on the queue. Raises ``QueueNotFound``.
    """
    queue._run(tr, lambda tr: _set_paused(queue, tr, True))


def resume(queue: Handle, tr: Transactor) -> None:
    """End a pause, and wake waiting consumers. Conflicts and errors as ``pause``."""
    queue._run(tr, lambda tr: _set_paused(queue, tr, False))


def sweep(queue: Handle, db: fdb.Database) -> Swept:
    """Run housekeeping now: reclaim expired leases, promote due messages, drop expired ones, and
    remove dead consumers.

    Receivers also do this. A queue without receivers needs an occasional sweep, and only a
    sweep deletes a queue with ``auto_delete``. Spans transactions of up to some hundred messages.
    Raises ``QueueNotFound``.
    """
    return housekeeping.sweep(queue, db)


def evict(
    queue: Handle,
    tr: Transactor,
    consumer: Consumer | None = None,
) -> list[bytes]:
    """Remove a consumer, or all of dead processes (None), up to 100 in a transaction.

    Returns their ids; call it again until it returns none. A dead process is removed from all
    queues of the root, from this one first. Requests of dead consumers leave the line, too; the
    claim of one is its id here. Another consumer is woken in place of each. A removed consumer
    that is alive registers again.

    Their leases end: those of ``consumer`` now, those of a dead process 20 seconds after its last
    sign of life. Conflicts with signs of life of the removed ones, and with extensions and
    settlements of their leases. With a database it spans transactions. With a transaction, raises
    ``TransactionTooLarge`` if it would read more than 5,000 claims. Raises ``QueueNotFound``.
    """
    if consumer is not None:
        return _evict_one(queue, tr, consumer)
    if not isinstance(tr, fdb.Transaction):
        return housekeeping.evict_dead(queue, tr, first=True)
    gone, _, leaving = queue._run(tr, lambda tr: eviction.evict_dead(tr, queue._scope(tr)))
    if leaving is not None and not gone:
        raise TransactionTooLarge(problem=_MANY_CLAIMS)
    return [each for name, each in gone if name == queue.name]


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


# -- parts -----------------------------------------------------------------------------------


def _evict_one(queue: Handle, tr: Transactor, consumer: Consumer) -> list[bytes]:
    ref = ConsumerRef(consumer.id, consumer.priority, consumer.session, consumer.subscription)
    leaving: eviction.Leaving | None = None

    def remove(tr: fdb.Transaction) -> eviction.Leaving | None:
        scope = queue._scope(tr)
        return eviction.evict(tr, scope.keys, leaving or eviction.leaving_now(tr, scope, ref))

    while (leaving := queue._run(tr, remove)) is not None:
        if isinstance(tr, fdb.Transaction):
            raise TransactionTooLarge(problem=_MANY_CLAIMS)
    return [consumer.id]


def _set_paused(queue: Handle, tr: fdb.Transaction, paused: bool) -> None:
    scope = queue._scope(tr)
    if scope.options.paused != paused:
        catalogue.change(tr, scope, replace(scope.options, paused=paused))
    if not paused:
        look_again(tr, scope)


def look_again(tr: fdb.Transaction, scope: Scope) -> None:
    """Let sleeping consumers look again: the first through the bell, the others when woken."""
    changes.ring(tr, scope)
    wakeups.wake(tr, scope.keys, wakeups.reads(tr, scope.keys, wakeups.MAX_WOKEN))


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

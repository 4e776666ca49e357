"""Looking after a queue: what operators and their tools do with one, as methods of ``Queue``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from ..consumers import registry, wakeups
from ..consumers.registry import Consumer
from ..messages import editing, inspection, lookup, transitions
from ..messages import purge as purges
from ..schema import catalogue, once
from ..schema.codec.consumers import ConsumerRef
from ..store.binding import fdb
from ..values.durations import Seconds
from ..values.model import Swept
from . import housekeeping
from .handle import Handle, Transactor, finished
from .validation import due

R = TypeVar("R")


# -- one message -----------------------------------------------------------------------------


def cancel(queue: Handle, tr: Transactor, message_id: str) -> bool:
    """Remove a message that is ready or delayed; returns whether it was.

    One that is leased is in somebody's hands: it stays, as a dead letter does. One or two
    round trips. Conflicts with whatever moves the message. Raises ``InvalidArgument`` if it
    is no id, ``QueueNotFound``.
    """

    def remove(tr: fdb.Transaction) -> bool:
        scope = queue._scope(tr)
        found = lookup.find(tr, scope, lookup.look(tr, queue._keys, message_id))
        state = inspection.take_out(tr, scope, found)
        if found is None or state is None:
            return False
        transitions.record(tr, scope, purges.REMOVED[state], [found.message])
        return True

    return queue._run(tr, remove, wrote=bool)


def edit(
    queue: Handle,
    tr: Transactor,
    message_id: str,
    *,
    priority: int | None = None,
    delay: Seconds | None = None,
    at: datetime | None = None,
) -> bool:
    """Change the priority of a message that waits, or when it is due; returns whether it does.

    priority: it goes behind all others of another level, and stays where it is in its own.
    delay, at: as in ``enqueue``, from now on; 0 seconds: it is ready at once. What was ready
        returns to its place when its time has come.

    It keeps its id. One that is leased or dead stays as it is. Two or three round trips.
    Conflicts with whatever moves the message. Raises ``InvalidArgument``, also for a time for
    a message that waits for another one of its ordering key; ``InvalidPriority``,
    ``QueueNotFound``.
    """

    def change(tr: fdb.Transaction) -> bool:
        scope = queue._scope(tr)
        due_ms = None
        if delay is not None or at is not None:
            due_ms = due(delay or 0.0, at, scope.now_ms(tr)) or 0
        found = lookup.find(tr, scope, lookup.look(tr, queue._keys, message_id))
        if found is None or not editing.editable(found):
            return False
        waiting = wakeups.reads(tr, queue._keys, 1)
        editing.edit(tr, scope, found, priority, due_ms)
        wakeups.wake(tr, queue._keys, waiting)
        return True

    return queue._run(tr, change, wrote=bool)


# -- the queue -------------------------------------------------------------------------------


def pause(queue: Handle, tr: Transactor) -> None:
    """Let nobody receive from the queue: it looks empty, and who waits goes on waiting.

    Enqueues go on, and what is leased can be settled. Conflicts with every operation on the
    queue that is under way. Raises ``QueueNotFound``.
    """
    queue._run(tr, lambda tr: _set_paused(queue, tr, True))


def resume(queue: Handle, tr: Transactor) -> None:
    """End a pause, and wake who waits. Conflicts and errors as ``pause``."""
    queue._run(tr, lambda tr: _set_paused(queue, tr, False))


def sweep(queue: Handle, db: fdb.Database) -> Swept:
    """Do at once what happens by itself: lapsed leases, due delays, ended times to live, and
    the removal of consumers that were killed.

    Receivers do the same as they come by; a queue that nobody receives from needs a sweep now
    and then, and only a sweep deletes a queue with the option ``auto_delete``. Spans
    transactions of up to some hundred messages. Raises ``QueueNotFound``.
    """
    return housekeeping.sweep(queue, db)


def evict(queue: Handle, tr: Transactor, consumer: Consumer | None = None) -> list[bytes]:
    """Remove a consumer, or where None those whose process is dead: up to 100 a transaction.

    Returns their ids; call it again until there are none. A dead process is removed from all
    queues of the root, with this one first. Requests of the dead leave the line, too: the claim
    of one is an id here. Another consumer is woken in the place of each. One that is alive
    after all registers again. Conflicts with signs of life of those that it removes. With a
    database it spans transactions. Raises ``QueueNotFound``.
    """
    if consumer is None and not isinstance(tr, fdb.Transaction):
        return housekeeping.evict_dead(queue, tr, first=True)

    def remove(tr: fdb.Transaction) -> list[bytes]:
        scope = queue._scope(tr)
        if consumer is None:
            gone = registry.evict_dead(tr, scope).consumers
            return [each for name, each in gone if name == queue.name]
        ref = ConsumerRef(consumer.id, consumer.priority, consumer.session)
        registry.unregister(tr, scope.keys, ref)
        return [consumer.id]

    return queue._run(tr, remove, wrote=bool)


# -- parts -----------------------------------------------------------------------------------


def _set_paused(queue: Handle, tr: fdb.Transaction, paused: bool) -> None:
    scope = queue._scope(tr)
    if scope.options.paused != paused:
        catalogue.change(tr, scope, replace(scope.options, paused=paused))
    if not paused:
        # Those that sleep look again: the first by itself, the others as they are woken.
        wakeups.ring(tr, queue._keys)
        wakeups.wake(tr, queue._keys, wakeups.reads(tr, queue._keys, wakeups.MAX_WOKEN))


def purge(
    queue: Handle, db: fdb.Database, *, progress: Callable[[int], object] | None = None
) -> int:
    """Remove all ready messages; returns how many.

    progress: called after each transaction with how many are gone so far.

    Spans transactions, each removing up to 500 messages; messages that are enqueued
    meanwhile go too, so it ends when it finds the queue empty. ``purging`` does the same a
    transaction at a time. Raises ``QueueNotFound``.
    """
    return finished(purging(queue, db), progress, 0)


def purging(queue: Handle, db: fdb.Database) -> Iterator[int]:
    """``purge`` as it is iterated over: yields how many are gone after each transaction.

    Nothing is removed before the first is asked for, and nothing more after the last.
    """

    def remove(tr: fdb.Transaction) -> int:
        return purges.ready(tr, queue._scope(tr))

    gone = 0
    while count := once.run(db, queue._keys.once, remove, wrote=bool):
        gone += count
        yield gone

"""Looking after a queue, as ``Queue`` offers it: by id, as a whole, and what has become of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ..consumers import registry, wakeups
from ..consumers.registry import Consumer
from ..errors import InvalidArgument
from ..messages import age, editing, history, lookup, purge, transitions
from ..messages import inspection as waiting
from ..messages.delivery import lease as leases
from ..schema import catalogue
from ..schema.codec.consumers import ConsumerRef
from ..store.binding import fdb
from ..values.durations import Seconds
from ..values.model import Event, LeasedMessage, MessageState, Swept
from . import housekeeping
from .handle import Handle, Transactor
from .validation import due

if TYPE_CHECKING:  # imported by those who use them: most programs use neither
    from .bulk.plans import Plans
    from .dead_letters import DeadLetters

R = TypeVar("R")

MAX_EVENTS = 10_000
MAX_LEASES = 10_000
MAX_LOOKED_AT = 10_000
PAGE = 500
"""Messages of a look that is iterated over which one transaction reads."""


class Tending(Handle):
    """What operators and their tools do with a queue."""

    @cached_property
    def dead(self) -> DeadLetters:
        """The queue's dead letters."""
        from .dead_letters import DeadLetters

        letters = DeadLetters(self.name, self._root, self._clock)
        return letters.within(self._keys.once.timeout)

    @cached_property
    def plans(self) -> Plans:
        """The plans of the queue: what streams have in hand."""
        from .bulk.plans import Plans

        return Plans(self)

    # -- one message -------------------------------------------------------------------------

    def get(self, tr: Transactor, message_id: str) -> MessageState | None:
        """Where a message is now; None if it is gone.

        One round trip, or two if the message has moved, at any number of messages and leases; up to
        sixteen more while plans have messages. Snapshot reads: no conflicts. Raises
        ``InvalidArgument`` if it is no id, ``QueueNotFound``.
        """
        return self._read(tr, lambda tr: lookup.current(tr, self._scope(tr), message_id))

    def look(
        self, tr: Transactor, state: str = "ready", limit: int = 100, after: str | None = None
    ) -> list[MessageState]:
        """Messages that wait, up to ``limit`` of them, in their order.

        state: "ready"; "delayed", those due first at the beginning; or "waiting" for another
            message of their ordering key, which counts as ready, too.
        after: the id of the last one of an earlier look, to go on behind it.

        Ends early at 8,000,000 bytes, but with one message at least, if there is one. Snapshot
        reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        _check_state(state)
        if type(limit) is not int or not 0 < limit <= MAX_LOOKED_AT:
            raise InvalidArgument(
                argument="limit", value=limit, problem=f"must be 1 to {MAX_LOOKED_AT:,}"
            )

        def look(tr: fdb.Transaction) -> list[MessageState]:
            scope = self._scope(tr)
            begin = waiting.behind(tr, scope, state, after)
            return waiting.page(tr, scope, state, limit, begin)[0]

        return self._read(tr, look)

    def looking(
        self, db: fdb.Database, state: str = "ready", after: str | None = None
    ) -> Iterator[MessageState]:
        """``look`` as it is iterated over: all messages, some hundred from each transaction.

        So it is no picture of one instant. Arguments and errors as ``look``.
        """
        _check_state(state)
        begin = self._read(db, lambda tr: waiting.behind(tr, self._scope(tr), state, after))

        def page(tr: fdb.Transaction) -> tuple[list[MessageState], bytes]:
            return waiting.page(tr, self._scope(tr), state, PAGE, begin)

        while True:
            found, begin = self._read(db, page)
            yield from found
            if not found:
                return

    def cancel(self, tr: Transactor, message_id: str) -> bool:
        """Remove a message that is ready or delayed; returns whether it was.

        One that is leased is in somebody's hands: it stays, as a dead letter does. One or two
        round trips. Conflicts with whatever moves the message. Raises ``InvalidArgument`` if it
        is no id, ``QueueNotFound``.
        """

        def remove(tr: fdb.Transaction) -> bool:
            scope = self._scope(tr)
            found = lookup.find(tr, scope, lookup.look(tr, self._keys, message_id))
            state = waiting.take_out(tr, scope, found)
            if found is None or state is None:
                return False
            transitions.record(tr, scope, purge.REMOVED[state], [found.message])
            return True

        return self._run(tr, remove, wrote=bool)

    def edit(
        self,
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
            scope = self._scope(tr)
            due_ms = None
            if delay is not None or at is not None:
                due_ms = due(delay or 0.0, at, scope.now_ms(tr)) or 0
            found = lookup.find(tr, scope, lookup.look(tr, self._keys, message_id))
            if found is None or not editing.editable(found):
                return False
            waiting = wakeups.reads(tr, self._keys, 1)
            editing.edit(tr, scope, found, priority, due_ms)
            wakeups.wake(tr, self._keys, waiting)
            return True

        return self._run(tr, change, wrote=bool)

    # -- the queue ---------------------------------------------------------------------------

    def pause(self, tr: Transactor) -> None:
        """Let nobody receive from the queue: it looks empty, and who waits goes on waiting.

        Enqueues go on, and what is leased can be settled. Conflicts with every operation on the
        queue that is under way. Raises ``QueueNotFound``.
        """
        self._run(tr, lambda tr: self._set_paused(tr, True))

    def resume(self, tr: Transactor) -> None:
        """End a pause, and wake who waits. Conflicts and errors as ``pause``."""
        self._run(tr, lambda tr: self._set_paused(tr, False))

    def sweep(self, db: fdb.Database) -> Swept:
        """Do at once what happens by itself: lapsed leases, due delays, ended times to live, and
        the removal of consumers that were killed.

        Receivers do the same as they come by; a queue that nobody receives from needs a sweep now
        and then, and only a sweep deletes a queue with the option ``auto_delete``. Spans
        transactions of up to some hundred messages. Raises ``QueueNotFound``.
        """
        return housekeeping.sweep(self, db)

    def ready_since_ms(self, tr: Transactor) -> int | None:
        """When the oldest message that is first of its level was enqueued; None if none is ready.

        By its enqueuer's wall clock, in milliseconds. Two round trips, snapshot reads: no
        conflicts. Raises ``QueueNotFound``.
        """
        return self._read(tr, lambda tr: age.ready_since_ms(tr, self._scope(tr)))

    def leases(
        self, tr: Transactor, limit: int = 1_000, after: bytes | None = None
    ) -> list[LeasedMessage]:
        """The leases: those of plans, then the others in the order of messages; ``limit`` of them.

        after: the token of the last one of an earlier list, to go on behind it.

        With a database it spans transactions, of 8,000,000 bytes each; with a transaction it ends
        early there. Snapshot reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        if type(limit) is not int or not 0 < limit <= MAX_LEASES:
            raise InvalidArgument(
                argument="limit", value=limit, problem=f"must be 1 to {MAX_LEASES:,}"
            )
        found: list[LeasedMessage] = []
        begin = b"" if after is None else self._keys.lease(after) + b"\x00"

        def look(tr: fdb.Transaction) -> tuple[list[LeasedMessage], bytes]:
            return leases.listed(tr, self._scope(tr), limit - len(found), begin)

        while True:
            some, begin = self._read(tr, look)
            found += some
            if not begin or len(found) == limit or isinstance(tr, fdb.Transaction):
                return found

    def evict(self, tr: Transactor, consumer: Consumer | None = None) -> list[bytes]:
        """Remove a consumer, or where None those whose process is dead: up to 100 a transaction.

        Returns their ids; call it again until there are none. A dead process is removed from all
        queues of the root, with this one first. Requests of the dead leave the line, too: the claim
        of one is an id here. Another consumer is woken in the place of each. One that is alive
        after all registers again. Conflicts with signs of life of those that it removes. With a
        database it spans transactions. Raises ``QueueNotFound``.
        """
        if consumer is None and not isinstance(tr, fdb.Transaction):
            return housekeeping.evict_dead(self, tr, first=True)

        def remove(tr: fdb.Transaction) -> list[bytes]:
            scope = self._scope(tr)
            if consumer is None:
                gone = registry.evict_dead(tr, scope).consumers
                return [each for queue, each in gone if queue == self.name]
            ref = ConsumerRef(consumer.id, consumer.priority, consumer.session)
            registry.unregister(tr, scope.keys, ref)
            return [consumer.id]

        return self._run(tr, remove, wrote=bool)

    def consumers(self, tr: Transactor) -> list[Consumer]:
        """The consumers: the registered ones, as workers are, and who waits in front of the line.

        By descending priority. Snapshot reads: no conflicts. Raises ``QueueNotFound``.
        """
        return self._read(tr, lambda tr: registry.consumers(tr, self._scope(tr)))

    def history(self, tr: Transactor, limit: int = 1_000, after: bytes = b"") -> list[Event]:
        """The transitions of the queue's messages, the oldest first, up to ``limit`` of them.

        after: the ``stamp`` of the last one of an earlier call, to go on behind it.

        Needs the option ``history_seconds``; older lines are gone. Snapshot reads: no conflicts;
        not in a transaction that itself has moved messages of the queue (FoundationDB's error
        1036). Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        if type(limit) is not int or not 0 < limit <= MAX_EVENTS:
            raise InvalidArgument(
                argument="limit", value=limit, problem=f"must be 1 to {MAX_EVENTS:,}"
            )
        return self._read(tr, lambda tr: history.read(tr, self._scope(tr), limit, after))

    # -- parts -------------------------------------------------------------------------------

    def _set_paused(self, tr: fdb.Transaction, paused: bool) -> None:
        scope = self._scope(tr)
        if scope.options.paused != paused:
            catalogue.change(tr, scope, replace(scope.options, paused=paused))
        if not paused:
            # Those that sleep look again: the first by itself, the others as they are woken.
            wakeups.ring(tr, self._keys)
            wakeups.wake(tr, self._keys, wakeups.reads(tr, self._keys, wakeups.MAX_WOKEN))


def _check_state(state: str) -> None:
    if state not in waiting.KINDS:
        raise InvalidArgument(
            argument="state", value=state, problem=f"must be one of {', '.join(waiting.KINDS)}"
        )

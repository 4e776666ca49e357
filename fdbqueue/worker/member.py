"""A worker's membership among the consumers of one queue: what it takes, and when it sleeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..api import Queue
from ..binding import fdb
from ..consumers import registry, wakeups
from ..consumers.credit import Credit
from ..consumers.states import ConsumerState
from ..model import Delivery
from ..queue import agenda, once
from .decisions import outranked

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Taken:
    """What a look at the queue brought.

    signal: what to wait for before the next look.
    asleep: whether there was room for more, so that no look is needed before the signal.
    returned: whether the messages that were at hand have been given back.
    seconds: when something will become ready by itself; None if nothing will.
    """

    deliveries: list[Delivery]
    signal: Sequence[wakeups.Watch] = ()
    asleep: bool = True
    returned: bool = False
    seconds: float | None = None


class Member:
    """One registered consumer. Not for several threads at once, except for ``beat``."""

    def __init__(
        self, db: fdb.Database, queue: Queue, name: str, priority: int, lease: float | None
    ) -> None:
        self.db = db
        self.queue = queue
        self.keys = queue._keys
        self.name = name
        self.priority = priority
        self.lease = lease
        self.id, self.record = self._run(lambda tr: registry.new(queue._scope(tr), name, priority))

    def join(self) -> None:
        """Register, or again after an eviction; removes who is dead."""

        def join(tr: fdb.Transaction) -> None:
            scope = self.queue._scope(tr)
            registry.evict_dead(tr, scope)
            registry.register(tr, scope, self.id, self.record, acquiring=True)

        self._run(join)

    def leave(self) -> None:
        """Unregister; somebody else is woken for what is left."""
        self._run(lambda tr: registry.unregister(tr, self.queue._scope(tr), self.id, self.priority))

    def beat(self) -> bool:
        """Give a sign of life, and remove who is dead. False if this one was taken for dead."""

        def beat(tr: fdb.Transaction) -> bool:
            scope = self.queue._scope(tr)
            alive = registry.heartbeat(tr, scope, self.id, self.record)
            registry.evict_dead(tr, scope)
            return alive

        return self._run(beat)

    def take(self, credit: Credit, most: int, at_hand: Sequence[Delivery] = ()) -> Taken:
        """Look at the queue: take what there is credit for; sleep if that was all.

        at_hand: deliveries to give back first, if something more urgent is ready.

        One transaction. A message that the credit has no room for is left, and somebody else is
        woken for it.
        """
        room = credit.room(most)

        def look(tr: fdb.Transaction) -> tuple[Taken, wakeups.Signal]:
            scope = self.queue._scope(tr)
            coming = agenda.look(tr, scope)
            above = registry.superior(tr, scope, self.priority)
            if above is not None:
                signal = wakeups.defer(tr, self.keys, self.id, self.priority, above, scope.clock)
                return Taken([]), signal
            allowed, wanted, returned = credit, room, False
            if at_hand:
                first = self.queue.peek(tr)
                returned = outranked(
                    first[0].level if first else None, [d.message.level for d in at_hand]
                )
            if returned:
                self.queue.release_many(tr, at_hand)
                for delivery in at_hand:
                    allowed = allowed.settled(len(delivery.payload))
                wanted = allowed.room(most)
            found, full = self._receive(tr, allowed, wanted)
            more = bool((found or full) and self.queue.peek(tr))
            if full:
                signal = wakeups.suspend(
                    tr, self.keys, self.id, self.priority, more=more, clock=scope.clock
                )
            elif more:
                signal = ()
                self._move(tr, ConsumerState.NOTIFIED)
            else:
                signal = wakeups.register(
                    tr, self.keys, self.id, self.priority, scope.clock, served=bool(found)
                )
            # The guard alone looks when something becomes ready by itself: no herd then, either.
            guards = len(signal) > 1 and not scope.options.paused
            seconds = agenda.next_event_seconds(tr, scope, coming) if guards else None
            return Taken(found, (), not full and not more, returned, seconds), signal

        taken, signal = self._run(
            look, wrote=lambda looked: bool(looked[0].deliveries or looked[0].returned)
        )
        return replace(taken, signal=wakeups.arm(self.db, signal))

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return messages to their places, at once and without a failed attempt."""
        self.queue.release_many(self.db, deliveries)

    def _receive(
        self, tr: fdb.Transaction, credit: Credit, wanted: int
    ) -> tuple[list[Delivery], bool]:
        """What there is credit for, and whether the credit is used up or too small for the next."""
        if not wanted:
            return [], True
        if credit.bytes is not None:
            sizes = [len(message.payload) for message in self.queue.peek(tr, wanted)]
            fitting = credit.admits(sizes)
            if fitting < len(sizes):
                wanted = fitting
            if not wanted:
                return [], True
        found = self.queue.receive_many(tr, wanted, lease=self.lease, consumer=self.name)
        for delivery in found:
            credit = credit.taken(len(delivery.payload))
        return found, len(found) == wanted

    def _move(self, tr: fdb.Transaction, state: ConsumerState) -> None:
        wakeups.move(tr, self.keys, self.id, self.priority, state, self.queue._clock)

    def _run(
        self, body: Callable[[fdb.Transaction], R], *, wrote: Callable[[R], bool] = lambda _: False
    ) -> R:
        """Most of what a member writes does no harm if it is written twice."""
        return once.run(self.db, self.keys.once, body, wrote=wrote)

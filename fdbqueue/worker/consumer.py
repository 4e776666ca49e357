"""A worker's membership among the consumers of one queue: what it takes, and when it sleeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from ..consumers import line, receiving, registry, wakeups
from ..consumers.credit import Credit
from ..consumers.line import Asked
from ..consumers.states import ConsumerState
from ..errors import QueueError
from ..messages import next_event
from ..messages.delivery import scan
from ..queue.queue import Queue
from ..schema import once
from ..schema.codec.consumers import ConsumerRef
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Delivery
from ..values.records import record
from .decisions import outranked
from .session import ProcessSession

R = TypeVar("R")

log = logging.getLogger("fdbqueue.worker")


@record
class Taken:
    """What a look at the queue brought.

    signal: what to wait for before the next look.
    asleep: whether there was room for more, so that no look is needed before the signal.
    returned: whether the messages that were at hand have been given back.
    seconds: when something will become ready by itself; None if nothing will.
    short: whether there is a message that the credit is too small for, though there is some.
    alone: whether there is one that is to be handled beside no other.
    """

    deliveries: list[Delivery]
    signal: Sequence[wakeups.Watch] = ()
    asleep: bool = True
    returned: bool = False
    seconds: float | None = None
    short: bool = False
    alone: bool = False


_Looked: TypeAlias = tuple[Taken, wakeups.Signal]


def _wrote(looked: _Looked | None) -> bool:
    return looked is not None and bool(looked[0].deliveries or looked[0].returned)


class _Evicted(Exception):
    """Raised when the consumer is not registered any more."""


class Member:
    """One registered consumer. Not for several threads at once."""

    def __init__(
        self,
        db: fdb.Database,
        queue: Queue,
        name: str,
        priority: int,
        lease: float | None,
        handlers: int = 1,
    ) -> None:
        self.db = db
        self.queue = queue
        self.keys = queue._keys
        self.name = name
        self.priority = priority
        self.lease = lease
        self.handlers = handlers
        self.session = ProcessSession.of(db, queue._root_keys, queue._clock)
        self._ref: ConsumerRef | None = None

    @property
    def ref(self) -> ConsumerRef:
        """The consumer as it is registered."""
        if self._ref is None:
            raise _Evicted
        return self._ref

    @property
    def evicted(self) -> bool:
        """Whether its session is known to have expired."""
        return self._ref is not None and not self.session.has(self._ref)

    def join(self) -> None:
        """Register, or anew after an eviction."""
        former = self._ref

        def join(tr: fdb.Transaction, session: bytes) -> ConsumerRef:
            if former is not None:
                registry.unregister(tr, self.keys, former)
            return self._register(tr, self.queue._scope(tr), session)

        if former is not None:
            self.session.lost(former)
        self._ref = self.session.register(join)

    def _register(self, tr: fdb.Transaction, scope: Scope, session: bytes) -> ConsumerRef:
        registry.evict_waiters(tr, scope)
        return registry.register(tr, scope, session, self.name, self.priority)

    def leave(self) -> None:
        """Unregister; somebody else is woken for what is left."""
        if self._ref is not None:
            former, self._ref = self._ref, None
            self.session.unregister(self.keys, former)

    def take(
        self,
        credit: Credit,
        most: int,
        at_hand: Sequence[Delivery] = (),
        *,
        begins: bool = True,
    ) -> Taken:
        """Look at the queue: take what there is credit for; sleep if that was all.

        at_hand: deliveries to give back first, if something more urgent is ready.
        begins: whether a message can be begun at once, beside no other.

        One transaction; where there is a line, or the queue's mode is to have one, the messages
        come through it, and one transaction follows. A message that the credit has no room for is
        left, and somebody else is woken for it.
        """
        while True:
            if self.evicted:
                self.join()
            try:
                return self._take(credit, most, at_hand, begins)
            except _Evicted:
                self.join()

    def _take(self, credit: Credit, most: int, at_hand: Sequence[Delivery], begins: bool) -> Taken:
        room, attempts = credit.room(most), 0

        def look(tr: fdb.Transaction) -> _Looked | None:
            nonlocal attempts
            attempts += 1
            lines = room and credit.bytes is None and not at_hand
            if lines and self._stands_in_line(tr, crowded=attempts > 1):
                return None
            return self._look(tr, credit, most, at_hand, begins)

        first: list[Delivery] = []
        looked = self._run(look, wrote=_wrote)
        if looked is None:
            asked = self._asked(room, begins)
            first = receiving.receive(self.db, self.queue._access, asked, 0.0)
            left = credit
            for delivery in first:
                left = left.taken(len(delivery.payload))
            try:
                looked = self._run(
                    lambda tr: self._look(tr, left, most, (), begins, served=bool(first)),
                    wrote=_wrote,
                )
            except _Evicted:
                return Taken(first, asleep=False)
        taken, signal = looked
        return replace(taken, deliveries=first + taken.deliveries, signal=self._armed(signal))

    def _armed(self, signal: wakeups.Signal) -> Sequence[wakeups.Watch]:
        """Watches; none where that fails: what was taken must not be lost for it."""
        try:
            return wakeups.arm(self.db, signal, self.keys.once.timeout)
        except (fdb.FDBError, QueueError) as error:
            log.warning("%s cannot be watched: %s", self.queue.name, error)
            return []

    def _stands_in_line(self, tr: fdb.Transaction, *, crowded: bool) -> bool:
        """Whether to come to messages as those who receive do: by the line, where there is one."""
        scope = self.queue._scope(tr)
        mode = scope.options.contention
        crowded = crowded or self.queue._access.crowded
        lined = mode == "staged" or (mode == "auto" and crowded)
        return lined and registry.superior(tr, scope, self.priority) is None

    def _look(
        self,
        tr: fdb.Transaction,
        credit: Credit,
        most: int,
        at_hand: Sequence[Delivery],
        begins: bool,
        served: bool = False,
    ) -> _Looked:
        scope, me = self.queue._scope(tr), self.ref
        registered = registry.registered(tr, self.keys, me)
        coming = next_event.reads(tr, scope)
        if not registered.present():
            raise _Evicted
        above = registry.superior(tr, scope, self.priority)
        if above is not None:
            signal = wakeups.defer(tr, scope, me, above)
            return Taken([]), signal
        room, returned = credit.room(most), False
        if at_hand:
            head = self._head(tr)
            returned = outranked(
                head.position.level if head else None, [d.message.level for d in at_hand]
            )
        if returned:
            self.queue.release_many(tr, at_hand, delay=0)
            for delivery in at_hand:
                credit = credit.settled(len(delivery.payload))
            room = credit.room(most)
        fitting = self._fitting(tr, credit, room)
        found = self._receive(tr, fitting, begins) if fitting else []
        full = len(found) == fitting
        head = self._head(tr)
        alone = not begins and head is not None and head.envelope.suspect
        more = head is not None and bool(found or full or alone) and not scope.options.paused
        if full or alone:
            signal = wakeups.suspend(tr, scope, me, more=more)
        elif more:
            signal = ()
            wakeups.move(tr, scope, me, ConsumerState.NOTIFIED)
        else:
            served = served or bool(found)
            signal = wakeups.register(tr, scope, me, served=served)
        # The guard alone looks when something becomes ready by itself: no herd then, either.
        guards = len(signal) > 1 and not scope.options.paused
        if guards:
            registry.evict_waiters(tr, scope)
        taken = Taken(
            found,
            asleep=not (full or alone or more),
            returned=returned,
            seconds=next_event.next_event_seconds(tr, scope, coming) if guards else None,
            short=full and fitting < room,
            alone=alone,
        )
        return taken, signal

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return messages to their places, at once and without a failed attempt."""
        self.queue.release_many(self.db, deliveries, delay=0)

    def _head(self, tr: fdb.Transaction) -> StoredMessage | None:
        """The first message that is ready, without its payload. A snapshot read."""
        found = scan.batch(self.keys, scan.first(tr, self.keys, 1))
        return found[0] if found else None

    def _fitting(self, tr: fdb.Transaction, credit: Credit, room: int) -> int:
        """How many messages there is credit for, of up to ``room``."""
        if credit.bytes is None or not room:
            return room
        looked = 0

        def sizes() -> Iterator[int]:
            nonlocal looked
            for kv in scan.first(tr, self.keys, room):
                looked += 1
                (message,) = scan.standing(self.keys, [kv])
                yield message.envelope.size

        fitting = credit.admits(sizes())
        return fitting if fitting < looked else room

    def _receive(self, tr: fdb.Transaction, most: int, begins: bool) -> list[Delivery]:
        asked = self._asked(most, begins)
        return receiving.take(tr, self.queue._scope(tr), asked, line.new_claim())

    def _asked(self, most: int, begins: bool) -> Asked:
        return Asked(most, self.lease, self.name, begins and self.handlers == 1, begins)

    def _run(
        self, body: Callable[[fdb.Transaction], R], *, wrote: Callable[[R], bool] = lambda _: False
    ) -> R:
        """Most of what a member writes does no harm if it is written twice."""
        return once.run(self.db, self.keys.once, body, wrote=wrote)

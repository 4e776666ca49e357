"""A worker's membership in a subscription: it takes what the subscription's selector matches."""

from __future__ import annotations

from collections.abc import Sequence

from ..consumers import registry, wakeups
from ..consumers.credit import Credit
from ..messages import next_event
from ..queue.queue import Queue
from ..queue.subscription import Subscription
from ..schema.codec.consumers import ConsumerRef
from ..schema.scope import Scope
from ..store.binding import fdb
from ..values.model import Delivery
from .consumer import Member, Taken, _Evicted


class Follower(Member):
    """A consumer of a subscription. It stands on no list: whether a message concerns it only its
    selector tells, so all followers look whenever something becomes ready."""

    def __init__(
        self,
        db: fdb.Database,
        queue: Queue,
        subscription: Subscription,
        name: str,
        priority: int,
        lease: float | None,
        handlers: int = 1,
    ) -> None:
        super().__init__(db, queue, name, priority, lease, handlers)
        self.subscription = subscription

    def _register(self, tr: fdb.Transaction, scope: Scope, session: bytes) -> ConsumerRef:
        return registry.register(tr, scope, session, self.name, self.priority, listed=False)

    def _take(self, credit: Credit, most: int, at_hand: Sequence[Delivery], begins: bool) -> Taken:
        """Take what matches and there is credit for. Spans transactions.

        The watch is armed before the look, so whatever becomes ready during it is noticed.
        """
        room = credit.room(most)
        if not room:
            return Taken([], asleep=False)
        before, seconds = self._run(self._before)
        signal = self._armed(before)
        begins = begins and self.handlers == 1
        found = self.subscription._receive_many(self.db, room, self.lease, 0.0, self.name, begins)
        asleep = len(found) < room
        return Taken(found, signal, asleep=asleep, seconds=seconds)

    def _before(self, tr: fdb.Transaction) -> tuple[wakeups.Signal, float | None]:
        scope = self.queue._scope(tr)
        registered = registry.registered(tr, self.keys, self.ref)
        coming = next_event.reads(tr, scope)
        if not registered.present():
            raise _Evicted
        return wakeups.changes(tr, self.keys), next_event.next_event_seconds(tr, scope, coming)

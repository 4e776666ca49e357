"""One queue's part in a worker: what is at hand, in hand, and how much more may come.

Every method is called with the worker's lock held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..consumers.credit import Credit
from ..queue.queue import Queue
from ..queue.subscription import Subscription
from ..values.backoff import Stored
from ..values.model import Delivery
from ..values.records import record
from .consumer import Member, Taken
from .decisions import time_to_refresh, worth_taking
from .handlers import Handler


@record
class Policy:
    """How the messages of one queue are handled; see ``Worker.add``."""

    handler: Handler
    lease: float
    window: int
    run: int
    refresh_after: int | None
    max_attempts: int | None
    backoff: Stored | None
    timeout: float | None = None


@dataclass
class Lane:
    """One queue that a worker serves."""

    queue: Queue
    policy: Policy
    credit: Credit
    subscription: Subscription | None = None
    member: Member | None = None
    at_hand: list[Delivery] = field(default_factory=list)
    """Taken and not yet begun, in the order of delivery."""
    in_hand: dict[bytes, Delivery] = field(default_factory=dict)
    """Being handled, by the token of the lease."""
    lost: set[bytes] = field(default_factory=set)
    """Tokens in hand whose lease is known to be gone."""
    waiting: Taken | None = None
    """The last look, while what it left is not known to have changed."""
    look_at: float = 0.0
    """When to look at the queue by oneself; by ``time.monotonic``."""
    looked_at: float = 0.0
    """When the queue was last looked at; by ``time.monotonic``."""
    handled: int = 0
    """Messages handled since the last look for more urgent ones."""
    news: threading.Condition = field(default_factory=threading.Condition)
    """Something for the feeder to do; of the worker's lock."""
    short: bool = False
    """Whether the credit is too small for the next message, until one is settled."""
    arrived: dict[bytes, float] = field(default_factory=dict)
    """When what is at hand was taken, by the token of the lease and ``time.monotonic``."""
    stalled: bool = False
    """Whether what was at hand has gone back, as no handler came to it; until one does."""
    alone: bool = False
    """Whether the next message is to be handled beside no other."""

    def afresh(self) -> Lane:
        """A lane for the same, that has taken nothing yet."""
        return Lane(self.queue, self.policy, self.credit, self.subscription)

    def widened(self, window: int) -> Lane:
        """A lane for the same that may hold so many messages."""
        own = self.credit != Credit(messages=self.policy.window)
        credit = self.credit if own else Credit(messages=window)
        return Lane(self.queue, replace(self.policy, window=window), credit, self.subscription)

    @property
    def room(self) -> int:
        """How many more messages may be taken."""
        return self.credit.room(self.policy.window)

    @property
    def can_begin(self) -> bool:
        """Whether a message can be begun now: not before a look that is due for urgent ones."""
        return bool(self.at_hand) and not self._refreshes

    @property
    def _refreshes(self) -> bool:
        return time_to_refresh(self.handled, self.policy.refresh_after, len(self.at_hand))

    def due(self, now: float, free: bool = True) -> bool:
        """Whether to look at the queue now. ``free``: whether nothing is being handled."""
        if now >= self.look_at or self._refreshes:
            return True
        asleep = self.waiting is not None and self.waiting.asleep
        if asleep or self.short or self.stalled or (self.alone and not free):
            return False
        return worth_taking(self.room, self.policy.window, len(self.at_hand))

    def looking(self) -> list[Delivery]:
        """Begin a look; returns what is to be given back if something more urgent is ready.

        That is taken from what is at hand, so that nobody begins with it meanwhile.
        """
        self.waiting, self.look_at = None, float("inf")
        self.looked_at = time.monotonic()
        if not self._refreshes:
            return []
        self.handled = 0
        exchanged, self.at_hand = self.at_hand, []
        return exchanged

    def looked(self, taken: Taken, exchanged: list[Delivery], until: float) -> None:
        """End a look: keep what it brought."""
        if taken.returned:
            self.gave_back(exchanged)
        else:
            self.at_hand.extend(exchanged)
        for delivery in taken.deliveries:
            self.credit = self.credit.taken(len(delivery.payload))
        self.at_hand.extend(taken.deliveries)
        now, arrived = time.monotonic(), self.arrived
        self.arrived = {each.token: arrived.get(each.token, now) for each in self.at_hand}
        self.at_hand.sort(key=lambda delivery: delivery.message.level)
        self.short, self.alone = taken.short, taken.alone
        self.waiting, self.look_at = taken, min(until, self.look_at)

    def look_failed(self, exchanged: list[Delivery], seconds: float) -> None:
        """End a look that has failed; the next one is not before ``seconds`` have passed."""
        self.at_hand.extend(exchanged)
        self.waiting = Taken([])
        self.look_at = time.monotonic() + seconds

    def lose_returned(self, exchanged: list[Delivery], message_id: str) -> None:
        """End a look that found that a lease is gone of what it was to give back."""
        gone = [delivery for delivery in exchanged if delivery.id == message_id]
        self.gave_back(gone)
        self.look_failed([delivery for delivery in exchanged if delivery not in gone], 0.0)
        # Nothing of the rest is begun before the look has been made after all.
        self.handled = self.policy.refresh_after or 0

    def begin(self) -> list[Delivery]:
        """Take the next message, or the next batch, in hand."""
        exclusive = self.suspect
        if exclusive is not None:
            self.at_hand.remove(exclusive)
            self.in_hand[exclusive.token] = exclusive
            return [exclusive]
        # One that was delivered before is handled by itself: a batch may have failed of it.
        count = 1
        while count < min(self.policy.handler.batch or 1, len(self.at_hand)):
            if any(each.message.redelivered for each in self.at_hand[count - 1 : count + 1]):
                break
            count += 1
        begun, self.at_hand = self.at_hand[:count], self.at_hand[count:]
        self.in_hand.update((delivery.token, delivery) for delivery in begun)
        return begun

    @property
    def suspect(self) -> Delivery | None:
        """A message at hand that is to be handled beside no other."""
        return next((each for each in self.at_hand if each.begun), None)

    def end(self, deliveries: Iterable[Delivery]) -> None:
        """Messages in hand are settled, or lost: their credit comes back."""
        for delivery in deliveries:
            if self.in_hand.pop(delivery.token, None) is not None:
                self.handled += 1
                self.short = False
                self.credit = self.credit.settled(len(delivery.payload))
            self.lost.discard(delivery.token)

    def give_up_waiting(self, before: float) -> list[Delivery]:
        """Take from what is at hand what has been there since ``before``, to be given back."""
        old = [each for each in self.at_hand if self.arrived.get(each.token, before) < before]
        if old:
            self.at_hand = [each for each in self.at_hand if each not in old]
            self.gave_back(old)
            self.stalled = True
        return old

    def gave_back(self, deliveries: Iterable[Delivery]) -> None:
        """Messages that were at hand are in the queue again, or lost."""
        for delivery in deliveries:
            self.short = False
            self.credit = self.credit.settled(len(delivery.payload))

    def holds(self, delivery: Delivery) -> bool:
        """Whether a message is in hand, and its lease not known to be gone."""
        return delivery.token in self.in_hand and delivery.token not in self.lost

    def lose(self, token: bytes) -> bool:
        """A lease is gone; returns whether the message was still held."""
        for delivery in self.at_hand:
            if delivery.token == token:
                self.at_hand.remove(delivery)
                self.gave_back([delivery])
                return True
        if token in self.in_hand and token not in self.lost:
            self.lost.add(token)
            return True
        return False

    def lose_all(self) -> None:
        """All leases are gone."""
        for delivery in self.held():
            self.lose(delivery.token)

    def extended(self, deliveries: Iterable[Delivery]) -> None:
        """Leases end later."""
        renewed = {delivery.token: delivery for delivery in deliveries}
        self.at_hand = [renewed.get(held.token, held) for held in self.at_hand]
        for token in renewed.keys() & self.in_hand.keys():
            self.in_hand[token] = renewed[token]

    def held(self) -> list[Delivery]:
        """All whose leases are to be extended."""
        return [
            *self.at_hand,
            *(delivery for token, delivery in self.in_hand.items() if token not in self.lost),
        ]

    def ring(self, seconds: float = 0.0) -> None:
        """Something has become ready, or may have: look after so many seconds at the latest."""
        self.look_at = min(self.look_at, time.monotonic() + seconds)

"""A queue, or subscription, that a worker handles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec

from msgspec.structs import replace

from ..consumers.credit import Credit
from ..messages.delivery.batch import LeasedRows
from ..queue.queue import Queue
from ..queue.subscription import Subscription
from ..store import world
from ..values.model import Delivery
from .channel import Channel
from .consumer import QueueConsumer
from .health.recent import Recent
from .policy import Policy
from .stock.actions import Action, Fetch, GiveBack, Released, Took
from .stock.events import Stepped
from .stock.held import Stock
from .stock.states import Supply

P = ParamSpec("P")


@dataclass(eq=False)
class Served:
    """One of those that a worker handles: all that is known of it. With the worker's lock held."""

    queue: Queue
    policy: Policy
    channel: Channel
    subscription: Subscription | None = None
    consumer: QueueConsumer | None = None
    recent: Recent = field(default_factory=Recent)
    """What has ended in the last minute."""
    rows: LeasedRows = field(default_factory=LeasedRows)
    """The rows of leases of what it holds."""
    changed: world.Condition = field(init=False)
    """There is something to fetch, or to acknowledge; of the worker's lock, once it works."""
    sleeps_until: float = -math.inf
    """Until when the fetcher waits for that; -inf while it does not."""

    def __post_init__(self) -> None:
        self.stock = Stock(self.policy)
        """What it holds. Anybody may read it without the lock."""

    def empty(self) -> Served:
        """The same, holding nothing yet."""
        return Served(self.queue, self.policy, self.channel, self.subscription)

    def resized(self, handlers: int, window: int) -> Served:
        """The same with so many handlers, that may hold so many messages."""
        channel = Channel(Credit(messages=window)) if self.policy.bounds else self.channel
        policy = replace(self.policy, handlers=handlers, window=window)
        return Served(self.queue, policy, channel, self.subscription)

    def outside(self, now: float, free: bool) -> tuple[float, bool, Credit, bool]:
        """What ``Stock.acts_at`` is to know."""
        return now, free, self.channel.credit, self.channel.turn(self, now, free)

    def fetches_now(self, now: float, free: bool) -> bool:
        """Whether it would fetch now, were it its turn."""
        return self.stock.fetches_now(now, free, self.channel.credit)

    def step(
        self, event: Callable[Concatenate[Stock, P], Stepped], *of: P.args, **named: P.kwargs
    ) -> Sequence[Action]:
        """Let an event happen, and account for its credit; returns what it asks for."""
        pace = self.stock.pace
        self.stock, actions = event(self.stock, *of, **named)
        if self.stock.pace != pace and self.policy.adapts:
            self.channel.resize(self.stock.window)
        for action in actions:
            if isinstance(action, Released):
                sizes = _sizes(action.deliveries)
                self.channel.released(self, sizes, action.tokens, began=action.began)
            elif isinstance(action, Took):
                self.channel.end(self, _sizes(action.deliveries))
                if action.supply is not None and self._drained(action.supply):
                    self.channel.drained(self, self.stock.tokens)
            elif isinstance(action, Fetch):
                self.channel.begin(self)
        return actions

    def give_back(self, actions: Iterable[Action]) -> None:
        """Return to the queue what actions ask for. Not with the lock: it asks the store."""
        for action in actions:
            if isinstance(action, GiveBack) and self.consumer is not None:
                self.consumer.give_back(action.deliveries)

    def _drained(self, supply: Supply) -> bool:
        """Whether a fetch has left nothing that it could take."""
        credit = self.channel.credit
        never = supply is Supply.SHORT and not credit.held
        return supply is Supply.ASLEEP or credit.exhausted or never


def _sizes(deliveries: Sequence[Delivery]) -> list[int]:
    return [len(each.message.payload) for each in deliveries]

"""What a worker holds of one queue, or subscription: a plain value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from ...consumers.credit import Credit
from ...queue.continuations.successors import Successors
from ...values.model import Delivery
from .. import decisions
from ..decisions import MAX_AHEAD, should_fetch
from ..policy import Policy
from .states import UNDER_WAY, Order, Supply

MAX_AHEAD_BYTES = 4_000_000
"""Payloads of which a worker holds no more than the least number of messages."""
LINGER_SECONDS = 0.003
"""How long an acknowledgement waits for others that are to come with it, while handlers run."""
BATCHES = 10
"""Batches that one transaction takes."""

token_of = attrgetter("token")


class Finished(NamedTuple):
    """Messages that a handler has finished, and that are to be acknowledged.

    seconds: how long the handler took. at: when it returned, by ``world.monotonic``. successors:
    what is to be enqueued with the acknowledgement.
    """

    deliveries: Sequence[Delivery]
    seconds: float
    at: float
    successors: Successors


class Stock(Struct, frozen=True):
    """What a worker holds of one queue. Times are by ``world.monotonic``.

    waiting: in the order in which they begin, those that must be handled beside no other first.
    since: when each of these was taken, by its token.
    lost: tokens of running and settling ones whose lease is known to be gone.
    finished: jobs that no transaction acknowledges yet.
    fetches: how many have begun; the latest did ``began_at``.
    fetch_at: when to fetch in any case.
    looked_at: when it was last known that nothing more urgent was ready; ``begun`` messages ago.
    watched: since when a watch tells of cancellations; inf while none does.
    check_at: when to look what was cancelled.
    pace: how many seconds a handler takes for a message, by a moving average.
    """

    policy: Policy
    supply: Supply = Supply.MORE
    order: Order = Order.KNOWN
    waiting: tuple[Delivery, ...] = ()
    since: Mapping[bytes, float] = {}
    running: Mapping[bytes, Delivery] = {}
    settling: Mapping[bytes, Delivery] = {}
    lost: frozenset[bytes] = frozenset()
    finished: tuple[Finished, ...] = ()
    fetches: int = 0
    began_at: float = -math.inf
    fetch_at: float = -math.inf
    looked_at: float = -math.inf
    begun: int = 0
    watched: float = math.inf
    check_at: float = math.inf
    pace: float | None = None

    @property
    def window(self) -> int:
        """How many messages may be held at once."""
        policy = self.policy
        if self.pace is None or not policy.adapts:
            return policy.window
        return decisions.window(policy.window, policy.handlers, self.pace)

    def can_begin(self, looks: bool) -> bool:
        """Whether a message can be begun now. looks: whether the store can be asked."""
        known = self.order is Order.KNOWN or (self.order is Order.LOOKING and not looks)
        return known and bool(self.waiting)

    @property
    def suspect(self) -> bool:
        """Whether the next message must be handled beside no other."""
        return bool(self.waiting) and self.waiting[0].begun

    @property
    def isolates(self) -> bool:
        """Whether nothing may begin, since one is to be fetched that must be alone."""
        return self.supply in (Supply.SUSPECT, Supply.ISOLATING)

    @property
    def tokens(self) -> set[bytes]:
        """Those of all messages that are here."""
        return {*map(token_of, self.waiting), *self.running, *self.settling}

    @property
    def held(self) -> list[Delivery]:
        """All whose leases are to be extended."""
        begun = [*self.running.items(), *self.settling.items()]
        return [*self.waiting, *(each for token, each in begun if token not in self.lost)]

    def holds(self, delivery: Delivery) -> bool:
        """Whether a message is running, and its lease not known to be gone."""
        return delivery.token in self.running and delivery.token not in self.lost

    def cancelled(self, deliveries: Iterable[Delivery]) -> bool:
        """Whether running messages are all known to have been cancelled."""
        held = [self.running.get(each.token) for each in deliveries]
        return all(each is not None and each.cancelled for each in held)

    def settles(self, deliveries: Iterable[Delivery]) -> bool:
        """Whether running messages can be left to the fetcher, to be acknowledged."""
        here = all(each.token in self.running for each in deliveries)
        return self.supply is not Supply.LEFT and here

    def stale(self, now: float) -> bool:
        """Whether to look for a message more urgent than the next one before that is begun."""
        if not self.waiting or self.waiting[0].message.level == 0:
            return False
        if self.policy.refresh_after is not None:
            return self.begun >= self.policy.refresh_after
        return self.policy.refreshes and now - self.looked_at >= decisions.REFRESH_SECONDS

    def room(self, credit: Credit) -> int:
        """How many more messages may be taken."""
        window = self.window
        if not credit.window:
            window -= len(self.waiting) + len(self.running) + len(self.settling)
        elif window > self.policy.window and credit.used_bytes >= MAX_AHEAD_BYTES:
            window = self.policy.window - credit.used_messages
        return credit.room(max(0, window))

    @property
    def most(self) -> int:
        """The most messages to ask for at once."""
        return min(self.window, max(MAX_AHEAD, BATCHES * (self.policy.handler.batch or 1)))

    def wants(self, credit: Credit) -> int:
        """How many messages to ask for: whole batches if there is room, so that no block is cut."""
        room, batch = min(self.room(credit), self.most), self.policy.handler.batch or 1
        return room - room % batch or (self.most if credit.window else room)

    def fetches_now(self, now: float, free: bool, credit: Credit) -> bool:
        """Whether to fetch as soon as it is its turn. free: whether a message that came now could
        be begun beside no other."""
        supply = self.supply
        if supply in UNDER_WAY or supply is Supply.LEFT:
            return False
        if now >= self.fetch_at or self.order is Order.OUTRANKED:
            return True
        if supply is Supply.MORE or (supply is Supply.SUSPECT and free):
            return should_fetch(self.room(credit), self.most, len(self.waiting))
        return False

    def acts_at(self, now: float, free: bool, credit: Credit, first: bool) -> float:
        """When the fetcher has something to do. first: whether it is its turn to fetch."""
        if self.order is Order.LOOKING and self.waiting:
            return -math.inf
        if self.fetches_now(now, free, credit):
            fetches_at = now if first else math.inf
        else:
            fetches_at = math.inf if self.supply is Supply.LEFT else self.fetch_at
        return min(fetches_at, self._settles_at, self.checks_at)

    @property
    def checks_at(self) -> float:
        """When to look what was cancelled of what is held, if that is anything."""
        return self.check_at if self.waiting or self.running or self.settling else math.inf

    @property
    def _settles_at(self) -> float:
        if not self.finished:
            return math.inf
        # All handlers have returned, so there is nothing to wait for.
        over = not self.running or self.supply is Supply.LEFT
        return -math.inf if over else self.finished[0].at + LINGER_SECONDS

"""What a worker holds of one queue: prefetched, running, and how much more it may hold.

Every method is called with the worker's lock held.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..consumers.credit import Credit
from ..messages.delivery.batch import LeasedRows
from ..queue.continuations.successors import Successors
from ..queue.queue import Queue
from ..queue.subscription import Subscription
from ..store import world
from ..values.backoff import Stored
from ..values.model import Delivery
from . import decisions
from .channel import Channel, Flush
from .consumer import Fetched, QueueConsumer
from .decisions import MAX_AHEAD, REFRESH_SECONDS, should_fetch, time_to_refresh
from .handlers import Handler
from .health.recent import Recent

MAX_AHEAD_BYTES = 4_000_000
"""Payloads of which a worker holds no more than the least number of messages."""
LINGER_SECONDS = 0.003
"""How long an acknowledgement waits for others that are to come with it, while handlers run."""
BATCHES = 10
"""Batches that one transaction takes."""
MAX_ACKNOWLEDGED = 1_000
"""Messages that one transaction acknowledges, and enqueues after them."""
MAX_SUCCESSOR_BYTES = 1_000_000
"""Payloads that it enqueues, if they belong to several messages."""

_begun, _token, _level = attrgetter("begun"), attrgetter("token"), attrgetter("message.level")


class Policy(Struct, frozen=True):
    """How the messages of one queue are handled; see ``Worker.add``.

    window: how many messages are held at once, at least. handlers: how many threads there are.
    adapts: whether more are held while handlers are fast. settles_before: whether messages are
    acknowledged before they are handled. bounds: whether the credit is ``window`` messages, and
    grows with it. refreshes: whether a look for more urgent messages counts for
    ``REFRESH_SECONDS`` only.
    """

    handler: Handler
    lease: float
    window: int
    run: int
    refresh_after: int | None
    max_attempts: int | None
    backoff: Stored | None
    timeout: float | None = None
    handlers: int = 1
    adapts: bool = False
    settles_before: bool = False
    bounds: bool = False
    refreshes: bool = False
    usual_attempts: int | None = None
    usual_backoff: Stored | None = None


class Finished(NamedTuple):
    """Messages that a handler has finished, and that are to be acknowledged.

    seconds: how long the handler took. at: when it returned, by ``world.monotonic``. successors:
    what is to be enqueued with the acknowledgement.
    """

    deliveries: Sequence[Delivery]
    seconds: float
    at: float
    successors: Successors


@dataclass(eq=False)
class Buffer:
    """One queue, or subscription, that a worker handles."""

    queue: Queue
    policy: Policy
    channel: Channel
    subscription: Subscription | None = None
    consumer: QueueConsumer | None = None
    prefetched: list[Delivery] = field(default_factory=list)
    """Taken and not yet begun, in the order of delivery."""
    recent: Recent = field(default_factory=Recent)
    """What has ended in the last minute."""
    running: dict[bytes, Delivery] = field(default_factory=dict)
    """Being handled, by the token of the lease."""
    lost: set[bytes] = field(default_factory=set)
    """Tokens of running messages whose lease is known to be gone."""
    finished: list[Finished] = field(default_factory=list)
    """Running messages whose handler has returned; the fetcher acknowledges them."""
    unsettled: set[bytes] = field(default_factory=set)
    """Their tokens, until they are settled."""
    settles: bool = True
    """Whether the fetcher still acknowledges."""
    latest: Fetched | None = None
    """The latest fetch, while what it left is not known to have changed."""
    fetch_at: float = 0.0
    """When to fetch in any case; by ``world.monotonic``."""
    handled: int = 0
    """Messages handled since the last check for more urgent ones."""
    looked_at: float = -math.inf
    """When the last look for more urgent ones ended, or a fetch began that found none; by
    ``world.monotonic``."""
    looking: bool = False
    """Whether a handler's thread looks now."""
    fetching: bool = False
    """Whether a fetch is under way."""
    arriving: bool = False
    """Whether it may bring something more urgent, which a look no longer found."""
    exchanges: bool = False
    """Whether the next fetch gives back what is less urgent than what is ready."""
    changed: world.Condition = field(default_factory=lambda: world.Condition())
    """There may be something to fetch; of the worker's lock."""
    short: bool = False
    """Whether the credit is too small for the next message, until one is settled."""
    arrived: dict[bytes, float] = field(default_factory=dict)
    """When each prefetched message was taken, by its token and ``world.monotonic``."""
    stalled: bool = False
    """Whether prefetched messages went back because no handler was free; until one is."""
    alone: bool = False
    """Whether the next message must be handled beside no other."""
    suspects: bool = False
    """Whether there may be such a message among the prefetched ones."""
    rows: LeasedRows = field(default_factory=LeasedRows)
    """The rows of leases of what it holds."""
    pace: float | None = None
    """How many seconds a handler takes for a message, by a moving average."""
    flushes: Sequence[Flush] = ()
    """Those that began before the fetch under way."""
    began_at: float = 0.0
    """When that began, by ``world.monotonic``."""

    def empty(self) -> Buffer:
        """A buffer for the same that holds nothing yet."""
        return Buffer(self.queue, self.policy, self.channel, self.subscription)

    def resized(self, handlers: int, window: int) -> Buffer:
        """A buffer for the same with so many handlers, that may hold so many messages."""
        channel = Channel(Credit(messages=window)) if self.policy.bounds else self.channel
        policy = replace(self.policy, handlers=handlers, window=window)
        return Buffer(self.queue, policy, channel, self.subscription)

    @property
    def credit(self) -> Credit:
        """The credit of the channel as it is now."""
        return self.channel.credit

    @property
    def room(self) -> int:
        """How many more messages may be taken."""
        credit = self.credit
        room = credit.room(self.window)
        if not credit.window:
            return max(0, min(room, self.window - len(self.prefetched) - len(self.running)))
        if self.window > self.policy.window and credit.used_bytes >= MAX_AHEAD_BYTES:
            return max(0, min(room, self.policy.window - credit.used_messages))
        return room

    @property
    def window(self) -> int:
        """How many messages may be held at once."""
        policy = self.policy
        if self.pace is None or not policy.adapts:
            return policy.window
        return decisions.window(policy.window, policy.handlers, self.pace)

    def keep_pace(self, seconds: float, messages: int) -> None:
        """A handler took so many seconds for so many messages."""
        each = seconds / messages
        self.pace = each if self.pace is None else self.pace + (each - self.pace) / 8
        self._adapt()

    def _adapt(self) -> None:
        if self.policy.adapts:
            self.channel.resize(self.window)

    @property
    def most(self) -> int:
        """The most messages to ask for at once."""
        return min(self.window, max(MAX_AHEAD, BATCHES * (self.policy.handler.batch or 1)))

    @property
    def wants(self) -> int:
        """How many messages to ask for: whole batches if there is room, so that no block is cut."""
        room, batch = min(self.room, self.most), self.policy.handler.batch or 1
        return room - room % batch or (self.most if self.credit.window else room)

    @property
    def can_begin(self) -> bool:
        """Whether a message can be begun now: not before a check that is due for urgent ones."""
        waits = self._refreshes or self.exchanges or self.looking or self.arriving
        return bool(self.prefetched) and not waits

    @property
    def _refreshes(self) -> bool:
        return time_to_refresh(self.handled, self.policy.refresh_after, len(self.prefetched))

    def stale(self, now: float) -> bool:
        """Whether to look for a message more urgent than the next one before that is begun."""
        return (
            self.policy.refreshes
            and self.prefetched[0].message.level > 0
            and now - self.looked_at >= REFRESH_SECONDS
        )

    def looked(self, found: bool) -> None:
        """End a look; ``found``: whether a more urgent message is ready."""
        self.looking, self.exchanges = False, found
        if found:
            self.changed.notify()
        else:
            self.looked_at = world.monotonic()
            # A fetch that is under way may have taken one.
            self.arriving = self.fetching

    def due(self, now: float, free: bool = True) -> bool:
        """Whether to fetch now. ``free``: whether nothing is being handled."""
        return self.waits(now, free) and self.channel.turn(self, now, free)

    def waits(self, now: float, free: bool) -> bool:
        """Whether to fetch as soon as it is its turn."""
        if now >= self.fetch_at or self._refreshes or self.exchanges:
            return True
        asleep = self.latest is not None and self.latest.asleep
        # Nothing to be had, or nothing it may take: the watch, a settlement or a free handler
        # changes that.
        if asleep or self.short or self.stalled or (self.alone and not free):
            return False
        return should_fetch(self.room, self.most, len(self.prefetched))

    def begin_fetch(self) -> list[Delivery]:
        """Begin a fetch; returns what is to be given back if something more urgent is ready.

        No handler can begin with that meanwhile.
        """
        self.latest, self.fetch_at = None, float("inf")
        self.flushes = self.channel.begin(self)
        self.began_at, self.fetching = world.monotonic(), True
        if not (self._refreshes or self.exchanges):
            return []
        self.handled, self.exchanges = 0, False
        # Taken out of the buffer, so that no handler begins with one that is about to be given
        # back.
        exchanged, self.prefetched = self.prefetched, []
        return exchanged

    def end_fetch(self, fetched: Fetched, exchanged: list[Delivery], until: float) -> None:
        """End a fetch: keep what it brought."""
        self.fetching = self.arriving = False
        self.gave_back(fetched.returned)
        self.prefetched.extend(exchanged[: len(exchanged) - len(fetched.returned)])
        found = fetched.deliveries
        self.channel.end(self, _sizes(found))
        self.rows.add(fetched.taken, found[-len(fetched.taken) :])
        self.prefetched.extend(found)
        self.suspects = self.suspects or any(map(_begun, found))
        self.arrived.update(dict.fromkeys(map(_token, found), world.monotonic()))
        # Tidied now and then, not at each end: that would cost every message a look-up.
        if len(self.arrived) > 2 * len(self.prefetched) + MAX_AHEAD:
            self.arrived = {each.token: self.arrived[each.token] for each in self.prefetched}
        # The sort keeps the order within a level, in which they were delivered.
        self.prefetched.sort(key=_level)
        if exchanged:
            self.looked_at = world.monotonic()  # Whatever is left could not be taken.
        elif not self.prefetched or _is_behind(fetched, self.prefetched[0]):
            # The time at which it began: what became ready during the fetch, it may not have seen.
            self.looked_at = self.began_at
        self.short, self.alone = fetched.short, fetched.alone
        self.latest, self.fetch_at = fetched, min(until, self.fetch_at)
        credit = self.credit
        if fetched.asleep or credit.exhausted or (self.short and not credit.held):
            tokens = [*map(_token, self.prefetched), *self.running]
            self.channel.drained(self, self.flushes, tokens)

    def fetch_failed(self, exchanged: list[Delivery], seconds: float) -> None:
        """End a fetch that has failed; the next one is not before ``seconds`` have passed."""
        self.channel.end(self)
        self.fetching = self.arriving = False
        self.prefetched.extend(exchanged)
        self.looked_at = world.monotonic()  # Who cannot look does not wait for it.
        self.latest = Fetched([])
        self.fetch_at = world.monotonic() + seconds

    def lose_returned(self, exchanged: list[Delivery], message_id: str) -> None:
        """End a fetch that was to give back a message whose lease is gone."""
        gone = [delivery for delivery in exchanged if delivery.id == message_id]
        self.gave_back(gone)
        self.fetch_failed([delivery for delivery in exchanged if delivery not in gone], 0.0)
        # Nothing of the rest is begun before the check has been made after all.
        self.handled = self.policy.refresh_after or 0
        self.exchanges = self.policy.refreshes

    def begin(self) -> list[Delivery]:
        """Begin with the next message, or the next batch."""
        exclusive = self.suspect
        if exclusive is not None:
            self.prefetched.remove(exclusive)
            self.running[exclusive.token] = exclusive
            return [exclusive]
        begun = self.prefetched[: self.policy.handler.batch or 1]
        if len(begun) > 1:
            # One that was delivered before is handled by itself: a batch may have failed of it.
            fresh = itertools.takewhile(lambda each: not each.message.redelivered, begun)
            begun = list(fresh) or begun[:1]
        del self.prefetched[: len(begun)]
        self.running.update(zip(map(_token, begun), begun, strict=True))
        return begun

    @property
    def suspect(self) -> Delivery | None:
        """A prefetched message that must be handled beside no other."""
        if not self.suspects:
            return None
        found = next((each for each in self.prefetched if each.begun), None)
        self.suspects = found is not None
        return found

    def end(self, deliveries: Sequence[Delivery]) -> None:
        """Running messages are settled, or lost."""
        held = [each for each in deliveries if self.running.pop(each.token, None) is not None]
        self._handled([each for each in held if each.token not in self.unsettled])
        tokens = {*map(_token, deliveries)}
        self.channel.settled(self, (), tokens)
        self.unsettled -= tokens
        self.lost -= tokens
        self.rows.forget(deliveries)

    def _handled(self, deliveries: Sequence[Delivery]) -> None:
        self.handled += len(deliveries)
        if deliveries:
            self.channel.settled(self, _sizes(deliveries), ())

    def finish(
        self, deliveries: Sequence[Delivery], seconds: float, successors: Successors
    ) -> bool:
        """Leave running messages to be acknowledged by the fetcher; whether it will.

        It does that before it takes any others, so their credit comes back at once.
        """
        if not self.settles or not all(each.token in self.running for each in deliveries):
            return False
        self.finished.append(Finished(deliveries, seconds, world.monotonic(), successors))
        self.unsettled.update(map(_token, deliveries))
        self._handled(deliveries)
        return True

    def lingers(self, now: float) -> float:
        """Seconds for which the fetcher may wait for more to acknowledge."""
        if not self.finished:
            return float("inf")
        # All handlers have returned: there is nothing to wait for.
        if len(self.unsettled) == len(self.running):
            return 0.0
        return self.finished[0].at + LINGER_SECONDS - now

    def calls(self, now: float, free: bool) -> bool:
        """Whether the fetcher has to know of what has just been finished: it waits for the rest."""
        return len(self.finished) == 1 or self.lingers(now) <= 0 or self.due(now, free)

    def unfinished(self) -> list[Delivery]:
        """Running messages whose handler has not returned."""
        return [each for token, each in self.running.items() if token not in self.unsettled]

    def take_finished(self) -> list[Finished]:
        """What is to be acknowledged next."""
        count = messages = size = 0
        for job in self.finished:
            messages += len(job.deliveries) + job.successors.count
            size += job.successors.bytes
            # One transaction carries so much; the rest goes with the next one, in the order in
            # which it ended.
            if count and (messages > MAX_ACKNOWLEDGED or size > MAX_SUCCESSOR_BYTES):
                break
            count += 1
        taken, self.finished = self.finished[:count], self.finished[count:]
        return taken

    def give_up_waiting(self, before: float, ahead_before: float) -> list[Delivery]:
        """Take out what was prefetched before a moment, to be given back.

        ahead_before: the moment for what is held only because handlers were fast.
        """
        least = self.policy.window - len(self.running)
        old = [
            each
            for n, each in enumerate(self.prefetched)
            if self.arrived.get(each.token, ahead_before) < (before if n < least else ahead_before)
        ]
        if old:
            self.prefetched = [each for each in self.prefetched if each not in old]
            self.gave_back(old)
            # Its pace was that of fast handlers: until one is free again, nothing is taken ahead.
            self.stalled, self.pace = True, None
            self._adapt()
        return old

    def gave_back(self, deliveries: Sequence[Delivery]) -> None:
        """Prefetched messages are in the queue again, or lost."""
        if deliveries:
            self.channel.returned(self, _sizes(deliveries), [*map(_token, deliveries)])

    def holds(self, delivery: Delivery) -> bool:
        """Whether a message is running, and its lease not known to be gone."""
        return delivery.token in self.running and delivery.token not in self.lost

    def cancelled(self, deliveries: Iterable[Delivery]) -> bool:
        """Whether running messages are all known to have been cancelled. Needs no lock."""
        held = [self.running.get(each.token) for each in deliveries]
        return all(each is not None and each.cancelled for each in held)

    def give_up_cancelled(self) -> list[Delivery]:
        """Take out the prefetched messages that are known to have been cancelled, to be given
        back."""
        gone = [each for each in self.prefetched if each.cancelled]
        if gone:
            self.prefetched = [each for each in self.prefetched if not each.cancelled]
            self.gave_back(gone)
        return gone

    def lose(self, token: bytes) -> bool:
        """A lease is gone; returns whether the message was still held."""
        for delivery in self.prefetched:
            if delivery.token == token:
                self.prefetched.remove(delivery)
                self.gave_back([delivery])
                return True
        if token in self.running and token not in self.lost:
            # Kept as lost while its handler runs, so that nothing extends or settles it.
            self.lost.add(token)
            return True
        return False

    def lose_all(self) -> None:
        """All leases are gone."""
        for delivery in self.held():
            self.lose(delivery.token)

    def extended(self, deliveries: Sequence[Delivery]) -> None:
        """Leases end later."""
        self.rows.forget(deliveries)
        # What was cancelled stays so: an extension from before that may be told of later.
        known = {held.token for held in self.held() if held.cancelled}
        self._renew(
            {
                each.token: replace(each, cancelled=True) if each.token in known else each
                for each in deliveries
            }
        )

    def note_cancelled(self, tokens: Set[bytes]) -> None:
        """Messages are known to have been cancelled, as far as they are held."""
        found = [each for each in self.held() if each.token in tokens] if tokens else []
        self._renew({each.token: replace(each, cancelled=True) for each in found})

    def _renew(self, renewed: Mapping[bytes, Delivery]) -> None:
        if renewed:
            self.prefetched = [renewed.get(held.token, held) for held in self.prefetched]
        for token in renewed.keys() & self.running.keys():
            self.running[token] = renewed[token]

    def held(self) -> list[Delivery]:
        """All whose leases are to be extended."""
        return [
            *self.prefetched,
            *(delivery for token, delivery in self.running.items() if token not in self.lost),
        ]

    def ring(self, seconds: float = 0.0) -> None:
        """Something may have become ready: fetch after so many seconds at the latest."""
        self.fetch_at = min(self.fetch_at, world.monotonic() + seconds)

    def resume(self) -> None:
        """There may be more credit, or a flush to come after."""
        self.short = False
        self.ring()


def _is_behind(fetched: Fetched, next: Delivery) -> bool:
    """Whether a fetch has left nothing more urgent than a message."""
    return fetched.asleep or (fetched.first is not None and fetched.first >= next.message.level)


def _sizes(deliveries: Sequence[Delivery]) -> list[int]:
    return [len(each.message.payload) for each in deliveries]

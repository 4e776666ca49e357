"""A worker as a consumer of a queue or a subscription: what it fetches, and when it sleeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..consumers import receiving, registry, wakeups, watching
from ..consumers.consumer_states import ConsumerState
from ..consumers.credit import Credit
from ..consumers.receiving import Access
from ..errors import ExpiredBacklog, LeaseLost, QueueError
from ..messages import agenda, run, settle
from ..messages.delivery import queue_limits, scan
from ..messages.run import Held
from ..queue.admin.housekeeping import past_backlog
from ..queue.internals import Internals, SubscriptionInternals
from ..queue.queue import Queue
from ..queue.subscription import Subscription
from ..schema import once
from ..schema.consumers import ConsumerRef, Request
from ..schema.leases import holder_of
from ..schema.scope import Scope, StoredMessage
from ..store import world
from ..store.binding import FAILURES, fdb
from ..values.model import Delivery
from .decisions import outranked
from .process_session import ProcessSession
from .stock.states import Event

R = TypeVar("R")

MAX_DIRECT = 4
"""How often a worker tries to take messages before it stands in line for them: it takes many at
once, so a conflict costs it less than a line does."""
MIN_DIRECT = 100
"""Who takes as many at once stands in line only where the queue's mode is to have one."""
MAX_REST = 0.2
"""Seconds to wait at most between two of these tries."""
_MAX_DOUBLINGS = 10
LOOK_SECONDS = 1.0
"""How long a look for a more urgent message may take."""

log = logging.getLogger("fdbqueue.worker")


class Fetched(Struct, frozen=True):
    """What a worker found in a queue.

    taken: the last of the deliveries, as they were taken.
    signal: what to wait for before the next fetch.
    left: what it left, as an event of ``SUPPLY``.
    returned: the prefetched messages that have been given back.
    first: the level of the first message that is left; None if none is, or it is not known.
    seconds: when something will become ready by itself; None if nothing will.
    """

    deliveries: list[Delivery]
    taken: Sequence[Delivery] = ()
    signal: Sequence[watching.ArmedWatch] = ()
    left: Event = Event.LEFT_NOTHING
    returned: Sequence[Delivery] = ()
    first: int | None = None
    seconds: float | None = None


_Unarmed: TypeAlias = tuple[Fetched, watching.Signal]


class _Ready(Struct, frozen=True):
    """What was taken, and left.

    head: the first message that is left. unfinished: whether messages may be left that it has not
    come to. more: whether there are, or may be, where there was no room for more. closed: whether
    the subscription has closed itself.
    """

    found: Sequence[Delivery]
    head: StoredMessage | None
    unfinished: bool = False
    more: bool = False
    closed: bool = False


class _Wanted(Struct, frozen=True):
    """What one transaction is to fetch.

    finished: what it acknowledges. prefetched, begins: as of ``QueueConsumer.fetch``. served:
    whether messages came through the line just now. strict: whether the order is serializable, or
    that at the start of the transaction.
    """

    credit: Credit
    most: int
    prefetched: Sequence[Delivery] = ()
    finished: Sequence[Held] = ()
    begins: bool = True
    served: bool = False
    strict: bool = True


def _exceeds(credit: Credit, ready: _Ready) -> bool:
    """Whether a credit in bytes has no room for the first message that was left."""
    if credit.bytes is None or ready.head is None:
        return False
    left = credit.taken(*(len(each.payload) for each in ready.found))
    return not left.admits([ready.head.envelope.size])


def _wrote(found: _Unarmed | None) -> bool:
    return found is not None and bool(found[0].taken or found[0].returned)


def rest(attempts: int, seconds: float) -> float:
    """How long to wait before one of several attempts, in seconds: at random, as long as it takes
    to read and write on average, and twice as long each time."""
    return min(MAX_REST, world.random.uniform(0, 2 ** min(attempts - 1, _MAX_DOUBLINGS)) * seconds)


class _Evicted(Exception):
    """Raised when the consumer is not registered any more."""


class QueueConsumer:
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
        self.internals = Internals(queue)
        self.keys = self.internals.keys
        self.name = name
        self.priority = priority
        self.lease = lease
        self.handlers = handlers
        self.session = ProcessSession.of(db, self.internals.root_keys, self.internals.clock)
        self._ref: ConsumerRef | None = None

    @property
    def _access(self) -> Access:
        return self.internals.access

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
            return self._register(tr, self.internals.scope(tr), session)

        if former is not None:
            self.session.lost(former)
        self._ref = self.session.register(join)

    def _register(self, tr: fdb.Transaction, scope: Scope, session: bytes) -> ConsumerRef:
        registry.evict_waiters(tr, scope)
        return registry.register(tr, scope, session, self.name, self.priority)

    def leave(self) -> None:
        """Unregister; another consumer is woken for what is left."""
        if self._ref is not None:
            former, self._ref = self._ref, None
            self.session.unregister(self.keys, former)

    def fetch(
        self,
        credit: Credit,
        most: int,
        prefetched: Sequence[Delivery] = (),
        *,
        begins: bool = True,
    ) -> Fetched:
        """Take what there is credit for; sleep if that was all.

        prefetched: deliveries of which the least urgent are given back first, as many as more
            urgent ones are ready and have no room beside them.
        begins: whether a message can be begun at once, beside no other.

        One transaction; where there is a line, or the queue's mode is to have one, the messages
        come through it, and one transaction follows. A message that the credit has no room for is
        left, and another consumer is woken for it.
        """
        while True:
            if self.evicted:
                self.join()
            try:
                return self._fetch(_Wanted(credit, most, prefetched, begins=begins))
            except _Evicted:
                self.join()

    def _fetch(self, wanted: _Wanted) -> Fetched:
        first: list[Delivery] = []
        found = past_backlog(self.queue, self.db, lambda: self._directly(wanted))
        if found is None:
            credit, room = wanted.credit, wanted.credit.room(wanted.most)
            request = self._request(room, wanted.begins, credit)
            lined = partial(receiving.receive, self.db, self._access, request, 0.0)
            first = [*past_backlog(self.queue, self.db, lined)]
            left = credit.taken(*(len(each.payload) for each in first))
            behind = replace(wanted, credit=left, served=bool(first))
            try:
                found = self._run(partial(self._take, wanted=behind), wrote=_wrote)
            except _Evicted:
                # What was leased in line is kept: only the second step, which goes to sleep, has to
                # be made again.
                return Fetched(first, left=Event.LEFT_MORE)
        return self._made(found, first)

    def settle_and_fetch(
        self, credit: Credit, most: int, finished: Sequence[Held], *, begins: bool = True
    ) -> Fetched | None:
        """Acknowledge deliveries and fetch, in one transaction; ``credit`` is what there is then.

        None if nothing was done, and each is to be done by itself: messages come through a line,
        the consumer was evicted, or the transaction met a conflict. Raises ``LeaseLost`` if a
        lease is gone; then nothing was done, either.
        """
        try:
            found = self._directly(_Wanted(credit, most, finished=finished, begins=begins))
        except (_Evicted, ExpiredBacklog):
            return None
        return None if found is None else self._made(found)

    def _directly(self, wanted: _Wanted) -> _Unarmed | None:
        """Take what is ready; None where that comes through the line."""
        attempts, seconds, room = 0, 0.0, wanted.credit.room(wanted.most)

        def take(tr: fdb.Transaction) -> _Unarmed | None:
            nonlocal attempts, seconds
            attempts += 1
            if attempts > 1:
                # Acknowledgements must not be held up by the fight for messages: each goes its own
                # way.
                if wanted.finished:
                    return None
                # Another consumer was faster, and is likely to take again just now.
                world.sleep(rest(attempts, seconds))
            lines = room and not wanted.prefetched
            if lines and self._stands_in_line(tr, room, attempts):
                return None
            began = world.monotonic()
            found = self._take(tr, replace(wanted, strict=attempts == 1))
            seconds = world.monotonic() - began
            return found

        return self._run(take, wrote=lambda found: _wrote(found) or bool(found and wanted.finished))

    def _made(self, found: _Unarmed, first: Sequence[Delivery] = ()) -> Fetched:
        """What was found, with its deliveries made and its watches armed: after the commit, so that
        others can take sooner."""
        fetched, signal = found
        deliveries = [*first, *fetched.taken]
        return replace(fetched, deliveries=deliveries, signal=self._armed(signal))

    def _armed(self, signal: watching.Signal) -> Sequence[watching.ArmedWatch]:
        """Watches; none where that fails: what was taken must not be lost for it."""
        try:
            return watching.arm(self.db, signal, self.keys.once.timeout)
        except (*FAILURES, QueueError) as error:
            log.warning("%s cannot be watched: %s", self.queue.name, error)
            return []

    def _stands_in_line(self, tr: fdb.Transaction, room: int, attempts: int) -> bool:
        """Whether messages come through the line, as they do for ``receive``."""
        scope = self.internals.scope(tr)
        scheme = scope.scheme
        crowded = attempts > MAX_DIRECT or self._access.hints.crowded
        lined = scheme == "staged" or (scheme == "auto" and crowded and room < MIN_DIRECT)
        name = self.ref.subscription
        return lined and registry.superior(tr, scope, self.priority, name) is None

    def _take(self, tr: fdb.Transaction, wanted: _Wanted) -> _Unarmed:
        scope, me = self.internals.scope(tr), self.ref
        # With a conflict: an evicted consumer must not take, since others have ended its leases and
        # count it as gone.
        registered = registry.registered(tr, self.keys, me)
        coming = agenda.coming(tr, scope)
        # In the same round trip.
        above = registry.superior(tr, scope, self.priority, me.subscription)
        if not registered.present():
            raise _Evicted
        # A consumer of a higher priority is awake or asleep: what is ready is for it.
        if above is not None:
            settle.ack(tr, self.internals.entry, wanted.finished)
            return Fetched([]), wakeups.defer(tr, scope, me, above)
        returned = self._outranked(tr, wanted)
        if returned:
            # In the transaction that takes the more urgent ones: nobody else can take either in
            # between.
            self.queue.release(tr, returned, delay=0)
            credit = wanted.credit.returned(*(len(each.payload) for each in returned))
            wanted = replace(wanted, credit=credit, most=wanted.most + len(returned))
        room = wanted.credit.room(wanted.most)
        ready = self._ready(tr, self._request(room, wanted.begins, wanted.credit), wanted)
        found, head = ready.found, ready.head
        short = len(found) < room and _exceeds(wanted.credit, ready)
        full = short or len(found) == room
        alone = not wanted.begins and head is not None and head.envelope.suspect
        left = ready.unfinished or (full and ready.more)
        left = left or (head is not None and bool(found or full or alone))
        more = left and not scope.options.paused and not queue_limits.full(tr, scope)
        holds, signal = full or alone, watching.Signal()
        supply = Event.LEFT_MORE
        if holds:
            if alone or short:
                supply = Event.LEFT_SUSPECT if alone else Event.LEFT_LARGE
            signal = wakeups.suspend(tr, scope, me, more=more)
        elif more and not ready.closed:
            wakeups.move(tr, scope, me, ConsumerState.NOTIFIED)
        elif not ready.closed:
            supply, served = Event.LEFT_NOTHING, wanted.served or bool(found)
            signal = wakeups.register(tr, scope, me, served=served)
        # The guard alone fetches when something becomes ready by itself: no herd then, either.
        guards = len(signal) > 1 and not (holds or scope.options.paused)
        if guards:
            registry.evict_waiters(tr, scope)
        fetched = Fetched(
            [],
            taken=found,
            left=supply,
            returned=returned,
            first=head.position.level if head else None,
            seconds=agenda.next_seconds(tr, scope, coming) if guards else None,
        )
        return fetched, signal

    def waits_behind(self, level: int) -> bool:
        """Whether a message that is more urgent than ``level`` is ready. Reads only, once, and not
        for long: handlers wait for it."""
        tr = once.transaction(self.db, LOOK_SECONDS)
        return any(each < level for each in self._levels(tr, 1))

    def _outranked(self, tr: fdb.Transaction, wanted: _Wanted) -> Sequence[Delivery]:
        """What to give back for more urgent messages that have no room beside it."""
        prefetched, room = wanted.prefetched, wanted.credit.room(wanted.most)
        if not prefetched:
            return ()
        levels = self._levels(tr, room + len(prefetched))
        count = outranked(levels, [each.message.level for each in prefetched], room)
        return prefetched[len(prefetched) - count :]

    def _levels(self, tr: fdb.Transaction, most: int) -> Iterator[int]:
        """The levels of the first messages that may be taken, in order. Snapshot reads."""
        if not self.internals.scope(tr).options.paused:
            for one in islice(run.ready(self.keys, scan.first(tr, self.keys, most)), most):
                yield one.position.level

    def _ready(self, tr: fdb.Transaction, request: Request, wanted: _Wanted) -> _Ready:
        """Acknowledge, and take what a request is given."""
        found: Sequence[Delivery] = []
        if request.max_messages:
            found = receiving.receive_in(tr, self._access, request, wanted.finished)
        else:
            settle.ack(tr, self.internals.entry, wanted.finished)
        return _Ready(found, self._head(tr))

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return messages to their places at once and without a failed attempt, as far as their
        leases still hold."""
        while deliveries:
            try:
                self.queue.release(self.db, deliveries, delay=0)
                return
            except LeaseLost as error:
                deliveries = [each for each in deliveries if each.id != error.message_id]

    def _head(self, tr: fdb.Transaction) -> StoredMessage | None:
        """The first message that is ready, without its payload. A snapshot read."""
        found = scan.batch(self.keys, scan.first(tr, self.keys, 1), 1)
        return found[0] if found else None

    def _request(self, most: int, begins: bool, credit: Credit) -> Request:
        return Request(
            most,
            self.lease,
            self.name,
            priority=self.priority,
            max_bytes=credit.room_bytes,
            above=credit.admits_above,
            begins=begins and self.handlers == 1,
            suspects=begins,
            holder=holder_of(self.ref.id),
        )

    def _run(
        self, body: Callable[[fdb.Transaction], R], *, wrote: Callable[[R], bool] = lambda _: False
    ) -> R:
        """Most of what a consumer writes does no harm if it is written twice."""
        return once.run(self.db, self.keys.once, body, wrote=wrote)


class SubscriptionConsumer(QueueConsumer):
    """A consumer of a subscription: it takes what the selector matches, and is woken for that."""

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
        self.mine = SubscriptionInternals(subscription)
        self._resume: Mapping[int, bytes] = {}
        """Where a look stopped that has not come to the end."""

    @property
    def _access(self) -> Access:
        return self.mine.access

    def _register(self, tr: fdb.Transaction, scope: Scope, session: bytes) -> ConsumerRef:
        registry.evict_waiters(tr, scope)
        return registry.register(
            tr,
            scope,
            session,
            self.name,
            self.priority,
            subscription=self.subscription.name,
            handle=self.mine.consumer,
        )

    def _levels(self, tr: fdb.Transaction, most: int) -> Iterator[int]:
        scope = self.internals.scope(tr)
        if not scope.options.paused:
            yield from self.mine.levels(tr, scope, most)

    def _ready(self, tr: fdb.Transaction, request: Request, wanted: _Wanted) -> _Ready:
        settle.ack(tr, self.internals.entry, wanted.finished)
        taken, found, closed = self.mine.take(
            tr, request, strict=wanted.strict, resume=self._resume
        )
        unfinished = found.unfinished and request.max_messages > 0 and found.following is None
        self._resume = found.reached if unfinished else {}
        return _Ready(taken, found.following, unfinished, found.more, closed)

"""Subscriptions as users hold them: each call takes one or more steps, each a transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, Generic, TypeVar

from ...consumers import promotion, receiving, wakeups, watching
from ...consumers.line import Demand
from ...consumers.receiving import Access
from ...consumers.registry import new_id
from ...errors import InvalidArgument, QueueError, TransactionTooLarge
from ...messages import next_event
from ...messages.delivery import settle
from ...schema import changes, once
from ...schema.codec.consumers import ConsumerRef
from ...schema.codec.leases import new_claim
from ...schema.keys import CLAIM_BYTES
from ...schema.scope import Scope, StoredMessage
from ...schema.subscription_definitions import Definition, Mode
from ...store import world
from ...store.binding import FAILURES, fdb
from ...subscriptions import acquire, cursors, exclusive, registry
from ...subscriptions.acquire import Found
from ...subscriptions.cursors import MAX_SCANNED
from ...subscriptions.start_position import StartPosition
from ...values.content import check_count
from ...values.durations import Seconds, patience
from ...values.model import Delivery, Message
from ...values.options import check_name
from ...values.records import record
from ...values.selector import Selector
from ..handle import Handle, Transactor, check_transaction, checked, composed
from ..housekeeping import past_backlog
from .supply import SubscriptionSupply

R = TypeVar("R")

MAX_MESSAGES = 10_000
POLL_SECONDS = 5.0
"""How often a waiting consumer looks on its own, for expired leases and the like."""


@record
class _Step(Generic[R]):
    """The result of one transaction of a call."""

    results: list[R]
    found: Found
    closed: bool
    signal: watching.Signal
    patience: float


class Subscription:
    """A handle on one subscription, from ``Queue.subscribe`` or ``Queue.subscriptions.open``.

    Threads can share it, and it can be pickled. Each handle is one consumer: an exclusive
    subscription serves one handle at a time, and a pickled copy is another one. The methods raise
    ``SubscriptionNotFound`` once the subscription is removed or has closed itself.
    """

    def __init__(self, queue: Handle, name: str) -> None:
        self.name = check_name(name)
        self._queue = queue
        self._once = queue._root_keys.once  # the queue may go with the subscription
        self._consumer = world.urandom(CLAIM_BYTES)

    @cached_property
    def _supply(self) -> SubscriptionSupply:
        return SubscriptionSupply(self._queue.name, self._queue._keys, self.name, self._consumer)

    @cached_property
    def _access(self) -> Access:
        return Access(self._queue._entry, self._supply, self._once)

    def __reduce__(self) -> tuple[type[Subscription], tuple[object, ...]]:
        return Subscription, (self._queue, self.name)

    def __repr__(self) -> str:
        return f"Subscription({self._queue.name!r}, {self.name!r})"

    def definition(self, tr: Transactor) -> Definition:
        """The definition of the subscription. Conflicts only with a change of it."""
        return self._run(tr, lambda tr: self._known(self._queue._scope(tr)), lambda _: False)

    def positions(self, tr: Transactor) -> dict[int, int]:
        """How far the subscription has come: by level, the index of the last message behind it
        (see ``Position``); 0 at the start. Meaningless for one that takes every message. A snapshot
        read, no conflicts."""

        def read(tr: fdb.Transaction) -> dict[int, int]:
            scope = self._queue._scope(tr)
            self._known(scope)
            found = cursors.positions(tr, scope, self.name)
            return {level: scope.keys.passed(place) for level, place in found.items()}

        return self._run(tr, read, lambda _: False)

    # -- consuming ---------------------------------------------------------------------------

    def receive(
        self,
        tr: Transactor,
        *,
        lease: Seconds | None = None,
        wait: Seconds = 0.0,
        consumer: str = "",
        ack: Sequence[Delivery] = (),
    ) -> Delivery | None:
        """Lease the first matching message; as ``receive_many`` for one message."""
        found = self.receive_many(tr, 1, lease=lease, wait=wait, consumer=consumer, ack=ack)
        return found[0] if found else None

    def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        lease: Seconds | None = None,
        wait: Seconds = 0.0,
        consumer: str = "",
        ack: Sequence[Delivery] = (),
    ) -> list[Delivery]:
        """Lease the first ``max_messages`` matching messages; an empty list if there are none.

        The arguments are those of ``Queue.receive_many``, and deliveries are settled as there.
        Messages that do not match are skipped, once; with a database, in as many transactions as it
        takes. The list is empty only if at some instant nothing matched (with a selector that reads
        the age, a message may have come of age during the call).

        Two round trips, and more to skip more than a hundred messages. Conflicts with takers of
        the same messages, with messages added before the last of them, and with other consumers
        of the subscription; not with takers of skipped messages. With a database, a retry after a
        conflict keeps the order of its start, so that arrivals cannot delay it for ever. With a
        transaction, raises ``TransactionTooLarge`` if it would skip more than a thousand. Raises
        ``SubscriptionHeld``, ``InvalidArgument``, ``InvalidOptions``.
        """
        bounded = self
        return bounded._receive_many(tr, max_messages, lease, wait, consumer, ack)

    def _receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        lease: Seconds | None,
        wait: Seconds,
        consumer: str,
        ack: Sequence[Delivery],
    ) -> list[Delivery]:
        check_count("max_messages", max_messages, MAX_MESSAGES)
        wait, done = _patience(tr, wait), checked(ack)
        demand = receiving.checked_demand(max_messages, lease, consumer, wait)
        if not isinstance(tr, fdb.Transaction):
            return list(
                past_backlog(
                    self._queue, tr, lambda: receiving.receive(tr, self._access, demand, wait, done)
                )
            )
        settle.ack(tr, self._queue._entry, done)
        grant = partial(acquire.grant, seconds=demand.seconds, claim=new_claim(), consumer=consumer)
        return self._consume(tr, Mode.ACQUIRE, max_messages, wait, grant)

    def _look(
        self,
        tr: fdb.Transaction,
        demand: Demand,
        *,
        strict: bool,
        resume: Mapping[int, bytes],
        admits: Callable[[StoredMessage], bool],
    ) -> _Step[Delivery]:
        """Lease what a registered consumer demands, and look for the match behind that."""
        claim = new_claim(demand.holder)
        grant = partial(
            acquire.grant,
            seconds=demand.seconds,
            claim=claim,
            consumer=demand.consumer,
            begins=demand.begins,
        )
        return self._step(
            tr,
            mode=Mode.ACQUIRE,
            limit=demand.max_messages,
            use=grant,
            strict=strict,
            resume=resume,
            admits=admits,
            looks_on=True,
        )

    def _levels(self, tr: fdb.Transaction, most: int) -> Iterator[int]:
        """The levels of the first messages that match, in order. Moves nothing."""
        scope = self._queue._scope(tr)
        if not scope.options.paused:
            yield from islice(acquire.levels(tr, scope, self._known(scope)), most)

    def get(self, tr: fdb.Transaction) -> Message | None:
        """Remove and return the first matching message in the transaction that writes its effect,
        without a lease; None if there is none. A browsing subscription returns the next message and
        leaves it.

        As ``receive``. Raises ``InvalidArgument`` for a database: see ``get_at_most_once``.
        """
        check_transaction(tr, "get")
        return self._get(tr)

    def get_at_most_once(self, db: fdb.Database) -> Message | None:
        """As ``get``, in a transaction of its own: even if the process then dies, the message is
        gone, or the browser is past it."""
        return self._get(db)

    def _get(self, tr: Transactor) -> Message | None:
        definition = self.definition(tr)
        if definition.mode is Mode.BROWSE:
            found = self.browse(tr, 1)
        else:
            found = self._consume(tr, Mode.ACQUIRE, 1, 0.0, acquire.remove)
        return found[0] if found else None

    def browse(
        self,
        tr: Transactor,
        limit: int = 100,
        *,
        wait: Seconds = 0.0,
    ) -> list[Message]:
        """The next messages of a browsing subscription, at most ``limit``; they stay in the queue.

        Each is returned once, in order within its level; in the caller's transaction, once that
        commits. A message that is leased when the browser reaches it is skipped, even if it returns
        later. Round trips as ``receive_many``. Conflicts with other moves of the same subscription
        and with messages added to a level before the last one read there, but not with arrivals
        behind it. Raises ``SubscriptionHeld``, ``InvalidArgument``, ``TransactionTooLarge``.
        """
        check_count("limit", limit, MAX_MESSAGES)
        wait = _patience(tr, wait)
        return self._consume(tr, Mode.BROWSE, limit, wait, acquire.load)

    # -- looking after -----------------------------------------------------------------------

    def seek(self, tr: Transactor, to: str) -> None:
        """Move to another place: "first", "now" (behind all messages) or a message's id.

        An id moves the cursor of that message's level only. An acquiring subscription still finds
        messages that return behind its cursor later. Conflicts with other moves of the same
        subscription; a move forward also with concurrent enqueues.
        """
        place = StartPosition.of("to", to)

        def move(tr: fdb.Transaction) -> None:
            scope = self._queue._scope(tr)
            place.check(self._known(scope))
            place.seek(tr, scope, self.name)
            # Who sleeps may find something there.
            tr.add(scope.keys.changes(self.name), changes.ONE)

        self._run(tr, move)

    def set_selector(self, tr: Transactor, selector: str | None) -> None:
        """Change the selector.

        An acquiring subscription reads the whole queue again; a browsing one continues where it
        is. Conflicts with every concurrent operation on the queue. Raises ``InvalidSelector``.
        """
        wanted = None if selector is None else Selector(selector)

        def change(tr: fdb.Transaction) -> None:
            scope = self._queue._scope(tr)
            known = self._known(scope)
            changed = Definition(known.name, known.mode, wanted, known.exclusive, known.auto_close)
            registry.store(tr, scope, changed)
            if changed.mode is Mode.ACQUIRE:
                registry.rewind(tr, scope, self.name)

        self._run(tr, change)

    def close(self, tr: Transactor) -> None:
        """Let another consumer use an exclusive subscription now. It is not removed."""

        def release(tr: fdb.Transaction) -> None:
            exclusive.release(tr, self._queue._scope(tr), self.name, self._consumer)

        self._run(tr, release)

    def remove(self, tr: Transactor) -> None:
        """Remove the subscription for all consumers. Its leases stay valid.

        Removing the last subscription also deletes a queue with ``auto_delete`` that holds nothing
        but dead letters and has no waiting consumer; otherwise a later sweep deletes it. Conflicts
        with every concurrent operation on the queue.
        """

        def remove(tr: fdb.Transaction) -> None:
            scope = self._queue._scope(tr)
            self._known(scope)
            self._supply.drop(tr, scope)

        self._run(tr, remove)

    # -- parts -------------------------------------------------------------------------------

    def _run(
        self,
        tr: Transactor,
        body: Callable[[fdb.Transaction], R],
        wrote: Callable[[R], bool] = lambda _: True,
    ) -> R:
        return composed(tr, self._once, body, wrote=wrote)

    def _known(self, scope: Scope) -> Definition:
        return self._supply.known(scope)

    def _consume(
        self,
        tr: Transactor,
        mode: Mode,
        limit: int,
        wait: float,
        use: Callable[[fdb.Transaction, Scope, Sequence[StoredMessage]], list[R]],
    ) -> list[R]:
        step = partial(self._step, mode=mode, limit=limit, use=use)
        if isinstance(tr, fdb.Transaction):
            taken = step(tr)
            if taken.found.unfinished:
                raise TransactionTooLarge(
                    problem=f"more than {MAX_SCANNED:,} messages, or 2 MB of them, do not match: "
                    "call it with a database"
                )
            return taken.results
        deadline = world.monotonic() + wait
        waiter = ConsumerRef(new_id(self._consumer), subscription=self.name)
        listed = False
        resume: Mapping[int, bytes] = {}
        try:
            while True:
                left = deadline - world.monotonic()
                terms: dict[str, Any] = {"resume": resume, "waiter": waiter, "listed": listed}
                attempts = _attempts(step, **terms, waits=left > 0)
                # Moving a cursor twice does no harm.
                run = partial(once.run, tr, self._once, attempts, wrote=_wrote)
                taken = past_backlog(self._queue, tr, run)
                if taken.results or taken.closed:
                    listed = False
                    return taken.results
                if taken.found.unfinished:
                    resume = taken.found.reached
                    continue
                if not taken.signal:
                    return []
                resume, listed = {}, True
                watches = watching.arm(tr, taken.signal, self._once.timeout)
                watching.wait(watches, min(left, taken.patience))
        finally:
            if listed:
                keys = self._queue._keys
                with contextlib.suppress(*FAILURES, QueueError):
                    once.run(tr, self._once, lambda tr: wakeups.withdraw(tr, keys, waiter))

    def _step(
        self,
        tr: fdb.Transaction,
        *,
        mode: Mode,
        limit: int,
        use: Callable[[fdb.Transaction, Scope, Sequence[StoredMessage]], list[R]],
        strict: bool = True,
        resume: Mapping[int, bytes] | None = None,
        admits: Callable[[StoredMessage], bool] = lambda _: True,
        looks_on: bool = False,
        waiter: ConsumerRef | None = None,
        listed: bool = False,
        waits: bool = False,
    ) -> _Step[R]:
        """One transaction of a call.

        waiter: the consumer as which the call is listed, or ``waits`` for more.
        """
        scope = self._queue._scope(tr)
        self._supply.enter(tr, scope, mode)
        promotion.promote_all(tr, scope, promotion.reads(tr, scope), every=True)
        found, closed = self._supply.first(
            tr,
            scope,
            limit,
            mode=mode,
            strict=strict,
            resume=resume,
            admits=admits,
            looks_on=looks_on,
            leases=use is not acquire.remove,
        )
        signal, patience = watching.Signal(), POLL_SECONDS
        if waiter is not None and found.empty and waits and not closed:
            signal, patience = _fall_asleep(tr, scope, waiter)
        elif waiter is not None and listed and (found.messages or closed):
            wakeups.withdraw(tr, scope.keys, waiter)
        return _Step(use(tr, scope, found.messages), found, closed, signal, patience)


def _fall_asleep(
    tr: fdb.Transaction, scope: Scope, waiter: ConsumerRef
) -> tuple[watching.Signal, float]:
    """List a browser that waits; returns what it waits for, and for how many seconds at most."""
    signal = wakeups.browse(tr, scope, waiter)
    following = next_event.next_event_seconds(tr, scope, next_event.reads(tr, scope))
    return signal, POLL_SECONDS if following is None else min(following, POLL_SECONDS)


def _wrote(taken: _Step[Any]) -> bool:
    return bool(taken.results or taken.closed)


def _attempts(step: Callable[..., _Step[R]], **terms: Any) -> Callable[..., _Step[R]]:
    """A step whose first attempt is strict, and whose retries are not: otherwise arrivals that do
    not even match could make it fail again and again."""
    first = iter((True,))
    return lambda tr: step(tr, strict=next(first, False), **terms)


# -- arguments --------------------------------------------------------------------------------


def _patience(tr: Transactor, wait: object) -> float:
    seconds = patience("wait", wait)
    if seconds and isinstance(tr, fdb.Transaction):
        raise InvalidArgument(
            argument="wait", value=wait, problem="waiting spans transactions: pass a database"
        )
    return seconds

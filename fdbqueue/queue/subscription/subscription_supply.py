"""The supply of a subscription's consumers: the messages that it wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...consumers import promotion, wakeups
from ...consumers.supply import CLOSED, Offered, take_shares
from ...errors import InvalidArgument, NotFound
from ...messages.delivery import queue_limits, scan
from ...messages.delivery.shares import ClaimedRequest, Shares
from ...schema.catalogue import CachedScope
from ...schema.consumers import Definition, Mode
from ...schema.scope import Scope
from ...store.binding import fdb
from ...subscriptions import acquire, browse, creation, exclusive
from ...subscriptions.acquire import ScanResult, Wanted
from ...values.model import Delivery


class SubscriptionSupply:
    """See ``Supply``. Each handle on a subscription has one: it is one consumer."""

    __slots__ = ("consumer", "line", "queue", "subscription")

    until = promotion.Until.DONE

    def __init__(self, queue: CachedScope, subscription: str, consumer: bytes) -> None:
        self.queue = queue
        self.line = queue.keys.line_of(subscription)
        self.subscription = subscription
        self.consumer = consumer

    def known(self, tr: fdb.Transaction, scope: Scope) -> Definition:
        """The definition of the subscription; raises ``NotFound``."""
        for definition in scope.subscriptions:
            if definition.name == self.subscription:
                return definition
        # What this transaction sees of the queue may be older than the subscription.
        self.queue.renew(tr)
        raise NotFound(kind="subscription", queue=self.queue.name, name=self.subscription)

    def enter(self, tr: fdb.Transaction, scope: Scope, mode: Mode = Mode.ACQUIRE) -> None:
        """Raises ``NotFound``, ``InvalidArgument`` for a subscription of another mode,
        and ``Held``. One round trip if the subscription is exclusive."""
        definition = self.known(tr, scope)
        if definition.mode is not mode:
            raise InvalidArgument(
                argument="subscription",
                value=self.subscription,
                problem=f"its mode is {definition.mode.value!r}: use the methods of that mode",
            )
        if definition.exclusive:
            held = exclusive.issue_holder(tr, scope, self.subscription)
            exclusive.hold(tr, scope, self.subscription, self.consumer, held)

    def issue(self, tr: fdb.Transaction, limit: int) -> None:
        """Nothing: what to read depends on the cursors."""

    def offer(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        issued: None,
        shares: Shares,
        resume: Mapping[int, bytes] | None,
    ) -> Offered:
        """Offer the first matching messages; moves the cursors as ``acquire.first`` does."""
        wanted = Wanted(shares.demand, False, resume, shares.offer_message, apart=False)
        found, closed = self.first(tr, scope, wanted)
        reached = found.reached if self.known(tr, scope).timed and found.unfinished else None
        given = shares.count
        limited = given < shares.demand and queue_limits.room(tr, scope, given + 1) <= given
        return Offered(found.ended or shares.refused or limited, closed, reached, limited)

    def take(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        requests: Sequence[ClaimedRequest],
        issued: None,
        due: promotion.DueReads | None,
        *,
        settled: int = 0,
        strict: bool = True,
    ) -> list[Sequence[Delivery] | None]:
        """See ``Supply.take``."""
        if due is not None:
            promotion.promote_all(tr, scope, due, until=self.until)
        wanting = [one.request for one in requests]
        shares = Shares(wanting, scan.BATCH_BYTES, scope.keys.lease_bytes)
        wanted = Wanted(shares.demand, strict, admits=shares.offer_message, apart=False)
        found, closed = self.first(tr, scope, wanted)
        if closed:
            return [CLOSED for _ in requests]
        ended = found.ended or shares.refused
        return take_shares(tr, scope, requests, shares, ended=ended)

    def stores_place(self, tr: fdb.Transaction, scope: Scope) -> bool:
        """The cursors have it, unless the selector reads the age."""
        return not self.known(tr, scope).timed

    def rely_on_emptiness(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Nothing matched when the transaction began, which is enough: arrivals that do not match
        must not make it fail."""

    def first(
        self, tr: fdb.Transaction, scope: Scope, wanted: Wanted, mode: Mode = Mode.ACQUIRE
    ) -> tuple[ScanResult, bool]:
        """The first matching messages, and whether the subscription has closed itself for want of
        any."""
        definition = self.known(tr, scope)
        if mode is Mode.BROWSE:
            found = browse.advance(tr, scope, definition, wanted.limit)
        else:
            found = acquire.first(tr, scope, definition, wanted)
        closed = found.empty and not found.barred and definition.auto_close and wanted.limit > 0
        if closed:
            self.drop(tr, scope)
        return found, closed

    def drop(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Remove the subscription, and tell its sleeping consumers."""
        wakeups.wake_all(tr, scope.keys, self.subscription)
        creation.drop(tr, scope, self.subscription)

"""Subscriptions as users hold them: each call takes one or more steps, each a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeVar, Unpack, overload

from ...consumers import line, promotion
from ...consumers.receiving import Access, Accesses, accesses
from ...consumers.registry import new_id
from ...consumers.supply import take_shares
from ...messages.delivery import scan
from ...messages.delivery.shares import Shares
from ...schema import change_counters
from ...schema.consumers import ConsumerRef, Definition, Mode, Request
from ...schema.leases import CLAIM_BYTES
from ...schema.scope import Scope
from ...store import world
from ...store.binding import fdb
from ...subscriptions import acquire, creation, cursors, exclusive
from ...subscriptions.acquire import ScanResult, Wanted
from ...subscriptions.start_position import StartPosition
from ...values.content import check_count, check_flag
from ...values.durations import Seconds
from ...values.model import Delivery, Message
from ...values.options import check_name
from ...values.selector import Selector
from ..consume import Leasing, asked, leased
from ..matching import Use, take
from ..queue_base import Handle, Transactor, check_leaseless, composed, patience_of
from .subscription_supply import SubscriptionSupply

R = TypeVar("R")

MAX_MESSAGES = 10_000


class Subscription:
    """A handle on one subscription, from ``Queue.subscriptions.open``.

    Threads can share it, and it can be pickled. Each handle is one consumer: an exclusive
    subscription serves one handle at a time, and a pickled copy is another one. The methods raise
    ``NotFound`` once the subscription is removed or has closed itself.
    """

    def __init__(self, queue: Handle, name: str) -> None:
        self.name = check_name(name)
        self._queue = queue
        self._once = queue._root_keys.once  # the queue may go with the subscription
        self._consumer = world.urandom(CLAIM_BYTES)

    @cached_property
    def _supply(self) -> SubscriptionSupply:
        return SubscriptionSupply(self._queue._entry, self.name, self._consumer)

    @cached_property
    def _accesses(self) -> Accesses:
        return accesses(self._queue._entry, self._supply, self._once)

    @property
    def _access(self) -> Access:
        return self._accesses.mine

    def __reduce__(self) -> tuple[type[Subscription], tuple[object, ...]]:
        return Subscription, (self._queue, self.name)

    def __repr__(self) -> str:
        return f"Subscription({self._queue.name!r}, {self.name!r})"

    def definition(self, tr: Transactor) -> Definition:
        """The definition of the subscription. Conflicts only with a change of it."""

        def read(tr: fdb.Transaction) -> Definition:
            return self._supply.known(tr, self._queue._scope(tr))

        return self._run(tr, read, lambda _: False)

    def positions(self, tr: Transactor) -> dict[int, int]:
        """How far the subscription has come: by level, the index of the last message behind it
        (see ``Position``); 0 at the start. Meaningless for one that takes every message. A snapshot
        read, no conflicts."""

        def read(tr: fdb.Transaction) -> dict[int, int]:
            scope = self._queue._scope(tr)
            self._supply.known(tr, scope)
            found = cursors.positions(tr, scope, self.name)
            return {level: scope.keys.passed(place) for level, place in found.items()}

        return self._run(tr, read, lambda _: False)

    @overload
    def receive(
        self, tr: Transactor, *, at_most_once: Literal[False] = False, **terms: Unpack[Leasing]
    ) -> Delivery | None: ...
    @overload
    def receive(
        self, tr: Transactor, *, at_most_once: Literal[True], **terms: Unpack[Leasing]
    ) -> Message | None: ...
    def receive(
        self, tr: Transactor, *, at_most_once: bool = False, **terms: Unpack[Leasing]
    ) -> Delivery | Message | None:
        """Lease the first matching message; as ``receive_many`` for one message."""
        take = self._remove if check_flag("at_most_once", at_most_once) else self._lease
        found = take(tr, 1, **terms)
        return found[0] if found else None

    @overload
    def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[False] = False,
        **terms: Unpack[Leasing],
    ) -> list[Delivery]: ...
    @overload
    def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[True],
        **terms: Unpack[Leasing],
    ) -> list[Message]: ...
    def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: bool = False,
        **terms: Unpack[Leasing],
    ) -> list[Delivery] | list[Message]:
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
        ``Held``, ``InvalidArgument``, ``InvalidOptions``.
        """
        if check_flag("at_most_once", at_most_once):
            return self._remove(tr, max_messages, **terms)
        return list(self._lease(tr, max_messages, **terms))

    def _lease(
        self, tr: Transactor, max_messages: int, **terms: Unpack[Leasing]
    ) -> Sequence[Delivery]:
        request, wait, done = asked(tr, max_messages, terms, Leasing)
        return leased(self._queue, tr, self._access, request, wait, done)

    def _remove(self, tr: Transactor, max_messages: int, **terms: Unpack[Leasing]) -> list[Message]:
        request, wait, done = asked(tr, max_messages, terms, Leasing)
        check_leaseless(request.seconds, done)
        return list(self._consume(tr, Mode.ACQUIRE, max_messages, wait, acquire.remove))

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
        behind it. Raises ``Held``, ``InvalidArgument``, ``TransactionTooLarge``.
        """
        check_count("limit", limit, MAX_MESSAGES)
        wait = patience_of(tr, wait)
        return list(self._consume(tr, Mode.BROWSE, limit, wait, acquire.load))

    def seek(self, tr: Transactor, to: str) -> None:
        """Move to another place: "first", "now" (behind all messages) or a message's id.

        An id moves the cursor of that message's level only. An acquiring subscription still finds
        messages that return behind its cursor later. Conflicts with other moves of the same
        subscription; a move forward also with concurrent enqueues.
        """
        place = StartPosition.of("to", to)

        def move(tr: fdb.Transaction) -> None:
            scope = self._queue._scope(tr)
            place.check(self._supply.known(tr, scope))
            place.seek(tr, scope, self.name)
            # Who sleeps may find something there.
            tr.add(scope.keys.changes_of(self.name), change_counters.ONE)

        self._run(tr, move)

    def set_selector(self, tr: Transactor, selector: str | None) -> None:
        """Change the selector.

        An acquiring subscription reads the whole queue again; a browsing one continues where it
        is. Conflicts with every concurrent operation on the queue. Raises ``InvalidSelector``.
        """
        wanted = None if selector is None else Selector(selector)

        def change(tr: fdb.Transaction) -> None:
            scope = self._queue._scope(tr)
            known = self._supply.known(tr, scope)
            changed = Definition(known.name, known.mode, wanted, known.exclusive, known.auto_close)
            creation.store(tr, scope, changed)
            # It has skipped messages that the new selector may want. A browsing one promises to
            # show each once.
            if changed.mode is Mode.ACQUIRE:
                creation.rewind(tr, scope, self.name)

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
            self._supply.known(tr, scope)
            self._supply.drop(tr, scope)

        self._run(tr, remove)

    def _run(
        self,
        tr: Transactor,
        body: Callable[[fdb.Transaction], R],
        wrote: Callable[[R], bool] = lambda _: True,
    ) -> R:
        return composed(tr, self._once, body, wrote=wrote)

    def _consume(
        self,
        tr: Transactor,
        mode: Mode,
        limit: int,
        wait: float,
        use: Use[R],
    ) -> Sequence[R]:
        def find(
            tr: fdb.Transaction, strict: bool, resume: Mapping[int, bytes]
        ) -> tuple[Scope, ScanResult, bool]:
            return self._find(tr, Wanted(limit, strict, resume, leases=False), mode)

        waiter = ConsumerRef(new_id(self._consumer), subscription=self.name)
        return take(self._queue, tr, self._once, find, use, wait=wait, waiter=waiter)

    def _take(
        self, tr: fdb.Transaction, request: Request, strict: bool, resume: Mapping[int, bytes]
    ) -> tuple[Sequence[Delivery], ScanResult, bool]:
        """One transaction of a registered consumer."""
        shares = Shares([request], scan.BATCH_BYTES, self._queue._keys.lease_bytes)
        wanted = Wanted(
            *(request.max_messages, strict, resume, shares.offer_message),
            apart=False,
            looks_on=True,
        )
        scope, found, closed = self._find(tr, wanted)
        (taken,) = take_shares(tr, scope, line.claimed([request]), shares, ended=True)
        return taken or (), found, closed

    def _find(
        self, tr: fdb.Transaction, wanted: Wanted, mode: Mode = Mode.ACQUIRE
    ) -> tuple[Scope, ScanResult, bool]:
        """One transaction of a call."""
        scope = self._queue._scope(tr)
        self._supply.enter(tr, scope, mode)
        promotion.promote_all(tr, scope, promotion.reads(tr, scope), until=promotion.Until.DONE)
        return scope, *self._supply.first(tr, scope, wanted, mode)

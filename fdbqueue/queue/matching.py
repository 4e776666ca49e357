"""Taking what a selector matches, in as many transactions as it takes to find it, and waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from ..consumers import promotion, supply, wakeups, watching
from ..consumers.registry import new_id
from ..errors import QueueError
from ..messages import agenda, settle
from ..messages.run import Held
from ..schema import once
from ..schema.consumers import ConsumerRef, Definition
from ..schema.keys import OnceKeys
from ..schema.scope import Scope, StoredMessage
from ..store import world
from ..store.binding import FAILURES, fdb
from ..subscriptions import acquire
from ..subscriptions.acquire import ScanResult, Wanted
from ..values.selector import Selector
from .admin.housekeeping import past_backlog
from .queue_base import Handle, Transactor

R = TypeVar("R")

POLL_SECONDS = 5.0
"""How often a waiting consumer looks on its own, for expired leases and the like."""

Find = Callable[[fdb.Transaction, bool, Mapping[int, bytes]], tuple[Scope, ScanResult, bool]]
"""Looks for messages in one transaction, given whether strictly, and from where, as in
``acquire.first``. Returns also whether the subscription has closed itself."""
Use = Callable[[fdb.Transaction, Scope, Sequence[StoredMessage]], Sequence[R]]
"""What becomes of the messages that were found: ``acquire.grant``, ``remove`` or ``load``."""


class _MatchStep(NamedTuple, Generic[R]):
    """What one transaction of a call has found, and what the call waits for, if it does."""

    results: Sequence[R]
    found: ScanResult
    closed: bool
    signal: watching.Signal
    patience: float


def take(
    queue: Handle,
    tr: Transactor,
    once_keys: OnceKeys,
    find: Find,
    use: Use[R],
    *,
    wait: float = 0.0,
    waiter: ConsumerRef | None = None,
    ack: Sequence[Held] = (),
) -> Sequence[R]:
    """Look for messages until some are found, or none is there and ``wait`` seconds are over.

    waiter: as what it waits, which also says for which subscription; None for the queue.
    ack: deliveries to acknowledge in the first transaction.

    In the caller's transaction, raises ``TransactionTooLarge`` where it would have to go on.
    """
    if not isinstance(tr, fdb.Transaction):
        call = _Taking(queue, once_keys, find, use, waiter or ConsumerRef(new_id()), ack)
        return call.until(tr, world.monotonic() + wait)
    if ack:
        settle.ack(tr, queue._entry, ack)
    scope, found, _ = find(tr, True, {})
    if found.unfinished:
        raise supply.unfinished()
    return use(tr, scope, found.messages)


class _Taking(Generic[R]):
    """One call of ``take`` with a database."""

    def __init__(
        self,
        queue: Handle,
        once_keys: OnceKeys,
        find: Find,
        use: Use[R],
        waiter: ConsumerRef,
        ack: Sequence[Held],
    ) -> None:
        self._queue = queue
        self._once = once_keys
        self._find = find
        self._use = use
        self._ack = ack
        self._waiter = waiter
        self._listed = False
        self._resume: Mapping[int, bytes] = {}

    def until(self, db: fdb.Database, deadline: float) -> Sequence[R]:
        """What was found; nothing if it matched nothing, and the time is over."""
        try:
            while True:
                left = deadline - world.monotonic()
                taken = past_backlog(self._queue, db, partial(self._once_more, db, left > 0))
                # Committed with the first transaction; the next ones of this call would settle them
                # again.
                self._ack = ()
                if taken.results or taken.closed:
                    self._listed = False
                    return taken.results
                if taken.found.unfinished:
                    self._resume = taken.found.reached
                    continue
                if not taken.signal:
                    return []
                # From the front again: after a wait, a message may have come in anywhere.
                self._resume, self._listed = {}, True
                watches = watching.arm(db, taken.signal, self._once.timeout)
                watching.wait(watches, min(left, taken.patience))
        finally:
            if self._listed:
                # Best effort: an entry that is left over is evicted when its sign of life grows
                # old.
                with contextlib.suppress(*FAILURES, QueueError):
                    once.run(db, self._once, self._withdraw)

    def _once_more(self, db: fdb.Database, waits: bool) -> _MatchStep[R]:
        # Retries are not strict: arrivals that do not even match could make them fail for ever.
        first = iter((True,))
        acks = bool(self._ack)

        def wrote(taken: _MatchStep[R]) -> bool:
            return acks or bool(taken.results or taken.closed)

        return once.run(db, self._once, self._step, first, waits, wrote=wrote)

    def _step(self, tr: fdb.Transaction, first: Iterator[bool], waits: bool) -> _MatchStep[R]:
        if self._ack:
            settle.ack(tr, self._queue._entry, self._ack)
        scope, found, closed = self._find(tr, next(first, False), self._resume)
        signal, patience = watching.Signal(), POLL_SECONDS
        if found.empty and waits and not closed:
            signal = wakeups.browse(tr, scope, self._waiter)
            following = agenda.next_seconds(tr, scope, agenda.coming(tr, scope))
            patience = POLL_SECONDS if following is None else min(following, POLL_SECONDS)
        elif self._listed and (found.messages or closed):
            self._withdraw(tr)
        return _MatchStep(self._use(tr, scope, found.messages), found, closed, signal, patience)

    def _withdraw(self, tr: fdb.Transaction) -> None:
        wakeups.withdraw(tr, self._queue._keys, self._waiter)


def first(
    queue: Handle,
    tr: Transactor,
    match: Selector | str,
    limit: int,
    use: Use[R],
    *,
    wait: float = 0.0,
    ack: Sequence[Held] = (),
) -> Sequence[R]:
    """Take the first messages of a queue that a selector matches. ``ack``: as in ``take``."""
    selector = match if isinstance(match, Selector) else Selector(match)
    definition = Definition("", selector=selector)

    def find(
        tr: fdb.Transaction, strict: bool, resume: Mapping[int, bytes]
    ) -> tuple[Scope, ScanResult, bool]:
        scope = queue._scope(tr)
        # All of it: the first message to become ready may not match, while the third does.
        promotion.promote_all(tr, scope, promotion.reads(tr, scope), until=promotion.Until.DONE)
        wanted = Wanted(limit, strict, resume, leases=use is not acquire.remove)
        return scope, acquire.first(tr, scope, definition, wanted), False

    return take(queue, tr, queue._keys.once, find, use, wait=wait, ack=ack)

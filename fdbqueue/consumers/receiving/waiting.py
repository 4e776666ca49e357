"""Standing in line until a request is answered, and leading the line meanwhile.

Between two looks a consumer sleeps on a watch.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ...errors import QueueError
from ...messages import next_event
from ...messages.delivery import lease
from ...schema import once
from ...schema.codec.consumers import ConsumerRef
from ...schema.scope import Scope
from ...store.binding import FAILURES, fdb
from ...values.model import Delivery
from ...values.records import record
from .. import fulfilment, line, promotion, registry, wakeups
from .. import leader as leading
from ..leader import Step
from ..line import Ticket
from .attempt import Access, give_back, take

R = TypeVar("R")

FIRST_PATIENCE, SECOND_PATIENCE, LATER_PATIENCE = 1.0, 2.0, 4.0
"""How long a consumer in line trusts its watch before it reads its request by itself; up to a
second is added at random."""
RENEW_SECONDS = leading.LEADS_SECONDS / 2
STINT_ROUNDS = 8
LINGER_SECONDS = 0.004
STINT_SECONDS = 0.05
"""How long a leader whose own message waits for it goes on serving others, at most."""


def collect(
    db: fdb.Database, access: Access, ticket: Ticket, seconds: float | None
) -> list[Delivery] | None:
    """Stand in line until the request is answered, for at most ``seconds`` (None: no limit).

    None if the request was taken for dead, and the caller must ask again.
    """
    stand = _Stand(db, access, ticket, seconds)
    try:
        return stand.collect()
    except BaseException:
        # Whoever is interrupted leaves the line as it was; else it would be taken for dead later.
        with contextlib.suppress(*FAILURES, QueueError):
            give_back(db, access, withdraw(db, access, ticket))
        raise


def withdraw(db: fdb.Database | fdb.Transaction, access: Access, ticket: Ticket) -> list[Delivery]:
    """Leave the line. Returns what was leased to the request before; else the request is gone.

    One transaction. Conflicts with the request's fulfilment.
    """

    def leave(tr: fdb.Transaction) -> list[Delivery]:
        scope = access.scope(tr)
        leader, looked = tr.get(scope.keys.leader), fulfilment.reads(tr, scope.keys)
        place = line.place(tr, scope.keys, ticket)
        if place.request is not None:
            line.remove(tr, scope.keys, ticket.index, ticket.claim)
        if leader.value == ticket.claim:
            _step_down(tr, scope, fulfilment.others(tr, scope, looked, ticket.claim))
            wakeups.withdraw(tr, scope.keys, ConsumerRef(ticket.claim))
        return place.held

    if isinstance(db, fdb.Transaction):
        return leave(db)
    return once.run(db, access.keys.once, leave, wrote=lambda _: False)


def _step_down(tr: fdb.Transaction, scope: Scope, unserved: Sequence[fulfilment.Waiting]) -> None:
    if unserved:
        first = unserved[0]
        leading.hand_over(tr, scope, first.index, first.claim, first.request)
    else:
        leading.leave(tr, scope)


@record
class _Round:
    """What came of a leader's round."""

    step: Step
    answer: list[Delivery] | None = None
    gone: bool = False
    lost: bool = False
    others: int = 0
    asked: int = 0
    wrote: bool = False
    signal: wakeups.Signal | None = None
    patience: float = RENEW_SECONDS


class _Stand:
    """One consumer that stands in line, until its request is answered."""

    def __init__(
        self, db: fdb.Database, access: Access, ticket: Ticket, seconds: float | None
    ) -> None:
        self.db = db
        self.access = access
        self.keys = access.keys
        self.ticket = ticket
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.leads = ticket.leads
        self.watch = ticket.watch
        self.leader_left = 0.0
        self.woken = False
        self.expected = 0
        self.crowd = 0

    # -- waiting -----------------------------------------------------------------------------

    def collect(self) -> list[Delivery] | None:
        """The answer; None if the request was taken for dead."""
        try:
            found = self._retry() if self.watch is None else self._first()
            while found is None:
                found = self._run(self._last_call, wrote=bool)
        except _TakenForDead:
            return None
        finally:
            if self.woken:
                self._run(self._withdraw, wrote=lambda _: False)
        return found

    def _withdraw(self, tr: fdb.Transaction) -> None:
        wakeups.withdraw(tr, self.keys, ConsumerRef(self.ticket.claim))

    def _first(self) -> list[Delivery] | None:
        """As a rule the first watch has the answer."""
        self._pause(FIRST_PATIENCE + random.random())
        found = self._step() if self._left() > 0 else None
        return found if found is not None or self._left() <= 0 else self._retry()

    def _retry(self) -> list[Delivery] | None:
        patience = SECOND_PATIENCE
        while (found := self._step()) is None and self._left() > 0:
            self._pause(patience + random.random())
            patience = LATER_PATIENCE
        return found

    def _left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def _pause(self, seconds: float) -> None:
        """Wait for the watch, but not for long once the leader must have renewed its time."""
        patience = max(seconds, self.leader_left)
        if self.watch is not None and not self.leads:
            wakeups.wait((self.watch,), max(0.0, min(patience, self._left())))

    def _step(self) -> list[Delivery] | None:
        """Look at the request, and lead if that is to be."""
        if not self.leads:
            found = self._answered()
            if not found:
                found = self._run(self._attend, wrote=lambda _: False)
            if found is not None or not self.leads:
                return found
        return self._lead()

    def _answered(self) -> list[Delivery] | None:
        """What was leased to the request; as a rule all there is to look at."""
        tr = once.transaction(self.db, self.keys.once)
        try:
            return lease.under(tr, self.keys, self.ticket.claim, self.ticket.asked.max_messages)
        except fdb.FDBError:
            return None

    def _attend(self, tr: fdb.Transaction) -> list[Delivery] | None:
        """Look whether the request is answered; if not, go on standing in line."""
        place = line.place(tr, self.keys, self.ticket)
        if place.held:
            return place.held
        scope = self.access.scope(tr)
        if place.request is None:
            return self._empty(scope.version(tr))
        self.leads, self.leader_left, self.watch = line.stay(tr, scope, self.ticket, place.request)
        return None

    def _empty(self, version: int) -> list[Delivery]:
        """What it means that the request is gone without a lease."""
        if self.ticket.waits or version > self.ticket.certain_until:
            raise _TakenForDead
        return []

    # -- leading -----------------------------------------------------------------------------

    def _lead(self) -> list[Delivery] | None:
        """Serve the line, round after round; None if the own request is still to be answered."""
        answer: list[Delivery] | None = None
        rounds, answered_at = 0, 0.0
        while True:
            done = answer is not None and (
                rounds >= STINT_ROUNDS or time.monotonic() - answered_at >= STINT_SECONDS
            )
            overdue = answer is not None and time.monotonic() - answered_at >= 2 * STINT_SECONDS
            played = self._run(
                partial(self._round, answered=answer is not None, done=done, overdue=overdue),
                wrote=lambda played: played.wrote,
            )
            self.expected = played.asked
            self.crowd += played.others
            if played.answer is not None:
                answer, answered_at = played.answer, time.monotonic()
            rounds += answer is not None
            if played.gone:
                raise _TakenForDead
            if played.step in (Step.LEAVE, Step.HAND_OVER):
                self.leads, self.watch = False, None
                self.woken = self.woken and played.lost
                return answer
            self.woken = self.woken or played.signal is not None
            if answer is None and self._left() <= 0:
                return None
            if played.step is Step.LINGER:
                time.sleep(LINGER_SECONDS)
            if played.signal is not None:
                watches = wakeups.arm(self.db, played.signal, self.keys.once.timeout)
                wakeups.wait(watches, max(0.0, min(self._left(), played.patience)))

    def _round(
        self, tr: fdb.Transaction, *, answered: bool, done: bool, overdue: bool = False
    ) -> _Round:
        """One round of fulfilment, and what follows from it, in one transaction."""
        scope, keys, me = self.access.scope(tr), self.keys, self.ticket.claim
        leader, led = tr.get(keys.leader), tr.snapshot.get(keys.led)
        looked = fulfilment.reads(tr, keys, self.expected)
        due = promotion.reads(tr, scope)
        if leader.value != me:
            return _Round(Step.LEAVE, lost=True)
        if promotion.promote(tr, scope, due):
            looked = fulfilment.reads(tr, keys, self.expected)
        served = fulfilment.serve(tr, scope, looked, me, spare=done)
        answer, gone = served.answers.get(me), False
        others = [one for one in served.unserved if one.claim != me]
        mine = next((one for one in served.unserved if one.claim == me), None)
        if not answered and answer is None and mine is None and not served.more:
            place = line.place(tr, self.keys, self.ticket)
            answer = place.held or None
            gone = not answer
        step = leading.decide(
            answered=answered or answer is not None or gone,
            done=done or gone,
            unserved=len(others),
            served=len(served.answers),
            crowd=0 if overdue else self.crowd,
            exhausted=served.exhausted,
        )
        signal, patience = None, RENEW_SECONDS
        if step in (Step.LEAVE, Step.HAND_OVER):
            _step_down(tr, scope, others)
            self._tidy(tr, served)
        else:
            if leading.renew(tr, scope, led.value) and mine is not None:
                line.keep_alive(tr, scope, self.ticket, mine.request)
            if step is Step.WAIT:
                # Before whoever has waited for less long than the first in line.
                first = min((one.index for one in served.unserved), default=self.ticket.index)
                registry.evict_waiters(tr, scope)
                signal = wakeups.register(tr, scope, ConsumerRef(me), since=first)
                following = next_event.next_event_seconds(tr, scope, next_event.reads(tr, scope))
                patience = RENEW_SECONDS if following is None else min(following, RENEW_SECONDS)
        return _Round(
            step,
            answer,
            gone,
            others=len(served.answers.keys() - {me}),
            asked=served.asked,
            wrote=bool(served.answers),
            signal=signal,
            patience=patience,
        )

    def _tidy(self, tr: fdb.Transaction, served: fulfilment.Served) -> None:
        """A leader that was woken, and leaves messages behind, passes the word on."""
        if self.woken:
            wakeups.withdraw(tr, self.keys, ConsumerRef(self.ticket.claim))
            if not served.exhausted:
                wakeups.wake(tr, self.keys, wakeups.reads(tr, self.keys, 1))

    # -- leaving -----------------------------------------------------------------------------

    def _last_call(self, tr: fdb.Transaction) -> list[Delivery] | None:
        """The time is over: serve the line up to the own request, whoever leads it, so that the
        answer is a message, or that the queue was empty. None if the line is too long for once."""
        scope, keys, me = self.access.scope(tr), self.keys, self.ticket.claim
        leader, looked = tr.get(keys.leader), fulfilment.reads(tr, keys)
        due = promotion.reads(tr, scope)
        place = line.place(tr, self.keys, self.ticket)
        if promotion.promote(tr, scope, due):
            looked = fulfilment.reads(tr, keys)
        if place.request is None:
            found: list[Delivery] | None = place.held or take(
                tr, scope, self.ticket.asked, line.new_claim()
            )
            unserved = fulfilment.others(tr, scope, looked, me)
        else:
            served = fulfilment.serve(tr, scope, looked, me, last_call=True)
            found = served.answers.get(me)
            unserved = [one for one in served.unserved if one.claim != me]
        if found is not None and leader.value == me:
            _step_down(tr, scope, unserved)
            if self.woken:
                wakeups.withdraw(tr, keys, ConsumerRef(me))
        return found

    def _run(self, body: Callable[[fdb.Transaction], R], wrote: Callable[[R], bool]) -> R:
        return once.run(self.db, self.keys.once, body, wrote=wrote)


class _TakenForDead(Exception):
    """Raised when a request has left the line unanswered."""

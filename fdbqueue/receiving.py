"""Receiving: the attempt to take messages at once, and standing in line for them.

What waits lives here, outside of the storage operations: every wait and every retry but those of
``once`` is tenacity's, and sleeps on a watch.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import tenacity

from .binding import FAILURES, fdb
from .consumers import promotion, wakeups
from .errors import InvalidArgument, QueueError
from .keys import QueueKeys
from .model import Delivery
from .options import check_lease, check_name
from .queue import agenda, dequeue, fulfil, leading, lease, line, once, relaxed, settle, taking
from .queue.leading import Step
from .queue.line import Asked, Ticket
from .queue.scope import Scope

R = TypeVar("R")

MAX_MESSAGES = 10_000
FIRST_PATIENCE = 1.0
PATIENCE = tenacity.wait_exponential(multiplier=2.0, max=4.0) + tenacity.wait_random(0.0, 1.0)
"""How long a consumer in line trusts its watch, before it looks by itself."""
RENEW_SECONDS = leading.LEADS_SECONDS / 2
STINT_ROUNDS = 8
LINGER_SECONDS = 0.004
STINT_SECONDS = 0.05
"""How long a leader whose own message waits for it goes on serving others, at most."""


class Access:
    """What receiving needs of a queue: its keys, and its options as a transaction sees them."""

    def __init__(self, keys: QueueKeys, scope: Callable[[fdb.Transaction], Scope]) -> None:
        self.keys = keys
        self.scope = scope
        self.crowded = False
        """Whether there was a line the last time; a hint that only saves a read."""
        self.lined = True
        """Whether the queue's mode has lines; a hint that only saves a read."""


def asking(max_messages: object, lease: object, consumer: object, wait: object) -> Asked:
    """What a consumer asks for, checked; raises ``InvalidArgument``, ``InvalidOptions`` and
    ``InvalidName``."""
    if type(max_messages) is not int or not 0 < max_messages <= MAX_MESSAGES:
        raise InvalidArgument(
            argument="max_messages", value=max_messages, problem=f"must be 1 to {MAX_MESSAGES:,}"
        )
    if not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
        raise InvalidArgument(argument="wait", value=wait, problem="must be 0 seconds or more")
    seconds = None if lease is None else check_lease("lease", lease)
    return Asked(max_messages, seconds, check_name(consumer) if consumer else "")


def take(tr: fdb.Transaction, scope: Scope, asked: Asked, claim: bytes) -> list[Delivery]:
    """Lease what is there to the caller, at once. The conflicts are those of the queue's mode."""
    return _take(tr, scope, asked, claim, _look(tr, scope, asked))


def attempt(
    tr: fdb.Transaction,
    access: Access,
    asked: Asked,
    claim: bytes,
    *,
    waits: bool,
    crowded: bool,
    ack: Sequence[Delivery] = (),
) -> list[Delivery] | Ticket:
    """Lease what is there, or stand in line.

    crowded: whether an earlier attempt met a conflict.
    ack: deliveries to acknowledge.
    """
    # Before the options are known, so that all of it is one round trip.
    looked = None
    if waits or access.lined:
        looked = line.look(tr, access.keys, first=not access.crowded)
    leases = lease.look(tr, access.keys, ack)
    if leases:
        leases[-1].block_until_ready()  # What comes with the read version is there as well then.
    scope = access.scope(tr)
    if ack:
        settle.ack(tr, scope, ack, leases)
    mode = scope.options.contention
    access.lined = mode in ("auto", "staged")
    access.crowded = access.crowded or mode == "staged"
    if not waits and not access.lined:
        return take(tr, scope, asked, claim)
    looked = looked or line.look(tr, access.keys, first=True)
    if mode == "staged" or (mode == "auto" and crowded):
        return line.join(tr, scope, looked, asked, waits)
    ready = None if access.crowded else _look(tr, scope, asked)
    access.crowded = line.formed(tr, scope, looked)
    if access.crowded:
        return line.join(tr, scope, looked, asked, waits)
    found = _take(tr, scope, asked, claim, ready or _look(tr, scope, asked))
    return found if found or not waits else line.join(tr, scope, looked, asked, waits)


def receive(
    db: fdb.Database,
    access: Access,
    asked: Asked,
    wait: float,
    ack: Sequence[Delivery] = (),
) -> list[Delivery]:
    """Lease what is there, or comes within ``wait`` seconds.

    ack: deliveries to acknowledge in the transaction of the first attempt.
    """
    deadline = time.monotonic() + wait
    while True:
        outcome = _start(db, access, asked, deadline > time.monotonic(), ack)
        if isinstance(outcome, list):
            return outcome
        left = max(0.0, deadline - time.monotonic()) if outcome.waits else None
        found = collect(db, access, outcome, left)
        if found is not None:
            return found
        ack = ()


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
        leader, looked = tr.get(scope.keys.leader), fulfil.look(tr, scope.keys)
        place = line.place(tr, scope.keys, ticket)
        if place.request is not None:
            line.remove(tr, scope.keys, ticket.index, ticket.claim)
        if leader.value == ticket.claim:
            _step_down(tr, scope, fulfil.others(tr, scope, looked, ticket.claim))
            wakeups.withdraw(tr, scope.keys, ticket.claim)
        return place.held

    if isinstance(db, fdb.Transaction):
        return leave(db)
    return once.run(db, access.keys.once, leave, wrote=lambda _: False)


def give_back(db: fdb.Database, access: Access, deliveries: Sequence[Delivery]) -> None:
    """Release deliveries that never reached a consumer."""
    if deliveries:
        once.run(db, access.keys.once, lambda tr: release(tr, access.scope(tr), deliveries))


def release(tr: fdb.Transaction, scope: Scope, deliveries: Sequence[Delivery]) -> None:
    """Release deliveries, and wake consumers for them."""
    waiting = wakeups.look(tr, scope.keys, len(deliveries))
    settle.release(tr, scope, deliveries, None, None)
    wakeups.wake(tr, scope.keys, waiting)


def _look(tr: fdb.Transaction, scope: Scope, asked: Asked) -> _Looked:
    if scope.options.contention == "relaxed":
        first: fdb.FDBRange | relaxed.Looked = relaxed.look(tr, scope, asked.max_messages)
    else:
        first = dequeue.first(tr.snapshot, scope.keys, asked.max_messages)
    return _Looked(first, promotion.look(tr, scope))


@dataclass(frozen=True, slots=True)
class _Looked:
    """The reads of an attempt, issued and not awaited."""

    ready: fdb.FDBRange | relaxed.Looked
    due: promotion.Looked


def _take(
    tr: fdb.Transaction, scope: Scope, asked: Asked, claim: bytes, looked: _Looked
) -> list[Delivery]:
    if scope.options.paused:
        return []
    if promotion.promote(tr, scope, looked.due):
        looked = _look(tr, scope, asked)
    if isinstance(looked.ready, relaxed.Looked):
        messages = taking.alive(
            tr,
            scope,
            relaxed.pick(tr, scope, looked.ready),
            lambda: relaxed.pick(tr, scope, relaxed.look(tr, scope, asked.max_messages)),
        )
    else:
        found = dequeue.conflicting(tr, scope.keys, looked.ready, asked.max_messages)
        messages = taking.first(tr, scope, asked.max_messages, found)
    seconds = scope.options.lease if asked.seconds is None else asked.seconds
    return lease.grant(tr, scope, lease.Terms(seconds, claim, asked.consumer), messages)


def _start(
    db: fdb.Database,
    access: Access,
    asked: Asked,
    waits: bool,
    ack: Sequence[Delivery],
) -> list[Delivery] | Ticket:
    attempts = 0

    def body(tr: fdb.Transaction) -> list[Delivery] | Ticket:
        nonlocal attempts
        attempts += 1
        claim, crowded = line.new_claim(), attempts > 1
        return attempt(tr, access, asked, claim, waits=waits, crowded=crowded, ack=ack)

    def wrote(outcome: list[Delivery] | Ticket) -> bool:
        return bool(outcome) or bool(ack)

    return once.run(db, access.keys.once, body, wrote=wrote)


def _step_down(tr: fdb.Transaction, scope: Scope, unserved: Sequence[fulfil.Waiting]) -> None:
    if unserved:
        first = unserved[0]
        leading.hand_over(tr, scope, first.index, first.claim, first.request)
    else:
        leading.leave(tr, scope)


@dataclass(frozen=True, slots=True)
class _Round:
    """What came of a leader's round."""

    step: Step
    answer: list[Delivery] | None = None
    gone: bool = False
    lost: bool = False
    others: int = 0
    asked: int = 0
    wrote: bool = False
    watch: wakeups.Signal | None = None
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
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda found: found is None),
            wait=PATIENCE,
            sleep=self._pause,
            stop=lambda _: self._left() <= 0,
            retry_error_callback=lambda _: None,
        )
        try:
            found = retrying(self._step) if self.watch is None else self._first(retrying)
            while found is None:
                found = self._run(self._last_call, wrote=bool)
        except _TakenForDead:
            return None
        finally:
            if self.woken:
                wakeups.withdraw(self.db, self.keys, self.ticket.claim)
        return found

    def _first(self, retrying: tenacity.Retrying) -> list[Delivery] | None:
        """As a rule the first watch has the answer."""
        self._pause(FIRST_PATIENCE + random.random())
        found = self._step() if self._left() > 0 else None
        return found if found is not None or self._left() <= 0 else retrying(self._step)

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
        tr = self.db.create_transaction()
        try:
            return lease.deliveries(tr, self.keys, lease.under(tr, self.keys, self.ticket.claim))
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
            self.woken = self.woken or played.watch is not None
            if answer is None and self._left() <= 0:
                return None
            if played.step is Step.LINGER:
                tenacity.nap.sleep(LINGER_SECONDS)
            if played.watch is not None:
                wakeups.wait(played.watch, max(0.0, min(self._left(), played.patience)))

    def _round(
        self, tr: fdb.Transaction, *, answered: bool, done: bool, overdue: bool = False
    ) -> _Round:
        """One round of fulfilment, and what follows from it, in one transaction."""
        scope, keys, me = self.access.scope(tr), self.keys, self.ticket.claim
        leader, led = tr.get(keys.leader), tr.snapshot.get(keys.led)
        looked = fulfil.look(tr, keys, self.expected)
        due = promotion.look(tr, scope)
        if leader.value != me:
            return _Round(Step.LEAVE, lost=True)
        if promotion.promote(tr, scope, due):
            looked = fulfil.look(tr, keys, self.expected)
        served = fulfil.serve(tr, scope, looked, me, spare=done)
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
        watch, patience = None, RENEW_SECONDS
        if step in (Step.LEAVE, Step.HAND_OVER):
            _step_down(tr, scope, others)
            self._tidy(tr, served)
        else:
            if leading.renew(tr, scope, led.value) and mine is not None:
                line.keep_alive(tr, scope, self.ticket, mine.request)
            if step is Step.WAIT:
                fulfil.read_emptiness(tr, keys)
                watch = wakeups.register(tr, keys, me)
                following = agenda.next_event_seconds(tr, scope, agenda.look(tr, scope))
                patience = RENEW_SECONDS if following is None else min(following, RENEW_SECONDS)
        return _Round(
            step,
            answer,
            gone,
            others=len(served.answers.keys() - {me}),
            asked=served.asked,
            wrote=bool(served.answers),
            watch=watch,
            patience=patience,
        )

    def _tidy(self, tr: fdb.Transaction, served: fulfil.Served) -> None:
        """A leader that was woken, and leaves messages behind, passes the word on."""
        if self.woken:
            wakeups.withdraw(tr, self.keys, self.ticket.claim)
            if not served.exhausted:
                wakeups.wake(tr, self.keys, wakeups.look(tr, self.keys, 1))

    # -- leaving -----------------------------------------------------------------------------

    def _last_call(self, tr: fdb.Transaction) -> list[Delivery] | None:
        """The time is over: serve the line up to the own request, whoever leads it, so that the
        answer is a message, or that the queue was empty. None if the line is too long for once."""
        scope, keys, me = self.access.scope(tr), self.keys, self.ticket.claim
        leader, looked = tr.get(keys.leader), fulfil.look(tr, keys)
        due = promotion.look(tr, scope)
        place = line.place(tr, self.keys, self.ticket)
        if promotion.promote(tr, scope, due):
            looked = fulfil.look(tr, keys)
        if place.request is None:
            found: list[Delivery] | None = place.held or take(
                tr, scope, self.ticket.asked, line.new_claim()
            )
            unserved = fulfil.others(tr, scope, looked, me)
        else:
            served = fulfil.serve(tr, scope, looked, me, last_call=True)
            found = served.answers.get(me)
            unserved = [one for one in served.unserved if one.claim != me]
        if found is not None and leader.value == me:
            _step_down(tr, scope, unserved)
            if self.woken:
                wakeups.withdraw(tr, keys, me)
        return found

    def _run(self, body: Callable[[fdb.Transaction], R], wrote: Callable[[R], bool]) -> R:
        return once.run(self.db, self.keys.once, body, wrote=wrote)


class _TakenForDead(Exception):
    """Raised when a request has left the line unanswered."""

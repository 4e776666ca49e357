"""Waiting in line until a request is answered, and leading the line meanwhile.

A consumer sleeps on a watch of its request, and now and then checks the request itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import TypeVar

from msgspec import Struct

from ...errors import QueueError
from ...messages import agenda, settle
from ...messages.delivery import lease
from ...schema import once
from ...schema.consumers import ConsumerRef, Request
from ...schema.scope import Scope
from ...store import tasks, world
from ...store.binding import FAILURES, fdb
from ...values.model import Delivery
from .. import fulfilment, leader, line, promotion, registry, wakeups, watching
from ..fulfilment import Resume, RoundCall
from ..leader import AfterRound, LeaderStage
from ..line import Ticket
from ..supply import CLOSED
from .access import Access, Outcome
from .steps import NEXT, Event, Step

R = TypeVar("R")

FIRST_PATIENCE, SECOND_PATIENCE, LATER_PATIENCE = 0.1, 2.0, 4.0
"""Seconds that a consumer in line trusts its watch before it checks its request; up to half as much
more at random."""
LOOKS = 8
"""How often a consumer that expects its answer soon looks for it, before it trusts a watch: looking
costs less than being woken."""
MIN_NAP_SECONDS = 0.0005
BEAT_SECONDS, LOOK_SECONDS = leader.ASLEEP_SECONDS / 2, 25.0
"""How often a leader that sleeps gives signs of life, and how often it looks at all."""
MAX_ROUNDS = 8
LINGER_SECONDS = 0.004
LEAD_SECONDS = 0.05
"""How long a leader goes on for others, at most, while its own message waits for it."""


def collect(
    db: fdb.Database, access: Access, ticket: Ticket, seconds: float | None
) -> Sequence[Delivery] | None:
    """Wait in line until the request is answered, for at most ``seconds`` (None: no limit).

    None if the consumer was taken for dead, and must ask again.
    """
    waiter = _Waiter(db, access, ticket, seconds)
    try:
        return waiter.collect()
    except BaseException:
        # An interrupted consumer withdraws; else others would have to find out that it is gone. A
        # leader may have a message of its own in its hands, while it goes on for others.
        held = waiter.answer
        with contextlib.suppress(*FAILURES, QueueError):
            held = withdraw(db, access, ticket) or held
        with contextlib.suppress(*FAILURES, QueueError):
            give_back(db, access, held or ())
        raise


def withdraw(
    db: fdb.Database | fdb.Transaction, access: Access, ticket: Ticket
) -> Sequence[Delivery]:
    """Leave the line; returns the messages if the request was answered before.

    One transaction. Conflicts with the request's fulfilment.
    """

    def leave(tr: fdb.Transaction) -> Sequence[Delivery]:
        scope, supply = access.scope(tr), access.supply
        # Who leads with a conflict: a lead that is handed over at this moment would go to a
        # consumer that is gone.
        leads, issued = tr.get(access.line.leader), fulfilment.reads(tr, supply)
        status = line.status(tr, scope, access.line, ticket)
        if status.request is not None:
            line.remove(tr, access.line, ticket.index, ticket.claim)
        if leads.value == ticket.claim:
            others = fulfilment.others(tr, scope, supply, issued, ticket.claim)
            fulfilment.stop_leading(tr, scope, supply, others)
            wakeups.withdraw(tr, scope.keys, _listed(access, ticket))
        return status.held

    if isinstance(db, fdb.Transaction):
        return leave(db)
    return once.run(db, access.once, leave, wrote=lambda _: False)


def give_back(db: fdb.Database, access: Access, deliveries: Sequence[Delivery]) -> None:
    """Release deliveries that never reached a consumer, and wake others for them."""

    def release(tr: fdb.Transaction) -> None:
        scope = access.scope(tr)
        sleepers = wakeups.reads(tr, scope.keys, len(deliveries))
        ending = settle.Ending(tr, scope.keys, deliveries)
        settle.settle(tr, scope, ending, others=settle.Return(0.0))
        wakeups.wake(tr, scope.keys, sleepers)

    if deliveries:
        once.run(db, access.once, release)


def undo(access: Access, db: fdb.Database, outcomes: Sequence[Outcome]) -> None:
    """Give back what a caller was given that was interrupted."""
    for one in outcomes:
        with contextlib.suppress(*FAILURES, QueueError):
            found = withdraw(db, access, one) if isinstance(one, Ticket) else one
            give_back(db, access, found or ())


def _listed(access: Access, ticket: Ticket) -> ConsumerRef:
    """The consumer as it is listed while it leads the line and sleeps."""
    return ConsumerRef(ticket.claim, subscription=access.supply.subscription)


def joined(ticket: Ticket) -> Event:
    """How a consumer has joined the line."""
    if ticket.leads:
        return Event.LEADS
    return Event.EXPECTS if ticket.watch is None else Event.JOINED


class _Round(Struct, frozen=True):
    """What came of a leader's round.

    answer: of the leader's own request; None if it was not answered. dead: whether the leader was
    taken for dead. others: how many others were served. signal, patience: what to wait for before
    the next round, and for how many seconds.
    away: whether the leader takes the lead with it. resume: where its next round goes on.
    """

    step: AfterRound
    answer: Sequence[Delivery] | None = None
    dead: bool = False
    others: int = 0
    demand: int = 0
    wrote: bool = False
    signal: watching.Signal | None = None
    patience: float = LOOK_SECONDS
    away: bool = False
    resume: Resume | None = None


class _Waiter:
    """One consumer in line, until its request is answered: what it does at each ``Step``.

    listed: whether it may be on the list of sleepers. expected: how many messages its next round
    may need. crowd: how many others it has served. resume: where its next round goes on.
    answered_at: when it was answered itself. rounds: how many it has led since. patience: how long
    to trust the watch, from one time to the next.
    """

    def __init__(
        self, db: fdb.Database, access: Access, ticket: Ticket, seconds: float | None
    ) -> None:
        self.db = db
        self.access = access
        self.keys = access.keys
        self.line = access.line
        self.supply = access.supply
        self.ticket = ticket
        self.deadline = None if seconds is None else world.monotonic() + seconds
        self.leads = ticket.leads
        self.watch = ticket.watch
        self.leader_left = 0.0
        self.listed = False
        self.expected = 0
        self.crowd = 0
        self.resume: Resume | None = None
        self.answer: Sequence[Delivery] | None = None
        self.answered_at, self.rounds = 0.0, 0
        self.patience = chain((FIRST_PATIENCE, SECOND_PATIENCE), repeat(LATER_PATIENCE))

    def collect(self) -> Sequence[Delivery] | None:
        """The answer; None if the consumer was taken for dead, and is to try again."""
        step = NEXT[Step.TRY, joined(self.ticket)]
        try:
            while step not in (Step.TRY, Step.END):
                step = NEXT[step, self._do(step)]
        finally:
            if self.listed:
                self._run(self._withdraw, wrote=lambda _: False)
        return self.answer if step is Step.END else None

    def _do(self, step: Step) -> Event:
        try:
            match step:
                case Step.LOOK:
                    return self._look()
                case Step.WAIT:
                    return self._wait()
                case Step.LEAD:
                    return self._lead()
                case _:
                    return self._call()
        except _TakenForDead:
            return Event.LOST

    def _withdraw(self, tr: fdb.Transaction) -> None:
        wakeups.withdraw(tr, self.keys, _listed(self.access, self.ticket))

    def _look(self) -> Event:
        """Look for the answer of a request that nothing watches; watch it if there is none soon."""
        access, began = self.access, world.monotonic()
        nap = access.hints.answered
        for n in range(LOOKS):
            tasks.sleep(max(0.0, min(nap, self._left())))
            if self._answered():
                took = world.monotonic() - began
                access.hints.answered += (took - access.hints.answered) / 8 if n else -nap / 32
                return Event.ANSWERED
            nap = max(MIN_NAP_SECONDS, access.hints.answered / 4)
        return self._checked(overdue=False)

    def _wait(self) -> Event:
        """Sleep until the watch fires, at least until a leader that is awake must have renewed its
        time; then check the request, and lead if nobody else does."""
        # Random: consumers whose leader died would all check, and conflict, at the same moment.
        seconds = next(self.patience) * world.random.uniform(1.0, 1.5)
        patience = max(seconds, min(leader.LEADS_SECONDS, self.leader_left))
        if self.watch is not None:
            watching.wait((self.watch,), max(0.0, min(patience, self._left())))
        # First by snapshot reads alone: a request that is answered needs no transaction that can
        # conflict.
        event = Event.ANSWERED if self._answered() else self._checked()
        return Event.OVER if event is Event.UNANSWERED and self._left() <= 0 else event

    def _checked(self, *, overdue: bool = True) -> Event:
        self.answer = self._run(partial(self._check, overdue=overdue), wrote=lambda _: False)
        if self.answer is not None:
            return Event.ANSWERED
        return Event.LEADS if self.leads else Event.UNANSWERED

    def _left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - world.monotonic()

    def _answered(self) -> bool:
        """Whether messages are leased to the request: usually all that there is to check."""
        tr, claim = once.transaction(self.db, self.access.once.timeout), self.ticket.claim
        try:
            leads = tr.snapshot.get(self.line.leader)
            found = lease.answered(tr, self.keys, self.access.entry.clock, claim)
        except fdb.FDBError:
            return False
        if found is None:
            self.answer = self._run(self._collect, wrote=lambda _: False)
        else:
            self.answer = self._accept(found, leads) if found else None
        return bool(self.answer)

    def _collect(self, tr: fdb.Transaction) -> Sequence[Delivery] | None:
        leads = tr.snapshot.get(self.line.leader)
        found = line.collect(tr, self.access.scope(tr), self.ticket)
        return self._accept(found, leads) if found else None

    def _accept(self, found: Sequence[Delivery], leads: fdb.Value) -> Sequence[Delivery]:
        """The answer; with it the consumer may have become the leader, who is away."""
        if leads.value == self.ticket.claim + leader.AWAY:
            self.access.hints.take_lead(self.ticket.claim)
        return found

    def _check(self, tr: fdb.Transaction, overdue: bool = True) -> Sequence[Delivery] | None:
        """The answer; without one, stay in line, and lead if the leader's return is overdue."""
        leads, scope = tr.snapshot.get(self.line.leader), self.access.scope(tr)
        status = line.status(tr, scope, self.line, self.ticket)
        if status.held:
            return self._accept(status.held, leads)
        self.supply.enter(tr, scope)
        if status.request is None:
            # Gone without a lease: the queue was empty, or the consumer was taken for dead.
            if self.ticket.request.waits or scope.version(tr) > self.ticket.certain_until:
                raise _TakenForDead
            return []
        self.leads, left, self.watch = line.stay(
            tr, scope, self.line, self.ticket, status.request, overdue=overdue
        )
        self.leader_left = left if overdue else 0.0
        return None

    def _lead(self) -> Event:
        """Serve the line in a round, and wait for messages, or for those that come soon."""
        waits = None if self.answer is None else world.monotonic() - self.answered_at
        body = partial(self._round, stage=_stage(waits, self.rounds))
        try:
            played = self._run(body, wrote=lambda played: played.wrote)
        except QueueError:
            if not self.answer:
                raise
            return Event.ANSWERED  # It may not serve the others any more.
        self.expected, self.resume = played.demand, played.resume
        self.crowd += played.others
        if played.answer is not None:
            self.answer, self.answered_at = played.answer, world.monotonic()
        self.rounds += self.answer is not None
        if played.dead:
            raise _TakenForDead
        ends = played.step in (AfterRound.LEAVE, AfterRound.HAND_OVER)
        self.listed = not ends and (self.listed or played.signal is not None)
        if ends:
            self.leads, self.watch = False, None
            if played.away:
                self.access.hints.take_lead(self.ticket.claim)
            if self.answer is not None:
                return Event.ANSWERED
        if self.answer is None and self._left() <= 0:
            return Event.OVER
        if ends:
            return Event.REPLACED
        if played.step is AfterRound.LINGER:
            tasks.sleep(LINGER_SECONDS)
        if played.signal is not None:
            watches = watching.arm(self.db, played.signal, self.access.once.timeout)
            seconds = max(0.0, min(self._left(), played.patience))
            watching.wait(watches, seconds, self._gives_a_sign, BEAT_SECONDS)
        return Event.ROUND

    def _call(self) -> Event:
        """The time is over: the answer is a message, or that there was none."""
        self.answer, self.resume = self._run(self._last_call, wrote=_wrote)
        return Event.UNFINISHED if self.answer is None else Event.ANSWERED

    def _gives_a_sign(self) -> bool:
        """Whether it still leads, and has said that it lives."""
        return self._run(self._beat, wrote=lambda _: False)

    def _beat(self, tr: fdb.Transaction) -> bool:
        scope, me = self.access.scope(tr), self.ticket.claim
        leads, led = tr.get(self.line.leader), tr.snapshot.get(self.line.led)
        request = tr.get(self.line.request(self.ticket.index, me))
        self.supply.enter(tr, scope)
        if leads.value != me or request.value is None:
            return False
        leader.renew(tr, scope, self.line, led.value, asleep=True)
        line.keep_alive(tr, scope, self.line, self.ticket, Request.unpack(request.value))
        return registry.keep_alive(tr, scope, _listed(self.access, self.ticket))

    def _round(self, tr: fdb.Transaction, stage: LeaderStage) -> _Round:
        scope, supply, me = self.access.scope(tr), self.supply, self.ticket.claim
        leads, led = tr.get(self.line.leader), tr.snapshot.get(self.line.led)
        issued = fulfilment.reads(tr, supply, self.expected)
        due = promotion.reads(tr, scope)
        supply.enter(tr, scope)
        if leads.value != me:
            if self.listed:
                self._withdraw(tr)  # As a guard it would be told of messages in the leader's place.
            return _Round(AfterRound.LEAVE)
        if promotion.promote_all(tr, scope, due, until=supply.until).changed:
            issued = fulfilment.reads(tr, supply, self.expected)
        call = RoundCall.LAST_ROUND if stage >= LeaderStage.DONE else RoundCall.ROUND
        served = fulfilment.serve(tr, scope, supply, issued, me, call=call, resume=self.resume)
        answer, dead = served.answers.get(me), False
        if served.closed:
            if answer is None and stage is LeaderStage.UNANSWERED:
                answer = line.status(tr, scope, self.line, self.ticket).held or CLOSED
            if self.listed:
                self._withdraw(tr)
            return _Round(AfterRound.LEAVE, answer, wrote=True)
        others = [one for one in served.unserved if one.claim != me]
        mine = next((one for one in served.unserved if one.claim == me), None)
        if stage is LeaderStage.UNANSWERED and answer is None and mine is None and not served.more:
            # Its request is neither answered in this round nor in line: another leader has answered
            # it, or taken its consumer for dead.
            answer = line.status(tr, scope, self.line, self.ticket).held or None
            dead = not answer
        if stage is LeaderStage.UNANSWERED and (answer is not None or dead):
            stage = LeaderStage.ANSWERED
        if stage is LeaderStage.ANSWERED and (dead or served.returning):
            stage = LeaderStage.DONE
        step = leader.decide(
            stage,
            unserved=len(others),
            served=len(served.answers),
            crowd=self.crowd,
            exhausted=served.exhausted,
        )
        signal, patience = None, LOOK_SECONDS
        if step in (AfterRound.LEAVE, AfterRound.HAND_OVER):
            fulfilment.stop_leading(tr, scope, supply, others, served.returning[-1:], led.value)
            self._leave_list(tr, served)
        else:
            leader.renew(tr, scope, self.line, led.value, asleep=step is AfterRound.WAIT)
            if mine is not None:
                line.keep_alive(tr, scope, self.line, self.ticket, mine.request)
            if step is AfterRound.WAIT:
                signal, patience = self._go_to_sleep(tr, scope, served)
        return _Round(
            step,
            answer,
            dead,
            others=len(served.answers.keys() - {me}),
            demand=served.demand,
            wrote=bool(served.answers),
            signal=signal,
            patience=patience,
            away=step is AfterRound.LEAVE and served.returning[-1:] == [me],
            resume=self._resumes(tr, scope, served),
        )

    def _go_to_sleep(
        self, tr: fdb.Transaction, scope: Scope, served: fulfilment.Served
    ) -> tuple[watching.Signal, float]:
        """What to wait for, and for how many seconds at most, until there may be messages."""
        # The leader sleeps for the line, so it has waited as long as the first request.
        first = min((one.index for one in served.unserved), default=self.ticket.index)
        registry.evict_waiters(tr, scope)
        signal = wakeups.register(tr, scope, _listed(self.access, self.ticket), since=first)
        following = agenda.next_seconds(tr, scope, agenda.coming(tr, scope))
        return signal, LOOK_SECONDS if following is None else min(following, LOOK_SECONDS)

    def _resumes(
        self, tr: fdb.Transaction, scope: Scope, served: fulfilment.Served
    ) -> Resume | None:
        """Where the next round goes on; None at the front."""
        if served.reached is None:
            return None
        since = scope.version(tr) if self.resume is None else self.resume.since
        return Resume(served.reached, since)

    def _leave_list(self, tr: fdb.Transaction, served: fulfilment.Served) -> None:
        """Leave the list of sleepers; wake the next one for messages that are left."""
        if self.listed:
            self._withdraw(tr)
            if not served.exhausted:
                wakeups.wake(tr, self.keys, wakeups.reads(tr, self.keys, 1))

    def _last_call(self, tr: fdb.Transaction) -> tuple[Sequence[Delivery] | None, Resume | None]:
        """Serve the line up to the own request, whoever leads. None if that takes another
        transaction, which goes on where the second result says."""
        scope, supply, me = self.access.scope(tr), self.supply, self.ticket.claim
        leads, issued = tr.get(self.line.leader), fulfilment.reads(tr, supply)
        due = promotion.reads(tr, scope)
        status = line.status(tr, scope, self.line, self.ticket)
        found: Sequence[Delivery] | None = status.held
        if not found:
            supply.enter(tr, scope)
        if promotion.promote_all(tr, scope, due, until=supply.until).changed:
            issued = fulfilment.reads(tr, supply)
        resume = None
        if status.request is None:
            if not found:
                mine = self.ticket.request
                first, asks = supply.issue(tr, mine.max_messages), line.claimed([mine])
                (found,) = supply.take(tr, scope, asks, first, None, strict=False)
                if found is None:
                    raise _TakenForDead
            unserved = [] if found is CLOSED else fulfilment.others(tr, scope, supply, issued, me)
        else:
            call = RoundCall.LAST_CALL
            served = fulfilment.serve(tr, scope, supply, issued, me, call=call, resume=self.resume)
            found = served.answers.get(me)
            unserved = [one for one in served.unserved if one.claim != me]
            resume = self._resumes(tr, scope, served)
        if found is not None and leads.value == me:
            if found is not CLOSED:
                fulfilment.stop_leading(tr, scope, supply, unserved)
            if self.listed:
                self._withdraw(tr)
        return found, resume

    def _run(self, body: Callable[[fdb.Transaction], R], wrote: Callable[[R], bool]) -> R:
        return once.run(self.db, self.access.once, body, wrote=wrote)


def _stage(waits: float | None, rounds: int) -> LeaderStage:
    """How far a leader has come: for how many seconds its message has waited for it, if it has one,
    and how many rounds it has led since."""
    if waits is None:
        return LeaderStage.UNANSWERED
    if waits >= 2 * LEAD_SECONDS:
        return LeaderStage.OVERDUE
    done = rounds >= MAX_ROUNDS or waits >= LEAD_SECONDS
    return LeaderStage.DONE if done else LeaderStage.ANSWERED


def _wrote(last: tuple[Sequence[Delivery] | None, Resume | None]) -> bool:
    """Whether a last call wrote what must not be written twice."""
    return bool(last[0]) or last[0] is CLOSED


class _TakenForDead(Exception):
    """Raised when a request has left the line unanswered."""

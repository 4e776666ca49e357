"""Plans: the messages of each batch of a stream, fixed before the batch is handled.

A plan is a set of leases that never expire. A stream of numbered batches, here a consumer, holds
them until the batch is done, so a batch that is repeated after a crash has the same messages.
Counters, history and verification see ordinary leases. The plan lists the claims of its leases.
These change only together with the plan, so reading the plan with a conflict is enough.

PLANNER holds the last acknowledged batch. Writing its number there ends the batch; its leases end
afterwards, in as many transactions as it takes, and the next caller continues an interrupted end.
Batch numbers are never reused, even after a release, so a batch is one set of messages for ever.
PLANNER also names the run that owns the plans. The newest run takes them over; an older one that
returns fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from ...errors import TakenOver
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...schema.streams import Claimed, Planned, PlannerState, Stage
from ...store import world
from ...store.binding import fdb, transactional
from ...values.states import ACK, End, State
from .. import run, settle, transitions
from ..settle import Leaving, Return

NAME_BYTES = 8
MAX_ENDED = 2_000
"""The most claims that one transaction ends without reading them."""


class PlanReads(NamedTuple):
    """The reads of a consumer's plans, issued with conflicts and not awaited."""

    planner: fdb.Value
    plans: fdb.FDBRange


@dataclass(slots=True)
class OpenPlans:
    """The plans of a consumer as one transaction sees them: a few, usually one."""

    consumer: str
    state: PlannerState
    plans: dict[int, Planned] = field(default_factory=dict)

    @property
    def current(self) -> tuple[int, Planned] | None:
        """The first batch that is not acknowledged, and its plan."""
        return next(
            ((n, plan) for n, plan in self.plans.items() if n > self.state.acknowledged), None
        )

    @property
    def ended(self) -> tuple[int, Planned] | None:
        """The first acknowledged batch whose leases have not ended, and its plan."""
        return next(
            ((n, plan) for n, plan in self.plans.items() if n <= self.state.acknowledged), None
        )


def reads(tr: fdb.TransactionRead, keys: QueueKeys, consumer: str) -> PlanReads:
    """Issue the reads of a consumer's plans."""
    plans = keys.plan.under(consumer)
    mode = fdb.StreamingMode.want_all
    return PlanReads(
        tr.get(keys.planner(consumer)),
        tr.get_range(plans.start, plans.stop, streaming_mode=mode),
    )


def parse(keys: QueueKeys, consumer: str, reads: PlanReads) -> OpenPlans | None:
    """The plans that were read; None if the consumer never had one."""
    value = reads.planner.value
    if value is None:
        return None
    plans = {keys.plan.parse(kv.key)[1]: Planned.unpack(kv.value) for kv in reads.plans}
    return OpenPlans(consumer, PlannerState.unpack(value), plans)


@transactional
def create(
    tr: fdb.Transaction, scope: Scope, consumer: str, begins: Mapping[int, bytes]
) -> PlannerState:
    """Create a consumer without plans. begins: as in ``PlannerState``. Writes blindly."""
    # With the identity of the queue: a stream that continues notices if the queue was deleted and
    # made again.
    line = bytes.fromhex(scope.identity) + world.urandom(NAME_BYTES)
    state = PlannerState(line, b"", begins=dict(begins))
    tr[scope.keys.planner(consumer)] = state.pack()
    return state


@transactional
def take_over(
    tr: fdb.Transaction, scope: Scope, opened: OpenPlans, run: bytes, *, held: bool
) -> bool:
    """Let a run own the plans; returns whether it has just taken them over.

    held: whether it owned them before. Raises ``TakenOver`` if it did and another owns them now.
    Writes blindly; the caller has read the plans.
    """
    if opened.state.owner == run:
        return False
    if held:
        raise TakenOver(
            what=f"the plans of consumer {opened.consumer!r} of queue {scope.name!r}",
            remedy="give each stream a consumer of its own",
        )
    opened.state = replace(opened.state, owner=run)
    _write(tr, scope.keys, opened)
    return True


@transactional
def write(tr: fdb.Transaction, scope: Scope, opened: OpenPlans, batch: int, plan: Planned) -> None:
    """Write a plan, blindly."""
    opened.plans[batch] = plan
    tr[scope.keys.plan(opened.consumer, batch)] = plan.pack()
    if batch > opened.state.last:
        opened.state = replace(opened.state, last=batch)
        _write(tr, scope.keys, opened)


@transactional
def acknowledge(tr: fdb.Transaction, scope: Scope, opened: OpenPlans, batch: int) -> None:
    """Acknowledge all batches up to this one; ``end`` ends their leases. Writes blindly."""
    opened.state = replace(opened.state, acknowledged=batch)
    _write(tr, scope.keys, opened)


@transactional
def end(tr: fdb.Transaction, scope: Scope, opened: OpenPlans) -> int:
    """End as many leases of acknowledged batches as one transaction can; returns how many.

    Reads leases, in one round trip, only if a message has side records or the queue keeps a
    history. Conflicts only through plans and keys.
    """
    if opened.ended is None:
        return 0
    batch, plan = opened.ended
    silent = scope.options.history_seconds is None
    # Claims of plain messages end by their counts alone; thousands of them cost one transaction,
    # and no read.
    plain = list(takewhile(lambda each: silent and each.plain, plan.claims[:MAX_ENDED]))
    # One claim was filled by one transaction, so one can also end it.
    claims, done = plain or plan.claims[:1], Counter[int]()
    leaving: list[Leaving] = []
    for claimed in claims:
        if plain:
            done.update(claimed.levels)
        else:
            leaving = [Leaving(each, End.DONE) for each in _messages(tr, scope, claimed)]
        _clear(tr, scope, claimed)
    transitions.record(tr, scope, ACK, (), done)
    settle.carry_out(tr, scope, State.LEASED, leaving)
    _shorten(tr, scope, opened, batch, len(claims))
    return sum(claimed.messages for claimed in claims)


@transactional
def release(tr: fdb.Transaction, scope: Scope, opened: OpenPlans, batch: int) -> tuple[int, int]:
    """Return the messages of one claim of a plan to their places, without counting an attempt.

    Returns how many were returned, and how many became ready; those that waited for their keys
    wait again. One or two round trips. Conflicts only through plans and keys.
    """
    # Written first: if the rest is done by another process, it goes on with the release, and does
    # not fill the plan again.
    plan = replace(opened.plans[batch], stage=Stage.RETURNING, key=None)
    write(tr, scope, opened, batch, plan)
    given = ready = 0
    if plan.claims:
        # From the end, so that the rest of the plan stays ahead of the returned messages.
        claimed = plan.claims[-1]
        messages = _messages(tr, scope, claimed)
        _clear(tr, scope, claimed)
        now_ms, options, given = scope.now_ms(tr), scope.options, len(messages)
        # With a delay of 0: the release of a plan says nothing against its messages, and must not
        # put them off.
        leaving = [settle.decide(options, each, Return(0.0), now_ms) for each in messages]
        ready = settle.carry_out(tr, scope, State.LEASED, leaving)
        write(tr, scope, opened, batch, replace(plan, claims=plan.claims[:-1]))
    if not opened.plans[batch].claims:
        _shorten(tr, scope, opened, batch, 0)
    return given, ready


@transactional
def forget(tr: fdb.Transaction, scope: Scope, consumer: str) -> None:
    """Remove a consumer that has no plans. Writes blindly."""
    del tr[scope.keys.planner(consumer)]


def read_all(tr: fdb.TransactionRead, keys: QueueKeys) -> list[OpenPlans]:
    """The plans of all consumers. One round trip."""
    planners, plans = keys.planner.rows, keys.plan.rows
    mode = fdb.StreamingMode.want_all
    reads = tr.get_range(planners.start, planners.stop, streaming_mode=mode)
    found = tr.get_range(plans.start, plans.stop, streaming_mode=mode)
    consumers = {
        consumer: OpenPlans(consumer, PlannerState.unpack(kv.value))
        for kv in reads
        for consumer in [keys.planner.parse(kv.key)[0]]
    }
    for kv in found:
        consumer, batch = keys.plan.parse(kv.key)
        if consumer in consumers:
            consumers[consumer].plans[batch] = Planned.unpack(kv.value)
    return list(consumers.values())


def leased(
    tr: fdb.TransactionRead, keys: QueueKeys, claim: bytes, begin: int, end: int
) -> Iterator[run.One]:
    """A claim's leases, from number ``begin`` to before ``end``. One round trip."""
    within = run.planned(keys, claim, begin, end)
    # The row of the last one may stand behind it.
    last = run.behind(keys, within.stop)
    found = tr.get_range(within.start, last, streaming_mode=fdb.StreamingMode.want_all)
    return takewhile(lambda one: one.key < within.stop, run.leases(keys, found, within.start))


def _messages(tr: fdb.Transaction, scope: Scope, claimed: Claimed) -> list[StoredMessage]:
    # At snapshot isolation: the plan was read with a conflict, and its leases change with it.
    found = leased(tr.snapshot, scope.keys, claimed.claim, 0, claimed.messages)
    return [one.message for one in found]


def _clear(tr: fdb.Transaction, scope: Scope, claimed: Claimed) -> None:
    leases = run.planned(scope.keys, claimed.claim)
    tr.clear_range(leases.start, leases.stop)


def _shorten(tr: fdb.Transaction, scope: Scope, opened: OpenPlans, batch: int, claims: int) -> None:
    """Remove the first claims of a plan, and the plan if none is left."""
    left: Sequence[Claimed] = opened.plans[batch].claims[claims:]
    if left:
        write(tr, scope, opened, batch, replace(opened.plans[batch], claims=tuple(left)))
    else:
        del opened.plans[batch]
        del tr[scope.keys.plan(opened.consumer, batch)]


def _write(tr: fdb.Transaction, keys: QueueKeys, opened: OpenPlans) -> None:
    tr[keys.planner(opened.consumer)] = opened.state.pack()

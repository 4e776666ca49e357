"""Receiving: take messages at once, or through the line if the queue is crowded.

The first reads of a common receive, one round trip, show that there is no line and that nothing is
due, and bring the messages. Any other receive goes through ``try_receive``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...messages import agenda, settle
from ...messages.delivery import scan
from ...messages.run import Held
from ...schema import due as due_entries
from ...schema import once
from ...schema.keys import QueueKeys
from ...schema.leases import new_claim
from ...store import tasks, world
from ...store.binding import FAILURES, fdb
from ...values.model import Delivery
from .. import queue_supply
from ..line import Demand, Ticket
from ..line import join as join_line
from ..supply import CLOSED
from . import gathering, returning_leader, shared_request, try_receive
from .access import Access, Call, Outcome
from .waiting import collect


def receive(
    db: fdb.Database,
    access: Access,
    demand: Demand,
    wait: float,
    ack: Sequence[Held] = (),
    *,
    alone: bool = False,
) -> Sequence[Delivery]:
    """Lease what is ready, or becomes ready within ``wait`` seconds.

    ack: deliveries to acknowledge in the transaction of the first attempt.
    alone: whether a task that waits stands in line by itself.
    """
    if wait and demand.max_messages == 1 and not alone and (task := tasks.current.get()):
        if ack and (answer := receive(db, access, demand, 0.0, ack)):
            return answer
        ask = partial(receive, db, access, demand, alone=True)
        return shared_request.receive(task, db, access, demand, wait, ask, asked=bool(ack))
    deadline = world.monotonic() + wait if wait else 0.0
    while True:
        settles, ack = ack, ()
        waits = wait > 0 and deadline > world.monotonic()
        another = True
        try:
            with access.mutex:
                another, access.taken = access.taken, True
            if another and (access.common or access.lined):
                call = Call(db, demand, settles, waits=waits)
                outcome = gathering.ask(access, call, partial(_alone, access))
            else:
                outcome = _ask(db, access, demand, settles, waits)
        finally:
            if not another:
                access.taken = False
                if access.calls:
                    gathering.pass_on(access)
        found: Sequence[Delivery] | None
        if type(outcome) is Ticket:
            left = max(0.0, deadline - world.monotonic()) if outcome.waits else None
            found = collect(db, access, outcome, left)
        else:
            found = outcome
        if found is not None:
            if not access.common:
                access.returned = world.monotonic()
            return found


def _alone(access: Access, call: Call) -> Outcome:
    return _ask(call.db, access, call.demand, call.ack, call.waits)


def _ask(
    db: fdb.Database, access: Access, demand: Demand, ack: Sequence[Held], waits: bool
) -> Outcome:
    """Lease what is ready, or join the line, in one transaction."""
    if not access.common:
        returning_leader.asks(access)
    operation: once.Operation[Outcome] = once.Operation(db, access.once)
    failed, lead = 0, access.lead
    while not operation.done:
        try:
            claim, tr = new_claim(demand.holder), operation.tr
            if not failed and (access.common or returning_leader.alone(access)):
                take = _attempt if access.plain else try_receive.take_alone
                found = take(tr, access, demand, claim, ack, lined=True, waits=waits)
            else:
                found = try_receive.attempt(
                    tr,
                    access,
                    demand,
                    claim,
                    waits=waits,
                    crowded=failed > 1,
                    retried=failed > 0,
                    ack=ack,
                )
            closed = found is CLOSED
            taken = found and type(found) is not Ticket and not ack
            wrote = bool(found or ack or closed)
            operation.commit(found, wrote, access.witness if taken else None)
        except FAILURES as error:
            operation.recover(error)
            if not operation.done:
                access.lead = lead or access.lead
            failed += 1
    return operation.result


def receive_in(
    tr: fdb.Transaction, access: Access, demand: Demand, ack: Sequence[Held] = ()
) -> Sequence[Delivery]:
    """As ``receive``, in the caller's transaction, which joins no line."""
    claim = new_claim(demand.holder)
    if access.common:
        found = _attempt(tr, access, demand, claim, ack, lined=False, waits=False)
        assert found is not None
        assert not isinstance(found, Ticket)
        return found
    if ack:
        settle.ack(tr, access.entry, ack)
    scope = access.entry.scope(tr)
    access.common = not access.crowded and scope.scheme != "staged"
    return queue_supply.take(tr, scope, demand, claim, len(ack))


def _attempt(
    tr: fdb.Transaction,
    access: Access,
    demand: Demand,
    claim: bytes,
    ack: Sequence[Held],
    *,
    lined: bool,
    waits: bool,
) -> Outcome:
    """Lease what is ready, or join the line if ``lined`` allows it.

    A leader that is away takes what is ready, and serves the line if it finds anything else.
    """
    leads = lined and access.lead is not None
    keys, limit = access.keys, demand.max_messages
    ready = scan.first(tr, keys, limit)
    # The first of the agenda, the line and the expiries; if there were some of the first two the
    # last time, each of them.
    each = _each(tr, keys) if access.agenda else None
    first = tr.snapshot.get_key(keys.earliest.first) if each is None else each[1]
    ending = settle.Ending(tr, keys, ack) if ack else None
    scope = access.entry.scope(tr, first)
    if each is None and first.value < keys.request.end:
        each = _each(tr, keys)
    earliest, line, expiry = each or (None, first, first)
    due = None if earliest is None else agenda.Reads(tr, scope, earliest)
    if ending and settle.settle(tr, scope, ending):
        # The next message of a key has become ready, and may be the first.
        ready = scan.first(tr, keys, limit)
    options = scope.options
    access.agenda = line.value < keys.request.end or (due is not None and due.some)
    access.common = scope.scheme != "staged" and not leads
    beside = leads or not lined or not (waits or scope.scheme == "auto")
    common = (
        (access.common or leads)
        and not options.paused
        and options.max_in_flight is None
        and options.rate is None
        and (beside or line.value >= keys.line.all.stop)
        and not (due and due.over(scope.now_ms(tr)))
        and not (
            expiry.value < keys.expiry.end
            and (
                expiry.value < keys.expiry.begin(once.version(tr) + scope.clock.versions_ahead())
                or (scope.strays is not None and scope.strays.next < world.monotonic())
            )
        )
    )
    if not common:
        if not lined:
            return queue_supply.take(tr, scope, demand, claim, len(ack))
        return try_receive.settled_attempt(tr, access, scope, demand, claim, len(ack), waits=waits)
    look = queue_supply.Look(ready, None)
    found = queue_supply.take(tr, scope, demand, claim, len(ack), look, relies=not leads)
    if leads and not found:
        return try_receive.settled_attempt(tr, access, scope, demand, claim, len(ack), waits=waits)
    if waits and not found:
        return join_line(tr, scope, access.line, None, demand, waits)
    return found


def _each(tr: fdb.Transaction, keys: QueueKeys) -> tuple[fdb.FDBRange, fdb.Key, fdb.Key]:
    """Issue reads of when to look at the agenda, and of the first in line and to expire."""
    line, expiry = keys.request.first, keys.expiry.first
    return due_entries.reads(tr, keys), tr.snapshot.get_key(line), tr.snapshot.get_key(expiry)

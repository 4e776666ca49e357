"""One attempt to receive: take what is ready, or join the line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InvalidArgument
from ...messages import settle
from ...messages.run import Held
from ...schema import once
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.durations import patience
from ...values.model import Delivery
from ...values.options import check_lease, check_name
from .. import fulfilment, leader, line, promotion, wakeups
from ..line import Demand
from ..queue_supply import Look
from ..supply import CLOSED
from . import returning_leader
from .access import Access, Outcome

MAX_MESSAGES = 10_000


class Asked(NamedTuple):
    """What a consumer asks for; ``waits`` says whether it waits where there is nothing."""

    claim: bytes
    demand: Demand
    waits: bool


def checked_demand(max_messages: object, lease: object, consumer: object, wait: object) -> Demand:
    """A demand of checked arguments; raises ``InvalidArgument`` and ``InvalidOptions``."""
    if type(max_messages) is not int or not 0 < max_messages <= MAX_MESSAGES:
        raise InvalidArgument(
            argument="max_messages", value=max_messages, problem=f"must be 1 to {MAX_MESSAGES:,}"
        )
    patience("wait", wait)
    seconds = None if lease is None else check_lease("lease", lease)
    return Demand(max_messages, seconds, check_name(consumer, "consumer") if consumer else "")


def attempt(
    tr: fdb.Transaction,
    access: Access,
    demand: Demand,
    claim: bytes,
    *,
    waits: bool,
    crowded: bool,
    retried: bool = False,
    ack: Sequence[Held] = (),
) -> Outcome:
    """Lease what is ready, or join the line; None to look on in another transaction.

    crowded: whether earlier attempts met conflicts. retried: whether there were any.
    ack: deliveries to acknowledge.
    """
    # Issued before the options are known, so that all reads share one round trip.
    led, issued = returning_leader.reads(tr, access), None
    if waits or access.lined:
        issued = line.reads(tr, access.line, first=not access.crowded)
    ending = settle.Ending(tr, access.keys, ack)
    once.ask_version(tr)
    scope = access.scope(tr, ending.last)
    access.supply.enter(tr, scope)
    if ack and settle.settle(tr, scope, ending) and led is not None:
        # The next message of an ordering key may be ready.
        led = led._replace(round=fulfilment.reads(tr, access.supply, access.expected))
    if led is not None:
        own = [_waiter(tr, access, scope, Asked(claim, demand, waits))]
        found = returning_leader.serve(tr, access, scope, own, led)
        if found is not None:
            return found[0]
    return _take_or_join(
        tr,
        access,
        scope,
        demand,
        claim,
        issued,
        len(ack),
        waits=waits,
        crowded=crowded,
        retried=retried,
    )


def take_alone(
    tr: fdb.Transaction,
    access: Access,
    demand: Demand,
    claim: bytes,
    ack: Sequence[Held],
    *,
    lined: bool,
    waits: bool,
) -> Outcome:
    """As ``attempt``, for a leader that has just served the line: take what is ready for itself;
    serve the line if there is nothing."""
    assert lined
    ending, supply = settle.Ending(tr, access.keys, ack), access.supply
    scope = access.scope(tr, ending.last)
    supply.enter(tr, scope)
    settle.settle(tr, scope, ending)
    look = supply.look(tr, scope, demand)
    found = supply.take(tr, scope, demand, claim, len(ack), look, strict=False)
    if found or found is CLOSED:
        return found
    return settled_attempt(tr, access, scope, demand, claim, len(ack), waits=waits)


def settled_attempt(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    demand: Demand,
    claim: bytes,
    settled: int,
    *,
    waits: bool,
) -> Outcome:
    """As ``attempt``, in a known scope, after ``settled`` leases were settled."""
    led = returning_leader.reads(tr, access)
    if led is not None:
        own = [_waiter(tr, access, scope, Asked(claim, demand, waits))]
        found = returning_leader.serve(tr, access, scope, own, led)
        if found is not None:
            return found[0]
    return _take_or_join(tr, access, scope, demand, claim, None, settled, waits=waits)


def attempt_all(
    tr: fdb.Transaction,
    access: Access,
    asked: Sequence[Asked],
    ack: Sequence[Held],
    *,
    crowded: bool,
) -> list[Outcome] | None:
    """As ``attempt`` for several consumers of one process, in their order.

    None, with nothing written, if the queue's scheme does not serve several at once.
    """
    keys, supply, wanted = access.keys, access.supply, sum(one.demand.max_messages for one in asked)
    access.expected = max(access.expected, wanted)
    led = returning_leader.reads(tr, access)
    round_ = fulfilment.reads(tr, supply, wanted) if led is None else led.round
    leads = tr.snapshot.get(access.line.led)
    ending = settle.Ending(tr, keys, ack)
    once.ask_version(tr)
    scope = access.scope(tr, ending.last)
    supply.enter(tr, scope)
    scheme = scope.scheme
    if scheme == "first":
        return None
    if settle.settle(tr, scope, ending):
        # The next messages of ordering keys may be ready.
        round_ = fulfilment.reads(tr, supply, wanted)
        led = led and led._replace(round=round_)
    own = [_waiter(tr, access, scope, one) for one in asked]
    access.common = False
    if led is not None:
        found = returning_leader.serve(tr, access, scope, own, led)
        if found is not None:
            return found
    formed = leader.versions_left(tr, scope, leads.value) or bool(round_.requests.to_list())
    if scheme == "staged" or crowded or formed:
        access.crowded = True
        served = fulfilment.NOTHING
    else:
        access.crowded, access.common = False, access.plain
        if promotion.promote_all(tr, scope, promotion.reads(tr, scope)).changed:
            round_ = fulfilment.reads(tr, supply, wanted)
        served = fulfilment.serve(tr, scope, supply, round_, own[-1].claim, own=own)
    unanswered = [one for one in own if one.claim not in served.answers]
    joins = bool(unanswered) and leader.lead(
        tr, scope, access.line, leads.value, unanswered[0].claim
    )
    return returning_leader.answers(tr, scope, access, own, served, leads=joins)


def _waiter(tr: fdb.Transaction, access: Access, scope: Scope, asked: Asked) -> fulfilment.Waiter:
    """A consumer that is not in line."""
    soon = access.returns
    request = line.make_request(tr, scope, asked.demand, asked.waits, returns=soon, soon=soon)
    return fulfilment.Waiter(scope.version(tr), asked.claim, request)


def _take_or_join(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    demand: Demand,
    claim: bytes,
    issued: line.Reads | None,
    settled: int,
    *,
    waits: bool,
    crowded: bool = False,
    retried: bool = False,
) -> Outcome:
    """Take what is ready, or join the line, after ``settled`` leases were settled.

    issued: the reads of the line, if they were issued.
    """
    scheme, supply = scope.scheme, access.supply
    access.lined = scheme != "first"
    access.crowded = access.crowded or scheme == "staged"
    ready, led = None, None
    if waits or access.lined:
        issued = issued or line.reads(tr, access.line, first=True)
        if scheme != "staged" and not (scheme == "auto" and crowded):
            ready = None if access.crowded else supply.look(tr, scope, demand)
            access.crowded = crowded = line.formed(tr, scope, access.line, issued)
        led = issued.led.value
        if scheme == "staged" or crowded:
            access.common = False
            return line.join(
                *(tr, scope, access.line, led, demand, waits),
                returns=access.returns and not access.rests,
                soon=access.returns,
            )
        if led is not None:
            leader.leave_expired(tr, access.line)
    ready = ready or supply.look(tr, scope, demand)
    found = supply.take(tr, scope, demand, claim, settled, ready, strict=not retried)
    access.common = access.plain and scheme != "staged" and not _overdue(ready)
    if found is None and not supply.stores_place(scope):
        # Who leads a line remembers how far it has come.
        issued = issued or line.reads(tr, access.line, first=False)
        return line.join(tr, scope, access.line, issued.led.value, demand, waits)
    if found is None or found or found is CLOSED or not waits:
        return found
    return line.join(tr, scope, access.line, led, demand, waits)


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


def _overdue(issued: object) -> bool:
    """Whether versions of leases have passed; the wall clock may still keep these alive."""
    return (
        isinstance(issued, Look)
        and issued.due is not None
        and bool(issued.due.expired.expired.to_list())
    )

"""One attempt to receive: take what is ready, or join the line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InvalidArgument
from ...messages.delivery import head, lease, lease_rows, scan, settle
from ...messages.delivery.lease_rows import Held
from ...schema import once
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.durations import patience
from ...values.model import Delivery
from ...values.options import check_lease, check_name
from ...values.records import record
from .. import fulfilment, leader, line, promotion, relaxed, wakeups
from ..line import Demand, Ticket
from . import returning_leader
from .access import Access

MAX_MESSAGES = 10_000
MIN_BATCH_BYTES = 200_000
"""Bytes that a batch may hold even if the same transaction promotes or settles a lot."""


@record
class Reads:
    """The reads of an attempt, issued and not awaited."""

    ready: fdb.FDBRange | relaxed.Reads
    due: promotion.Reads | None


class Asked(NamedTuple):
    """What a consumer asks for; ``waits`` says whether it waits where there is nothing."""

    claim: bytes
    demand: Demand
    waits: bool


def checked_demand(max_messages: object, lease: object, consumer: object, wait: object) -> Demand:
    """A demand of checked arguments; raises ``InvalidArgument``, ``InvalidOptions`` and
    ``InvalidName``."""
    if type(max_messages) is not int or not 0 < max_messages <= MAX_MESSAGES:
        raise InvalidArgument(
            argument="max_messages", value=max_messages, problem=f"must be 1 to {MAX_MESSAGES:,}"
        )
    patience("wait", wait)
    seconds = None if lease is None else check_lease("lease", lease)
    return Demand(max_messages, seconds, check_name(consumer) if consumer else "")


def attempt(
    tr: fdb.Transaction,
    access: Access,
    demand: Demand,
    claim: bytes,
    *,
    waits: bool,
    crowded: bool,
    ack: Sequence[Held] = (),
) -> Sequence[Delivery] | Ticket:
    """Lease what is ready, or join the line.

    crowded: whether earlier attempts met conflicts.
    ack: deliveries to acknowledge.
    """
    # Issued before the options are known, so that all reads share one round trip.
    led, issued = returning_leader.reads(tr, access), None
    if waits or access.lined:
        issued = line.reads(tr, access.keys, first=not access.crowded)
    leases = lease_rows.reads(tr, access.keys, ack)
    if leases:
        # By then the read version is known, too.
        leases[-1].block_until_ready()
    scope = access.scope(tr)
    if ack and not settle.done(tr, scope, ack, leases) and led is not None:
        # The next message of an ordering key may be ready.
        led = led._replace(round=fulfilment.reads(tr, access.keys, access.expected))
    if led is not None:
        own = [_waiter(tr, access, scope, Asked(claim, demand, waits))]
        found = returning_leader.serve(tr, access, scope, own, led)
        if found is not None:
            return found[0]
    return _take_or_join(
        tr, access, scope, demand, claim, issued, len(ack), waits=waits, crowded=crowded
    )


def settled_attempt(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    demand: Demand,
    claim: bytes,
    settled: int,
    *,
    waits: bool,
) -> Sequence[Delivery] | Ticket:
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
) -> list[Sequence[Delivery] | Ticket] | None:
    """As ``attempt`` for several consumers of one process, in their order.

    None, with nothing written, if the queue's mode does not serve several at once.
    """
    keys, wanted = access.keys, sum(one.demand.max_messages for one in asked)
    access.expected = max(access.expected, wanted)
    led = returning_leader.reads(tr, access)
    round_ = fulfilment.reads(tr, keys, wanted) if led is None else led.round
    leads = tr.snapshot.get(keys.led)
    leases = lease_rows.reads(tr, keys, ack)
    scope = access.scope(tr)
    mode = scope.options.contention
    if mode not in ("auto", "staged"):
        return None
    if not settle.done(tr, scope, ack, leases):
        # The next messages of ordering keys may be ready.
        round_ = fulfilment.reads(tr, keys, wanted)
        led = led and led._replace(round=round_)
    own = [_waiter(tr, access, scope, one) for one in asked]
    access.common = False
    if led is not None:
        found = returning_leader.serve(tr, access, scope, own, led)
        if found is not None:
            return found
    formed = leader.versions_left(tr, scope, leads.value) or bool(round_.requests.to_list())
    if mode == "staged" or crowded or formed:
        access.crowded = True
        served = fulfilment.NOTHING
    else:
        access.crowded, access.common = False, True
        if promotion.promote(tr, scope, promotion.reads(tr, scope)).ready:
            round_ = fulfilment.reads(tr, keys, wanted)
        served = fulfilment.serve(tr, scope, round_, own[-1].claim, own=own)
    unanswered = [one for one in own if one.claim not in served.answers]
    joins = bool(unanswered) and leader.lead(tr, scope, leads.value, unanswered[0].claim)
    return returning_leader.answers(tr, scope, own, served, leads=joins)


def _waiter(tr: fdb.Transaction, access: Access, scope: Scope, asked: Asked) -> fulfilment.Waiter:
    """A consumer that is not in line."""
    request = line.make_request(tr, scope, asked.demand, asked.waits, returns=access.returns)
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
) -> Sequence[Delivery] | Ticket:
    """Take what is ready, or join the line, after ``settled`` leases were settled.

    issued: the reads of the line, if they were issued.
    """
    mode = scope.options.contention
    access.lined = mode in ("auto", "staged")
    access.crowded = access.crowded or mode == "staged"
    ready, led = None, None
    if waits or access.lined:
        issued = issued or line.reads(tr, access.keys, first=True)
        if mode != "staged" and not (mode == "auto" and crowded):
            ready = None if access.crowded else reads(tr, scope, demand)
            access.crowded = crowded = line.formed(tr, scope, issued)
        led = issued.led.value
        if mode == "staged" or crowded:
            access.common = False
            returns, soon = access.returns and not access.rests, access.returns
            return line.join(tr, scope, led, demand, waits, returns=returns, watched=not soon)
        if led is not None:
            leader.leave_expired(tr, scope)
    ready = ready or reads(tr, scope, demand)
    found = take(tr, scope, demand, claim, settled, ready)
    access.common = mode in ("auto", "first") and not _overdue(ready)
    return found if found or not waits else line.join(tr, scope, led, demand, waits)


def reads(tr: fdb.Transaction, scope: Scope, demand: Demand) -> Reads:
    """Issue the snapshot reads of the first messages, and of what is due."""
    if scope.options.contention == "relaxed":
        first: fdb.FDBRange | relaxed.Reads = relaxed.reads(tr, scope, demand.max_messages)
    else:
        first = scan.first(tr, scope.keys, demand.max_messages)
    return Reads(first, promotion.reads(tr, scope))


def take(
    tr: fdb.Transaction,
    scope: Scope,
    demand: Demand,
    claim: bytes,
    settled: int = 0,
    issued: Reads | None = None,
) -> Sequence[Delivery]:
    """Lease what is ready, without a line. The conflicts are those of the queue's mode.

    settled: how many leases the same transaction settles.
    issued: the reads, if they were issued; ``due`` is None if nothing is due.
    """
    if scope.options.paused:
        return []
    issued = issued or reads(tr, scope, demand)
    excess = 0
    if issued.due is not None:
        promoted = promotion.promote(tr, scope, issued.due)
        excess = promoted.excess
        if promoted.ready:
            issued = reads(tr, scope, demand)
    beside = excess + settled * scope.keys.lease_bytes
    room = max(MIN_BATCH_BYTES, scan.BATCH_BYTES - beside)
    if isinstance(issued.ready, relaxed.Reads):
        messages = head.alive(
            tr,
            scope,
            relaxed.pick(tr, scope, issued.ready, room),
            lambda: relaxed.pick(tr, scope, relaxed.reads(tr, scope, demand.max_messages), room),
        )
    else:
        found = scan.conflicting(tr, scope.keys, issued.ready, demand.max_messages, room)
        messages = head.first(tr, scope, demand.max_messages, found)
    messages = head.together(messages, suspects=demand.suspects)
    seconds = scope.options.lease if demand.seconds is None else demand.seconds
    terms = lease.Terms(seconds, claim, demand.consumer, demand.begins)
    return lease.grant(tr, scope, terms, messages)


def give_back(db: fdb.Database, access: Access, deliveries: Sequence[Delivery]) -> None:
    """Release deliveries that never reached a consumer, and wake others for them."""

    def release(tr: fdb.Transaction) -> None:
        scope = access.scope(tr)
        sleepers = wakeups.reads(tr, scope.keys, len(deliveries))
        settle.settle(tr, scope, deliveries, {}, settle.Return(0.0))
        wakeups.wake(tr, scope.keys, sleepers)

    if deliveries:
        once.run(db, access.keys.once, release)


def _overdue(issued: Reads) -> bool:
    """Whether versions of leases have passed; the wall clock may still keep these alive."""
    return issued.due is not None and bool(issued.due.expired.expired.to_list())

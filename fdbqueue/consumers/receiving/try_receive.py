"""One attempt to receive: take what is ready, serve the line, or join it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

from ...errors import InvalidArgument
from ...messages import run, settle
from ...messages.delivery.shares import ClaimedRequest
from ...messages.run import Held
from ...schema import once
from ...schema.consumers import Request
from ...schema.keys import QueueKeys
from ...schema.scope import Scope
from ...store.binding import FAILURES, fdb
from ...values.durations import patience
from ...values.model import Delivery
from ...values.options import check_lease, check_name
from .. import fulfilment, line
from ..line import Ticket
from ..supply import CLOSED
from . import returning_leader
from .access import Access, Asked, Outcome
from .ahead import Ahead

MAX_MESSAGES = 10_000
MAX_DIRECT = 1
"""How many conflicts a consumer meets before it stands in line, where the queue's mode lets it."""


def checked_request(max_messages: object, lease: object, consumer: object, wait: object) -> Request:
    """A request of checked arguments; raises ``InvalidArgument`` and ``InvalidOptions``."""
    if type(max_messages) is not int or not 0 < max_messages <= MAX_MESSAGES:
        raise InvalidArgument(
            argument="max_messages", value=max_messages, problem=f"must be 1 to {MAX_MESSAGES:,}"
        )
    patience("wait", wait)
    seconds = None if lease is None else check_lease("lease", lease)
    return Request(max_messages, seconds, check_name(consumer, "consumer") if consumer else "")


def ask(
    db: fdb.Database, access: Access, requests: Sequence[Request], ack: Sequence[Held] = ()
) -> list[Outcome]:
    """What consumers of one process are given, in their order, by one transaction.

    ack: deliveries to acknowledge in it.
    """
    hints = access.hints
    returning_leader.asks(hints)
    operation: once.Operation[list[Outcome]] = once.Operation(db, access.once)
    failed, lead = 0, hints.lead
    try:
        while not operation.done:
            try:
                found = attempt(operation.tr, access, requests, ack, failed=failed)
                given = [one for one in found if one or one is CLOSED]
                # The leases themselves tell whether the commit happened: random claims, which
                # nobody else writes. That saves the record.
                leased = not ack and all(one and type(one) is not Ticket for one in given)
                witness = partial(_witness, access.keys) if leased else None
                operation.commit(found, bool(ack or given), witness)
            except FAILURES as error:
                operation.recover(error)
                if not operation.done:
                    hints.lead = lead or hints.lead
                failed += 1
    except BaseException:
        hints.lead = lead or hints.lead
        raise
    return operation.result


def ask_all(access: Access, db: fdb.Database, calls: Sequence[Asked]) -> list[list[Outcome]]:
    """What several callers are given, in their order, by one transaction."""
    if len(calls) == 1:
        return [ask(db, access, *calls[0])]
    requests = [one for wanted, _ in calls for one in wanted]
    found = iter(ask(db, access, requests, [one for _, ack in calls for one in ack]))
    return [[*islice(found, len(wanted))] for wanted, _ in calls]


def _witness(keys: QueueKeys, found: Sequence[Outcome]) -> once.Witness:
    return run.witness(keys, next(one for one in found if one and not isinstance(one, Ticket)))


def attempt(
    tr: fdb.Transaction,
    access: Access,
    requests: Sequence[Request],
    ack: Sequence[Held] = (),
    *,
    joins: bool = True,
    failed: int = 0,
) -> list[Outcome]:
    """Lease what is ready to consumers of one process, in their order; or serve the line, if one of
    them leads it; or join it.

    ack: deliveries to acknowledge. joins: whether they may stand in line. failed: how many attempts
    met conflicts.

    One round trip if there is no line, and nothing is due.
    """
    supply, hints, asked = access.supply, access.hints, line.claimed(requests)
    wanted = sum([one.max_messages for one in requests])
    spares = joins and not failed and returning_leader.spares(hints)
    led = returning_leader.reads(tr, access, wanted) if joins and not spares else None
    crowded = joins and hints.crowded
    # All of these are issued before the first is awaited: one round trip where there is no line,
    # and nothing is due.
    ahead = None if led else Ahead(tr, access, crowded=crowded)
    issued = None if led or crowded else supply.issue(tr, wanted)
    ending = settle.Ending(tr, access.keys, ack) if ack else None
    scope = access.scope(tr, None if ahead is None else ahead.first)
    supply.enter(tr, scope)
    if ending and settle.settle(tr, scope, ending):
        # The next message of an ordering key may be ready.
        issued = issued and supply.issue(tr, wanted)
        led = led and led._replace(round=fulfilment.reads(tr, supply, hints.expected))
    if led and (served := _serve(tr, access, scope, asked, led)):
        return served
    ahead = ahead or Ahead(tr, access, crowded=False)
    if joins and not spares:
        hints.crowded = _lines(scope, ahead, requests, failed)
        if hints.crowded:
            asks = returning_leader.asks_in_line(hints, rests=hints.rests > 0)
            waiting = line.asking(tr, scope, asked, asks)
            return [*line.join(tr, scope, access.line, ahead.led, waiting)]
    due = ahead.due(scope)
    issued = issued or supply.issue(tr, wanted)
    strict, settled = not failed and not spares, len(ack)
    taken = supply.take(tr, scope, asked, issued, due, settled=settled, strict=strict)
    if not joins:
        return [*taken]
    if spares and not any(one or one is CLOSED for one in taken):
        led = returning_leader.reads(tr, access, wanted)
        if led and (served := _serve(tr, access, scope, asked, led)):
            return served
    return _wait(tr, access, scope, ahead, asked, taken)


def _serve(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    asked: Sequence[ClaimedRequest],
    led: returning_leader.LeaderReads,
) -> list[Outcome] | None:
    """Serve the line, and these behind all others; None if somebody else leads it now."""
    own = line.asking(tr, scope, asked, returning_leader.asks_in_line(access.hints))
    return returning_leader.serve(tr, access, scope, own, led)


def _lines(scope: Scope, ahead: Ahead, requests: Sequence[Request], failed: int) -> bool:
    """Whether messages come through the line."""
    if scope.scheme == "first":
        return any(one.waits for one in requests) and ahead.line_stands(scope)
    return scope.scheme == "staged" or failed > MAX_DIRECT or ahead.line_stands(scope)


def _wait(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    ahead: Ahead,
    asked: Sequence[ClaimedRequest],
    taken: Sequence[Sequence[Delivery] | None],
) -> list[Outcome]:
    """Let those that found nothing, and wait, join the line. So does who has more to look through
    and no place to note where it is: who leads a line remembers that."""
    found: list[Outcome] = [*taken]
    if all(taken):
        return found
    looks_on = None in found and not access.supply.stores_place(tr, scope)
    waiting = [
        n
        for n, one in enumerate(taken)
        if (looks_on if one is None else not one and one is not CLOSED and asked[n].request.waits)
    ]
    if waiting:
        stand = line.asking(tr, scope, [asked[n] for n in waiting])
        tickets = line.join(tr, scope, access.line, ahead.led, stand)
        for n, ticket in zip(waiting, tickets, strict=True):
            found[n] = ticket
    return found

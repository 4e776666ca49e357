"""A leader that was away comes back: it serves the line in the transaction of its next receive."""

from __future__ import annotations

import time
from typing import NamedTuple

from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.model import Delivery
from .. import fulfilment, leader, line, promotion
from ..line import Demand, Ticket
from .access import Access

RETURN_SECONDS = 0.02
"""A consumer that handled its last messages in less time is expected to ask again soon."""
SERVE_SECONDS = 0.002
"""A leader that asks again sooner after it has served the line takes a message for itself alone.
Those in line notice no sooner that they are served, and serving them one by one costs more."""
MAX_ROUNDS, MAX_ALONE = 8, 8
"""How often a returning leader serves the line before it passes the lead on; and nobody but itself
before the line ends."""


class Reads(NamedTuple):
    """The reads of a leader that was away, issued and not awaited, and the claim of its lead."""

    lead: bytes
    led: fdb.Value
    leader: fdb.Value
    round: fulfilment.Reads


def alone(access: Access) -> bool:
    """Whether the caller leads, and may take a message without serving the line."""
    return (
        access.lead is not None
        and access.returns
        and time.monotonic() < access.served + SERVE_SECONDS
    )


def reads(tr: fdb.Transaction, access: Access) -> Reads | None:
    """Issue the reads of a round, with a conflict on the lead; None if the caller does not lead.

    The lead is taken out of ``access``: set it back if the transaction fails.
    """
    lead, access.lead = access.lead, None
    if lead is None:
        return None
    keys = access.keys
    round_ = fulfilment.reads(tr, keys, access.expected)
    return Reads(lead, tr.snapshot.get(keys.led), tr.get(keys.leader), round_)


def serve(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    demand: Demand,
    claim: bytes,
    issued: Reads,
    waits: bool,
) -> list[Delivery] | Ticket | None:
    """Serve the line, and the caller behind all others; pass the lead on.

    Returns what the caller is given; a ticket if it must wait in line, as the leader; None if it
    does not lead any more. Conflicts as ``fulfilment.serve``.
    """
    if issued.leader.value != issued.lead + leader.AWAY:
        return None
    round_, led = issued.round, issued.led.value
    if promotion.promote(tr, scope, promotion.reads(tr, scope)).ready:
        round_ = fulfilment.reads(tr, access.keys, access.expected)
    request = line.make_request(tr, scope, demand, waits, returns=access.returns)
    served = fulfilment.serve(tr, scope, round_, claim, own=request)
    answer, successors = served.answers.get(claim), served.returning
    access.expected = served.demand
    if answer is None:
        tr[scope.keys.leader] = claim
        leader.renew(tr, scope, led)
        return line.register(tr, scope, claim, request, demand, leads=True)
    access.served = time.monotonic()
    access.rounds += 1
    access.alone = 0 if len(served.answers) > 1 else access.alone + 1
    if access.rounds < MAX_ROUNDS:
        successors = successors[-1:]
    if successors == [claim] and access.alone >= MAX_ALONE and scope.options.contention != "staged":
        successors = []
    fulfilment.stop_leading(tr, scope, served.unserved, successors, led)
    if successors[:1] == [claim] and not served.unserved:
        access.lead = claim
    else:
        access.rests = MAX_ROUNDS * (len(served.answers) - 1)
    return answer

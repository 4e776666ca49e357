"""A round of fulfilment: the first requests get the first messages.

In the published scheme every waiting consumer fulfils. Here one consumer fulfils for all, in one
transaction for up to a hundred requests and a few hundred messages. It reads requests and
messages at snapshot isolation, and conflicts only on the keys that it uses. So arrivals disturb no
round, and no message or request is used twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec import Struct

from ..messages.delivery.shares import Shares
from ..messages.delivery.take import Grant, take
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..values.model import Delivery
from . import leader, line
from .line import Waiter
from .supply import CLOSED, Supply

MAX_SERVED = 100
"""Requests that one round serves."""
MAX_MESSAGES = 300
"""Messages that one round hands out, unless its first request demands more. The next round is made
while consumers handle these."""
MAX_BYTES = 1_000_000
"""Bytes of messages that one round moves, with their payloads and leases."""
FIRST_READ = 4
"""Messages to read before the demand is known."""


class RoundCall(Enum):
    """What a round is for.

    LAST_ROUND leaves the last request unserved, to hand over to its consumer. LAST_CALL answers the
    server's own request in any case, if only with nothing.
    """

    ROUND = "one of several"
    LAST_ROUND = "the last of several"
    LAST_CALL = "the server's time is over"


class RoundReads(NamedTuple):
    """The reads of a round, issued and not awaited."""

    requests: fdb.FDBRange
    supply: Any


class Resume(Struct, frozen=True):
    """A scan that goes on: where, by level, and the version at which it began."""

    places: Mapping[int, bytes]
    since: int


class Served(Struct, frozen=True):
    """What a round did.

    answers: the claims that were answered. Those of the server's own process have their deliveries;
        none means that the queue was empty.
    unserved: the consumers still in line, the oldest first.
    demand: how many messages the requests demanded.
    exhausted: whether no message is left for them.
    more: whether the line is longer than what was read.
    returning: the claims of consumers that were served and are expected to ask again soon, the
        server's process last; none if the queue is exhausted.
    closed: whether the subscription has closed itself; then there is no line any more.
    reached: as in ``Offered``.
    """

    answers: dict[bytes, Sequence[Delivery]]
    unserved: list[Waiter]
    demand: int
    exhausted: bool
    more: bool
    returning: list[bytes]
    closed: bool = False
    reached: Mapping[int, bytes] | None = None


def reads(tr: fdb.Transaction, supply: Supply, expected: int = 0) -> RoundReads:
    """Issue snapshot reads of the first requests, and of as many messages as they are expected to
    demand."""
    # Together with the requests, before the demand is known: a guess, by the last round.
    issued = supply.issue(tr, max(expected, FIRST_READ))
    return RoundReads(line.read_requests(tr, supply.line, MAX_SERVED), issued)


@transactional
def serve(
    tr: fdb.Transaction,
    scope: Scope,
    supply: Supply,
    reads: RoundReads,
    me: bytes,
    *,
    own: Sequence[Waiter] = (),
    call: RoundCall = RoundCall.ROUND,
    resume: Resume | None = None,
) -> Served:
    """Serve the requests that were read: those of a higher priority first, then the oldest.

    me: the claim of the consumer that serves; it is alive, whatever its request says.
    own: requests of its process that are not in line; they come last.
    resume: where the scan goes on that the server has begun in an earlier round.

    Conflicts only on the requests and messages that it uses, and as its supply does. Removes
    requests of dead consumers. Round trips as ``Supply.offer``.
    """
    waiting, dead = _split(tr, scope, supply, reads, me)
    more = len(waiting) + len(dead) == MAX_SERVED
    for each in dead:
        line.remove(tr, supply.line, *each)
    waiting.sort(key=_rank)
    # Somebody must stay in line to take the lead: with nobody left, the next to join would find no
    # leader and try again.
    spared = [waiting.pop()] if call is RoundCall.LAST_ROUND and waiting else []
    waiting, behind = _first(waiting, own)
    beside = {one.claim for one in own}
    ours = {me, *beside}
    shares = Shares([one.request for one in waiting], MAX_BYTES, scope.keys.lease_bytes)
    places = None if resume is None else resume.places
    offered = supply.offer(tr, scope, reads.supply, shares, places)
    if offered.closed:
        told: dict[bytes, Sequence[Delivery]]
        told = {one.claim: CLOSED for one in waiting if one.claim in ours}
        return Served(told, [], shares.demand, True, False, [], closed=True)
    answers = _give(tr, scope, waiting, shares, ours)
    unserved = [one for one in waiting if one.claim not in answers]
    served = [one for one in waiting if one.claim in answers]
    returning = [one.claim for one in served if one.request.returns]
    exhausted = offered.exhausted
    if exhausted:
        last = me if call is RoundCall.LAST_CALL else None
        leaving = _leaving(unserved if shares.refused else [*unserved, *behind], last)
        # Who came after the scan had begun may have a message in front of where it went on.
        left = [one for one in leaving if not resume or one.index <= resume.since]
        answers |= {one.claim: [] for one in left}
        if leaving and not shares.refused and not offered.limited:
            # "Empty" is an answer that a message in flight would make wrong. Nobody else needs this
            # conflict, which every arrival breaks.
            supply.rely_on_emptiness(tr, scope)
        exhausted = len(left) == len(leaving)
        served += left
    for one in served:
        if one.claim not in beside:
            line.remove(tr, supply.line, one.index, one.claim)
    return Served(
        answers,
        [one for one in [*unserved, *behind] if one.claim not in answers] + spared,
        shares.demand,
        exhausted,
        more,
        [] if exhausted else sorted(returning, key=lambda claim: claim in ours),
        reached=offered.reached,
    )


def _first(waiting: Sequence[Waiter], own: Sequence[Waiter]) -> tuple[list[Waiter], list[Waiter]]:
    """Whom a round serves, and who comes behind them. own: come behind all others of their
    priority."""
    ranked = sorted([*waiting, *own], key=_rank)
    demands = accumulate(one.request.max_messages for one in ranked)
    # At least one, or a request for more messages than a round moves would never be served.
    room = max(1, sum(1 for total in demands if total <= MAX_MESSAGES))
    return ranked[:room], ranked[room:]


def _leaving(waiting: Sequence[Waiter], last: bytes | None) -> list[Waiter]:
    """Who is answered "empty" now; the others stay until messages come. last: a claim that is
    answered in any case."""
    return [one for one in waiting if not one.request.waits or one.claim == last]


def _give(
    tr: fdb.Transaction, scope: Scope, waiting: Sequence[Waiter], shares: Shares, ours: set[bytes]
) -> dict[bytes, Sequence[Delivery]]:
    """Lease to each what it was given; returns who has something. Those of ``ours`` have their
    deliveries, the others collect theirs."""
    given: list[Grant] = []
    for one, pieces in zip(waiting, shares.given, strict=True):
        if pieces:
            # Who serves collects at once; the others may have died since they came.
            in_line = one.claim not in ours
            # To a consumer that died in line, a whole lease would be lost time: it gets a short
            # one.
            doubtful = in_line and not line.present(scope.version(tr), one.request)
            given.append(Grant(one.claim, one.request, pieces, in_line, doubtful))
    taken = zip(given, take(tr, scope, given), strict=True)
    return {one.claim: [] if one.in_line else deliveries for one, deliveries in taken}


def _rank(one: Waiter) -> int:
    return -one.request.priority


def others(
    tr: fdb.Transaction, scope: Scope, supply: Supply, reads: RoundReads, me: bytes
) -> list[Waiter]:
    """The living consumers in line without the caller, the oldest first."""
    return [one for one in _split(tr, scope, supply, reads, me)[0] if one.claim != me]


def stop_leading(
    tr: fdb.Transaction,
    scope: Scope,
    supply: Supply,
    unserved: Sequence[Waiter],
    returning: Sequence[bytes] = (),
    led: bytes | None = None,
) -> None:
    """Pass the lead on, to the first of the others in line, or else to the first consumer that
    was served and returns; or leave the line without a leader."""
    if unserved:
        first = unserved[0]
        leader.hand_over(tr, supply.line, first.index, first.claim, first.request)
    elif returning:
        leader.send_away(tr, scope, supply.line, led, returning[0])
    else:
        leader.leave(tr, supply.line)


def _split(
    tr: fdb.Transaction, scope: Scope, supply: Supply, reads: RoundReads, me: bytes
) -> tuple[list[Waiter], list[tuple[int, bytes]]]:
    """The living consumers in line, which include the caller, and the requests, by index and claim,
    of the dead. So is one that cannot be read: its consumer asks again."""
    version = scope.version(tr)
    living: list[Waiter] = []
    dead: list[tuple[int, bytes]] = []
    for kv in reads.requests:
        (index, claim), request = supply.line.parse(kv.key), line.opened(kv.value)
        # Its own request is alive whatever it says: its sign of life may be old where a round took
        # long.
        if request and (claim == me or line.alive(version, index, request)):
            living.append(Waiter(index, claim, request))
        else:
            dead.append((index, claim))
    return living, dead

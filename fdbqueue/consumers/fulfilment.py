"""A round of fulfilment: the first requests get the first messages.

In the published scheme every waiting consumer fulfils. Here one consumer fulfils for all, in one
transaction for up to a hundred requests and a few hundred messages. It reads requests and
messages at snapshot isolation, and conflicts only on the keys that it uses. So arrivals disturb no
round, and no message or request is used twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ..messages import payloads, time_to_live
from ..messages.delivery import head, lease, scan
from ..schema.codec.consumers import Request, unpack_request
from ..schema.keys import QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Delivery
from ..values.records import record
from . import leader, line

MAX_SERVED = 100
"""Requests that one round serves."""
MAX_MESSAGES = 300
"""Messages that one round hands out, unless its first request demands more. The next round is made
while consumers handle these."""
MAX_BYTES = 1_000_000
"""Bytes of messages that one round moves, with their payloads and leases."""
FIRST_READ = 4
"""Messages to read before the demand is known."""


@record
class Waiter:
    """A consumer in line, and its request."""

    index: int
    claim: bytes
    request: Request


class Reads(NamedTuple):
    """The reads of a round, issued and not awaited."""

    requests: fdb.FDBRange
    ready: fdb.FDBRange
    limit: int


@record
class Served:
    """What a round did.

    answers: the claims that were answered. Those of the server's own process have their deliveries;
        none means that the queue was empty.
    unserved: the consumers still in line, the oldest first.
    demand: how many messages the requests demanded.
    exhausted: whether no message is left for them.
    more: whether the line is longer than what was read.
    returning: the claims of consumers that were served and are expected to ask again soon, the
        server's process last; none if the queue is exhausted.
    """

    answers: dict[bytes, Sequence[Delivery]]
    unserved: list[Waiter]
    demand: int
    exhausted: bool
    more: bool
    returning: list[bytes]


NOTHING = Served({}, [], 0, False, False, [])
"""What a round did that was not made."""


def reads(tr: fdb.Transaction, keys: QueueKeys, expected: int = 0) -> Reads:
    """Issue snapshot reads of the first requests, and of as many messages as they are expected to
    demand."""
    limit = max(expected, FIRST_READ)
    ready = _ready(tr, keys, keys.ready_range().start, limit)
    return Reads(line.read_requests(tr, keys, MAX_SERVED), ready, limit)


@transactional
def serve(
    tr: fdb.Transaction,
    scope: Scope,
    reads: Reads,
    me: bytes,
    *,
    own: Sequence[Waiter] = (),
    spare: bool = False,
    last_call: bool = False,
) -> Served:
    """Serve the requests that were read, the oldest first.

    me: the claim of the consumer that serves; it is alive, whatever its request says.
    own: requests of its process that are not in line; they come behind all others.
    spare: whether to leave the newest request unserved, to hand over to its consumer.
    last_call: whether to answer the server's own request in any case, if only with nothing.

    Conflicts only on the requests and messages that it uses. An answer of nothing also conflicts
    with arrivals. Removes requests of dead consumers. A second round trip if the requests demand
    more than was expected.
    """
    waiting, dead = _split(tr, scope, reads, me)
    more = len(waiting) + len(dead) == MAX_SERVED
    for one in dead:
        line.remove(tr, scope.keys, one.index, one.claim)
    spared = [waiting.pop()] if spare and waiting else []
    waiting += own
    beside = {one.claim for one in own}
    ours = {me, *beside}
    demands = accumulate(one.request.max_messages for one in waiting)
    room = max(1, sum(1 for total in demands if total <= MAX_MESSAGES))
    waiting, behind = waiting[:room], waiting[room:]
    demand = sum(one.request.max_messages for one in waiting)
    found, bounded = _gather(tr, scope, reads, demand)
    answers: dict[bytes, Sequence[Delivery]] = {}
    given: list[tuple[lease.Terms, list[StoredMessage]]] = []
    unserved: list[Waiter] = []
    returning: list[bytes] = []
    begin = 0
    for one in waiting:
        request = one.request
        most = found[begin : begin + min(request.max_messages, lease.MAX_TOGETHER)]
        messages = head.together(most, suspects=request.suspects)
        begin += len(messages)
        if not messages:
            unserved.append(one)
            continue
        scan.watch(tr, scope.keys, messages)
        in_line = one.claim not in beside
        if in_line:
            line.remove(tr, scope.keys, one.index, one.claim)
        terms = lease.Terms(
            request.seconds, one.claim, request.consumer, request.begins, in_line=in_line
        )
        given.append((terms, messages))
        answers[one.claim] = []
        if request.returns:
            returning.append(one.claim)
    chunks = {
        terms.claim: payloads.reads(tr, scope.keys, messages)
        for terms, messages in given
        if terms.claim in ours
    }
    for (terms, messages), leases in zip(given, lease.assign(tr, scope, given), strict=True):
        if terms.claim in ours:
            answers[terms.claim] = lease.answer(messages, chunks[terms.claim], leases)
    unserved += behind
    exhausted = len(found) < demand and not bounded
    if exhausted:
        leaving = [
            one for one in unserved if not one.request.waits or (last_call and one.claim == me)
        ]
        for one in leaving:
            if one.claim not in beside:
                line.remove(tr, scope.keys, one.index, one.claim)
            answers[one.claim] = []
            unserved.remove(one)
        if leaving:
            read_emptiness(tr, scope.keys)
    returning = [] if exhausted else sorted(returning, key=lambda claim: claim in ours)
    return Served(answers, unserved + spared, demand, exhausted, more, returning)


def others(tr: fdb.Transaction, scope: Scope, reads: Reads, me: bytes) -> list[Waiter]:
    """The living consumers in line without the caller, the oldest first."""
    return [one for one in _split(tr, scope, reads, me)[0] if one.claim != me]


def stop_leading(
    tr: fdb.Transaction,
    scope: Scope,
    unserved: Sequence[Waiter],
    returning: Sequence[bytes] = (),
    led: bytes | None = None,
) -> None:
    """Pass the lead on, to the first of the others in line, or else to the first consumer that
    was served and returns; or leave the line without a leader."""
    if unserved:
        first = unserved[0]
        leader.hand_over(tr, scope, first.index, first.claim, first.request)
    elif returning:
        leader.send_away(tr, scope, led, returning[0])
    else:
        leader.leave(tr, scope)


def read_emptiness(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Conflict with any message that becomes ready: the caller relies on there being none."""
    ready = keys.ready_range()
    tr.add_read_conflict_range(ready.start, ready.stop)


def _split(
    tr: fdb.Transaction, scope: Scope, reads: Reads, me: bytes
) -> tuple[list[Waiter], list[Waiter]]:
    """The living consumers in line, which include the caller, and the dead."""
    version = scope.version(tr)
    living: list[Waiter] = []
    dead: list[Waiter] = []
    for kv in reads.requests:
        one = Waiter(*scope.keys.parse_request(kv.key), unpack_request(kv.value))
        alive = one.claim == me or line.alive(version, one.index, one.request)
        (living if alive else dead).append(one)
    return living, dead


def _ready(tr: fdb.Transaction, keys: QueueKeys, begin: bytes, limit: int) -> fdb.FDBRange:
    mode = fdb.StreamingMode.want_all
    return tr.snapshot.get_range(begin, keys.ready_range().stop, limit, streaming_mode=mode)


def _gather(
    tr: fdb.Transaction, scope: Scope, reads: Reads, demand: int
) -> tuple[list[StoredMessage], bool]:
    """The first messages, and whether a bound held some of them back.

    Disposes of expired messages on the way. A paused queue has no messages.
    """
    if not demand or scope.options.paused:
        return [], False
    found, bounded = _first(tr, scope.keys, reads, demand)
    now_ms = scope.now_ms(tr)
    expired = [message for message in found if not time_to_live.deliverable(message, now_ms)]
    scan.watch(tr, scope.keys, expired)
    return time_to_live.remove_undeliverable(tr, scope, found), bounded or bool(expired)


def _first(
    tr: fdb.Transaction, keys: QueueKeys, reads: Reads, demand: int
) -> tuple[list[StoredMessage], bool]:
    messages: list[StoredMessage] = []
    room, each = MAX_BYTES, keys.lease_bytes
    found, expected = reads.ready, min(demand, reads.limit)
    while True:
        for one in scan.rows(keys, found):
            message = scan.message(one)
            room -= len(one.value) + message.envelope.chunk_bytes + each
            if messages and room < 0:
                return messages, True
            messages.append(message)
            if len(messages) == demand:
                return messages, False
        if len(messages) < expected:
            return messages, False
        behind = scan.row(keys, messages[-1]).stop
        found, expected = _ready(tr, keys, behind, demand - len(messages)), demand

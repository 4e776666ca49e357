"""One round of fulfilment: the first requests get the first messages.

The published scheme fulfils in every waiting consumer; here one does it for all, in one
transaction for up to a hundred of them and a few hundred messages. Both lines are read at
snapshot isolation, and only the keys that are used conflict: so neither requests nor messages that
come in meanwhile disturb a round, and no message and no request is used twice.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from ..messages import payloads, time_to_live
from ..messages.delivery import head, lease, scan
from ..schema.codec.consumers import Request, unpack_request
from ..schema.keys import Kind, QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Delivery
from ..values.records import record
from . import line

MAX_SERVED = 100
"""Requests that one round serves."""
MAX_MESSAGES = 300
"""Messages that one round hands out, unless its first request asks for more: while those are worked
on, the next round is made."""
MAX_BYTES = 1_000_000
"""Bytes of messages, with their payloads and with what a lease costs, that one round moves."""
FIRST_LOOK = 4
"""Messages to read before it is known how many are asked for."""


@record
class Waiting:
    """One request in the line."""

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

    answers: the claims that were answered, with what the server itself was given; nothing means
        that the queue was empty.
    unserved: who is still in line, the oldest first.
    asked: how many messages were asked for.
    exhausted: whether no message was left for those.
    more: whether the line is longer than what was looked at.
    """

    answers: dict[bytes, list[Delivery]]
    unserved: list[Waiting]
    asked: int
    exhausted: bool
    more: bool


def _round(waiting: list[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """The requests that one round has room for, and those behind them."""
    asked = accumulate(one.request.max_messages for one in waiting)
    room = max(1, sum(1 for total in asked if total <= MAX_MESSAGES))
    return waiting[:room], waiting[room:]


def reads(tr: fdb.Transaction, keys: QueueKeys, expected: int = 0) -> Reads:
    """Issue snapshot reads of the first requests, and of as many messages as are expected to be
    asked for."""
    requests = keys.kind(Kind.REQUEST)
    limit = max(expected, FIRST_LOOK)
    return Reads(
        tr.snapshot.get_range(
            requests.start,
            requests.stop,
            limit=MAX_SERVED,
            streaming_mode=fdb.StreamingMode.want_all,
        ),
        _ready(tr, keys, keys.ready_range().start, limit),
        limit,
    )


@transactional
def serve(
    tr: fdb.Transaction,
    scope: Scope,
    reads: Reads,
    me: bytes,
    *,
    spare: bool = False,
    last_call: bool = False,
) -> Served:
    """Serve the requests that were looked at, the oldest first.

    me: the claim of the consumer that serves; it lives, whatever its request says.
    spare: leave the newest request unserved, to hand over to it.
    last_call: answer the server's own request in any case, if need be that the queue is empty.

    A request that does not wait is answered that the queue is empty, where it is: then the
    emptiness is read with a conflict. Otherwise conflicts only on the requests and messages that
    it uses. A request whose consumer is dead leaves the line. A second round trip if more
    messages are asked for than were expected.
    """
    waiting, dead = _line(tr, scope, reads, me)
    more = len(waiting) + len(dead) == MAX_SERVED
    for one in dead:
        line.remove(tr, scope.keys, one.index, one.claim)
    spared = [waiting.pop()] if spare and waiting else []
    waiting, behind = _round(waiting)
    asked = sum(one.request.max_messages for one in waiting)
    found, bounded = _gather(tr, scope, reads, asked)
    answers: dict[bytes, list[Delivery]] = {}
    given: list[tuple[lease.Terms, list[StoredMessage]]] = []
    unserved: list[Waiting] = []
    begin = 0
    for one in waiting:
        request = one.request
        most = found[begin : begin + request.max_messages]
        messages = head.together(most, suspects=request.suspects)
        begin += len(messages)
        if not messages:
            unserved.append(one)
            continue
        for message in messages:
            tr.add_read_conflict_key(scope.keys.ready(message.position))
        line.remove(tr, scope.keys, one.index, one.claim)
        terms = lease.Terms(
            request.seconds, one.claim, request.consumer, request.begins, in_line=True
        )
        given.append((terms, messages))
        answers[one.claim] = []
    mine = [messages for terms, messages in given if terms.claim == me]
    chunks = payloads.reads(tr, scope.keys, mine[0]) if mine else []
    for (terms, _), leases in zip(given, lease.assign(tr, scope, given), strict=True):
        if terms.claim == me:
            answers[me] = lease.answer(mine[0], chunks, leases)
    unserved += behind
    exhausted = len(found) < asked and not bounded
    if exhausted:
        leaving = [
            one for one in unserved if not one.request.waits or (last_call and one.claim == me)
        ]
        for one in leaving:
            line.remove(tr, scope.keys, one.index, one.claim)
            answers[one.claim] = []
            unserved.remove(one)
        if leaving:
            read_emptiness(tr, scope.keys)
    return Served(answers, unserved + spared, asked, exhausted, more)


def others(tr: fdb.Transaction, scope: Scope, reads: Reads, me: bytes) -> list[Waiting]:
    """The living consumers that stand in line, the oldest first, without the caller."""
    return [one for one in _line(tr, scope, reads, me)[0] if one.claim != me]


def read_emptiness(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Conflict with any message that becomes ready: the caller relies on there being none."""
    ready = keys.ready_range()
    tr.add_read_conflict_range(ready.start, ready.stop)


def _line(
    tr: fdb.Transaction, scope: Scope, reads: Reads, me: bytes
) -> tuple[list[Waiting], list[Waiting]]:
    """Who stands in line: the living, of whom the caller is one, and the dead."""
    version = scope.version(tr)
    living: list[Waiting] = []
    dead: list[Waiting] = []
    for kv in reads.requests:
        one = Waiting(*scope.keys.parse_request(kv.key), unpack_request(kv.value))
        alive = one.claim == me or line.alive(version, one.index, one.request)
        (living if alive else dead).append(one)
    return living, dead


def _ready(tr: fdb.Transaction, keys: QueueKeys, begin: bytes, limit: int) -> fdb.FDBRange:
    return tr.snapshot.get_range(
        begin, keys.ready_range().stop, limit=limit, streaming_mode=fdb.StreamingMode.want_all
    )


def _gather(
    tr: fdb.Transaction, scope: Scope, reads: Reads, asked: int
) -> tuple[list[StoredMessage], bool]:
    """The first messages, as many as are asked for, and whether a bound kept some of them back.

    Those whose time to live is over are disposed of on the way. A paused queue has none.
    """
    if not asked or scope.options.paused:
        return [], False
    found, bounded = _first(tr, scope.keys, reads, asked)
    now_ms = scope.now_ms(tr)
    expired = [message for message in found if not time_to_live.deliverable(message, now_ms)]
    for message in expired:
        tr.add_read_conflict_key(scope.keys.ready(message.position))
    return time_to_live.remove_undeliverable(tr, scope, found), bounded or bool(expired)


def _first(
    tr: fdb.Transaction, keys: QueueKeys, reads: Reads, asked: int
) -> tuple[list[StoredMessage], bool]:
    messages: list[StoredMessage] = []
    room, each = MAX_BYTES, keys.lease_bytes
    source, expected = reads.ready, min(asked, reads.limit)
    while True:
        for kv in source:
            (message,) = scan.parse(keys, [kv])
            room -= len(kv.value) + message.envelope.chunk_bytes + each
            if messages and room < 0:
                return messages, True
            messages.append(message)
            if len(messages) == asked:
                return messages, False
        if len(messages) < expected:
            return messages, False
        behind = keys.ready(messages[-1].position) + b"\0"
        source, expected = _ready(tr, keys, behind, asked - len(messages)), asked

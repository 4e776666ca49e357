"""The line: requests of consumers that want messages, in the order in which they came.

After the staged dequeue of FoundationDB's queue recipe: a consumer registers a request under an
index that orders it without a conflict. In the recipe every consumer fulfils requests and polls
for its own answer. Here one consumer leads the line and fulfils (``leader``, ``fulfilment``), and
each other watches its own request. An answered request is gone, and the leases under its claim are
the answer. A request that changes calls its consumer to lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple, final

from msgspec import Struct
from msgspec.structs import replace

from ..errors import CorruptData
from ..messages.delivery import lease
from ..messages.delivery.shares import ClaimedRequest
from ..schema.consumers import Request
from ..schema.keys import LineKeys, QueueKeys
from ..schema.leases import new_claim
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND
from ..values.model import Delivery
from . import leader

ALIVE_SECONDS = 10.0
"""How long the consumer of a request counts as alive after its last sign of life."""
MAX_SCANNED = 1_000
"""Requests that one transaction reads to remove some."""

_ALIVE_VERSIONS = int(ALIVE_SECONDS * VERSIONS_PER_SECOND)
_PRESENT_VERSIONS = VERSIONS_PER_SECOND // 20


class Waiter(Struct, frozen=True):
    """A request, and its place in line: that of the caller, if it is not there yet."""

    index: int
    claim: bytes
    request: Request


@final
class Ticket(Struct, frozen=True):
    """A request in line, as ``Queue.line.request`` returns it and ``Queue.line.collect`` takes it.

    ``watch`` belongs to the transaction that registered the request; it is no part of the value.
    """

    index: int
    claim: bytes
    request: Request
    certain_until: int
    leads: bool
    watch: Any = None

    def __repr__(self) -> str:
        wanted = self.request
        return f"Ticket(max_messages={wanted.max_messages}, wait={wanted.waits})"

    def __reduce__(self) -> tuple[Callable[..., Ticket], tuple[object, ...]]:
        return Ticket, (self.index, self.claim, self.request, self.certain_until, self.leads)


class Asks(Enum):
    """How often a consumer asks."""

    NOW_AND_THEN = "it sleeps until its request is answered"
    IN_A_LOOP = "it looks for its answer at once, and so does not watch the request"
    IN_A_LOOP_AND_LEADS = "it may lead as well while it is away, since it will soon ask again"


class LineReads(NamedTuple):
    """The reads that tell whether there is a line, issued and not awaited."""

    led: fdb.Value
    first: fdb.FDBRange | None


class Status(NamedTuple):
    """A request that is still in line, or the deliveries that answered it."""

    request: Request | None
    held: list[Delivery]


def reads(tr: fdb.Transaction, line: LineKeys, *, first: bool) -> LineReads:
    """Issue snapshot reads of the leader's time and, if wanted, of the first request."""
    return LineReads(tr.snapshot.get(line.led), read_requests(tr, line, 1) if first else None)


def formed(tr: fdb.Transaction, scope: Scope, line: LineKeys, issued: LineReads) -> bool:
    """Whether the line has a leader or a request."""
    if leader.versions_left(tr, scope, issued.led.value):
        return True
    first = read_requests(tr, line, 1) if issued.first is None else issued.first
    return bool(first.to_list())


@transactional
def join(
    tr: fdb.Transaction,
    scope: Scope,
    line: LineKeys,
    led: bytes | None,
    asked: Sequence[Waiter],
) -> list[Ticket]:
    """Register requests of one process behind all others; the first leads the line if nobody does.

    led: the leader's time, from a snapshot read.

    The index is the read version, so a request that is registered before another begins comes
    first, and nothing is read. Conflicts only with a leader that leaves or renews its time.
    """
    leads = leader.lead(tr, scope, line, led, asked[0].claim)
    return [register(tr, scope, line, one, leads and one is asked[0]) for one in asked]


def claimed(requests: Sequence[Request]) -> list[ClaimedRequest]:
    """Requests, each with a claim to answer it. In line, these keep their order."""
    # Requests of one transaction have one index: the claims order them.
    names = sorted([new_claim() for _ in requests])
    return [
        ClaimedRequest(name[: -len(one.holder) or None] + one.holder, one)
        for name, one in zip(names, requests, strict=True)
    ]


def asking(
    tr: fdb.Transaction,
    scope: Scope,
    requests: Sequence[ClaimedRequest],
    asks: Asks = Asks.NOW_AND_THEN,
) -> list[Waiter]:
    """Requests of one process that is alive now, in their order."""
    version = scope.version(tr)
    return [
        Waiter(
            version,
            claim,
            replace(
                one,
                max_messages=min(one.max_messages, lease.MAX_TOGETHER),
                alive_until=version + _ALIVE_VERSIONS,
                called=False,
                returns=asks is Asks.IN_A_LOOP_AND_LEADS,
                soon=asks is not Asks.NOW_AND_THEN,
            ),
        )
        for claim, one in requests
    ]


def register(tr: fdb.Transaction, scope: Scope, line: LineKeys, one: Waiter, leads: bool) -> Ticket:
    """Write a new request behind all others. Conflicts with nothing."""
    key, seconds = line.request(one.index, one.claim), lease.lasts(scope, one.request)
    tr[key] = one.request.pack()
    return Ticket(
        *(one.index, one.claim, one.request),
        # Until then nobody can have taken the consumer for dead, and no lease under the claim can
        # have expired. So a request that is gone without a lease has found the queue empty.
        certain_until=one.index + min(_ALIVE_VERSIONS, int(seconds * VERSIONS_PER_SECOND)),
        leads=leads,
        # In the transaction that writes the request: an answer that commits right after it is not
        # missed.
        watch=None if leads or one.request.soon else tr.watch(key),
    )


def status(tr: fdb.Transaction, scope: Scope, line: LineKeys, ticket: Ticket) -> Status:
    """The request of a ticket, or its answer, collected. Conflicts with its fulfilment.

    One round trip if the request is answered, which callers have reason to expect; else two.
    """
    held = collect(tr, scope, ticket)
    if held:
        return Status(None, held)
    value = tr.get(line.request(ticket.index, ticket.claim)).value
    return Status(None if value is None else Request.unpack(value), held)


def collect(tr: fdb.Transaction, scope: Scope, ticket: Ticket) -> list[Delivery]:
    """The messages leased to the request of a ticket, collected; see ``lease.collect``."""
    return lease.collect(tr, scope, ticket.claim, ticket.request)


@transactional
def stay(
    tr: fdb.Transaction,
    scope: Scope,
    line: LineKeys,
    ticket: Ticket,
    request: Request,
    *,
    overdue: bool = True,
) -> tuple[bool, float, fdb.Future[None] | None]:
    """Stay in line, and lead it if nobody in line does.

    The caller has read the request with a conflict. overdue: whether it has waited in vain for a
    leader that is away.
    Returns whether the caller leads; if not, how many seconds the leader's time lasts, and a watch
    of the request.
    """
    led, leads = tr.snapshot.get(line.led), tr.snapshot.get(line.leader)
    keep_alive(tr, scope, line, ticket, request)
    if leader.lead(tr, scope, line, led.value, ticket.claim) or leads.value == ticket.claim:
        return True, 0.0, None
    if overdue and leader.away(leads.value):
        tr.add_read_conflict_key(line.leader)  # One of those that wait takes the lead.
        tr[line.leader] = ticket.claim
        return True, 0.0, None
    seconds = leader.versions_left(tr, scope, led.value) / VERSIONS_PER_SECOND
    return False, seconds, tr.watch(line.request(ticket.index, ticket.claim))


def keep_alive(
    tr: fdb.Transaction, scope: Scope, line: LineKeys, ticket: Ticket, request: Request
) -> None:
    """Renew the sign of life of a request's consumer if half of its time is over."""
    version = scope.version(tr)
    # A renewal conflicts with the leader that is about to answer: no more of them than needed.
    if request.alive_until - version < _ALIVE_VERSIONS // 2:
        renewed = replace(request, alive_until=version + _ALIVE_VERSIONS)
        tr[line.request(ticket.index, ticket.claim)] = renewed.pack()


def alive(version: int, index: int, request: Request) -> bool:
    """Whether the consumer of a request is alive at a version. A request that was registered at a
    later version comes from another cluster."""
    return index <= version < request.alive_until


def seen(request: Request) -> int:
    """The version of the last sign of life of a request's consumer."""
    return request.alive_until - _ALIVE_VERSIONS


def present(version: int, request: Request) -> bool:
    """Whether the consumer of a request is certainly there to take its answer, as far as a program
    can know that: it asked a moment ago, in a loop, and looks for it."""
    return request.soon and version - seen(request) < _PRESENT_VERSIONS


def remove(tr: fdb.Transaction, line: LineKeys, index: int, claim: bytes) -> None:
    """Remove a request, with a conflict on its key."""
    key = line.request(index, claim)
    # Answered meanwhile, it has leases under its claim: then whoever removes it must look again.
    tr.add_read_conflict_key(key)
    del tr[key]


def read_requests(tr: fdb.Transaction, line: LineKeys, limit: int = MAX_SCANNED) -> fdb.FDBRange:
    """Issue a snapshot read of the first requests."""
    return _read(tr, line.requests, limit)


def read_all(tr: fdb.Transaction, keys: QueueKeys) -> fdb.FDBRange:
    """Issue a snapshot read of the first rows of all lines, the queue's own before the others."""
    return _read(tr, keys.request.rows, 2 * MAX_SCANNED)


def parse_all(
    keys: QueueKeys, rows: Iterable[fdb.KeyValue]
) -> Iterator[tuple[str, int, bytes, Request]]:
    """The requests that were read: subscription, index, claim, and what each asks for."""
    for kv in rows:
        parts = keys.request.parse(kv.key)
        if len(parts) == 3 and (request := opened(kv.value)):  # and no leader's
            yield *parts, request


def opened(value: bytes) -> Request | None:
    """A request of somebody; None if it cannot be read, which must stop nobody else."""
    try:
        return Request.unpack(value)
    except CorruptData:
        return None  # verify reports it


def remove_dead(tr: fdb.Transaction, scope: Scope, reads: fdb.FDBRange) -> list[bytes]:
    """Remove requests of dead consumers, with a conflict on their signs of life; returns their
    claims."""
    version = scope.version(tr)
    removed = []
    for subscription, index, claim, request in parse_all(scope.keys, reads):
        if not alive(version, index, request):
            remove(tr, scope.keys.line_of(subscription), index, claim)
            removed.append(claim)
    return removed


def remove_claim(tr: fdb.Transaction, line: LineKeys, claim: bytes) -> None:
    """Remove the request of one consumer, if it has one."""
    for kv in read_requests(tr, line):
        index, owner = line.parse(kv.key)
        if owner == claim:
            remove(tr, line, index, claim)


def _read(tr: fdb.Transaction, within: slice, limit: int) -> fdb.FDBRange:
    mode = fdb.StreamingMode.want_all
    return tr.snapshot.get_range(within.start, within.stop, limit, streaming_mode=mode)

"""The line of consumers that want a message, in the order in which they came.

After the staged dequeue of FoundationDB's queue recipe: a consumer registers a request, under an
index that orders it without a conflict. There every waiting consumer fulfils
requests, and finds out about its own by polling. Here one leads and fulfils (``leading``,
``fulfil``), and each of the others watches one key, its own request: it goes when it is answered,
and the leases under its claim are the answer; and it changes when it is called to lead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, NamedTuple

from ..messages.delivery import lease
from ..schema.codec.consumers import Request, pack_request, unpack_request
from ..schema.keys import CLAIM_BYTES, Kind, QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND
from ..values.model import Delivery
from ..values.records import record
from . import leader as leading

ALIVE_SECONDS = 10.0
"""How long a request counts as that of a living consumer, unless it says that it lives."""
MAX_LOOKED = 1_000
"""Requests that one transaction looks through to remove some."""

_ALIVE_VERSIONS = int(ALIVE_SECONDS * VERSIONS_PER_SECOND)


@record
class Asked:
    """What a consumer asks for: how many messages, leased for how many seconds, in whose name.

    begins: whether it begins at once with a message that it is handed alone, and handles no other
        beside it.
    suspects: whether it does so at least with one that asks for that; else it is handed none.
    """

    max_messages: int
    seconds: float | None
    consumer: str = ""
    begins: bool = True
    suspects: bool = True


@record
class Ticket:
    """A place in the line: what ``Queue.request`` returns and ``Queue.collect`` takes.

    ``watch`` belongs to the transaction that registered the request, and is no part of the value.
    """

    index: int
    claim: bytes = field(repr=False)
    asked: Asked
    waits: bool
    certain_until: int = field(repr=False)
    leads: bool = field(repr=False)
    watch: fdb.Future[None] | None = field(default=None, repr=False, compare=False)

    def terms(self) -> dict[str, Any]:
        """The arguments of ``Queue.request`` that asked for it."""
        asked = self.asked
        return {
            "max_messages": asked.max_messages,
            "lease": asked.seconds,
            "wait": self.waits,
            "consumer": asked.consumer,
        }

    def __reduce__(self) -> tuple[Callable[..., Ticket], tuple[object, ...]]:
        return Ticket, (
            self.index,
            self.claim,
            self.asked,
            self.waits,
            self.certain_until,
            self.leads,
        )


class Reads(NamedTuple):
    """Reads that say whether there is a line, issued and not awaited."""

    led: fdb.Value
    first: fdb.FDBRange | None


class Place(NamedTuple):
    """How a request stands: in line or not, and what was leased to it."""

    request: Request | None
    held: list[Delivery]


def new_claim() -> bytes:
    """An unguessable name for what one consumer is given at once."""
    return os.urandom(CLAIM_BYTES)


def reads(tr: fdb.Transaction, keys: QueueKeys, *, first: bool) -> Reads:
    """Issue snapshot reads of whether somebody leads, and of who stands first."""
    requests = keys.kind(Kind.REQUEST)
    return Reads(
        tr.snapshot.get(keys.led),
        tr.snapshot.get_range(
            requests.start, requests.stop, limit=1, streaming_mode=fdb.StreamingMode.exact
        )
        if first
        else None,
    )


def formed(tr: fdb.Transaction, scope: Scope, issued: Reads) -> bool:
    """Whether somebody leads, or stands in line without a leader."""
    if leading.left(tr, scope, issued.led.value):
        return True
    first = issued.first or reads(tr, scope.keys, first=True).first
    return first is not None and bool(first.to_list())


@transactional
def join(tr: fdb.Transaction, scope: Scope, led: bytes | None, asked: Asked, waits: bool) -> Ticket:
    """Stand in line, behind all who were there; lead it, if nobody does.

    led: until when somebody leads, as a snapshot read saw it.
    waits: whether to stay in line while the queue is empty, or to be told so.

    The read version is the index, so a request that is registered before another begins stands
    before it, and nothing need be read. Conflicts with no other request, no round and no
    hand-over, only with a leader that leaves or renews its time.
    """
    claim = new_claim()
    version = scope.version(tr)
    seconds = scope.options.lease if asked.seconds is None else asked.seconds
    request = Request(
        asked.max_messages,
        seconds,
        asked.consumer,
        waits,
        version + _ALIVE_VERSIONS,
        begins=asked.begins,
        suspects=asked.suspects,
    )
    leads = leading.take(tr, scope, led, claim)
    key = scope.keys.request(version, claim)
    tr[key] = pack_request(request)
    return Ticket(
        index=version,
        claim=claim,
        asked=replace(asked, seconds=seconds),
        waits=waits,
        # Until then nobody can have taken it for dead, and no lease under it can have lapsed: if
        # it has gone without a lease, then because the queue was empty.
        certain_until=version + min(_ALIVE_VERSIONS, int(seconds * VERSIONS_PER_SECOND)),
        leads=leads,
        watch=None if leads else tr.watch(key),
    )


def place(tr: fdb.Transaction, keys: QueueKeys, ticket: Ticket) -> Place:
    """How a request stands. Conflicts with its fulfilment.

    One round trip if it is answered, else two: whoever asks has a reason to expect an answer.
    """
    held = lease.under(tr, keys, ticket.claim, ticket.asked.max_messages)
    if held:
        return Place(None, held)
    value = tr.get(keys.request(ticket.index, ticket.claim)).value
    return Place(None if value is None else unpack_request(value), held)


@transactional
def stay(
    tr: fdb.Transaction, scope: Scope, ticket: Ticket, request: Request
) -> tuple[bool, float, fdb.Future[None] | None]:
    """Go on standing in line, and lead it if nobody does any more.

    The caller has read the request, with a conflict. Returns whether the caller leads, and if
    not, for how many seconds the leader's time lasts, and a watch of the request.
    """
    led, leader = tr.snapshot.get(scope.keys.led), tr.snapshot.get(scope.keys.leader)
    keep_alive(tr, scope, ticket, request)
    if leading.take(tr, scope, led.value, ticket.claim) or leader.value == ticket.claim:
        return True, 0.0, None
    seconds = leading.left(tr, scope, led.value) / VERSIONS_PER_SECOND
    return False, seconds, tr.watch(scope.keys.request(ticket.index, ticket.claim))


def keep_alive(tr: fdb.Transaction, scope: Scope, ticket: Ticket, request: Request) -> None:
    """Say that the consumer of a request lives, if it is time to."""
    version = scope.version(tr)
    if request.alive_until - version < _ALIVE_VERSIONS // 2:
        renewed = request._replace(alive_until=version + _ALIVE_VERSIONS)
        tr[scope.keys.request(ticket.index, ticket.claim)] = pack_request(renewed)


def alive(version: int, index: int, request: Request) -> bool:
    """Whether a request is a living consumer's, at a version.

    One that was registered at a version to come is of another cluster.
    """
    return index <= version < request.alive_until


def remove(tr: fdb.Transaction, keys: QueueKeys, index: int, claim: bytes) -> None:
    """Take a request out of the line, with a conflict on its key."""
    key = keys.request(index, claim)
    tr.add_read_conflict_key(key)
    del tr[key]


def read_requests(tr: fdb.Transaction, keys: QueueKeys, limit: int = MAX_LOOKED) -> fdb.FDBRange:
    """Issue a snapshot read of the requests, up to some number of them."""
    requests = keys.kind(Kind.REQUEST)
    return tr.snapshot.get_range(
        requests.start,
        requests.stop,
        limit=limit,
        streaming_mode=fdb.StreamingMode.want_all,
    )


def remove_dead(tr: fdb.Transaction, scope: Scope, reads: fdb.FDBRange) -> list[bytes]:
    """Take the requests of the dead out of the line; returns their claims. Conflicts with a sign
    of life of these."""
    version = scope.version(tr)
    removed = []
    for kv in reads:
        index, claim = scope.keys.parse_request(kv.key)
        if not alive(version, index, unpack_request(kv.value)):
            remove(tr, scope.keys, index, claim)
            removed.append(claim)
    return removed


def remove_claim(tr: fdb.Transaction, keys: QueueKeys, claim: bytes) -> None:
    """Take the request of one consumer out of the line, if it has one."""
    for kv in read_requests(tr, keys):
        index, owner = keys.parse_request(kv.key)
        if owner == claim:
            remove(tr, keys, index, claim)

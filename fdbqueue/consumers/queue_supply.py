"""The supply of a queue's own consumers: its first messages, whatever they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..messages import run, settle, time_to_live
from ..messages.delivery import head, lease, limits, scan
from ..messages.transaction_budget import Done
from ..schema import once
from ..schema.keys import QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Delivery
from . import promotion
from .line import Demand
from .supply import Offered, Shares

MAX_BYTES = 1_000_000
"""Bytes of messages that one round reads."""
MIN_BATCH_BYTES = 200_000
"""Bytes that a batch may hold even if the same transaction promotes or settles a lot."""


class Look(Struct, frozen=True):
    """The reads of a consumer that takes messages without a line, issued and not awaited."""

    ready: fdb.FDBRange
    due: promotion.Reads | None


class QueueSupply:
    """See ``Supply``."""

    __slots__ = ("_keys", "line")

    subscription = ""

    def __init__(self, keys: QueueKeys) -> None:
        self._keys = keys
        self.line = keys.line

    def enter(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Everybody may consume."""

    def issue(self, tr: fdb.Transaction, limit: int) -> tuple[fdb.FDBRange, int]:
        """A snapshot read of the first rows."""
        return _ready(tr, self._keys, self._keys.ready.rows.start, limit), limit

    def offer(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        issued: tuple[fdb.FDBRange, int],
        shares: Shares,
        resume: Mapping[int, bytes] | None,
    ) -> Offered:
        """As ``Supply.offer``. A second round trip if the requests demand more than was expected.
        Disposes of expired messages on the way. A paused queue has no messages."""
        if not shares.demand or scope.options.paused:
            return Offered(exhausted=shares.demand > 0)
        room = limits.room(tr, scope, shares.demand)
        if not room:
            return Offered(exhausted=True, limited=True)
        found, bounded = _first(tr, scope.keys, *issued, room)
        now_ms = scope.now_ms(tr)
        expired = [message for message in found if settle.unfit(message, now_ms)]
        run.watch(tr, expired)
        living = time_to_live.remove_undeliverable(tr, scope, found)
        for message in living:
            if not shares.offer(message):
                return Offered(exhausted=shares.refused)
            run.watch(tr, [message])
        all_read = len(living) < room and not bounded and not expired
        limited = len(living) == room < shares.demand
        return Offered(exhausted=all_read or limited, limited=limited)

    def look(self, tr: fdb.Transaction, scope: Scope, demand: Demand) -> Look:
        """Snapshot reads of the first messages, and of what is due."""
        first = scan.first(tr, scope.keys, demand.max_messages)
        return Look(first, promotion.reads(tr, scope))

    def take(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        demand: Demand,
        claim: bytes,
        settled: int,
        issued: Look | None,
        *,
        strict: bool = True,
    ) -> Sequence[Delivery]:
        """Lease the first messages. Conflicts as ``head.first``."""
        return take(tr, scope, demand, claim, settled, issued or self.look(tr, scope, demand))

    def stores_place(self, scope: Scope) -> bool:
        """The queue's first messages are taken: it never stops before one."""
        return True

    def rely_on_emptiness(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Conflict with every arrival."""
        scan.rely_on_emptiness(tr, scope.keys)


def take(
    tr: fdb.Transaction,
    scope: Scope,
    demand: Demand,
    claim: bytes,
    settled: int = 0,
    issued: Look | None = None,
) -> Sequence[Delivery]:
    """Lease what is ready, without a line. Conflicts as ``head.first``.

    settled: how many leases the same transaction settles.
    issued: the reads, if they were issued; ``due`` is None if nothing is due.
    """
    if scope.options.paused:
        return []
    look = QueueSupply(scope.keys).look
    issued = issued or look(tr, scope, demand)
    done, messages = Done(), list[StoredMessage]()
    # Below the root queues meet: there a caller's transaction does what is due only if it must.
    last_resort = scope.shared and not once.attempt(tr).brief
    for shared in (False, True) if last_resort else (True,):
        if issued.due is not None:
            promoted = promotion.promote_all(tr, scope, issued.due, shared=shared)
            done = done.plus(promoted)
            if promoted.changed:
                issued = look(tr, scope, demand)
        wanted = limits.room(tr, scope, demand.max_messages)
        if not wanted:
            return []
        beside = done.excess + settled * scope.keys.lease_bytes
        room = max(MIN_BATCH_BYTES, scan.BATCH_BYTES - beside)
        found = scan.conflicting(tr, scope.keys, issued.ready, wanted, room, apart=True)
        messages = head.first(tr, scope, wanted, found)
        if messages or shared or issued.due is None:
            break
        issued = look(tr, scope, demand)
    messages = head.together(messages, suspects=demand.suspects)
    seconds = scope.options.lease if demand.seconds is None else demand.seconds
    terms = lease.Terms(seconds, claim, demand.consumer, demand.begins)
    return lease.grant(tr, scope, terms, messages)


def _ready(tr: fdb.Transaction, keys: QueueKeys, begin: bytes, limit: int) -> fdb.FDBRange:
    mode = fdb.StreamingMode.want_all
    return tr.snapshot.get_range(begin, keys.ready.rows.stop, limit, streaming_mode=mode)


def _first(
    tr: fdb.Transaction, keys: QueueKeys, found: fdb.FDBRange, limit: int, demand: int
) -> tuple[list[StoredMessage], bool]:
    """The first messages, and whether a bound held some of them back.

    found, limit: the first read, and how many rows it brings.
    """
    messages: list[StoredMessage] = []
    room, each = MAX_BYTES, keys.lease_bytes
    expected = min(demand, limit)
    while True:
        for one in run.ready(keys, found):
            message = one.message
            room -= len(one.value) + message.envelope.chunk_bytes + each
            if messages and room < 0:
                return messages, True
            messages.append(message)
            if len(messages) == demand:
                return messages, False
        if len(messages) < expected:
            return messages, False
        behind = run.row_of(messages[-1]).span.stop
        found, expected = _ready(tr, keys, behind, demand - len(messages)), demand

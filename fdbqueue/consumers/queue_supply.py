"""The supply of a queue's own consumers: its first messages, whatever they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..messages import run, time_to_live
from ..messages.delivery import head, lease, queue_limits, scan
from ..messages.delivery import take as taking
from ..messages.delivery.shares import Shares
from ..messages.transaction_budget import NOTHING_DONE
from ..schema import once
from ..schema.keys import QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..values.model import Delivery
from . import promotion
from .line import Demand
from .supply import Offered

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
        return scan.first(tr, self._keys, limit), limit

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
        shares.left = room = queue_limits.room(tr, scope, shares.demand)
        limited = room < shares.demand
        if not room:
            return Offered(exhausted=True, limited=True)
        found, most = issued
        while True:
            looked = head.look(tr, scope, found, shares)
            run.watch(tr, looked.unfit)
            if looked.unfit or not shares.left or looked.rows < most:
                break
            most = shares.left
            found = scan.first(tr, scope.keys, most, looked.stop)
        run.watch(tr, [each for some in shares.given for each in some])
        time_to_live.remove_undeliverable(tr, scope, looked.unfit)
        limited = limited and shares.count == room
        ended = shares.left > 0 and not looked.unfit
        return Offered(exhausted=ended or limited or shares.refused, limited=limited)

    def look(self, tr: fdb.Transaction, scope: Scope, demand: Demand) -> Look:
        """As ``look``."""
        return look(tr, scope, demand)

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


def look(tr: fdb.Transaction, scope: Scope, demand: Demand) -> Look:
    """Snapshot reads of the first messages, and of what is due."""
    first = scan.first(tr, scope.keys, demand.max_messages)
    return Look(first, promotion.reads(tr, scope))


def take(
    tr: fdb.Transaction,
    scope: Scope,
    demand: Demand,
    claim: bytes,
    settled: int = 0,
    issued: Look | None = None,
    *,
    relies: bool = True,
) -> Sequence[Delivery]:
    """Lease what is ready, without a line. Conflicts as ``head.first``.

    settled: how many leases the same transaction settles.
    issued: the reads, if they were issued; ``due`` is None if nothing is due.
    relies: as for ``head.first``.
    """
    if scope.options.paused:
        return []
    issued = issued or look(tr, scope, demand)
    done = NOTHING_DONE
    # Below the root queues meet: there a caller's transaction does what is due only if it must.
    last_resort = scope.shared and not once.attempt(tr).brief
    for shared in (False, True) if last_resort else (True,):
        if issued.due is not None:
            promoted = promotion.promote_all(tr, scope, issued.due, shared=shared)
            done = done.plus(promoted)
            if promoted.changed:
                issued = look(tr, scope, demand)
        wanted = queue_limits.room(tr, scope, demand.max_messages)
        if not wanted:
            return []
        beside = done.excess + settled * scope.keys.lease_bytes
        room = max(MIN_BATCH_BYTES, scan.BATCH_BYTES - beside)
        shares = Shares([demand], room, scope.keys.lease_bytes)
        shares.left = wanted
        looked = head.first(tr, scope, issued.ready, shares, relies=relies)
        if looked.stop or shared or issued.due is None:
            break
        issued = look(tr, scope, demand)
    if not shares.count:
        return []
    seconds = scope.options.lease if demand.seconds is None else demand.seconds
    terms = lease.Terms(seconds, claim, demand.consumer, demand.begins)
    # A cursor relies on the gaps between messages.
    all_until = b"" if looked.unfit or scope.subscriptions else looked.stop
    (taken,) = taking.take(tr, scope, [(terms, shares.given[0])], all_until)
    return taken

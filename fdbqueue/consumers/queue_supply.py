"""The supply of a queue's own consumers: its first messages, whatever they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..messages import run, time_to_live
from ..messages.delivery import head, queue_limits, scan
from ..messages.delivery.shares import ClaimedRequest, Shares
from ..messages.transaction_budget import NOTHING_DONE
from ..schema import once
from ..schema.keys import QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..values.model import Delivery
from . import promotion
from .supply import Offered, take_shares

MIN_BATCH_BYTES = 200_000
"""Bytes that a batch may hold even if the same transaction promotes or settles a lot."""


class QueueSupply:
    """See ``Supply``."""

    __slots__ = ("_keys", "line")

    subscription = ""
    until = promotion.Until.READY

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
        """Offer the first messages. A second round trip if the requests demand more than expected.
        Disposes of expired messages on the way. A paused queue has no messages."""
        if not shares.demand or scope.options.paused:
            return Offered(exhausted=shares.demand > 0)
        shares.left = room = queue_limits.room(tr, scope, shares.demand)
        limited = room < shares.demand
        if not room:
            return Offered(exhausted=True, limited=True)
        found, most = issued
        while True:
            looked = head.offer_rows(tr, scope, found, shares)
            run.watch(tr, looked.unfit)
            if looked.unfit or not shares.left or looked.rows < most:
                break
            most = shares.left
            found = scan.first(tr, scope.keys, most, looked.stop)
        # Exactly what is handed out conflicts: messages that arrive during a round disturb it only
        # where it says "empty".
        run.watch(tr, [each for some in shares.given for each in some])
        time_to_live.remove_undeliverable(tr, scope, looked.unfit)
        limited = limited and shares.count == room
        ended = shares.left > 0 and not looked.unfit
        return Offered(exhausted=ended or limited or shares.refused, limited=limited)

    def take(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        requests: Sequence[ClaimedRequest],
        issued: tuple[fdb.FDBRange, int],
        due: promotion.DueReads | None,
        *,
        settled: int = 0,
        strict: bool = True,
    ) -> list[Sequence[Delivery] | None]:
        """See ``Supply.take``. Conflicts as ``head.first``."""
        nothing: list[Sequence[Delivery] | None] = [[] for _ in requests]
        if scope.options.paused:
            return nothing
        (found, most), done = issued, NOTHING_DONE
        # Below the root queues meet: there a caller's transaction does what is due only if it must.
        last_resort = due is not None and scope.shared and not once.attempt(tr).brief
        for shared in (False, True) if last_resort else (True,):
            if due is not None:
                promoted = promotion.promote_all(tr, scope, due, shared=shared)
                done = done.plus(promoted)
                # The first rows were read before: what has become ready since, or has ended, is not
                # among them.
                if promoted.changed:
                    found = scan.first(tr, scope.keys, most)
            beside = done.excess + settled * scope.keys.lease_bytes
            room = max(MIN_BATCH_BYTES, scan.BATCH_BYTES - beside)
            shares = Shares([one.request for one in requests], room, scope.keys.lease_bytes)
            shares.left = queue_limits.room(tr, scope, shares.demand)
            if not shares.left:
                return nothing
            # Who waits in line learns of what arrives meanwhile.
            relies = strict and not all(one.request.waits for one in requests)
            looked = head.first(tr, scope, found, shares, relies=relies)
            if looked.stop or shared:
                break
            found, due = scan.first(tr, scope.keys, most), promotion.reads(tr, scope)
        ended = not shares.count or (shares.left > 0 and looked.rows < most and not looked.unfit)
        # Some of the process got nothing, and are told that there is nothing: that relies on no
        # arrival.
        if shares.count and ended and not all(shares.given):
            scan.rely_on_emptiness(tr, scope.keys)
        # A cursor relies on the gaps between messages.
        all_until = b"" if looked.unfit or scope.subscriptions else looked.stop
        return take_shares(tr, scope, requests, shares, ended=ended, all_until=all_until)

    def stores_place(self, tr: fdb.Transaction, scope: Scope) -> bool:
        """The queue's first messages are taken: it never stops before one."""
        return True

    def rely_on_emptiness(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Conflict with every arrival."""
        scan.rely_on_emptiness(tr, scope.keys)

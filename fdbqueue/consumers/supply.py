"""Supply: where the messages for the consumers of one line come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ..errors import TransactionTooLarge
from ..messages.delivery.shares import ClaimedRequest, Shares
from ..messages.delivery.take import Grant, take
from ..schema.keys import LineKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..values.model import Delivery
from . import promotion

CLOSED: list[Delivery] = []
"""The answer of a subscription that has closed itself, because nothing is left for it. This very
list: other answers may be empty, too."""


def unfinished() -> TransactionTooLarge:
    """The error of a call that has more to look through than a caller's transaction can."""
    return TransactionTooLarge(
        problem="too many messages, or too large ones, do not match: call it with a database, "
        "which goes on in further transactions"
    )


class Offered(Struct, frozen=True):
    """What a supply had for a round.

    exhausted: whether no message is left that a request of the round could take. closed: whether
    the subscription has closed itself. reached: where the next round goes on, for a scan that has
    not come to the end and whose place is not stored. limited: whether the queue's limit of
    messages in flight held messages back.
    """

    exhausted: bool
    closed: bool = False
    reached: Mapping[int, bytes] | None = None
    limited: bool = False


class Supply(Protocol):
    """Where the messages of a line come from: a queue, or a subscription of it.

    line: the keys of the line. subscription: the name of the subscription; "" for the queue. until:
    until when to promote what is due, before it has nothing.
    """

    line: LineKeys
    subscription: str
    until: promotion.Until

    def enter(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Check that the caller may consume; raises an error if not. The first step of every
        transaction that takes messages, or stands in line for them."""

    def issue(self, tr: fdb.Transaction, limit: int) -> Any:
        """Issue the reads of ``offer`` or ``take`` for so many messages."""

    def offer(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        issued: Any,
        shares: Shares,
        resume: Mapping[int, bytes] | None,
    ) -> Offered:
        """Offer the first messages to the requests of a round, in order, with a conflict on each
        that is given. The caller leases them.

        resume: what ``reached`` was in the round before.
        """

    def take(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        requests: Sequence[ClaimedRequest],
        issued: Any,
        due: promotion.DueReads | None,
        *,
        settled: int = 0,
        strict: bool = True,
    ) -> list[Sequence[Delivery] | None]:
        """Lease the first messages to the consumers of one process, in their order, without a line.
        Returns what each has: nothing if there is no more, or None if it is not known whether there
        is.

        issued: what ``issue`` gave. due: the reads of what is due, to do first; None if nothing is.
        settled: how many leases the same transaction settles. strict: whether the order is
        serializable, or that at the start of the transaction.
        """

    def stores_place(self, tr: fdb.Transaction, scope: Scope) -> bool:
        """Whether the next transaction of anybody goes on where ``take`` has stopped."""

    def rely_on_emptiness(self, tr: fdb.Transaction, scope: Scope) -> None:
        """The caller relies on there being no message for it, at one instant at least."""


def take_shares(
    tr: fdb.Transaction,
    scope: Scope,
    requests: Sequence[ClaimedRequest],
    shares: Shares,
    *,
    ended: bool,
    all_until: bytes = b"",
) -> list[Sequence[Delivery] | None]:
    """Lease what requests were given: the last step of ``Supply.take``.

    ended: whether the others get nothing because there is no more. all_until: as for ``take``.
    """
    given = zip(requests, shares.given, strict=True)
    grants = [Grant(*one, pieces) for one, pieces in given if pieces]
    taken = iter(take(tr, scope, grants, all_until) if grants else ())
    return [next(taken) if pieces else [] if ended else None for pieces in shares.given]

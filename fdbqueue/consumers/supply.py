"""Supply: what the consumers of one line are given, and how a round divides it among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ..messages.delivery import lease
from ..schema.consumers import Request
from ..schema.keys import LineKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Delivery
from .line import Demand

CLOSED: list[Delivery] = []
"""The answer of a subscription that has closed itself, because nothing is left for it. This very
list: other answers may be empty, too."""


class Shares:
    """Which requests get which messages: each of the first messages goes to the first request that
    can take more, and each request gets messages that follow each other.

    given: those of each request. full: whether a bound held back messages that a request could
    take. refused: whether no request takes the very first message. room: bytes that all may have
    together, with ``each`` beside every message.
    """

    def __init__(self, requests: Sequence[Request], room: int, each: int) -> None:
        self.requests = requests
        self.given: list[list[StoredMessage]] = [[] for _ in requests]
        self.demand = sum(request.max_messages for request in requests)
        self.full = self.refused = False
        self._room = room
        self._each = each
        self._next = self._spent = 0
        self._any = False

    def offer(self, message: StoredMessage) -> bool:
        """Give the next message to a request; False if none takes it, nor any that follows.

        A message whose lease has expired comes alone, to find out which message kills consumers.
        If that was not conclusive, it goes only to consumers that accept suspects.
        """
        envelope = message.envelope
        while not self.full and self._next < len(self.requests):
            request, given = self.requests[self._next], self.given[self._next]
            size = envelope.size
            if (
                len(given) < min(request.max_messages, lease.MAX_TOGETHER)
                and not (envelope.alone and given)
                and (request.suspects or not envelope.suspect)
                and request.admits(size, len(given), self._spent)
            ):
                self._room -= len(envelope.payload) + envelope.chunk_bytes + self._each
                self.full = self._any and self._room < 0
                if self.full:
                    return False
                given.append(message)
                self._any = True
                self._spent += size
                if envelope.alone:
                    self._go_on()
                return True
            self._go_on()
        self.refused = not self._any
        return False

    def _go_on(self) -> None:
        self._next += 1
        self._spent = 0


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

    line: the keys of the line. subscription: the name of the subscription; "" for the queue.
    """

    line: LineKeys
    subscription: str

    def enter(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Check that the caller may consume; raises an error if not. The first step of every
        transaction that takes messages, or stands in line for them."""

    def issue(self, tr: fdb.Transaction, limit: int) -> Any:
        """Issue the reads of a round that hands out so many messages."""

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

    def look(self, tr: fdb.Transaction, scope: Scope, demand: Demand) -> Any:
        """Issue the reads of ``take``."""

    def take(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        demand: Demand,
        claim: bytes,
        settled: int,
        issued: Any,
        *,
        strict: bool,
    ) -> Sequence[Delivery] | None:
        """Lease the first messages to one consumer, without a line; None if there are none so far,
        and it has not come to the end.

        settled: how many leases the same transaction settles. strict: whether the order is
        serializable, or that at the start of the transaction.
        """

    def stores_place(self, scope: Scope) -> bool:
        """Whether the next transaction of anybody goes on where ``take`` has stopped."""

    def rely_on_emptiness(self, tr: fdb.Transaction, scope: Scope) -> None:
        """The caller relies on there being no message for it, at one instant at least."""

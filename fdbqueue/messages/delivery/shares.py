"""Shares: which consumers are given which of the first messages. Plain values: reads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...schema.consumers import Request
from ...schema.envelope import Envelope
from ...schema.scope import StoredMessage
from .. import run
from ..run import MessageRun, ReadyPiece


class ClaimedRequest(NamedTuple):
    """A request, and the claim that is to answer it: 16 bytes, the first ones of each token."""

    claim: bytes
    request: Request


class Shares:
    """Which requests get which messages: each of the first messages goes to the first request that
    can take more, and each request gets messages that follow each other.

    given: those of each request. count: how many these are. demand: how many all want. left: how
    many more these may have together, at most.
    """

    def __init__(
        self, requests: Sequence[Request], room: int, each: int, *, apart: bool = True
    ) -> None:
        """room: bytes that all may have together, with ``each`` beside every message; the first
        message may have more. apart: whether a message whose lease has expired comes alone, to find
        out which message kills consumers."""
        self.given: list[list[ReadyPiece]] = [[] for _ in requests]
        self.left = self.demand = sum([request.max_messages for request in requests])
        self.count = 0
        self._requests = requests
        self._room = room
        self._each = each
        self._apart = apart
        self._next = self._has = self._spent = 0

    @property
    def refused(self) -> bool:
        """Whether no request takes the very first message."""
        return self._next == len(self._requests) and not self.count

    def offer(self, row: MessageRun, n: int, envelope: Envelope) -> bool:
        """Give the next message, of a row, to a request; False if none takes it, nor any that
        follows."""
        alone = envelope.alone if self._apart else 0
        while self.left:
            request, has = self._requests[self._next], self._has
            if has < request.max_messages and not (alone and has):
                size = envelope.size
                if (request.suspects or not envelope.suspect) and (
                    request.max_bytes is None or self._admits(request, size)
                ):
                    self._room -= len(row.values[n]) + envelope.chunk_bytes + self._each
                    if self._room < 0 and self.count:
                        # The order is strict: a smaller message behind must not overtake this one,
                        # so nobody gets more.
                        self.left = 0
                        return False
                    run.piece(self.given[self._next], row, n, envelope)
                    self.count += 1
                    self.left -= 1
                    self._has += 1
                    self._spent += size
                    if alone:
                        self._go_on()
                    return True
            self._go_on()
        return False

    def offer_message(self, message: StoredMessage) -> bool:
        """``offer`` a message that was read by itself."""
        row = run.row_of(message)
        return self.offer(row, row.index(message.position), message.envelope)

    def _admits(self, request: Request, size: int) -> bool:
        """Whether its credit admits one more message of ``size`` bytes."""
        assert request.max_bytes is not None
        if self._spent + size <= request.max_bytes:
            return True
        # A message larger than the whole credit would otherwise wait for ever: it comes alone,
        # ahead of its turn.
        return not self._has and request.above is not None and size > request.above

    def _go_on(self) -> None:
        self._next += 1
        self._has = self._spent = 0
        if self._next == len(self._requests):
            self.left = 0

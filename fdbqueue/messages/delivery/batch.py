"""Batches: messages that are taken together, row by row.

What is taken of a row stays one row, and is opened all at once. A delivery is made when somebody
asks for it, so a batch that is settled whole costs little for each message.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import overload

from ...schema.envelope import Envelope
from ...values.model import Delivery, Position
from .. import run
from ..run import Held, LeaseRow, WholeRow
from .lease_extension import Extended


class Together(Sequence[Delivery]):
    """Deliveries that may be settled together."""

    __slots__ = ()

    @property
    @abstractmethod
    def held(self) -> Sequence[Held]:
        """What is to be read to settle all of them."""

    def _extended(self, extended: Extended) -> Together:
        """The same deliveries after an extension of all of them."""
        # Rows hold the old end, and their leases now end by UNTIL: from here on they are settled
        # one by one.
        again = [extended.of(each) for each in self]
        return Joined(again, again)

    def _ended(self) -> None:
        """Called when all of them have been settled together."""


class Joined(Together):
    """Deliveries of several batches, or of some of their messages."""

    __slots__ = ("_deliveries", "_held")

    def __init__(self, deliveries: Sequence[Delivery], held: Sequence[Held]) -> None:
        self._deliveries = deliveries
        self._held = held

    def __len__(self) -> int:
        return len(self._deliveries)

    @overload
    def __getitem__(self, n: int) -> Delivery: ...
    @overload
    def __getitem__(self, n: slice) -> Sequence[Delivery]: ...
    def __getitem__(self, n: int | slice) -> Delivery | Sequence[Delivery]:
        return self._deliveries[n]

    @property
    def held(self) -> Sequence[Held]:
        """A row where all of its messages are here, and else the deliveries."""
        return self._held


class LeasedRows:
    """The whole rows of a consumer, which settles their messages in parts and in any order."""

    def __init__(self) -> None:
        self._ends: dict[bytes, tuple[WholeRow, list[bytes]]] = {}

    def add(self, taken: Sequence[Delivery], deliveries: Sequence[Delivery]) -> None:
        """Keep the rows of what was taken; ``deliveries`` are the same, made."""
        # Of a batch, as it was written.
        for row in taken.rows if isinstance(taken, TakenTogether) else ():
            # A row of one is read as cheaply by its lease.
            if row.end - row.begin > 1:
                tokens = [each.token for each in deliveries[row.begin : row.end]]
                # By the last token: ``joined`` meets the messages in order, and at the last one
                # knows whether all are there.
                self._ends[tokens[-1]] = row, tokens

    def forget(self, deliveries: Iterable[Delivery]) -> None:
        """Forget the rows that end with one of these: they are settled, or end later."""
        for each in deliveries if self._ends else ():
            self._ends.pop(each.token, None)

    def joined(self, deliveries: Sequence[Delivery]) -> Joined:
        """Deliveries, to be settled by rows where all messages of a row follow each other."""
        held: list[Held] = []
        tokens: list[bytes] = []
        for each in deliveries:
            held.append(each)
            tokens.append(each.token)
            row, its_own = self._ends.get(each.token, (None, tokens))
            if row is not None and tokens[-len(its_own) :] == its_own:
                del held[-len(its_own) :]
                held.append(row)
        return Joined(deliveries, held)


class TakenTogether(Together):
    """The deliveries of messages that were taken together, each made when it is first asked for.

    rows: of LEASE. places: those of the leases under each claim. packed: the payloads, as they were
    enqueued, of messages that have theirs compressed or elsewhere, by their numbers. begun: whether
    handling has begun.
    """

    __slots__ = (
        "_begun",
        "_envelopes",
        "_expires_at_ms",
        "_made",
        "_packed",
        "_places",
        "_positions",
        "_rows",
        "_tokens",
    )

    def __init__(
        self,
        rows: Sequence[LeaseRow],
        places: Sequence[tuple[bytes, list[bytes]]],
        envelopes: Sequence[Envelope],
        packed: Mapping[int, bytes],
        expires_at_ms: int,
        begun: bool,
    ) -> None:
        self._rows = rows
        self._places = places
        self._envelopes = envelopes
        self._packed = packed
        self._expires_at_ms = expires_at_ms
        self._begun = begun
        self._made: dict[int, Delivery] = {}
        self._positions: list[Position] = []
        self._tokens: list[bytes] = []

    def __len__(self) -> int:
        return len(self._envelopes)

    @overload
    def __getitem__(self, n: int) -> Delivery: ...
    @overload
    def __getitem__(self, n: slice) -> list[Delivery]: ...
    def __getitem__(self, n: int | slice) -> Delivery | list[Delivery]:
        if isinstance(n, slice):
            return [self[each] for each in range(*n.indices(len(self)))]
        n = range(len(self._envelopes))[n]
        known = self._made.get(n)
        if known is not None:
            return known
        envelope = self._envelopes[n]
        if not self._tokens:
            self._positions = [at for row in self._rows for at in row.piece.positions]
            self._tokens = [name + each for name, some in self._places for each in some]
        payload = envelope.payload
        if envelope.raw_size is not None:
            payload = self._packed[n]
        message = envelope.message(self._positions[n], payload)
        attempt = message.attempts + 1
        made = Delivery(message, self._tokens[n], attempt, self._expires_at_ms, self._begun)
        self._made[n] = made
        return made

    def __iter__(self) -> Iterator[Delivery]:
        return map(self.__getitem__, range(len(self)))

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the messages."""
        found = [each.payload for each in self._envelopes]
        for n, payload in self._packed.items():
            found[n] = payload
        return found

    @property
    def rows(self) -> list[WholeRow]:
        """Its rows of LEASE."""
        ends = pairwise(accumulate((len(row.piece) for row in self._rows), initial=0))
        return [
            WholeRow(row, self._expires_at_ms, self, *within)
            for row, within in zip(self._rows, ends, strict=True)
        ]

    @property
    def held(self) -> Sequence[Held]:
        """Its rows if they are few for so many messages, and else its deliveries."""
        count = len(self._rows)
        # A read for each row is worse than one range over their leases once rows are many and
        # small.
        few = count < run.MIN_SPAN or 4 * count <= len(self)
        return self.rows if few else list(self)  # They are read several times.

    def until(self, expires_at_ms: int) -> TakenTogether:
        """The same, extended until then."""
        of_it = self._rows, self._places, self._envelopes, self._packed
        return TakenTogether(*of_it, expires_at_ms, self._begun)

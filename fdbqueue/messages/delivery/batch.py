"""Batches: messages that are taken together, row by row.

What is taken of a row stays one row, and is opened all at once. A delivery is made when somebody
asks for it, so a batch that is settled whole costs little for each message.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import overload

from ...schema import counters, once
from ...schema.envelope import Envelope, open_envelope
from ...schema.scope import Scope
from ...store.binding import fdb
from ...store.clocks import VERSIONS_PER_SECOND, Moment
from ...values.model import Delivery, Position
from ...values.states import LEASE
from .. import place, run
from ..run import Held, Run, WholeRow
from . import lease
from .lease_extension import Extended

_LEASED = counters.unit(LEASE)


class Together(Sequence[Delivery]):
    """Deliveries that may be settled together."""

    __slots__ = ()

    @property
    @abstractmethod
    def held(self) -> Sequence[Held]:
        """What is to be read to settle all of them."""

    def _extended(self, extended: Extended) -> Together:
        """The same deliveries after an extension of all of them."""
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
        """As in ``Together``: with a row where it has all of its messages."""
        return self._held


class Rows:
    """The whole rows of a consumer, which settles their messages in parts and in any order."""

    def __init__(self) -> None:
        self._ends: dict[bytes, tuple[WholeRow, list[bytes]]] = {}

    def add(self, taken: Sequence[Delivery], deliveries: Sequence[Delivery]) -> None:
        """Keep the rows of what was taken; ``deliveries`` are the same, made."""
        # Of a batch, as it was written.
        for row in taken.rows if isinstance(taken, Taken) else ():
            if row.end - row.begin > 1:
                tokens = [each.token for each in deliveries[row.begin : row.end]]
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


class Taken(Together):
    """The deliveries of a batch, each made when it is asked for."""

    __slots__ = ("_envelopes", "_expires_at_ms", "_granted", "_places", "_tokens")

    def __init__(
        self, granted: lease.Granted, envelopes: Sequence[Envelope], expires_at_ms: int
    ) -> None:
        self._granted = granted
        self._envelopes = envelopes
        self._expires_at_ms = expires_at_ms
        self._places: list[Position] = []
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
        envelope, granted = self._envelopes[n], self._granted
        if not self._tokens:
            self._places = [at for row in granted.rows for at in row.piece.positions]
            self._tokens = granted.tokens
        message = envelope.message(self._places[n], envelope.payload)
        attempt = message.attempts + 1
        return Delivery(message, self._tokens[n], attempt, self._expires_at_ms, granted.begun)

    def __iter__(self) -> Iterator[Delivery]:
        return map(self.__getitem__, range(len(self)))

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the messages."""
        return [each.payload for each in self._envelopes]

    @property
    def rows(self) -> list[WholeRow]:
        """Its rows of LEASE."""
        ends = pairwise(accumulate((len(row.piece) for row in self._granted.rows), initial=0))
        return [
            WholeRow(row, self._expires_at_ms, self, *within)
            for row, within in zip(self._granted.rows, ends, strict=True)
        ]

    @property
    def held(self) -> Sequence[Held]:
        """As in ``Together``: its rows, if they are few for so many messages."""
        count = len(self._granted.rows)
        few = count < run.MIN_SPAN or 4 * count <= len(self)
        return self.rows if few else list(self)  # They are read several times.

    def until(self, expires_at_ms: int) -> Taken:
        """The same, extended until then."""
        return Taken(self._granted, self._envelopes, expires_at_ms)


def take(
    tr: fdb.Transaction,
    scope: Scope,
    found: Iterable[fdb.KeyValue],
    terms: lease.Terms,
    limit: int,
    room: int,
) -> Taken | None:
    """Lease the first ready messages of a snapshot read, several at once.

    Does what ``scan.conflicting``, ``head.first`` and ``lease.grant`` do, with the same conflicts,
    but opens each envelope once and stores it unchanged. Returns None, with nothing written, if
    there is no message, the queue keeps a history, or a message needs a closer look: it has
    expired, or did so in other hands; its payload is compressed or elsewhere; or it cannot be read.

    limit: how many messages to take at most. room: bytes of messages that the transaction can hold.
    """
    keys, clock = scope.keys, scope.clock
    if scope.options.history_seconds is not None:
        return None
    now_ms, tried = clock.now_ms(tr), once.attempt(tr)
    rows: list[Run] = []
    envelopes: list[Envelope] = []
    pieces: list[tuple[Run, bool]] = []
    totals: dict[int, int] = {}
    tops: dict[int, int] = {}
    for kv in found:
        row = run.row(keys, kv)
        some = [open_envelope(each) for each in row.values]
        for each in some:
            if not each.simple(now_ms):
                return None
        fits = min(limit - len(envelopes), len(some))
        size = sum(map(len, row.values[:fits])) + fits * keys.lease_bytes
        if size > room:
            fits = _fitting(row.values, room, keys.lease_bytes, first=not rows)
        if fits:
            del some[fits:]
            rows.append(row)
            envelopes += some
            pieces += _pieces(row, some)
            level, payloads = row.position.level, sum([each.size for each in some])
            totals[level] = totals.get(level, 0) + fits * _LEASED - payloads * counters.BYTE
            tops[level] = row.position.index
            room -= size
        if fits < len(row.values) or len(envelopes) == limit:
            break
    if not rows:
        return None
    _remove(tr, scope, rows, fits or len(rows[-1].values), tried)
    for level, total in totals.items():
        place.leave(tr, keys.levels[level], tops[level])
        tr.add(keys.levels[level].count, counters.operand(total))
    version = tried.version or once.version(tr)
    version += clock.versions_ahead() + int(terms.seconds * VERSIONS_PER_SECOND)
    until = Moment(version, now_ms + int(terms.seconds * 1000))
    begun = terms.begins and len(envelopes) == 1
    granted = lease.hold(tr, keys, terms, until, pieces, begun=begun)
    return Taken(granted, envelopes, until.wall_ms)


def _fitting(values: Sequence[bytes], room: int, each: int, *, first: bool) -> int:
    """How many messages of a row to take where not all of them fit; at least one of the first."""
    for n, value in enumerate(values):
        room -= len(value) + each
        if room < 0:
            return max(n, 1) if first else n
    return len(values)


def _pieces(row: Run, taken: Sequence[Envelope]) -> list[tuple[Run, bool]]:
    """The first messages of a row, in pieces with and without side records."""
    plain = [each.plain for each in taken]
    if plain.count(plain[0]) == len(plain):
        return [(row.part(0, len(plain)), plain[0])]
    edges = [n for n in range(1, len(plain)) if plain[n] != plain[n - 1]]
    ends = pairwise((0, *edges, len(plain)))
    return [(row.part(begin, end), plain[begin]) for begin, end in ends]


def _remove(
    tr: fdb.Transaction, scope: Scope, rows: Sequence[Run], last: int, tried: once.Attempt
) -> None:
    """Remove the messages of rows, but only ``last`` of those of the last row.

    Conflicts with whoever takes one of them, or brings one before the last.
    """
    keys, end = scope.keys, rows[-1].key + b"\x00"
    tr.add_read_conflict_range(keys.ready.rows.start, end)
    if not tried.ours or tried.taken:
        for row in rows:
            for key in row.keys[:last] if row is rows[-1] else row.keys:
                tried.take(tr, keys, key)
    elif not scope.subscriptions and len(rows) > 1:
        tr.clear_range(rows[0].span.start, end)  # Nothing else is there.
        run.leave(tr, rows[-1], range(last), last)
        return
    # One row, or a cursor relies on the gaps between messages: leave these alone.
    for row in rows:
        run.cut_row(tr, row, range(last if row is rows[-1] else len(row)), last)

"""Batches: messages that are taken together, row by row.

What is taken of a block stays one row, and is opened all at once. A delivery is made when somebody
asks for it, so a batch that is settled whole costs little for each message.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import overload

from ...schema import counters, once
from ...schema.codec.blocks import SHARED, Block, open_block, pack_block
from ...schema.codec.envelopes import Envelope, open_envelope
from ...schema.codec.leases import Lease, holder_of, new_claim
from ...schema.keys import QueueKeys
from ...schema.scope import Scope
from ...store.binding import fdb
from ...store.client import pack_bytes, pack_int
from ...store.clocks import VERSIONS_PER_SECOND
from ...values.model import Delivery, Message, Position
from ...values.states import LEASE
from .. import place
from . import lease, lease_rows
from .lease_extension import Extended
from .lease_rows import Held, WholeRow

_LEASED = counters.unit(LEASE)


class Part:
    """Messages of one row of READY, in order: those that are taken of it.

    envelopes: of them; values: these as they are stored. value: of the row, if all of it is taken.
    places: the keys of the messages in READY, without what all of them have in common.
    first: the number of the first of them in its block. plain: whether each has no side records
    (see ``Lease``).
    """

    __slots__ = (
        *("block", "envelopes", "first", "key", "places", "plain"),
        *("position", "value", "values"),
    )

    def __init__(
        self,
        keys: QueueKeys,
        key: bytes,
        value: bytes,
        block: Block | None,
        position: Position,
        envelopes: list[Envelope],
        values: list[bytes],
    ) -> None:
        self.key = key
        self.value = value
        self.block = block
        self.position = position
        self.envelopes = envelopes
        self.values = values
        self.first = 0 if block is None else block.first
        begin = keys.place_begin
        self.places = [key[begin:]] if block is None else block.places(begin)
        self.plain = [each.plain for each in envelopes]

    def keep(self, count: int) -> None:
        """Take only the first ``count`` messages."""
        del self.envelopes[count:], self.values[count:], self.places[count:], self.plain[count:]
        self.value = b""

    def row_key(self, n: int) -> bytes:
        """The READY key of message ``n`` of the part."""
        return self.key if self.block is None else self.block.key(self.first + n)

    def place(self, n: int) -> Position:
        """The position of message ``n`` of the part."""
        return self.position if self.block is None else self.block.place(self.first + n)

    def message(self, n: int) -> Message:
        """Message ``n`` of the part."""
        envelope = self.envelopes[n]
        return envelope.message(self.place(n), envelope.payload)

    def runs(self, begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Its messages from ``begin`` to ``end`` in runs that may share a row of LEASE."""
        for plain, run in groupby(range(begin, end), self.plain.__getitem__):
            some = list(run)
            yield some[0], some[-1] + 1, plain

    def stored(self, begin: int, end: int) -> bytes:
        """Some of its messages, as they are stored in a row."""
        if end - begin == 1:
            return self.values[begin]
        if end - begin == len(self.values) and self.value:
            return self.value
        return pack_block(self.values[begin:end])


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

    __slots__ = (
        "_begun",
        "_claims",
        "_expires_at_ms",
        "_parts",
        "_starts",
        "_together",
        "rows",
    )

    def __init__(
        self,
        parts: Sequence[Part],
        claims: Sequence[bytes],
        expires_at_ms: int,
        begun: bool,
    ) -> None:
        self._parts = parts
        self._claims = claims
        self._together = lease.MAX_TOGETHER
        self._expires_at_ms = expires_at_ms
        self._begun = begun
        self.rows: list[WholeRow] = []
        self._starts = [0]
        for part in parts:
            self._starts.append(self._starts[-1] + len(part.values))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, n: int) -> Delivery: ...
    @overload
    def __getitem__(self, n: slice) -> list[Delivery]: ...
    def __getitem__(self, n: int | slice) -> Delivery | list[Delivery]:
        if isinstance(n, slice):
            return [self[each] for each in range(*n.indices(len(self)))]
        n = range(len(self))[n]
        which = bisect_right(self._starts, n) - 1
        return self._delivery(self._parts[which], n - self._starts[which], n)

    def __iter__(self) -> Iterator[Delivery]:
        claims, together = self._claims, self._together
        expires_at_ms, begun = self._expires_at_ms, self._begun
        for start, part in zip(self._starts, self._parts, strict=False):
            for n in range(len(part.values)):
                message = part.message(n)
                token = claims[(start + n) // together] + part.places[n]
                yield Delivery(message, token, message.attempts + 1, expires_at_ms, begun)

    def _delivery(self, part: Part, n: int, count: int) -> Delivery:
        message = part.message(n)
        token = self._claims[count // self._together] + part.places[n]
        return Delivery(message, token, message.attempts + 1, self._expires_at_ms, self._begun)

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the messages."""
        return [each.payload for part in self._parts for each in part.envelopes]

    @property
    def held(self) -> Sequence[Held]:
        """As in ``Together``: its rows, if they are few for so many messages."""
        few = len(self.rows) < lease_rows.MIN_SPAN or 4 * len(self.rows) <= len(self)
        return self.rows if few else list(self)  # They are read several times.

    def until(self, expires_at_ms: int) -> Taken:
        """The same, extended until then."""
        found = Taken(self._parts, self._claims, expires_at_ms, self._begun)
        found._together = self._together
        found.rows = [row._replace(expires_at_ms=expires_at_ms, of=found) for row in self.rows]
        return found


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
    but opens each envelope once and stores it unchanged; what is taken of a block stays one row.
    Returns None, with nothing written, if there is no message, the queue keeps a history, or a
    message needs a closer look: see ``_open``.

    limit: how many messages to take at most. room: bytes of messages that the transaction can hold.
    """
    keys, clock = scope.keys, scope.clock
    if scope.options.history_seconds is not None:
        return None
    now_ms, tried = clock.now_ms(tr), once.attempt(tr)
    parts: list[Part] = []
    count = 0
    for kv in found:
        part = _open(keys, kv, now_ms)
        if part is None:
            return None
        fits = _fitting(part, limit - count, room, keys.lease_bytes, first=not count)
        if fits:
            parts.append(part)
            count += fits
            room -= sum(map(len, part.values)) + len(part.values) * keys.lease_bytes
        if fits < len(part.values) or count == limit:
            part.keep(fits)
            break
    if not count:
        return None
    version = tried.version or once.version(tr)
    version += clock.versions_ahead() + int(terms.seconds * VERSIONS_PER_SECOND)
    _remove(tr, scope, parts, tried)
    return _lease(tr, scope, terms, parts, version, now_ms + int(terms.seconds * 1000))


def _open(keys: QueueKeys, kv: fdb.KeyValue, now_ms: int) -> Part | None:
    """The messages of a row of READY.

    None if one of them needs a closer look: it has expired, or did so in other hands; its payload
    is compressed or elsewhere; or it cannot be read.
    """
    key, value = kv.key, kv.value
    block, values, position = None, [value], keys.parse_ready(key)
    if value[:1] == SHARED:
        block = open_block(key, position, value)
        if block is None:
            return None
        values = list(block.left.values())
    envelopes = [open_envelope(each) for each in values]
    if not all(each.simple(now_ms) for each in envelopes):
        return None
    return Part(keys, key, value, block, position, envelopes, values)


def _fitting(part: Part, limit: int, room: int, each: int, *, first: bool) -> int:
    """How many messages of a part to take; at least one of the first."""
    count = min(limit, len(part.values))
    if sum(map(len, part.values[:count])) + count * each <= room:
        return count
    for n in range(count):
        room -= len(part.values[n]) + each
        if room < 0:
            return max(n, 1) if first else n
    return count


def _remove(tr: fdb.Transaction, scope: Scope, parts: Sequence[Part], tried: once.Attempt) -> None:
    begin, end = parts[0].row_key(0), parts[-1].key + b"\x00"
    tr.add_read_conflict_range(scope.keys.ready_begin, end)
    if tried.ours and not tried.taken and not scope.subscriptions:
        # Nothing else is there.
        tr.clear_range(begin, end)
    else:
        # A cursor relies on the gaps between messages: leave these alone.
        for part in parts:
            if not tried.ours or tried.taken:
                for n in range(len(part.values)):
                    tried.take(tr, scope.keys, part.row_key(n))
            if part.block is None:
                tr.clear(part.key)
            else:
                tr.clear_range(part.block.span().start, part.block.span().stop)
    last = parts[-1]
    if last.block is not None and len(last.values) < len(last.block.left):
        for n in range(len(last.values)):
            del last.block.left[last.first + n]
        # Others are expected to take as many next, and need not write the rest again.
        for key, value in last.block.rows(len(last.values)):
            tr.set(key, value)


def _lease(
    tr: fdb.Transaction,
    scope: Scope,
    terms: lease.Terms,
    parts: Sequence[Part],
    version: int,
    expires_at_ms: int,
) -> Taken:
    """Write the leases of messages that are ready no more; returns their deliveries."""
    keys, levels = scope.keys, scope.keys.levels
    count, most = sum(len(part.values) for part in parts), lease.MAX_TOGETHER
    begun = terms.begins and count == 1
    claims = [terms.claim]
    claims += [new_claim(holder_of(terms.claim)) for _ in range(most, count, most)]
    taken = Taken(parts, claims, expires_at_ms, begun)
    totals: dict[int, int] = {}
    tops: dict[int, int] = {}
    places: list[list[bytes]] = [[] for _ in claims]
    done = 0
    for part in parts:
        level = part.position.level
        some, begin = len(part.values), 0
        size = sum(each.size for each in part.envelopes)
        totals[level] = totals.get(level, 0) + some * _LEASED - size * counters.BYTE
        tops[level] = part.position.index
        while begin < some:
            number = done // most
            end = min(some, begin + (number + 1) * most - done)
            together = min(most, count - number * most)
            places[number] += part.places[begin:end]
            for first, last, plain in part.runs(begin, end):
                key = keys.lease_prefix + part.places[last - 1]
                claim, stored = claims[number], part.stored(first, last)
                given = (version, expires_at_ms, terms.consumer, stored, begun, claim, plain)
                value = Lease(part.place(last - 1), *given, together).pack()
                tr.set(key, value)
                start = done + first - begin
                end_at = (version, expires_at_ms, expires_at_ms)
                where = (taken, start, start + last - first)
                taken.rows.append(
                    WholeRow(key, value, claim, *end_at, level, plain, together, *where)
                )
            done += end - begin
            begin = end
    packed, ends = pack_int(version), expires_at_ms.to_bytes(8, "little")
    for claim, named in zip(claims, places, strict=True):
        tr.set(keys.expiry_prefix + packed + pack_bytes(claim), ends + b"".join(named))
    for level, total in totals.items():
        place.leave(tr, levels[level], tops[level])
        tr.add(levels[level].count, counters.operand(total))
    return taken

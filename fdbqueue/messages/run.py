"""Runs: the messages of one row, and the only reader and writer of rows that several share.

Messages that were enqueued together follow each other in a row of READY: a *run*. What is taken of
it is a row of LEASE. One message is a run of one, so nobody else has to know which rows are shared.

All messages of a run have one index. Their random parts have the same first eight bytes, then the
number of the message in two bytes. A row has the key of its last message, and the envelopes of the
messages up to there. So the key of a message tells where its row is: at the first key from there
on. No other message can stand among them: a row may be cut anywhere, at any time, and no message
changes its place.

- A row of LEASE is a row of READY, or a piece of it. What stood in several rows is never joined:
  the key of a message would no longer lead to its row.
- Whoever takes the first messages writes the rest under its key, in rows of as many as were taken.
- Whoever takes from the middle cuts the row once.
- Whoever settles some leases of a row cuts it into single ones, once: all others of its consumer
  will probably be settled one by one, too. An extension leaves the row as it is.

Each of these reads what it cuts with a conflict on the keys from its message to that of the row,
and clears the row: of two that change a row, one fails, and finds the other's cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import accumulate, groupby
from typing import NamedTuple, TypeAlias, cast, final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import CorruptData, LeaseLost, MessagePlanned
from ..schema import once
from ..schema.codec import encode
from ..schema.envelope import INLINE_LIMIT, Envelope, open_envelope
from ..schema.keys import QueueKeys
from ..schema.leases import CLAIM_BYTES, Lease, place_of
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..store.client import pack_int
from ..store.clocks import Moment
from ..values.model import RANDOM_BYTES, Delivery, Position
from . import place

MIN_MESSAGES = 8
"""Fewer stand alone: consumers that take one message would only cut the row again."""
MAX_MESSAGES = 1_000
MAX_BYTES = INLINE_LIMIT
"""The most messages of a row, and bytes of their envelopes."""
LENGTH_BYTES = 5
"""The most that a shared row adds to an envelope."""
MIN_SPAN = 8
"""How many leases of one claim and level are read as a range."""
MAX_OTHER_BYTES = 500_000
"""The most bytes of others' leases that are read with them."""

_SHARED = b"B"
"""What a shared row begins with; an envelope begins with its version."""
_NUMBER_BYTES = 2
_NUMBERED = RANDOM_BYTES + _NUMBER_BYTES
_LAST = b"\xff" * (_NUMBER_BYTES + 1)
"""Behind all numbers of a run."""
_BYTES = b"\x01"
"""How a packed byte string begins."""
_NO_BYTE = b"\x00\xff"
_decode = msgspec.msgpack.Decoder(list[bytes]).decode

NOWHERE = Position(0, 0, b"")
"""Of a message whose position is not known."""


@cache
def _packed(n: int) -> bytes:
    """How a key ends that has the number ``n``."""
    return n.to_bytes(_NUMBER_BYTES, "big").replace(b"\x00", _NO_BYTE) + b"\x00"


@cache
def _hex(n: int) -> str:
    """How an id ends that has the number ``n``."""
    return n.to_bytes(_NUMBER_BYTES, "big").hex()


def _number(position: Position) -> int:
    return int.from_bytes(position.random[RANDOM_BYTES:], "big")


def member(first: Position, n: int) -> Position:
    """The position of message ``n`` of a run, given the one that the run was given."""
    random = first.random[:RANDOM_BYTES] + n.to_bytes(_NUMBER_BYTES, "big")
    return Position(first.level, first.index, random)


def pack_row(envelopes: Sequence[bytes]) -> bytes:
    """The envelopes of a row, as they are stored."""
    # A message alone is stored as its bare envelope: one format, whether it came alone or was left
    # over from a run.
    return envelopes[0] if len(envelopes) == 1 else _SHARED + encode(envelopes)


def _envelopes(position: Position, value: bytes) -> list[bytes]:
    """The envelopes in a row whose last message is at a position. A shared row that cannot be read
    is one message that cannot."""
    # An envelope cannot begin so, and a place without a number has never been shared.
    if value[:1] == _SHARED and len(position.random) == _NUMBERED:
        try:
            found = _decode(value[1:])
        except (msgspec.MsgspecError, ValueError):
            return [value]
        # More messages than numbers up to the last one is no row that this layer wrote.
        if 0 < len(found) <= _number(position) + 1:
            return found
    return [value]


class MessageRun(Struct, eq=False):
    """The messages of a row, in their order, as one transaction has read and changed it.

    key: of the row, and so of its last message. position: of that. values: the stored envelopes.
    gone: those that the transaction has removed.
    """

    key: bytes
    position: Position
    values: list[bytes]
    gone: set[int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keys(self) -> list[bytes]:
        """The keys of its messages, as if each stood alone."""
        if len(self.values) == 1:
            return [self.key]
        head = self.key[: -len(_packed(_number(self.position)))]
        return [head + _packed(n) for n in self._numbers]

    @property
    def positions(self) -> list[Position]:
        """Those of its messages."""
        last = self.position
        if len(self.values) == 1:
            return [last]
        level, index, random = last.level, last.index, last.random[:RANDOM_BYTES]
        numbers = [n.to_bytes(_NUMBER_BYTES, "big") for n in self._numbers]
        return [Position(level, index, random + number) for number in numbers]

    @property
    def _numbers(self) -> range:
        end = _number(self.position) + 1
        return range(end - len(self.values), end)

    @property
    def ids(self) -> list[str]:
        """The ids that name the positions of its messages."""
        last = self.position
        if len(self.values) == 1:
            return [last.to_id()]
        return _ids(replace(last, random=last.random[:RANDOM_BYTES]), self._numbers)

    @property
    def span(self) -> slice:
        """The keys of its messages: no other message can stand among them."""
        return slice(self._key(0), self.key + b"\x00")

    def since(self, key: bytes) -> int:
        """Which of its messages is the first whose key is this or a later one."""
        return 0 if key <= self._key(0) else bisect_left(self.keys, key)

    def index(self, position: Position) -> int:
        """Which of its messages is at a position."""
        count = len(self.values)
        return 0 if count == 1 else _number(position) - _number(self.position) + count - 1

    def at(self, n: int) -> Position:
        """The position of one of its messages."""
        last, count = self.position, len(self.values)
        return last if n == count - 1 else member(last, _number(last) - count + 1 + n)

    def part(self, begin: int, end: int) -> MessageRun:
        """Some of its messages, as a row of their own."""
        if end - begin == len(self.values):
            return self
        return MessageRun(self._key(end - 1), self.at(end - 1), self.values[begin:end])

    def without(self, gone: Iterable[int], most: int) -> Iterator[tuple[bytes, list[bytes]]]:
        """The rows of what is left, with at most ``most`` messages each, once these messages are
        removed as well as those before: their keys and their envelopes."""
        self.gone = removed = {*(self.gone or ()), *gone}
        begin, count, values = 0, len(self.values), self.values
        if len(removed) == count:
            return
        keys = self.keys
        for n in range(count + 1):
            leaves = n == count or n in removed
            if leaves or n - begin == most:
                if begin < n:
                    yield keys[n - 1], values[begin:n]
                begin = n + leaves

    def _key(self, n: int) -> bytes:
        count = len(self.values)
        # The packed number has one more byte for each zero byte in it, so keys of a run differ in
        # length, and the last one's is known already.
        if n == count - 1:
            return self.key
        last = _number(self.position)
        return self.key[: -len(_packed(last))] + _packed(last - count + 1 + n)


def _ids(first: Position, numbers: Iterable[int]) -> list[str]:
    named = first.to_id()
    return [named + _hex(n) for n in numbers]


def _head(place: bytes) -> bytes | None:
    """What the places of all messages of a run begin with, given one of them, or any longer key;
    None if the message never shared a row.

    place: what a key adds to READY or LEASE. That of a lease of a plan begins with a claim.
    """
    try:
        if place[:1] == _BYTES:
            end = place.index(b"\x00")
            while place[end + 1 : end + 2] == b"\xff":
                end = place.index(b"\x00", end + 1)
            return place[: end + 1]
        level = place[0] - 0x13
        random = level + place[level] - 0x13
        packed = place[random:]
    except (ValueError, IndexError):  # A token that somebody made up.
        return None
    # Zero bytes are escaped in keys: their number decides whether the random part is long enough to
    # have a number at its end.
    if len(packed) - packed.count(_NO_BYTE) != _NUMBERED + 2:
        return None
    packed = packed[:-1]
    for _ in range(_NUMBER_BYTES):
        packed = packed[: -2 if packed.endswith(_NO_BYTE) else -1]
    return place[:random] + packed


def _rest(prefix: bytes, key: bytes) -> bytes:
    """Where the keys of a run end, given that of one of its messages in READY or LEASE."""
    head = _head(key[len(prefix) :])
    return key + b"\x00" if head is None else prefix + head + _LAST


def before(keys: QueueKeys, key: bytes) -> bytes:
    """A key of READY or LEASE that is not among those of a run: before all of it, or else the same
    key."""
    for prefix in (keys.ready.prefix, keys.lease.prefix):
        if key.startswith(prefix) and (head := _head(key[len(prefix) :])) is not None:
            return prefix + head
    return key


def behind(keys: QueueKeys, key: bytes) -> bytes:
    """A key of READY or LEASE behind all of a run: its row belongs to a range that ends within."""
    at = key[:-1] if key.endswith(b"\x00\x00") else key  # Ends behind a message, or at one.
    for prefix in (keys.ready.prefix, keys.lease.prefix):
        if at.startswith(prefix) and _head(at[len(prefix) :]) is not None:
            return _rest(prefix, at)
    return key


class Alone(NamedTuple):
    """A message of a row, as if it stood alone."""

    key: bytes
    value: bytes


AnyRow: TypeAlias = "fdb.KeyValue | Alone"


def alone(keys: QueueKeys, found: Iterable[AnyRow]) -> Iterator[AnyRow]:
    """Rows of any kind, with a row for each message of a run."""
    for kv in found:
        if kv.key.startswith(keys.ready.prefix):
            yield from (Alone(one.key, one.value) for one in ready(keys, [kv]))
            continue
        if kv.key.startswith(keys.lease.prefix):
            # A lease that cannot be read is passed on as it stands: whoever checks or removes rows
            # has to see it.
            with suppress(CorruptData):
                yield from [Alone(one.key, one.lease.pack()) for one in leases(keys, [kv])]
                continue
        yield kv


def scanned(keys: QueueKeys, found: Iterable[AnyRow], within: slice) -> Iterator[MessageRun]:
    """Rows of any kind, as far as their messages have keys in a range.

    Of one that is not shared, nothing is looked at but leases: it may have no position.
    """
    for kv in found:
        key, value = kv.key, kv.value
        row = MessageRun(key, NOWHERE, [value])
        if key.startswith(keys.lease.prefix):
            with suppress(CorruptData):
                row = leased(keys, key, value)
        elif value[:1] == _SHARED and key.startswith(keys.ready.prefix):
            position = keys.parse_ready(key)
            row = MessageRun(key, position, _envelopes(position, value))
        begin, end = 0, len(row.values)
        if not within.start <= row._key(0) or not key < within.stop:
            begin, end = (bisect_left(row.keys, edge) for edge in (within.start, within.stop))
        if begin < end:
            yield row.part(begin, end)


def places(
    keys: QueueKeys, found: Iterable[MessageRun]
) -> tuple[list[int | None], list[str | None]]:
    """The levels of ready or leased messages that were scanned, and the ids that name their
    positions; None for those of a lease that cannot be read."""
    levels: list[int | None] = []
    ids: list[str | None] = []
    for known, some in groupby(found, lambda row: row.position is not NOWHERE):
        if known:
            for row in some:
                levels += [row.position.level] * len(row.values)
                ids += row.ids
            continue
        unread = [row.key for row in some]
        if unread[0].startswith(keys.lease.prefix):
            levels += [None] * len(unread)
            ids += [None] * len(unread)
        else:  # Neighbours, whose keys are read at once.
            each = keys.ready_ids(unread)
            levels += each[0]
            ids += each[1]
    return levels, ids


class ReadyMessage(NamedTuple):
    """A ready message as it is stored: its own key, its envelope, its position and its row."""

    key: bytes
    value: bytes
    position: Position
    row: MessageRun

    @property
    def message(self) -> StoredMessage:
        """The message, opened."""
        return StoredMessage(self.position, open_envelope(self.value), row=self.row)


def row(keys: QueueKeys, kv: AnyRow) -> MessageRun:
    """The run in a row of READY."""
    key, value = kv.key, kv.value
    position = keys.parse_ready(key)
    values = [value] if value[:1] != _SHARED else _envelopes(position, value)
    return MessageRun(key, position, values)


def rows(keys: QueueKeys, found: Iterable[AnyRow]) -> Iterator[MessageRun]:
    """The runs in rows of READY."""
    return (row(keys, kv) for kv in found)


def ready(keys: QueueKeys, found: Iterable[AnyRow], begin: bytes = b"") -> Iterator[ReadyMessage]:
    """The messages of rows of READY, in order, without those of a run before the key ``begin``.

    Whoever reads from a place within a run reads its row, which stands behind that.
    """
    for row in rows(keys, found):
        if len(row.values) == 1:
            yield ReadyMessage(row.key, row.values[0], row.position, row)
            continue
        for each in zip(row.keys, row.values, row.positions, strict=True):
            if each[0] >= begin:
                yield ReadyMessage(*each, row)


def find(
    tr: fdb.TransactionRead, keys: QueueKeys, position: Position
) -> Callable[[], StoredMessage | None]:
    """Issue the read of the ready message at a position: one row.

    On a transaction, conflicts with whatever changes the row as far as it has the message: another
    that cuts it clears its key.
    """
    key = keys.ready_key(position)
    stop = _rest(keys.ready.prefix, key)
    # The first row from the key on has the message, if any has: a range read conflicts from the key
    # to that row's, and so with every cut of it.
    found = tr.get_range(key, stop, limit=1)

    def await_it() -> StoredMessage | None:
        there = (one for one in ready(keys, found) if one.position == position)
        one = next(there, None)
        return None if one is None else one.message

    return await_it


class ReadyPiece(Struct, eq=False):
    """Ready messages that follow each other in a row, opened. All of them have side records, or
    none has: that is ``plain``. begin: which of the row the first of them is."""

    row: MessageRun
    begin: int
    envelopes: list[Envelope]
    plain: bool

    def __len__(self) -> int:
        return len(self.envelopes)

    @property
    def end(self) -> int:
        """Which of the row follows the last of them."""
        return self.begin + len(self.envelopes)

    @property
    def run(self) -> MessageRun:
        """The same, as a row of their own."""
        return self.row.part(self.begin, self.end)

    def part(self, begin: int, end: int) -> ReadyPiece:
        """Some of them."""
        return ReadyPiece(self.row, self.begin + begin, self.envelopes[begin:end], self.plain)

    def messages(self, consumer: str = "") -> list[StoredMessage]:
        """The messages, in the hands of a consumer."""
        each = zip(self.run.positions, self.envelopes, strict=True)
        return [StoredMessage(at, envelope, consumer, row=self.row) for at, envelope in each]


def piece(pieces: list[ReadyPiece], row: MessageRun, n: int, envelope: Envelope) -> None:
    """Add message ``n`` of a row to the last of some pieces, or as a piece of its own."""
    plain = envelope.plain
    if pieces:
        last = pieces[-1]
        # A lease row says once whether its messages are plain, so pieces end where that changes.
        if last.row is row and last.end == n and last.plain == plain:
            last.envelopes.append(envelope)
            return
    pieces.append(ReadyPiece(row, n, [envelope], plain))


def pieces(keys: QueueKeys, messages: Iterable[StoredMessage]) -> list[ReadyPiece]:
    """The pieces of rows that ready messages are. One that this transaction has made ready may have
    no row yet: it stands alone."""
    found: list[ReadyPiece] = []
    for message in messages:
        position = message.position
        if message.row is None:
            # Its value is not needed: of a message alone only the key is cleared.
            row, n = MessageRun(keys.ready_key(position), position, [b""]), 0
        else:
            row = row_of(message)
            n = row.index(position)
        piece(found, row, n, message.envelope)
    return found


def row_of(message: StoredMessage) -> MessageRun:
    """The row that a ready message was read in."""
    assert message.row is not None, "the message is not ready"
    return cast("MessageRun", message.row)


def watch(tr: fdb.Transaction, ready: Iterable[StoredMessage | ReadyPiece]) -> None:
    """Conflict with others that take, change or remove these ready messages, or share a row."""
    for each in ready:
        span = cast("MessageRun", each.row).span
        tr.add_read_conflict_range(span.start, span.stop)


def write(tr: fdb.Transaction, key: bytes, envelopes: Sequence[bytes]) -> None:
    """Make messages ready in one row: nothing else does that."""
    tr.set(key, pack_row(envelopes))


def enter(
    tr: fdb.Transaction, keys: QueueKeys, first: Position, envelopes: Sequence[bytes]
) -> None:
    """Make messages ready that come in together, at one place."""
    last = len(envelopes) - 1
    write(tr, keys.ready_key(member(first, last) if last else first), envelopes)


def append(
    tr: fdb.Transaction,
    scope: Scope,
    level: int,
    rows: Sequence[NewRow],
    firsts: Sequence[Envelope],
    end: place.LevelEndReads,
) -> list[Position]:
    """Make messages of a level ready, in their order, behind all others; in a sorted level, among
    them. Returns the places of the first of each row. One that may have to wait at a gate is only
    given its place. The caller records that.

    firsts: of each row, which only a sorted level needs. end: the reads of the level's end.
    Conflicts as ``place.assign``.
    """
    positions = place.assign(tr, scope, level, len(rows), firsts, end)
    for row, first in zip(rows, positions, strict=True):
        # What may have to wait at a gate gets an index now, so that it keeps its place among those
        # that came with it; the gate decides later whether it is written to READY.
        if row.packed:
            enter(tr, scope.keys, first, row.packed)
    return positions


def members(first: Position, count: int) -> list[Position]:
    """The positions of messages that ``enter`` at one place."""
    return [member(first, n) for n in range(count)] if count > 1 else [first]


def ids(first: Position, count: int) -> list[str]:
    """The ids of messages that ``enter`` at one place."""
    return _ids(first, range(count)) if count > 1 else [first.to_id()]


class NewRow(NamedTuple):
    """Messages that come in together, in one row.

    numbers: of the messages, among all that come. packed: their envelopes; none for one that may
    share no row, which may have to wait at a gate.
    """

    numbers: Sequence[int]
    packed: Sequence[bytes]


def divide(numbers: Sequence[int], envelopes: Sequence[Envelope], alike: bool) -> list[NewRow]:
    """The rows of messages of one level, as few as these may be. alike: whether those that stand
    behind each other may share a row."""
    found: list[NewRow] = []
    together: list[int] = []
    packed: list[bytes] = []
    for n, envelope in zip(numbers, envelopes, strict=True):
        if envelope.shareable and alike:
            together.append(n)
            packed.append(envelope.pack())
            continue
        if together:
            found += fill(together, packed)
            together, packed = [], []
        found.append(NewRow([n], [envelope.pack()] if envelope.shareable else []))
    return found + fill(together, packed)


def fill(numbers: Sequence[int], packed: Sequence[bytes]) -> list[NewRow]:
    """The rows of messages that stand behind each other and may share them."""
    # The rest of a full row may be too few to share one.
    if len(numbers) < MIN_MESSAGES:
        return [NewRow([n], [each]) for n, each in zip(numbers, packed, strict=True)]
    found: list[NewRow] = []
    # Running sums, so that each row's end is found by bisection rather than by adding up the same
    # sizes again.
    ends = [0, *accumulate([len(each) + LENGTH_BYTES for each in packed])]
    begin = 0
    while begin < len(numbers):
        fits = bisect_right(ends, ends[begin] + MAX_BYTES) - 1
        # At least one, or a message of more than a row's bytes would never come in.
        end = min(max(begin + 1, fits), begin + MAX_MESSAGES)
        if end - begin < MIN_MESSAGES:
            found += fill(numbers[begin:end], packed[begin:end])
        else:
            found.append(NewRow(numbers[begin:end], packed[begin:end]))
        begin = end
    return found


def most_rows(count: int) -> int:
    """In how many rows, at most, so many small messages come in."""
    return count if count < MIN_MESSAGES else -(-count // MAX_MESSAGES)


@transactional
def put_back(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> None:
    """Make messages ready at their old positions: nothing else does. The caller records that.

    Moves back the cursor of each subscription that wants such a message. Writes blindly.
    """
    keys, tried = scope.keys, once.attempt(tr)
    for each in messages:
        key, envelope = keys.ready_key(each.position), each.envelope
        if envelope.window is not None:  # It has left that of its key, and comes back beside it.
            envelope = replace(envelope, window=None)
        # In a row of its own: to join others of its run would conflict with who takes those.
        write(tr, key, [envelope.pack()])
        # It may have taken the message itself, and may do so again.
        tried.put_back(key)
    place.take_cursors_back(tr, scope, messages)


def remove(
    tr: fdb.Transaction,
    keys: QueueKeys,
    pieces: Iterable[ReadyPiece],
    *,
    cut: bool = False,
    all_until: bytes = b"",
) -> None:
    """Remove ready messages, blindly; MAX on TAIL keeps their indexes from being reused.

    cut: whether to cut what is left of a row into rows of as many messages as leave it. Others
        are expected to take as many next, and need not write the rest again.
    all_until: the end of the last row, if nothing else stands between the first message and that,
        and the caller has read all of it with a conflict.

    Raises ``OwnWritesUnseen`` if the transaction has removed one of them before.
    """
    tops: dict[int, int] = {}
    # By their rows: each message that was looked up has read its row for itself.
    of_rows: dict[bytes, tuple[MessageRun, Sequence[int]]] = {}
    tried = once.attempt(tr)
    for each in pieces:
        row, known = each.row, of_rows.get(each.row.key)
        gone: Sequence[int] = range(each.begin, each.end)
        if known is not None:
            row, gone = known[0], [*known[1], *gone]
        of_rows[row.key] = row, gone
        # A caller may have set an option that hides the transaction's own writes: it would find,
        # and take, the same message again.
        if not tried.brief:
            for key in each.run.keys:
                tried.take(tr, keys, key)
        level, index = row.position.level, row.position.index
        if index > tops.get(level, -1):
            # One MAX for each level instead of one for each message: the largest index covers the
            # others.
            tops[level] = index
    # One clear for many rows. In a caller's transaction it might remove what the caller has put
    # there since, which the reads of this layer have not seen.
    at_once = len(of_rows) > 1 and all_until and once.is_ours(tr)
    if at_once:
        first, _ = next(iter(of_rows.values()))
        tr.clear_range(first.span.start, all_until)
    for row, gone in of_rows.values():
        # The next consumer probably asks for as many: rows of that size are then taken whole, and
        # nothing is written twice.
        most = len(gone) if cut else MAX_MESSAGES
        if at_once:
            leave(tr, row, gone, most)
        else:
            cut_row(tr, row, gone, most)
    for level, index in tops.items():
        place.leave(tr, keys.levels[level], index)


def cut_row(tr: fdb.Transaction, row: MessageRun, gone: Iterable[int], most: int) -> None:
    """Remove messages of a row of READY, and write what is left in rows of at most ``most``."""
    if len(row.values) == 1:
        tr.clear(row.key)
        return
    # Clears the key of the row, which all others that take from it have read with a conflict. What
    # this transaction has written of the row before goes, too.
    span = row.span
    # The span is safe to clear: keys of other runs differ in their random bytes, so none can stand
    # inside.
    tr.clear_range(span.start, span.stop)
    leave(tr, row, gone, most)


def leave(
    tr: fdb.Transaction, row: MessageRun, gone: Iterable[int], most: int = MAX_MESSAGES
) -> None:
    """Write what is left of a row of READY whose keys were cleared, in rows of at most ``most``."""
    for key, values in row.without(gone, most):
        write(tr, key, values)


class Leased(MessageRun, eq=False, kw_only=True):
    """The leases of a row. lease: what all of them say, with the envelope as the row has it.

    Those of a plan have numbers of their own in their claim: ``begin`` is what their keys begin
    with, and ``first`` the number of the first.
    """

    lease: Lease
    begin: bytes = b""
    first: int = 0

    @property
    def keys(self) -> list[bytes]:
        """The keys of the leases, as if each stood alone."""
        if not self.begin:
            return super().keys
        return [self.begin + pack_int(self.first + n) for n in range(len(self.values))]

    def _key(self, n: int) -> bytes:
        return self.begin + pack_int(self.first + n) if self.begin else super()._key(n)

    def part(self, begin: int, end: int) -> Leased:
        """Some of the leases, as a row of their own."""
        if end - begin == len(self.values):
            return self
        values = self.values[begin:end]
        lease = replace(self.lease, position=self.at(end - 1), envelope=pack_row(values))
        first = self.first + begin
        key = self._key(end - 1)
        return Leased(key, lease.position, values, lease=lease, begin=self.begin, first=first)


class One(Struct, frozen=True, eq=False):
    """A lease, in its row, which says what it shares with the others: its claim, say."""

    row: Leased
    n: int

    @property
    def key(self) -> bytes:
        """The key of its own."""
        return self.row._key(self.n)

    @property
    def position(self) -> Position:
        """The position of its message."""
        return self.row.at(self.n)

    @property
    def envelope(self) -> bytes:
        """Its message, as it is stored."""
        return self.row.values[self.n]

    @property
    def place(self) -> bytes:
        """The place of its message."""
        return place_of(self.position)

    def token(self, keys: QueueKeys) -> bytes:
        """The token of the lease."""
        return self.row.lease.claim + self.key[keys.place_begin :]

    def ends(self, others: Mapping[bytes, Moment]) -> Moment:
        """When it ends, given the other ends of its claim by place."""
        lease = self.row.lease
        end = others.get(self.place) if others else None
        return end or Moment(lease.expiry_version, lease.expiry_ms)

    @property
    def lease(self) -> Lease:
        """The lease, in the form of one that shares no row."""
        found = self.row.lease
        if len(self.row.values) == 1:
            return found
        return replace(found, position=self.position, envelope=self.envelope)

    @property
    def message(self) -> StoredMessage:
        """Its message, opened."""
        lease, envelope = self.row.lease, open_envelope(self.envelope)
        return StoredMessage(self.position, envelope, lease.consumer, since_ms=lease.since_ms)

    @property
    def cancelled(self) -> bool:
        """Whether its message was cancelled. Nothing else makes a lease less plain than its message
        is; so few are opened."""
        return not self.row.lease.plain and self.message.envelope.cancelled


def leased(keys: QueueKeys, key: bytes, value: bytes) -> Leased:
    """The leases in a row. Raises ``CorruptData``."""
    lease = Lease.unpack(value)
    envelope = lease.envelope
    values = [envelope] if envelope[:1] != _SHARED else _envelopes(lease.position, envelope)
    if len(values) == 1 or not lease.planned:
        return Leased(key, lease.position, values, lease=lease)
    claim, last = keys.planned.parse(key)
    # Numbers of a plan's leases begin at 0, so such a row was written by something else.
    if last < len(values) - 1:
        raise CorruptData(what="a lease", problem="a plan has no lease before its first")
    begin, first = keys.planned.begin(claim), last - len(values) + 1
    return Leased(key, lease.position, values, lease=lease, begin=begin, first=first)


def leases(keys: QueueKeys, found: Iterable[AnyRow], begin: bytes = b"") -> Iterator[One]:
    """The leases in rows of LEASE, from the key ``begin`` on. Raises ``CorruptData``."""
    for kv in found:
        row = leased(keys, kv.key, kv.value)
        if len(row.values) == 1:
            yield One(row, 0)
            continue
        yield from (One(row, n) for n, key in enumerate(row.keys) if key >= begin)


class Claim(Struct, frozen=True):
    """What all leases say that are taken together. together: how many these are. lasts_ms: how long
    they last."""

    name: bytes
    version: int
    wall_ms: int
    consumer: str
    begun: bool
    together: int
    lasts_ms: int = 0


class LeaseRow(Struct, frozen=True, eq=False):
    """A row of LEASE as it was written: its key and value, the piece of a row of READY that it has,
    and whether none of its messages has side records."""

    key: bytes
    value: bytes
    claim: Claim
    piece: MessageRun
    plain: bool


@final
class WholeRow(Struct, frozen=True, eq=False):
    """All leases of a row, in the hands of a consumer: unchanged, the row has them all.

    expires_at_ms: when they end, as far as the holder knows. of: the deliveries among which are its
    own, from begin to end.
    """

    row: LeaseRow
    expires_at_ms: int
    of: Sequence[Delivery]
    begin: int
    end: int

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """The deliveries of its messages."""
        return self.of[self.begin : self.end]

    @property
    def messages(self) -> list[StoredMessage]:
        """Its messages, opened."""
        piece, consumer = self.row.piece, self.row.claim.consumer
        opened = map(open_envelope, piece.values)
        each = zip(piece.positions, opened, strict=True)
        since_ms = self.row.claim.wall_ms - self.row.claim.lasts_ms
        return [StoredMessage(at, envelope, consumer, since_ms=since_ms) for at, envelope in each]


Held: TypeAlias = Delivery | WholeRow
"""What is settled at once: a delivery, or all of a row."""


def grant(
    tr: fdb.Transaction, keys: QueueKeys, piece: MessageRun, claim: Claim, plain: bool
) -> LeaseRow:
    """Write the leases of a piece of a row of READY, which are one row.

    Blindly: whoever takes the piece has read the row with a conflict, and clears its key.
    """
    # The place is the same in READY and LEASE: the id leads to a message whether it is ready or
    # leased.
    key = keys.lease.prefix + piece.key[keys.place_begin :]
    value = Lease(
        piece.position,
        claim.version,
        claim.wall_ms,
        claim.consumer,
        pack_row(piece.values),
        claim.begun,
        claim.name,
        plain,
        claim.together,
        claim.lasts_ms,
    ).pack()
    tr.set(key, value)
    return LeaseRow(key, value, claim, piece, plain)


def plan(
    tr: fdb.Transaction, keys: QueueKeys, claim: bytes, consumer: str, taken: Iterable[MessageRun]
) -> None:
    """Write the leases of a claim of a plan, in as many rows. Blindly, as ``grant``."""
    begin, n = keys.planned.begin(claim), 0
    for piece in taken:
        n += len(piece)
        value = Lease(piece.position, 0, 0, consumer, pack_row(piece.values)).pack()
        # The key of a row is that of its last lease, as in READY: the first key from a number on
        # has it.
        tr.set(begin + pack_int(n - 1), value)


def planned(keys: QueueKeys, claim: bytes, begin: int = 0, end: int | None = None) -> slice:
    """The keys of the leases of a claim of a plan, from number ``begin`` to before ``end``."""
    stop = keys.planned.under(claim).stop if end is None else keys.planned(claim, end)
    return slice(keys.planned(claim, begin), stop)


def plan_row(keys: QueueKeys, claim: bytes, n: int) -> slice:
    """Where the row begins and ends that has a lease of a plan: it is the first there."""
    key = keys.planned(claim, n)
    return slice(key, _rest(keys.lease.prefix, key))


def plan_claim(keys: QueueKeys, one: One) -> bytes:
    """The claim that one of a plan's leases is under."""
    return keys.planned.parse(one.key)[0]


class _Span:
    """One read of a range instead of one of each key: of some keys that stand together, with few
    others between them. If there are many, or large ones, the rest of the keys are read one by
    one."""

    def __init__(self, tr: fdb.TransactionRead, keys: QueueKeys, wanted: Sequence[bytes]) -> None:
        self._tr = tr
        self._keys = keys
        self._wanted, self._count = frozenset(wanted), len(wanted)
        # Of one key, the row that has it: another would be one more to conflict with.
        # Others' leases may stand between; beyond as many as are wanted, reading them costs more
        # than single reads.
        self._limit = 2 * len(wanted) if len(wanted) > 1 else 1
        self.begin = min(wanted)
        end, mode = _rest(keys.lease.prefix, max(wanted)), fdb.StreamingMode.want_all
        self._range = tr.get_range(self.begin, end, self._limit, False, mode)

    @cached_property
    def _read(self) -> tuple[list[fdb.KeyValue], bool]:
        """The rows that were read, and whether wanted keys may stand behind them."""
        rows: list[fdb.KeyValue] = []
        # Smaller ones are no more than that together.
        large, others = MAX_OTHER_BYTES // self._count, 0
        for kv in self._range:  # The store is asked for the next ones only as these come.
            rows.append(kv)
            if len(kv.value) > large and not self._wanted & self._open([kv]).keys():
                others += len(kv.value)
                if others > MAX_OTHER_BYTES:
                    return rows, True
        return rows, len(rows) == self._limit > 1

    @cached_property
    def _found(self) -> dict[bytes, One | CorruptData]:
        return self._open(self._read[0])

    @property
    def alone(self) -> bool:
        """Whether only the keys stand there, given that all of them do."""
        return len(self._found) == self._count and not self._read[1]

    @property
    def end(self) -> bytes:
        """The end of the last row."""
        return self._read[0][-1].key + b"\x00"

    def has(self, key: bytes) -> bool:
        """Whether a lease was read."""
        return key in self._found

    def get(self, key: bytes) -> One | None:
        """The lease of a key. Raises ``CorruptData``."""
        if key not in self._found and self._read[1]:
            # The range was cut short, so its silence about this key means nothing: read the row by
            # itself.
            stop = _rest(self._keys.lease.prefix, key)
            self._found.update(self._open(self._tr.get_range(key, stop, limit=1)))
        found = self._found.get(key)
        if isinstance(found, CorruptData):
            raise found
        return found

    def _open(self, stored: Iterable[fdb.KeyValue]) -> dict[bytes, One | CorruptData]:
        found: dict[bytes, One | CorruptData] = {}
        for kv in stored:
            try:
                row = leased(self._keys, kv.key, kv.value)
            except CorruptData as error:
                found[kv.key] = error
                continue
            for n, key in enumerate(row.keys):
                found[key] = One(row, n)
        return found


class Leases:
    """Leases that are read together by their tokens: issued when made, awaited when looked at.

    By the keys of their own, with a conflict on each; those that were taken together by one read of
    a range, at snapshot isolation: ``conflict`` adds what is missing. looks: whether all are read
    at snapshot isolation. One more round trip for one that stands in a shared row. last: the last
    read of a single key, if there is one.
    """

    def __init__(
        self, tr: fdb.Transaction, keys: QueueKeys, tokens: Sequence[bytes], *, looks: bool = False
    ) -> None:
        self._tr = tr
        self._keys = keys
        self._looks = looks
        self._tokens = tokens
        self._wanted: list[bytes] = []
        self._reads: list[fdb.Value | _Span] = []
        self.last: fdb.Value | None = None
        # A few single reads are cheaper than a range that may bring others' leases with their
        # envelopes.
        spans = dict(self._spans()) if len(tokens) >= MIN_SPAN else {}
        reads, prefix = tr.snapshot if looks else tr, keys.lease.prefix
        for token in tokens:
            key = prefix + token[CLAIM_BYTES:]
            self._wanted.append(key)
            if key in spans:
                self._reads.append(spans[key])
            else:
                self.last = read = reads.get(key)
                self._reads.append(read)

    def _spans(self) -> Iterator[tuple[bytes, _Span]]:
        """The ranges to read, for each key in them."""
        ends: dict[bytes, list[bytes]] = {}
        for token in self._tokens:
            # The claim and the level: leases of one claim stood together.
            level = token[: token[CLAIM_BYTES] + CLAIM_BYTES - 0x13]
            # A range over several levels would read all that other consumers hold between them.
            ends.setdefault(level, []).append(token_key(self._keys, token))
        for some in ends.values():
            if len(some) >= MIN_SPAN:
                # At snapshot isolation: between these leases others are granted and end all the
                # time, which must not abort this settlement.
                span = _Span(self._tr.snapshot, self._keys, some)
                yield from ((key, span) for key in some)

    def get(self, n: int) -> One | None:
        """The lease with a token; None if there is none. Raises ``CorruptData``."""
        read, key, keys = self._reads[n], self._wanted[n], self._keys
        found: One | None = None
        if isinstance(read, _Span):
            found = read.get(key)
        elif (value := read.value) is not None:
            row = leased(keys, key, value)
            found = One(row, len(row.values) - 1)
        # Its own key is empty, but it may share a row, whose key is that of a later message.
        elif _head(key[keys.place_begin :]) is not None:
            self._reads[n] = shared = self._shared(key)
            found = shared.get(key)
        # Another consumer may hold the same message by now: only the claim in the token tells whose
        # lease this is.
        if found is None or found.row.lease.claim != self._tokens[n][:CLAIM_BYTES]:
            return None
        return found

    def _shared(self, key: bytes) -> _Span:
        """A read of the row that a lease shares: once of those of one row."""
        known = (read for read in self._reads if isinstance(read, _Span) and read.has(key))
        return next(known, None) or _Span(self._tr.snapshot, self._keys, [key])

    def held(self, deliveries: Sequence[Delivery]) -> list[One]:
        """All leases, which are those of deliveries. Raises ``LeaseLost`` that names all that are
        gone, and ``MessagePlanned`` for one of a plan."""
        found: list[One] = []
        lost: list[str] = []
        for n, delivery in enumerate(deliveries):
            one = self.get(n)
            if one is None:
                lost.append(delivery.id)
            elif one.row.lease.planned:
                raise MessagePlanned(message_id=delivery.id, consumer=one.row.lease.consumer)
            else:
                found.append(one)
        # The same delivery twice: the second would be settled after it is gone, which a single read
        # per key does not notice.
        if not lost and len(found) > 1 and len({*self._tokens}) < len(found):
            seen: set[bytes] = set()
            for each in deliveries:
                lost += [each.id] if each.token in seen else []
                seen.add(each.token)
        if lost:
            raise LeaseLost(message_id=lost[0], lost=tuple(lost))
        return found

    def conflict(self, some: Iterable[int]) -> None:
        """Conflict with whoever settles leases that were read, or lets them lapse.

        Whoever cuts or clears a row clears its key; and while a lease stands there, no key between
        its own and that can have another.
        """
        for n in some:
            # Single keys were read with their conflict; ranges at snapshot isolation, because a
            # conflict on the whole range would include leases of others.
            if self._looks or isinstance(self._reads[n], _Span):
                key, one = self._wanted[n], self.get(n)
                stop = key if one is None else one.row.key
                self._tr.add_read_conflict_range(key, stop + b"\x00")

    def remove(self, found: Sequence[One]) -> None:
        """Remove all of the leases, which are held, with a conflict on each."""
        tr, left = self._tr, range(len(found))
        if len(found) >= MIN_SPAN and once.is_ours(tr):
            # With no other between them, as a range, under a conflict with any that comes there. A
            # transaction of the caller's is not to fail because of others.
            # Each once, in their order.
            spans = dict.fromkeys(read for read in self._reads if isinstance(read, _Span))
            at_once = [span for span in spans if span.alone]
            for span in at_once:
                # The range is about to be cleared, so a lease that is granted in it meanwhile must
                # fail this transaction: it would be lost.
                tr.add_read_conflict_range(span.begin, span.end)
                tr.clear_range(span.begin, span.end)
            others = [n for n in left if self._reads[n] not in at_once]
            self.conflict(others)
            end(tr, [found[n] for n in others])
        else:
            self.conflict(left)
            end(tr, found)


def end(tr: fdb.Transaction, ended: Iterable[One]) -> None:
    """Remove leases that were read with a conflict. The others of their rows get rows of their
    own."""
    of_rows: dict[bytes, tuple[Leased, set[int]]] = {}
    for one in ended:
        row = one.row
        if len(row.values) == 1:
            tr.clear(row.key)
        else:
            of_rows.setdefault(row.key, (row, set()))[1].add(one.n)
    for row, gone in of_rows.values():
        tr.clear(row.key)
        for n, key in enumerate(row.keys):
            if n not in gone:
                # Each alone from now on: consumers that settle one message of a row usually settle
                # the others one by one, and these must not conflict with each other.
                tr.set(key, One(row, n).lease.pack())


def rewrite(tr: fdb.Transaction, one: One, lease: Lease) -> None:
    """Store a lease that was read with a conflict, in a row of its own from now on: cuts the row,
    and so conflicts with whoever settles or changes another of it meanwhile."""
    end(tr, [one])
    tr.set(one.key, lease.pack())


def give_up(tr: fdb.Transaction, keys: QueueKeys, one: One, claim: Claim) -> None:
    """Make one of a plan's leases, all of whose row are given up, one that can expire."""
    tr.clear(one.row.key)
    alone = MessageRun(keys.ready_key(one.position), one.position, [one.envelope])
    grant(tr, keys, alone, claim, plain=False)


def lease_key(keys: QueueKeys, position: Position) -> bytes:
    """The key of the lease of a message, unless a plan has that."""
    return keys.lease.prefix + keys.ready_key(position)[keys.place_begin :]


def token_key(keys: QueueKeys, token: bytes) -> bytes:
    """The key of the lease with a token."""
    return keys.lease.prefix + token[CLAIM_BYTES:]


def held_at(
    tr: fdb.TransactionRead, keys: QueueKeys, position: Position
) -> Callable[[], One | None]:
    """Issue the read of the lease at a position, whoever has it: one row. As ``find``."""
    key = lease_key(keys, position)
    found = tr.get_range(key, _rest(keys.lease.prefix, key), limit=1)

    def await_it() -> One | None:
        return next((one for one in leases(keys, found) if one.key == key), None)

    return await_it


def witness(keys: QueueKeys, deliveries: Sequence[Delivery]) -> once.Witness:
    """What tells whether a transaction has leased messages: the last LEASE, with the claim.

    If the leases have expired by then, the messages are received again, as they would have been.
    """
    # The last message of a row has its key.
    token = deliveries[-1].token
    # If a release has put the message back, its READY key says that the lease was there.
    ready = keys.ready.prefix + token[CLAIM_BYTES:]
    return once.Witness(token_key(keys, token), token[:CLAIM_BYTES], ready)

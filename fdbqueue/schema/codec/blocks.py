"""Blocks: messages that were enqueued together share one row of READY.

All messages of a block have one index. Their random parts have the same first eight bytes, then
the number of the message in two bytes. A row has the key of its last message, and the envelopes of
the messages up to there as a list. So the key of a message tells where its row is: at the first key
from there on. Whoever takes the first messages of a block writes the rest under the same key, and a
message that leaves the middle splits the block in two. Either way no message changes its place, and
the order of delivery stays that of the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from ...errors import CorruptData
from ...store.binding import fdb
from ...store.client import pack_bytes, pack_int
from ...values.model import RANDOM_BYTES, Position
from ..keys import QueueKeys
from ..keys.kinds import unpacked, within
from . import encode
from .envelopes import INLINE_LIMIT

SHARED = b"B"
"""What a block begins with; an envelope begins with its version."""
MIN_MESSAGES = 8
"""Fewer stand alone: consumers that take one message would only cut the block again."""
MAX_MESSAGES = 1_000
MAX_BYTES = INLINE_LIMIT
"""The most messages of a block, and bytes of their envelopes."""

LENGTH_BYTES = 5
"""The most that a block adds to an envelope."""

NUMBER_BYTES = 2
_decode = msgspec.msgpack.Decoder(list[bytes]).decode
_NO_BYTE = b"\x00\xff"
_BYTES = b"\x01"
"""How a packed byte string begins."""
_LAST = 2 ** (8 * NUMBER_BYTES) - 1


class Row(NamedTuple):
    """A message of a block, as if it stood alone."""

    key: bytes
    value: bytes


AnyRow = fdb.KeyValue | Row


def pack_block(envelopes: Sequence[bytes]) -> bytes:
    return SHARED + encode(envelopes)


def envelopes(value: bytes) -> list[bytes]:
    """The stored envelopes in a block; raises ``CorruptData``."""
    try:
        found = _decode(value[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptData(what="a block", problem=str(error)) from None
    if not found:
        raise CorruptData(what="a block", problem="it has no envelopes")
    return found


def numbered(position: Position) -> bool:
    """Whether a message was enqueued in a block, and so may share a row."""
    return len(position.random) == RANDOM_BYTES + NUMBER_BYTES


def number(position: Position) -> int:
    """The number of a message in its block."""
    return int.from_bytes(position.random[RANDOM_BYTES:], "big")


def may_share(place: bytes) -> bool:
    """Whether a message may share a row, given what its key adds to its kind, READY or LEASE."""
    try:
        return bool(_claim(place)) if _of_plan(place) else numbered(_at(place))
    except CorruptData:  # a token that somebody made up
        return False


def number_in(place: bytes) -> int:
    return number(_at(place))


def rest(prefix: bytes, key: bytes) -> slice:
    """The keys from that of a message on where it may share a row.

    prefix: of the kind, READY or LEASE.
    """
    place = key[len(prefix) :]
    if not may_share(place):
        return slice(key, key + b"\x00")
    if _of_plan(place):
        return slice(key, within(prefix + pack_bytes(_claim(place))).stop)
    position = _at(place)
    last = placed(base(position), _LAST)
    elements = (last.level, last.index, last.random)
    return slice(key, bytes(fdb.tuple.pack(elements, prefix)) + b"\x00")


def _at(place: bytes) -> Position:
    return Position(*unpacked(place, b"", int, int, bytes))


def _of_plan(place: bytes) -> bool:
    """Whether a key of LEASE is that of a plan: it begins with a claim."""
    return place[:1] == _BYTES


def _claim(place: bytes) -> bytes:
    claim, _ = unpacked(place, b"", bytes, int)
    return bytes(claim)


def base(position: Position) -> Position:
    """The position of a block, given that of one of its messages: without its number."""
    return Position(position.level, position.index, position.random[:RANDOM_BYTES])


def placed(position: Position, n: int) -> Position:
    """The position of message ``n`` of a block, given that of the block: its first eight random
    bytes."""
    random = position.random + n.to_bytes(NUMBER_BYTES, "big")
    return Position(position.level, position.index, random)


def ids(position: Position, numbers: Iterable[int]) -> list[str]:
    """The ids of messages of a block: those of the positions that ``placed`` gives."""
    block = position.to_id()
    return [numbered_id(block, n) for n in numbers]


def numbered_id(block: str, n: int) -> str:
    """The id of message ``n`` of a block, given the id that would name the block's position."""
    return block + n.to_bytes(NUMBER_BYTES, "big").hex()


class Block:
    """The messages of one row of READY, or LEASE, as one transaction has read and changed them.

    position: of the row, and so of the last message. left: the stored envelopes by number, those
    that the transaction has not removed.
    """

    __slots__ = ("_head", "first", "last", "left", "position")

    def __init__(self, key: bytes, position: Position, envelopes: Sequence[bytes]) -> None:
        self.last = number(position)
        self.first = self.last - len(envelopes) + 1
        self.left = dict(enumerate(envelopes, self.first))
        self.position = base(position)
        self._head = key[: -len(_packed(self.last))]

    def key(self, n: int) -> bytes:
        """The key of message ``n``, as if it stood alone."""
        return self._head + _packed(n)

    def places(self, begin: int) -> list[bytes]:
        """The keys of what is left, as from byte ``begin`` on."""
        head = self._head[begin:]
        return [head + _packed(n) for n in self.left]

    def span(self) -> slice:
        """The keys of its messages: no other message can stand among them."""
        return slice(self.key(self.first), self.key(self.last) + b"\x00")

    def place(self, n: int) -> Position:
        """The position of message ``n``."""
        return placed(self.position, n)

    @property
    def level(self) -> int:
        """The level of its messages."""
        return self.position.level

    @property
    def keys(self) -> list[bytes]:
        return [self.key(n) for n in self.left]

    @property
    def ids(self) -> list[str]:
        return ids(self.position, self.left)

    def keep(self, within: slice) -> None:
        """Leave only what has its keys in a range."""
        span = self.span()
        if within.start > span.start or within.stop < span.stop:
            for n in list(self.left):
                if not within.start <= self.key(n) < within.stop:
                    del self.left[n]

    def rows(self, most: int) -> Iterator[tuple[bytes, bytes]]:
        """The rows that hold what is left, each with at most ``most`` messages."""
        run: list[int] = []
        for n in self.left:
            if run and (n != run[-1] + 1 or len(run) == most):
                yield self._row(run)
                run = []
            run.append(n)
        if run:
            yield self._row(run)

    def _row(self, run: Sequence[int]) -> tuple[bytes, bytes]:
        envelopes = [self.left[n] for n in run]
        value = pack_block(envelopes) if len(run) > 1 else envelopes[0]
        return self.key(run[-1]), value


class Planned(Block):
    """The leases of one row of a plan. They are numbered in their claim: the row has the number of
    the last."""

    __slots__ = ("_ahead",)

    def __init__(
        self, claim: bytes, last: int, position: Position, envelopes: Sequence[bytes]
    ) -> None:
        super().__init__(b"", position, envelopes)
        self._head = claim
        self._ahead = last - self.last

    def key(self, n: int) -> bytes:
        """The LEASE key of message ``n``."""
        return self._head + pack_int(n + self._ahead)


@cache
def _packed(n: int) -> bytes:
    """How a READY key ends that has the number ``n``."""
    return n.to_bytes(NUMBER_BYTES, "big").replace(b"\x00", _NO_BYTE) + b"\x00"


def shared(row: AnyRow) -> bool:
    """Whether a row of READY is a block."""
    return row.value[:1] == SHARED


def open_block(key: bytes, position: Position, value: bytes) -> Block | None:
    """The block in a row of READY or LEASE; None if it has one message, or cannot be read."""
    found = _opened(position, value)
    return None if found is None else Block(key, position, found)


def open_planned(keys: QueueKeys, key: bytes, position: Position, value: bytes) -> Planned | None:
    """As ``open_block``, for a row of a plan. Raises ``CorruptData``."""
    found = _opened(position, value)
    if found is None:
        return None
    claim, last = keys.planned.parse(key)
    if last < len(found) - 1:
        raise CorruptData(what="a lease", problem="a plan has no lease before its first")
    return Planned(keys.planned.begin(claim), last, position, found)


def _opened(position: Position, value: bytes) -> list[bytes] | None:
    if value[:1] != SHARED:
        return None
    try:
        found = envelopes(value)
    except CorruptData:
        return None
    if not numbered(position) or number(position) < len(found) - 1:
        return None
    return found


def alone(keys: QueueKeys, rows: Iterable[AnyRow]) -> Iterator[AnyRow]:
    """Rows of READY, with a row for each message of a block, as if it stood alone."""
    for kv in rows:
        block = open_block(kv.key, keys.parse_ready(kv.key), kv.value)
        if block is None:
            yield kv
            continue
        yield from map(Row, block.keys, block.left.values())


def before(keys: QueueKeys, key: bytes) -> bytes:
    """A key of READY or LEASE that is not among those of a block: before all of it, or else the
    same key."""
    for prefix in (keys.ready_prefix, keys.lease_prefix):
        place = key[len(prefix) :]
        if key.startswith(prefix) and may_share(place):
            if _of_plan(place):
                return prefix + pack_bytes(_claim(place))
            at = _at(place)
            elements = (at.level, at.index, at.random[:RANDOM_BYTES])
            return bytes(fdb.tuple.pack(elements, prefix))
    return key


def behind(keys: QueueKeys, key: bytes) -> bytes:
    """As ``before``, but behind all of the block: its row belongs to a range that ends within."""
    at = key[:-1] if key.endswith(b"\x00\x00") else key  # Ends behind a message, or at one.
    for prefix in (keys.ready_prefix, keys.lease_prefix):
        if at.startswith(prefix) and may_share(at[len(prefix) :]):
            return bytes(rest(prefix, at).stop)
    return key

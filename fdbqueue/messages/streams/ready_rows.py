"""Ready messages for a plan, row by row, with those that wait for their ordering keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...schema.codec import blocks
from ...schema.codec.blocks import Block
from ...schema.codec.envelopes import open_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.model import Position
from ..delivery import scan
from ..slots import limits

LOOK_AHEAD = 20
"""How many messages with side records to read ahead, with the lines of their ordering keys."""


class Part(NamedTuple):
    """Ready messages that are taken alike: all of a block, of which only the sizes are needed; or
    one.

    keys: where they stand. payloads: the sizes of the payloads. message: the one, opened, if more
    of it is needed. plain: whether none has side records.
    """

    keys: slice
    last: Position
    block: Block | None
    values: Sequence[bytes]
    payloads: Sequence[int]
    message: StoredMessage | None = None
    plain: bool = True

    def first(self, count: int) -> Position:
        """The position of the last of the first ``count`` messages of the block."""
        assert self.block is not None
        return self.block.place(self.block.first + count - 1)


def _of_row(scope: Scope, row: fdb.KeyValue, position: Position) -> Iterator[Part]:
    silent = scope.options.history_seconds is None
    block = blocks.open_block(row.key, position, row.value) if silent else None
    if block is not None:
        values = list(block.left.values())
        envelopes = [open_envelope(each) for each in values]
        if all(each.plain for each in envelopes):
            sizes = [each.size for each in envelopes]
            yield Part(block.span(), position, block, values, sizes)
            return
    for one in scan.rows(scope.keys, [row]):
        message = scan.message(one)
        plain = message.envelope.plain
        yield Part(
            one.block.span() if one.block else slice(one.key, one.key + b"\x00"),
            one.position,
            one.block,
            [one.value],
            [message.envelope.size],
            None if plain and silent else message,
            plain,
        )


WithLine = tuple[Part, Iterable[fdb.KeyValue]]
"""What is taken, and the messages that wait for its ordering key."""


def read(
    tr: fdb.Transaction, scope: Scope, ends: Mapping[int, int] | None, count: int
) -> Iterator[WithLine]:
    """The first ready messages, at least ``count`` if there are so many, not beyond the ends, with
    the lines of their ordering keys, which are read ahead. Snapshot reads."""
    ahead: deque[WithLine] = deque()
    for part in _first(tr, scope, ends, count):
        line: Iterable[fdb.KeyValue] = ()
        if part.message and part.message.envelope.key:
            line = run_of(tr, scope, part.message.envelope.key)
        ahead.append((part, line))
        if part.plain or len(ahead) > LOOK_AHEAD:
            yield ahead.popleft()
    yield from ahead


def _first(
    tr: fdb.Transaction, scope: Scope, ends: Mapping[int, int] | None, count: int
) -> Iterator[Part]:
    keys, mode = scope.keys, fdb.StreamingMode.want_all
    begin, end = keys.ready_range().start, keys.ready_range().stop
    while count > 0:
        behind = None
        for row in tr.snapshot.get_range(begin, end, limit=count, streaming_mode=mode):
            position = keys.parse_ready(row.key)
            if ends is not None and position.index >= ends[position.level]:
                behind = position.level
                break
            for part in _of_row(scope, row, position):
                count -= len(part.values)
                yield part
            if count <= 0:
                return
        if behind is None:
            return
        # The rest of the level came later: continue with the next one.
        begin = keys.ready_level(behind).stop


def run_of(tr: fdb.Transaction, scope: Scope, key: str) -> Iterator[fdb.KeyValue]:
    """Issue a read of the messages that wait for an ordering key, in order; none of a key with
    several slots, whose messages do not follow each other."""
    every = scope.keys.waiting.under(key)
    own = tr.snapshot.get(scope.keys.limits(key))
    rows = tr.snapshot.get_range(every.start, every.stop)
    return (kv for kv in rows if limits.one_at_a_time(scope, own.value))

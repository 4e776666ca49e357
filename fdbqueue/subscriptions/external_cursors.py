"""Cursors that are kept elsewhere, such as in the checkpoint of a stream.

A move fences like that of a cursor (see there), but the messages are read later, in another
transaction. An enqueue at one of these indexes that committed before is seen then; one that would
commit later fails, and takes a higher index. So the move needs no read conflicts on messages, and
conflicts only with such enqueues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from msgspec import Struct

from ..errors import InvalidArgument
from ..messages import run
from ..messages.place import fence
from ..messages.streams.planning import BatchLimits
from ..schema.envelope import open_envelope
from ..schema.keys import LOWEST, QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from .start_position import FIRST, StartPosition

MAX_PASSED = 5_000
MAX_PASSED_BYTES = 8_000_000
"""How far one transaction moves at most, since it reads the messages."""

STRETCH = 500
"""How many messages a stretch has at most."""
_FIRST_PAGE = 16

PassedRow = tuple[int, bytes, int, int]
"""What is to pass: its level, its key, how many messages it is, and their bytes."""


class Stretch(Struct, array_like=True):
    """Messages that stand together: their level, from which place to which, and how many."""

    level: int
    begin: bytes
    end: bytes
    messages: int = 0


@dataclass(slots=True)
class PassedMessages:
    """How far a transaction has come, by level, and what it passed, in order.

    size: the bytes of all. ended: whether there are no more, or the limits allow no more.
    """

    places: dict[int, bytes]
    stretches: list[Stretch] = field(default_factory=list)
    size: int = 0
    ended: bool = False

    @property
    def messages(self) -> int:
        """How many messages were passed."""
        return sum(each.messages for each in self.stretches)


def advance(
    tr: fdb.Transaction, scope: Scope, before: PassedMessages, limits: BatchLimits
) -> PassedMessages:
    """Move behind ready messages, the most urgent first, and let no more appear among them.

    before: where to start, by level, the lowest by default; and what the batch has already. Of a
    batch that has none, one message is passed even if it exceeds the limits.

    One round trip for a few messages. Snapshot reads; conflicts with concurrent enqueues at the
    passed indexes. Raises ``InvalidArgument`` for a sorted queue.
    """
    _check(scope)
    prefixes = {level: scope.keys.levels[level].ready for level in range(scope.options.levels)}
    passed = pass_over(_ready(tr, scope, before.places, limits), prefixes, before, limits)
    for level in {each.level for each in passed.stretches[len(before.stretches) :]}:
        # Nothing commits among the passed messages from here on, so whoever reads the stretch later
        # sees the same ones.
        fence(tr, scope.keys, level, scope.keys.parse_place(passed.places[level]))
    return passed


def pass_over(
    rows: Iterable[PassedRow],
    prefixes: Mapping[int, bytes],
    before: PassedMessages,
    limits: BatchLimits,
) -> PassedMessages:
    """How far some rows go within the limits. prefixes: of the keys of each level."""
    passed = PassedMessages(dict(before.places), [*before.stretches], before.size)
    count, stretch, last = before.messages, Stretch(-1, b"", b""), b""
    most, most_bytes = count + MAX_PASSED, passed.size + MAX_PASSED_BYTES

    def close() -> None:
        if stretch.messages:
            # Behind the last row, before any other.
            stretch.end = last[len(prefixes[stretch.level]) :] + b"\x00"
            passed.places[stretch.level] = stretch.end
            passed.stretches.append(stretch)

    for level, key, messages, size in rows:
        over = limits.messages is not None and count + messages > limits.messages
        over = over or (limits.size is not None and passed.size + size > limits.size)
        if over and count:
            passed.ended = True
            break
        if stretch.level != level or stretch.messages >= STRETCH:
            close()
            stretch = Stretch(level, passed.places.get(level, LOWEST), b"")
        stretch.messages += messages
        passed.size += size
        last, count = key, count + messages
        if count == limits.messages:
            passed.ended = True
            break
        if count >= most or passed.size >= most_bytes:
            break
    else:
        passed.ended = True
    close()
    return passed


def begin(tr: fdb.Transaction, scope: Scope, start: StartPosition) -> dict[int, bytes]:
    """The places, by level, of a start position. At most one round trip.

    "now" is behind all messages, and later enqueues come behind that, as in ``advance``. Raises
    ``InvalidArgument`` for a level that the queue does not have, and for a sorted queue.
    """
    _check(scope)
    if start.name == FIRST:
        return {}
    found = start.find(tr, scope)
    for level, (_, index) in found.items():
        fence(tr, scope.keys, level, index)
    return {level: cursor for level, (cursor, _) in found.items()}


def _check(scope: Scope) -> None:
    if scope.options.sort is not None:
        raise InvalidArgument(
            argument="queue",
            value=scope.name,
            problem="it is sorted, so a message may come in where a stream has passed: "
            "read it as a table, or consume it from the first message on",
        )


def _ready(
    tr: fdb.Transaction, scope: Scope, places: Mapping[int, bytes], limits: BatchLimits
) -> Iterator[PassedRow]:
    keys = scope.keys
    levels = {level: _within(keys, level, places, limits) for level in range(scope.options.levels)}
    first = {
        level: tr.snapshot.get_range(
            within.start, within.stop, limit=_FIRST_PAGE, streaming_mode=fdb.StreamingMode.exact
        )
        for level, within in levels.items()
    }
    for level, within in levels.items():
        page = first[level].to_list()
        rows: Iterable[fdb.KeyValue] = page
        if len(page) == _FIRST_PAGE:
            mode = fdb.StreamingMode.want_all
            begin = page[-1].key + b"\x00"
            rows = chain(page, tr.snapshot.get_range(begin, within.stop, streaming_mode=mode))
        for row in run.rows(keys, rows):
            fits = row.since(within.start)
            for key, value in zip(row.keys[fits:], row.values[fits:], strict=True):
                size = len(value)
                if limits.size is not None:
                    size += open_envelope(value).chunk_bytes
                yield level, key, 1, size


def _within(keys: QueueKeys, level: int, places: Mapping[int, bytes], limits: BatchLimits) -> slice:
    within = keys.ready_from(level, places.get(level, LOWEST))
    if limits.ends is None:
        return within
    end = keys.ready.begin(level, limits.ends[level])
    return slice(within.start, max(within.start, end))

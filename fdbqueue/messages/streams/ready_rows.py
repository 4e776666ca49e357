"""Ready messages for a plan, row by row, with those that wait for their ordering keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...schema.envelope import open_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from .. import run
from ..run import MessageRun
from ..slots import key_limits

LOOK_AHEAD = 20
"""How many messages with side records to read ahead, with the lines of their ordering keys."""


class ReadyPart(NamedTuple):
    """Ready messages that are taken alike: all of a row, of which only the sizes are needed; or
    one.

    row: where they stand, from ``begin`` on. payloads: the sizes of the payloads. message: the
    one, opened, if more of it is needed. plain: whether none has side records.
    """

    row: MessageRun
    begin: int
    payloads: Sequence[int]
    message: StoredMessage | None = None
    plain: bool = True

    @property
    def values(self) -> Sequence[bytes]:
        """The envelopes, as they are stored."""
        return self.row.values[self.begin : self.begin + len(self.payloads)]


def _of_row(scope: Scope, row: MessageRun, begin: int) -> Iterator[ReadyPart]:
    silent = scope.options.history_seconds is None
    envelopes = [open_envelope(each) for each in row.values[begin:]]
    if silent and all(each.plain for each in envelopes):
        yield ReadyPart(row, begin, [each.size for each in envelopes])
        return
    for n, envelope in enumerate(envelopes, begin):
        message = StoredMessage(row.at(n), envelope, row=row)
        closer = None if envelope.plain and silent else message
        yield ReadyPart(row, n, [envelope.size], closer, envelope.plain)


WithLine = tuple[ReadyPart, Iterable[fdb.KeyValue]]
"""What is taken, and the messages that wait for its ordering key."""


def first_parts(
    tr: fdb.Transaction,
    scope: Scope,
    begins: Mapping[int, bytes],
    ends: Mapping[int, int] | None,
    count: int,
) -> Iterator[WithLine]:
    """The first ready messages, at least ``count`` if there are so many, from some places on and
    not beyond the ends, with the lines of their ordering keys, which are read ahead. Snapshot
    reads."""
    ahead: deque[WithLine] = deque()
    for part in _first(tr, scope, begins, ends, count):
        line: Iterable[fdb.KeyValue] = ()
        if part.message and part.message.envelope.key:
            # Issued twenty messages ahead: one round trip for many keys, instead of one for each.
            line = run_of(tr, scope, part.message.envelope.key)
        ahead.append((part, line))
        if part.plain or len(ahead) > LOOK_AHEAD:
            yield ahead.popleft()
    yield from ahead


def _first(
    tr: fdb.Transaction,
    scope: Scope,
    begins: Mapping[int, bytes],
    ends: Mapping[int, int] | None,
    count: int,
) -> Iterator[ReadyPart]:
    keys, mode = scope.keys, fdb.StreamingMode.want_all
    # What is left to others, before the begins, is not read: it may be much.
    starts = {0: keys.ready.rows.start}
    starts |= {level: keys.ready_from(level, place).start for level, place in begins.items()}
    first, *others = sorted(starts)
    stops = [*(keys.ready.under(level).start for level in others), keys.ready.rows.stop]
    for known, end in zip((first, *others), stops, strict=True):
        begin = starts[known]
        while begin < end and count > 0:
            found = tr.snapshot.get_range(begin, end, limit=count, streaming_mode=mode)
            begin = end
            for row in run.rows(keys, found):
                level, index = row.position.level, row.position.index
                if ends is not None and index >= ends[level]:
                    # The rest of the level came later: continue with the next one.
                    begin = keys.ready.under(level).stop
                    break
                for part in _of_row(scope, row, row.since(starts.get(level, b""))):
                    count -= len(part.payloads)
                    yield part
                if count <= 0:
                    return


def run_of(tr: fdb.Transaction, scope: Scope, key: str) -> Iterator[fdb.KeyValue]:
    """Issue a read of the messages that wait for an ordering key, in order; none of a key with
    several slots, whose messages do not follow each other."""
    every = scope.keys.waiting.under(key)
    own = tr.snapshot.get(scope.keys.limits(key))
    rows = tr.snapshot.get_range(every.start, every.stop)
    return (kv for kv in rows if key_limits.one_at_a_time(scope, own.value))

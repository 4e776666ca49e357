"""Passing messages for somebody who keeps the place elsewhere, as in the checkpoint of a stream.

The fence is that of a cursor (see there), but here nothing is looked at in the transaction that
passes it: whoever wants to see what was passed reads that afterwards. So an enqueue that took one
of the passed indexes and committed before is seen, and one that would commit later fails, and takes
a higher index. The move need not read the messages with conflicts, and conflicts with nothing but
such enqueues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import InvalidArgument
from ..messages.streams import planning
from ..messages.streams.planning import Limits
from ..schema.codec.envelopes import FIELDS, stored_fields
from ..schema.keys import LOWEST, QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..values.model import Position
from . import cursors
from .start_position import FIRST, Place

MAX_PASSED = 5_000
MAX_PASSED_BYTES = 8_000_000
"""What one transaction passes at most; it has to read it."""

_FIRST_PAGE = 16
_CHUNK_BYTES = FIELDS["chunk_bytes"]


@dataclass(slots=True)
class Passed:
    """How far a transaction has come, by level, and how many messages, of how many bytes, it has
    passed in each; ended: whether there are no more, or no more may be passed."""

    places: dict[int, bytes]
    counts: dict[int, int] = field(default_factory=dict)
    size: int = 0
    ended: bool = False

    @property
    def messages(self) -> int:
        """How many it has passed."""
        return sum(self.counts.values())


@transactional
def onward(
    tr: fdb.Transaction,
    scope: Scope,
    places: Mapping[int, bytes],
    limits: Limits,
    *,
    more: bool = False,
) -> Passed:
    """Pass ready messages, the most urgent first, and see that none appears there any more.

    places: where to go on, by level; the lowest where a level has none. more: whether something
    was passed before, so that one message that exceeds the limits need not be.

    One round trip if there are few. Snapshot reads; conflicts with enqueues that take one of the
    passed indexes at the same time.
    """
    passed = Passed(dict(places))
    last: dict[int, Position] = {}
    for position, value in _ready(tr, scope, places, limits):
        size = len(value)
        if limits.size is not None:
            size += stored_fields(value).get(_CHUNK_BYTES, 0)
            if (more or passed.counts) and passed.size + size > limits.size:
                passed.ended = True
                break
        passed.size += size
        passed.counts[position.level] = passed.counts.get(position.level, 0) + 1
        last[position.level] = position
        if passed.messages == limits.messages:
            passed.ended = True
            break
        if passed.messages == MAX_PASSED or passed.size >= MAX_PASSED_BYTES:
            break
    else:
        passed.ended = True
    for level, position in last.items():
        passed.places[level] = cursors.behind(scope.keys, position)
        cursors.fence(tr, scope.keys, level, position.index)
    return passed


@transactional
def begin(tr: fdb.Transaction, scope: Scope, place: Place) -> dict[int, bytes]:
    """The places from which on a place is gone on from. One round trip at most.

    From now on is behind all that is there; what is enqueued later comes behind that, as in
    ``onward``. Raises ``InvalidArgument`` for a level that the queue does not have.
    """
    keys, position = scope.keys, place.position
    if place.name == FIRST:
        return {}
    if position is not None and position.level >= scope.options.levels:
        raise InvalidArgument(
            argument=place.argument, value=place.name, problem="the queue has no such level"
        )
    ends = planning.ends(tr, scope)
    if position is not None and position.index < ends[position.level]:
        return {position.level: keys.place(position)}
    wanted = ends if position is None else {position.level: ends[position.level]}
    for level, index in wanted.items():
        cursors.fence(tr, keys, level, index - 1)
    return {level: keys.place(Position(level, index, b"")) for level, index in wanted.items()}


def _ready(
    tr: fdb.Transaction, scope: Scope, places: Mapping[int, bytes], limits: Limits
) -> Iterator[tuple[Position, bytes]]:
    keys = scope.keys
    levels = {level: _within(keys, level, places, limits) for level in range(scope.options.levels)}
    first = {
        level: tr.snapshot.get_range(
            within.start, within.stop, limit=_FIRST_PAGE, streaming_mode=fdb.StreamingMode.exact
        )
        for level, within in levels.items()
    }
    for level, within in levels.items():
        rows = first[level].to_list()
        for kv in rows:
            yield keys.parse_ready(kv.key), kv.value
        if len(rows) == _FIRST_PAGE:
            mode = fdb.StreamingMode.want_all
            begin = rows[-1].key + b"\x00"
            for kv in tr.snapshot.get_range(begin, within.stop, streaming_mode=mode):
                yield keys.parse_ready(kv.key), kv.value


def _within(keys: QueueKeys, level: int, places: Mapping[int, bytes], limits: Limits) -> slice:
    within = keys.ready_from(level, places.get(level, LOWEST))
    if limits.ends is None:
        return within
    end = keys.ready_end(level, limits.ends[level])
    return slice(within.start, max(within.start, end))

"""Index allocation: a new message takes the index behind all others of its level.

As in FoundationDB's queue recipe, the index follows the last one that a snapshot read sees, and
random bytes tell apart messages that took the same index at the same time. TAIL is an addition: the
highest index ever removed, so that indexes never repeat, even after the queue ran empty.

A cursor that passes an index aborts an enqueue in flight at that index (FENCE). A long transaction
would be aborted again and again, so each retry *leaps*: it takes an index further ahead, which no
cursor reaches soon. Gaps are harmless, and a transaction that begins after the commit sees the key
and goes behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...errors import CorruptData
from ...schema import once
from ...schema.codec.atomic import MAX_INDEX
from ...schema.codec.envelopes import Envelope
from ...schema.keys import LevelKeys, QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store import world
from ...store.binding import fdb
from ...store.client import pack_bytes, pack_int, parse_int
from ...store.clocks import VERSIONS_PER_SECOND
from ...values.model import RANDOM_BYTES, Position

FIRST_LEAP = 16
MAX_LEAP = 65_536
_VERSIONS_PER_INDEX = 1_000
"""A message a millisecond: more than others enqueue beside a transaction that takes long."""
_HALVED_VERSIONS = 2 * VERSIONS_PER_SECOND
"""After how long half of a leap is remembered that nobody needed meanwhile."""
_MAX_HALVINGS = 16
MAX_REMEMBERED = 1_000
"""Levels of queues whose last leap a process remembers."""


class Reads(NamedTuple):
    """The reads of the end of a level, issued and not awaited."""

    last: fdb.Key
    tail: fdb.Value


def reads(tr: fdb.Transaction, keys: QueueKeys, level: int) -> Reads:
    """Issue snapshot reads of the end of a level, without waiting for them."""
    prepared, snapshot = keys.levels[level], tr.snapshot
    return Reads(snapshot.get_key(prepared.last), snapshot.get(prepared.tail))


def behind(tail: fdb.Value) -> int:
    """The index, or the number of arrival, behind TAIL. Raises ``CorruptData``."""
    last = int.from_bytes(tail.value or b"", "little")
    if last > MAX_INDEX:
        raise CorruptData(what="the tail of a level", problem=f"no index is {last:,}")
    return last + 1


def next_index(level: LevelKeys, last: fdb.Key, tail: fdb.Value) -> int:
    """The index of the next message of a level. Raises ``CorruptData``."""
    following, key = behind(tail), last.value
    if key > level.ready:  # else the level has no ready message
        index, _ = parse_int(key, len(level.ready))
        if index >= following:
            return index + 1
    return following


def leap(retries: int, versions: int) -> int:
    """How many indexes a transaction skips.

    retries: how often it was retried. versions: how long the last attempt took, by the database's
        version: about as many messages arrive during the next one.
    """
    if not retries:
        return 0
    return min(MAX_LEAP, max(FIRST_LEAP << (retries - 1), versions // _VERSIONS_PER_INDEX))


class _Leap(NamedTuple):
    """A leap that a transaction of this process needed.

    version: when. top: the last index that was taken with it.
    """

    size: int
    version: int
    top: int


_NONE = _Leap(0, 0, 0)


class _Leaps(dict[bytes, _Leap]):
    """The last leaps of this process, by the key of TAIL of the level."""


def _ahead(tr: fdb.Transaction, tail: bytes, following: int) -> int:
    """The index to begin at, instead of the one behind the last.

    A retry leaps. Later transactions of the same process begin with a leap, or each would fail
    once; as they overlap, each goes ahead of the one before, which usually commits first. The
    package's own operations are brief and need no leap before their first retry; it would only lead
    cursors towards the others.
    """
    tried, version = once.attempt(tr), once.version(tr)
    if tried.brief:
        return following + leap(tried.retries, tried.before)
    leaps = world.remembered(_Leaps)
    known = leaps.get(tail, _NONE)
    halvings = (version - known.version) // _HALVED_VERSIONS
    size = last = known.size >> halvings if 0 <= halvings < _MAX_HALVINGS else 0
    if tried.retries:
        size = max(leap(tried.retries, tried.before), min(MAX_LEAP, 2 * last))
    if not size:
        leaps.pop(tail, None)
        return following
    begin = min(max(following, known.top if last else 0) + size, following + MAX_LEAP)
    if len(leaps) >= MAX_REMEMBERED:
        leaps.clear()
    leaps[tail] = _Leap(size, version, begin) if tried.retries else known._replace(top=begin)
    return begin


def _begin(
    tr: fdb.Transaction, keys: QueueKeys, level: LevelKeys, following: int, count: int
) -> tuple[int, bytes]:
    """The first index that ``count`` messages take, from ``following`` on, also packed. Conflicts
    with cursors that pass these indexes."""
    tried = once.attempt(tr)
    begin, tail = following, level.tail
    if (
        tried.retries or (not tried.brief and world.remembered(_Leaps))
    ) and tail not in tried.given:
        begin = _ahead(tr, tail, following)
    tried.give(tr, keys, tail, begin, begin + count)
    packed = pack_int(begin)
    fence = level.fence + packed
    end = fence + b"\x00" if count == 1 else level.fence + pack_int(begin + count)
    tr.add_read_conflict_range(fence, end)
    return begin, packed


def take(
    tr: fdb.Transaction, keys: QueueKeys, level: LevelKeys, number: int, end: Reads
) -> tuple[Position, bytes]:
    """One position behind all others of a level, and how its READY key ends; as ``assign``."""
    index, packed = _begin(tr, keys, level, next_index(level, *end), 1)
    random = world.urandom(RANDOM_BYTES)
    return Position(number, index, random), packed + pack_bytes(random)


def assign(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    ends: Mapping[int, Reads] | None = None,
) -> list[StoredMessage]:
    """Give messages, as (level, envelope), positions behind all others; writes none of them.

    ends: the reads of the levels' ends, if they have been issued; else one round trip of snapshot
        reads.

    Adds a read conflict on the FENCE keys of the indexes. Only cursors that pass them write these.
    """
    counts = Counter(level for level, _ in entries)
    ends = ends or {level: reads(tr, scope.keys, level) for level in counts}
    following = {
        level: iter(reserve(tr, scope.keys, level, count, ends[level]))
        for level, count in counts.items()
    }
    return [StoredMessage(next(following[level]), envelope) for level, envelope in entries]


def reserve(
    tr: fdb.Transaction, keys: QueueKeys, level: int, count: int, end: Reads
) -> list[Position]:
    """``count`` positions behind all others of a level; as ``assign``."""
    begin, _ = _begin(tr, keys, keys.levels[level], next_index(keys.levels[level], *end), count)
    randoms = world.urandom(RANDOM_BYTES * count)
    return [
        Position(level, index, randoms[n : n + RANDOM_BYTES])
        for index, n in enumerate(range(0, len(randoms), RANDOM_BYTES), begin)
    ]

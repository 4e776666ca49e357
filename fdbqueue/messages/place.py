"""Places: where a message comes to stand, and why an enqueue conflicts with nothing.

By arrival, as in FoundationDB's queue recipe, a new message takes the index behind all others of
its level. It follows the last one that a snapshot read sees, and random bytes tell apart messages
that took the same index at the same time. TAIL is an addition: the highest index ever removed, so
that indexes never repeat, even after the queue ran empty.

A cursor of a subscription that passes an index aborts an enqueue in flight at that index (FENCE).
A long transaction would be aborted again and again, so each retry *leaps*: it takes an index
further ahead, which no cursor reaches soon. Gaps are harmless, and a transaction that begins after
the commit sees the key and goes behind it.

With the option ``sort``, all messages of a level have one index, and the value of a header stands
in their positions, before the number of their arrival (``keys.sorted_position``). Such a message
may come in where a cursor has passed, as may one that returns to its old position. Either takes
back the cursors of the subscriptions that want it, and so needs no FENCE. Everything else works
with positions and the order of keys, and needs not know which order it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import CorruptData
from ..schema import once
from ..schema.codec import MAX_INDEX, pack_index
from ..schema.envelope import Envelope
from ..schema.keys import LevelKeys, QueueKeys, sorted_position
from ..schema.scope import Scope, StoredMessage
from ..store import world
from ..store.binding import fdb
from ..store.client import pack_int, parse_int
from ..store.clocks import VERSIONS_PER_SECOND
from ..values.model import RANDOM_BYTES, Position

FIRST_LEAP = 16
MAX_LEAP = 65_536
_VERSIONS_PER_INDEX = 1_000
"""A message a millisecond: more than others enqueue beside a transaction that takes long."""
_HALVED_VERSIONS = 2 * VERSIONS_PER_SECOND
"""After how long half of a leap is remembered that nobody needed meanwhile."""
_MAX_HALVINGS = 16
MAX_REMEMBERED = 1_000
"""Levels of queues whose last leap a process remembers."""


class LevelEndReads(NamedTuple):
    """The reads of the end of a level, issued and not awaited."""

    last: fdb.Key
    tail: fdb.Value


def reads(tr: fdb.Transaction, keys: QueueKeys, level: int) -> LevelEndReads:
    """Issue snapshot reads of the end of a level, without waiting for them."""
    prepared, snapshot = keys.levels[level], tr.snapshot
    # At snapshot isolation: two enqueues may take the same index, since their random bytes differ.
    # That is why no enqueue conflicts with another.
    return LevelEndReads(snapshot.get_key(prepared.last), snapshot.get(prepared.tail))


def _behind(tail: fdb.Value) -> int:
    """The index, or the number of arrival, behind TAIL. Raises ``CorruptData``."""
    last = int.from_bytes(tail.value or b"", "little")
    if last > MAX_INDEX:
        raise CorruptData(what="the tail of a level", problem=f"no index is {last:,}")
    return last + 1


def next_index(level: LevelKeys, last: fdb.Key, tail: fdb.Value) -> int:
    """The index of the next message of a level. Raises ``CorruptData``."""
    following, key = _behind(tail), last.value
    # TAIL alone would not do: it is written when messages leave, so those that stand are ahead of
    # it.
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
    # Doubled at each retry, so that even a wrong guess of the rate gets ahead of the cursors;
    # bounded, so that one stuck program does not use up indexes.
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
    # Forgotten by halves: one long transaction an hour ago must not make all others skip indexes. A
    # negative age comes from a restored store.
    size = last = known.size >> halvings if 0 <= halvings < _MAX_HALVINGS else 0
    if tried.retries:
        size = max(leap(tried.retries, tried.before), min(MAX_LEAP, 2 * last))
    if not size:
        leaps.pop(tail, None)
        return following
    # Ahead of what the transaction before took, but never further than the largest leap beyond the
    # real end.
    begin = min(max(following, known.top if last else 0) + size, following + MAX_LEAP)
    if len(leaps) >= MAX_REMEMBERED:
        # A process that touches thousands of levels forgets all: the price is one retry for each of
        # its long transactions.
        leaps.clear()
    leaps[tail] = _Leap(size, version, begin) if tried.retries else known._replace(top=begin)
    return begin


def end(scope: Scope, level: int, found: LevelEndReads) -> bytes:
    """Where the READY keys of a level end now: later messages come behind, unless it is sorted."""
    keys = scope.keys
    if scope.options.sort is None:
        return keys.ready.begin(level, next_index(keys.levels[level], *found))
    # A sorted level has no index behind all others: its end is behind the last message of now.
    return max(bytes(keys.ready.under(level).start), bytes(found.last.value) + b"\x00")


def assign(
    tr: fdb.Transaction,
    scope: Scope,
    level: int,
    count: int,
    envelopes: Sequence[Envelope],
    end: LevelEndReads | None = None,
) -> list[Position]:
    """Give ``count`` messages of a level new positions, in their order; writes none of them.

    envelopes: theirs, which only a sorted level needs.
    end: the reads of the level's end, if they have been issued; else one round trip of snapshot
        reads.

    Adds a read conflict on the FENCE keys of the indexes. Only cursors that pass them write these.
    In a sorted level, a move of a cursor in flight fails that reads such a message's gap, or whose
    subscription wants it. Enqueues conflict with nothing else.
    """
    header, keys = scope.options.sort, scope.keys
    end = end or reads(tr, keys, level)
    if header is None:
        return behind(tr, keys, level, count, end)
    arrivals = _arrive(tr, keys, level, count, end)
    placed = [
        StoredMessage(sorted_position(level, envelope.headers.get(header), arrival), envelope)
        for envelope, arrival in zip(envelopes, arrivals, strict=True)
    ]
    take_cursors_back(tr, scope, placed)
    return [each.position for each in placed]


def behind(
    tr: fdb.Transaction, keys: QueueKeys, level: int, count: int, end: LevelEndReads
) -> list[Position]:
    """``count`` positions behind all others of a level, at consecutive indexes; as ``assign`` in
    the order of arrival."""
    prepared, tried = keys.levels[level], once.attempt(tr)
    begin = following = next_index(prepared, *end)
    # What a transaction has given once, nobody else has taken.
    leaps = tried.retries or (not tried.brief and world.remembered(_Leaps))
    # Once a leap was taken, the following messages of the same transaction come right behind.
    if leaps and prepared.tail not in tried.given:
        begin = _ahead(tr, prepared.tail, following)
    tried.give(tr, keys, prepared.tail, begin, begin + count)
    # In every transaction: a cursor that passes one of these indexes aborts this enqueue, and
    # nothing else does. Nobody writes a key between two of FENCE.
    first = last = prepared.fence + pack_int(begin)
    if count > 1:
        last = prepared.fence + pack_int(begin + count - 1)
    # FENCE of just these indexes: a read range with a matching write range, without a value, is how
    # a cursor and an enqueue meet.
    tr.add_read_conflict_range(first, last + b"\x00")
    randoms = world.urandom(RANDOM_BYTES * count)
    return [
        Position(level, index, randoms[n : n + RANDOM_BYTES])
        for index, n in enumerate(range(0, len(randoms), RANDOM_BYTES), begin)
    ]


def _arrive(
    tr: fdb.Transaction, keys: QueueKeys, level: int, count: int, end: LevelEndReads
) -> range:
    """The numbers of the next arrivals of a sorted level: TAIL has the last of them."""
    prepared = keys.levels[level]
    begin = _behind(end.tail)
    once.attempt(tr).give(tr, keys, prepared.tail, begin, begin + count)
    leave(tr, prepared, begin + count - 1)
    return range(begin, begin + count)


def leave(tr: fdb.Transaction, level: LevelKeys, index: int) -> None:
    """Note that a message has left its READY key, or takes no one: its index is never given
    again. Writes blindly."""
    # MAX needs no read, and its order does not matter: of two that remove messages at once, the
    # higher index stays.
    tr.max(level.tail, pack_index(index))


def fence(tr: fdb.Transaction, keys: QueueKeys, level: int, index: int) -> None:
    """Let a cursor pass all indexes up to ``index``: no enqueue may take them any more, and those
    in flight fail. Writes blindly."""
    leave(tr, keys.levels[level], index)
    # From 0: an enqueue that read an old end may hold any index up to here.
    tr.add_write_conflict_range(keys.fence(level, 0), keys.fence(level, index + 1))


def take_cursors_back(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Move the cursor of each subscription that wants such a message back to it.

    For messages that become ready where cursors may have passed. Writes blindly: BYTE_MIN leaves a
    cursor that is not ahead. The scope's read conflict on META covers the list of subscriptions,
    and a new cursor starts at the beginning.
    """
    skipping = [definition for definition in scope.subscriptions if definition.skips]
    if not skipping:
        return
    keys, now_ms = scope.keys, scope.now_ms(tr)
    lowest: dict[tuple[str, int], bytes] = {}
    for each in messages:
        position = each.position
        message = each.envelope.properties(position)
        for definition in skipping:
            # A message that never matches would only be skipped again.
            if definition.timed or definition.matches(message, now_ms):
                cursor = (definition.name, position.level)
                place = keys.place(position)
                lowest[cursor] = min(place, lowest.get(cursor, place))
    for (name, level), place in lowest.items():
        # Atomic on whatever the cursor is at commit: a move that commits before is taken back, and
        # one that commits later has read the key and fails.
        tr.byte_min(keys.cursor(name, level), place)

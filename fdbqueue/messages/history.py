"""Delivery history: a line for each transition, if the queue's options say so.

Messages that made it together share a line, and each is an event. The key of a line is the
versionstamp of its commit, so lines are in the order of commits, and writing one neither reads nor
conflicts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ..schema.keys import QueueKeys
from ..schema.records import HistoryLine, Moved
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..store.clocks import BELIEVED_MS, VERSIONS_PER_SECOND
from ..values.model import Event
from ..values.states import State, Transition

MAX_EVENTS = 500
"""The most events of a line."""
LINE_BYTES = 80_000
"""The most bytes of their ids and places; those of sorted queues are long."""

# Orders the lines of one transaction.
_lines = itertools.count()


@transactional
def record(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Write an event for each message that made a transition, if the queue has a history. Writes
    blindly.

    Taking messages also removes lines that are too old.
    """
    if scope.options.history_seconds is None:
        return
    if transition.source is State.READY:
        # Takers trim, since every message is taken: a sweep of its own would have to be run by
        # somebody.
        trim(tr, scope)
    now_ms = scope.now_ms(tr)
    for consumer, some in _lines_of(messages):
        # All lines of one transaction get the same versionstamp: the number tells them apart, and
        # their events.
        number = next(_lines) * MAX_EVENTS + len(some) - 1
        line = HistoryLine(transition.name, consumer, now_ms, [_moved(each) for each in some])
        # The key is filled in at commit: writers of one queue never read or conflict, and readers
        # see commits in their order.
        tr.set_versionstamped_key(scope.keys.event.new(number), line.pack())


def _lines_of(messages: Sequence[StoredMessage]) -> Iterator[tuple[str, list[StoredMessage]]]:
    """Messages of one consumer that stand together, as many as a line has."""
    for consumer, together in itertools.groupby(messages, key=lambda each: each.consumer):
        some: list[StoredMessage] = []
        size = 0
        for each in together:
            length = len(each.id) + 2 * len(each.position.random)
            if len(some) == MAX_EVENTS or (some and size + length > LINE_BYTES):
                yield consumer, some
                some, size = [], 0
            some.append(each)
            size += length
        if some:
            yield consumer, some


def _moved(message: StoredMessage) -> Moved:
    # The id of most messages names their place.
    place = "" if message.turn else message.position.to_id()
    elsewhere = None if place == message.id else place
    return Moved(message.id, message.position.level, message.envelope.attempts, elsewhere)


@transactional
def read_events(tr: fdb.Transaction, scope: Scope, limit: int, after: bytes) -> list[Event]:
    """Events, oldest first. A snapshot read, no conflicts."""
    lines = scope.keys.event.after(after)
    mode = fdb.StreamingMode.want_all
    found: list[Event] = []
    for kv in tr.snapshot.get_range(lines.start, lines.stop, limit=limit, streaming_mode=mode):
        events = HistoryLine.unpack(kv.value).events
        stamps = scope.keys.event.stamps(kv.key, len(events))
        each = zip(stamps, events, strict=True)
        # A page may end within a line: the next one reads that line again, and skips what was
        # shown.
        found += [Event(stamp, *fields) for stamp, fields in each if stamp > after]
        if len(found) >= limit:
            break
    return found[:limit]


@transactional
def newest(
    tr: fdb.Transaction, scope: Scope, limit: int, after: bytes, before: bytes
) -> list[Event]:
    """Events, newest first: about ``limit``, whole lines. A snapshot read, no conflicts.

    after: the stamp of one that is too old. before: the stamp of the last one of the previous page;
    empty for the first.
    """
    event = scope.keys.event
    lines = event.after(after)
    stop = event.prefix + before if before else lines.stop
    mode = fdb.StreamingMode.want_all
    found: list[Event] = []
    rows = tr.snapshot.get_range(lines.start, stop, limit, reverse=True, streaming_mode=mode)
    for kv in rows:
        events = HistoryLine.unpack(kv.value).events
        each = zip(event.stamps(kv.key, len(events)), events, strict=True)
        found += reversed([Event(stamp, *fields) for stamp, fields in each])
        if len(found) >= limit:
            break
    return found


@transactional
def stamp_ago(tr: fdb.Transaction, scope: Scope, seconds: float) -> bytes:
    """The stamp to read on from, to get the events of the last seconds."""
    version = scope.version(tr) - int(seconds * VERSIONS_PER_SECOND)
    return scope.keys.event.stamp_before(max(0, version))


@transactional
def lines(tr: fdb.Transaction, scope: Scope, spare: int) -> slice:
    """The lines that a long read may rely on, from the key of the first one.

    spare: leaves out those that are too old in so many seconds, if the queue removes lines at all.
    Snapshot reads, no conflicts.
    """
    event = scope.keys.event
    begin = _first(tr, event.rows.start)
    if spare and scope.options.history_seconds is not None:
        oldest = scope.version(tr) - int(scope.options.history_seconds * VERSIONS_PER_SECOND)
        ends = (oldest + sign * spare * VERSIONS_PER_SECOND for sign in (-1, 1))
        before, behind = (event.prefix + event.stamp_before(max(0, each)) for each in ends)
        # The first lines are about to be trimmed while the long read goes on; it begins behind them
        # instead of failing halfway.
        if before <= begin < behind:
            begin = _first(tr, behind)
    return slice(min(begin, event.rows.stop), event.rows.stop)


@transactional
def are_kept(tr: fdb.Transaction, keys: QueueKeys, begin: bytes, since_ms: int | None) -> bool:
    """Whether no line from the key ``begin`` on has been removed, if there was one.

    since_ms: lines of before do not count, if they are told apart in spite of the clocks. One round
    trip, a snapshot read.
    """
    rows = keys.event.rows
    for kv in tr.snapshot.get_range(rows.start, rows.stop, limit=1):
        earlier = (
            since_ms is not None and HistoryLine.unpack(kv.value).at_ms + BELIEVED_MS < since_ms
        )
        return earlier or kv.key <= begin
    return False


def _first(tr: fdb.Transaction, begin: bytes) -> bytes:
    key: bytes = tr.snapshot.get_key(fdb.KeySelector.first_greater_or_equal(begin)).value
    return key


@transactional
def trim(tr: fdb.Transaction, scope: Scope) -> None:
    """Remove lines older than the queue keeps them, by the database's version. Writes blindly."""
    kept = scope.options.history_seconds
    if kept is not None:
        oldest = scope.version(tr) - int(kept * VERSIONS_PER_SECOND)
        # Blind: a clear of a range conflicts with nobody who writes, and versions need no reading
        # of the lines.
        lines = scope.keys.event.until(max(0, oldest))
        tr.clear_range(lines.start, lines.stop)

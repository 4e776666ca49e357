"""Bounds: how much a queue holds, and what happens to a message that finds it full.

An enqueue compares the counters, a snapshot read, with the bounds, so producers do not conflict
with each other. Nor do they see each other: a queue can exceed its bounds by what the transactions
in flight bring in when the last room is taken.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from ...errors import QueueFull
from ...schema import counters, once
from ...schema.envelope import Envelope
from ...schema.keys import QueueKeys
from ...schema.records import ScheduleProgress
from ...schema.scope import Scope, StoredMessage
from ...store import world
from ...store.binding import fdb, transactional
from ...store.clocks import VERSIONS_PER_SECOND
from ...values.model import Depth
from ...values.options import QueueOptions
from ...values.states import End, State
from .. import run, settle
from ..settle import Leaving
from ..transaction_budget import PAGE_BYTES

REASON = "the queue was full"
MAX_DROPPED = 500
"""Messages that one enqueue drops at most to make room, unless more come in."""
MAX_SCHEDULES = 500
"""The most rows of schedules that an enqueue reads in a full queue."""
CROWD = 32
"""How many of the oldest are chosen from after a conflict, and twice as many after each more."""

_REMEMBERED = 10 * VERSIONS_PER_SECOND

# When a handle last met a conflict, by the database's version: others may drop messages, too.
_fought: weakref.WeakKeyDictionary[QueueKeys, int] = weakref.WeakKeyDictionary()


class Load(Struct, frozen=True):
    """Messages that are not settled yet, and bytes of the payloads of those that are ready."""

    messages: int
    size: int

    def __add__(self, other: Load) -> Load:
        return Load(self.messages + other.messages, self.size + other.size)

    def covers(self, other: Load) -> bool:
        """Whether it is as much, in messages and in bytes."""
        return self.messages >= other.messages and self.size >= other.size


def held(depth: Depth) -> Load:
    """What a queue holds of what is bounded."""
    return Load(depth.unsettled, depth.ready_bytes)


def excess(options: QueueOptions, load: Load, share: float = 1.0) -> Load:
    """By how much a load exceeds a share of the bounds; zeros where it does not."""
    return Load(
        _beyond(options.bounds.messages, share, load.messages),
        _beyond(options.bounds.bytes, share, load.size),
    )


def _beyond(bound: int | None, share: float, amount: int) -> int:
    return 0 if bound is None else max(0, amount - int(bound * share))


FITS = Load(0, 0)


class Room(Enum):
    """What is known of the room for messages that come in."""

    UNKNOWN = "nothing yet"
    REFUSED = "they were refused before: there is room once the load is at the low-water mark"
    MADE = "there is room"


def reads(tr: fdb.Transaction, scope: Scope) -> fdb.FDBRange | None:
    """Issue a snapshot read of the counters; None where the queue has no bounds."""
    if not scope.options.bounds.some:
        return None
    return counters.reads(tr, scope.keys)


@transactional
def make_room(
    tr: fdb.Transaction,
    scope: Scope,
    found: fdb.FDBRange,
    entries: Sequence[tuple[int, Envelope]],
    room: Room = Room.UNKNOWN,
) -> bool:
    """Make room for messages, given as (level, envelope); returns whether others were dropped.

    Dropping messages takes a second round trip, and conflicts with their consumers. Raises
    ``QueueFull``, before anything is written.
    """
    if not entries:
        return False
    options = scope.options
    new = Load(len(entries), sum(envelope.size for _, envelope in entries))
    # The queue may have changed since, and not let its producers wait any more.
    waits = room is Room.REFUSED and options.bounds.when_full == "block"
    load = _load(tr, scope, found, new, options.bounds.resume_at if waits else 1.0)
    over = excess(options, load + new)
    # A producer that was refused waits for the low-water mark: otherwise it would be let in, and
    # refused, for each message that is taken.
    if waits and excess(options, load, options.bounds.resume_at) != FITS:
        raise _full(scope, load, new)
    if over == FITS:
        return False
    # What exceeds the bounds by itself would not fit into an empty queue: dropping others for it
    # helps nobody.
    if options.bounds.when_full != "drop-oldest" or excess(options, new) != FITS:
        raise _full(scope, load, new)
    # A message makes room for one that is at least as urgent: the least urgent one decides.
    dropped = _oldest(tr, scope, over, new, least=max(level for level, _ in entries))
    if dropped is None:
        raise _full(scope, load, new)
    run.watch(tr, dropped)
    run.remove(tr, scope.keys, run.pieces(scope.keys, dropped))
    how = End.REJECT if options.bounds.dropped == "dead" else End.PURGE
    leaving = [Leaving(message, how, reason=REASON) for message in dropped]
    settle.carry_out(tr, scope, State.READY, leaving)
    return True


def _load(
    tr: fdb.Transaction, scope: Scope, found: fdb.FDBRange, new: Load, share: float = 1.0
) -> Load:
    """What a queue holds, without the ticks of schedules that wait: they count as delayed messages,
    but no consumer can make room by taking one. These are read only where it matters, a second
    round trip."""
    load = held(sum(counters.parse(scope.keys, found).values(), Depth()))
    over, keys = excess(scope.options, load + new, share).messages, scope.keys
    if not over:
        return load
    ticks, every = 0, keys.schedule.rows
    for kv in tr.snapshot.get_range(every.start, every.stop, limit=MAX_SCHEDULES):
        # A schedule and its progress share a kind: the row of the progress has one element more.
        if len(keys.progress.parse(kv.key)) > 1 and ScheduleProgress.unpack(kv.value).next_id:
            ticks += 1
        if ticks == over:
            break
    return Load(load.messages - ticks, load.size)


def check_room(tr: fdb.Transaction, scope: Scope, found: fdb.FDBRange | None, new: Load) -> None:
    """Raise ``QueueFull`` if there is no room for ``new`` now."""
    if found is None:
        return
    load = _load(tr, scope, found, new)
    if excess(scope.options, load + new) != FITS:
        raise _full(scope, load, new)


def _oldest(
    tr: fdb.Transaction, scope: Scope, over: Load, new: Load, least: int
) -> list[StoredMessage] | None:
    """The oldest messages of the least urgent levels, from ``least`` on, that make enough room.

    A queue far above its bounds, after these were lowered, loses as many as one transaction can
    remove, but no fewer than come in; later enqueues continue. None if there are not enough.

    After a recent conflict, it chooses among the first ones at random: else all but one of many
    producers would choose the same again.
    """
    most = max(MAX_DROPPED, new.messages)
    room_bytes = max(PAGE_BYTES, 2 * new.size)
    crowd = _crowd(tr, scope)
    found: list[StoredMessage] = []
    room, stored = Load(0, 0), 0
    for level in range(scope.options.levels - 1, least - 1, -1):
        ready, pool, pooled = scope.keys.ready.under(level), list[StoredMessage](), room
        # At snapshot isolation: only those that are dropped conflict with their consumers.
        found_rows = tr.snapshot.get_range(ready.start, ready.stop, limit=most + crowd)
        for row in run.ready(scope.keys, found_rows):
            if (pooled.covers(over) and len(pool) >= crowd) or stored >= room_bytes:
                break
            message = row.message
            pool.append(message)
            pooled += Load(1, message.envelope.size)
            stored += len(row.value)
        if crowd:
            # Producers that all drop the oldest would collide at the same messages again and again.
            world.random.shuffle(pool)
        for message in pool:
            found.append(message)
            room += Load(1, message.envelope.size)
            if room.covers(over):
                return found
            if len(found) == most:
                break
        if len(found) == most or stored >= room_bytes:
            # Far above a lowered bound, an enqueue need not bring the queue down by more than it
            # adds.
            enough = Load(min(over.messages, new.messages), min(over.size, new.size))
            return found if room.covers(enough) else None
    return None


def _crowd(tr: fdb.Transaction, scope: Scope) -> int:
    """Among how many of the oldest messages to choose; 0 for the first: nobody else drops some."""
    tried = once.attempt(tr)
    if tried.retries:
        _fought[scope.keys] = once.version(tr)
    elif once.version(tr) - _fought.get(scope.keys, -_REMEMBERED) >= _REMEMBERED:
        return 0
    return CROWD << min(tried.retries, 4)


def check_growth(tr: fdb.Transaction, scope: Scope, found: fdb.FDBRange | None, grown: int) -> None:
    """Check that there is room for bytes that a ready message grows by. Raises ``QueueFull``."""
    if found is None or grown <= 0:
        return
    load = held(sum(counters.parse(scope.keys, found).values(), Depth()))
    if excess(scope.options, load + Load(0, grown)).size:
        raise _full(scope, load, Load(0, grown))


def _full(scope: Scope, load: Load, new: Load) -> QueueFull:
    options = scope.options
    bounds = (
        *(() if options.bounds.messages is None else (f"{options.bounds.messages:,} messages",)),
        *(() if options.bounds.bytes is None else (f"{options.bounds.bytes:,} bytes",)),
    )
    return QueueFull(
        queue=scope.name,
        bounds=" and ".join(bounds),
        messages=load.messages,
        max_messages=options.bounds.messages,
        size=load.size,
        max_bytes=options.bounds.bytes,
        new_messages=new.messages,
        new_bytes=new.size,
        waits=options.bounds.when_full == "block" and excess(options, new) == FITS,
    )

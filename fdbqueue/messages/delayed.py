"""Messages that wait for their time, by the wall clock.

One that was scheduled takes a position only when its time has come, behind all others of its level
then, so that no cursor misses it. One that was delivered before and rests keeps the position that
it had, and returns to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CorruptData, FormatTooNew
from ..schema.codec.atomic import pack_index
from ..schema.codec.delayed import pack_delayed, unpack_delayed
from ..schema.codec.envelopes import Envelope, open_envelope
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Due, Position
from ..values.states import DEFER, PROMOTE, SCHEDULE, State, Transition
from . import lookup, time_to_live, transitions
from .delivery import requeue
from .enqueue import append, index_allocation
from .transaction_budget import SIDE_BYTES, fitting, weight

SOON_MS = 10_000
MAX_PROMOTED = 100
"""Due messages that one look makes ready."""


def due(tr: fdb.Transaction, scope: Scope) -> fdb.FDBRange:
    """Issue a snapshot read of the messages whose time has come; it reads as it is iterated."""
    until = scope.keys.delayed_until(scope.now_ms(tr))
    return tr.snapshot.get_range(
        until.start, until.stop, limit=MAX_PROMOTED, streaming_mode=fdb.StreamingMode.want_all
    )


@transactional
def schedule(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a new message, which has a level and no index, until its time. Writes blindly."""
    _put(tr, scope, SCHEDULE, due_ms, message)


@transactional
def defer(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a message, whose lease was ended, until it returns to its position. Writes blindly."""
    lookup.point(tr, scope.keys, message, Due(due_ms, message.position.random))
    _put(tr, scope, DEFER, due_ms, message)


@transactional
def promote(tr: fdb.Transaction, scope: Scope, looked: fdb.FDBRange) -> tuple[int, int, int]:
    """Make messages ready whose time has come; returns how many, how many were due, and the
    weight of these.

    A message whose time to live is over goes the way of those. A second round trip if there are
    any. Reads just the keys of these messages with a conflict: conflicts with others who promote
    or cancel them.
    """
    seen = ((kv.key, *_unpacked(scope, kv.key, kv.value)) for kv in looked)
    each = (((key, position), envelope) for key, position, envelope in seen)
    candidates = [one for one, _ in fitting(each, SIDE_BYTES)]
    if not candidates:
        return 0, 0, 0
    values = [tr.get(key) for key, _ in candidates]
    levels = {position.level for _, position in candidates}
    looks = {level: index_allocation.look(tr, scope.keys, level) for level in levels}
    now_ms = scope.now_ms(tr)
    fresh, resting, expired, unreadable = [], [], [], []
    for (key, _), value in zip(candidates, values, strict=True):
        stored = value.value
        if stored is None:
            continue
        del tr[key]
        message = StoredMessage(*_unpacked(scope, key, stored))
        if message.envelope.opaque is not None:
            unreadable.append(message)
        elif message.envelope.expired(now_ms):
            expired.append(message)
        elif message.position.index:
            resting.append(message)
        else:
            fresh.append(message)
    time_to_live.expire(tr, scope, State.DELAYED, expired)
    time_to_live.reject_unreadable(tr, scope, State.DELAYED, unreadable)
    _return(tr, scope, resting)
    entries = [(message.position.level, message.envelope) for message in fresh]
    for message in append.append(tr, scope, entries, PROMOTE, looks):
        lookup.point(tr, scope.keys, message, message.position)
    placed = len(fresh) + len(resting)
    # The end of one with an ordering key lets the next one become ready.
    ready = placed + sum(each.envelope.key is not None for each in expired)
    size = sum(weight(message.envelope) for message in (*fresh, *resting, *expired))
    return ready, placed + len(expired) + len(unreadable), size


def _unpacked(scope: Scope, key: bytes, value: bytes) -> tuple[Position, Envelope]:
    """A delayed message. One that cannot be read gets the least urgent place."""
    try:
        return unpack_delayed(value)
    except (CorruptData, FormatTooNew):
        random = scope.keys.parse_delayed(key).random
        return Position(scope.options.levels - 1, 0, random), open_envelope(value)


def _return(tr: fdb.Transaction, scope: Scope, resting: Sequence[StoredMessage]) -> None:
    requeue.put_back(tr, scope, resting)
    for message in resting:
        lookup.point(tr, scope.keys, message, message.position)
    transitions.record(tr, scope, PROMOTE, resting)


def _put(
    tr: fdb.Transaction, scope: Scope, transition: Transition, due_ms: int, message: StoredMessage
) -> None:
    put(tr, scope, due_ms, message)
    transitions.record(tr, scope, transition, [message])


def put(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Write a message that is for later, and tell who sleeps; the rest is the caller's."""
    key = scope.keys.delayed(Due(due_ms, message.position.random))
    tr[key] = pack_delayed(message.position, message.envelope)
    if due_ms < scope.now_ms(tr) + SOON_MS:
        # Who sleeps must learn of what is due before its next look by itself.
        tr.add(scope.keys.change, pack_index(1))

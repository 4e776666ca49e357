"""Messages that wait for their time, by the wall clock.

A scheduled message takes a position when it is due, behind all others of its level, so that no
cursor misses it. A message that was delivered before returns to its position.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CorruptData, FormatTooNew
from ..schema import changes
from ..schema.codec.delayed import pack_delayed, unpack_delayed
from ..schema.codec.envelopes import Envelope, open_envelope
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Due, Position
from ..values.states import DEFER, PROMOTE, REPLACE_DELAYED, SCHEDULE, State, Transition
from . import lookup, time_to_live, transitions
from .delivery import requeue
from .enqueue import append, index_allocation, last_values
from .transaction_budget import SIDE_BYTES, fitting, weight

SOON_MS = 10_000
MAX_PROMOTED = 100
"""The most due messages that one transaction makes ready."""


def due(tr: fdb.Transaction, scope: Scope) -> fdb.FDBRange:
    """Issue a snapshot read of the messages that are due."""
    until = scope.keys.delayed.before(scope.now_ms(tr) + 1)
    return tr.snapshot.get_range(
        until.start, until.stop, limit=MAX_PROMOTED, streaming_mode=fdb.StreamingMode.want_all
    )


@transactional
def schedule(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a new message, with a level and no index, until it is due. Writes blindly."""
    _put(tr, scope, SCHEDULE, due_ms, message)


@transactional
def defer(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a message, whose lease has ended, until it returns to its position. Writes blindly."""
    lookup.point(tr, scope.keys, message, Due(due_ms, message.position.random))
    _put(tr, scope, DEFER, due_ms, message)


@transactional
def promote(tr: fdb.Transaction, scope: Scope, reads: fdb.FDBRange) -> tuple[int, int, int]:
    """Make due messages ready; returns how many became ready, how many were due, and their weight.

    Expired ones are removed. One more round trip if any are due. Conflicts only with others that
    promote or cancel the same messages.
    """
    seen = ((kv.key, *_unpacked(scope, kv.key, kv.value)) for kv in reads)
    each = (((key, position), envelope) for key, position, envelope in seen)
    candidates = [one for one, _ in fitting(each, SIDE_BYTES)]
    if not candidates:
        return 0, 0, 0
    values = [tr.get(key) for key, _ in candidates]
    levels = {position.level for _, position in candidates}
    ends = {level: index_allocation.reads(tr, scope.keys, level) for level in levels}
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
    added = append.append(tr, scope, entries, PROMOTE, ends)
    for message in added:
        lookup.point(tr, scope.keys, message, message.position)
    last_values.replace_older(tr, scope, added)
    returned = len(fresh) + len(resting)
    # When one with an ordering key ends, the next one becomes ready.
    ready = returned + sum(each.envelope.key is not None for each in expired)
    size = sum(weight(message.envelope) for message in (*fresh, *resting, *expired))
    return ready, returned + len(expired) + len(unreadable), size


def _unpacked(scope: Scope, key: bytes, value: bytes) -> tuple[Position, Envelope]:
    """A delayed message; an unreadable one goes to the least urgent level."""
    try:
        return unpack_delayed(value)
    except (CorruptData, FormatTooNew):
        random = scope.keys.delayed.parse(key)[1]
        return Position(scope.options.levels - 1, 0, random), open_envelope(value)


def _return(tr: fdb.Transaction, scope: Scope, resting: Sequence[StoredMessage]) -> None:
    resting = last_values.remaining(tr, scope, REPLACE_DELAYED, resting)
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
    """Write a delayed message, and wake sleepers if it is due soon. The caller does the rest."""
    key = scope.keys.delayed(due_ms, message.position.random)
    tr[key] = pack_delayed(message.position, message.envelope)
    if due_ms < scope.now_ms(tr) + SOON_MS:
        # Sleepers would not look before it is due.
        changes.announce(tr, scope, [message])

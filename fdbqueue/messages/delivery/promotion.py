"""Making due messages ready, and putting the next ticks of schedules in their places."""

from __future__ import annotations

from collections.abc import Sequence

from ...schema.codec.delayed import open_delayed
from ...schema.codec.envelopes import Envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Position
from ...values.states import PROMOTE, REPLACE_DELAYED, State
from .. import lookup, place, run, time_to_live, transitions
from ..enqueue import append, last_values
from ..schedules import ticks
from ..transaction_budget import SIDE_BYTES, fitting, weight

MAX_PROMOTED = 100
"""The most due messages that one transaction makes ready."""


def due(tr: fdb.Transaction, scope: Scope) -> fdb.FDBRange:
    """Issue a snapshot read of the messages that are due."""
    until = scope.keys.delayed.before(scope.now_ms(tr) + 1)
    return tr.snapshot.get_range(
        until.start, until.stop, limit=MAX_PROMOTED, streaming_mode=fdb.StreamingMode.want_all
    )


@transactional
def promote(tr: fdb.Transaction, scope: Scope, reads: fdb.FDBRange) -> tuple[int, int, int]:
    """Make due messages ready; returns how many became ready, how many were due, and their weight.

    Expired ones are removed, and due ticks of schedules replaced by the next ones. One more round
    trip if any are due. Conflicts only with others that promote or cancel the same messages, and
    with changes of the schedules of due ticks.
    """
    seen = ((kv.key, *_unpacked(scope, kv.key, kv.value)) for kv in reads)
    each = (((key, position), envelope) for key, position, envelope in seen)
    candidates = list(fitting(each, SIDE_BYTES))
    if not candidates:
        return 0, 0, 0
    values = [tr.get(key) for (key, _), _ in candidates]
    names = {envelope.schedule for _, envelope in candidates} - {None}
    schedules = {name: ticks.reads(tr, scope, name) for name in names if name}
    levels = {position.level for (_, position), _ in candidates}
    ends = {level: place.reads(tr, scope.keys, level) for level in levels}
    now_ms = scope.now_ms(tr)
    fresh, resting, expired, unreadable, ticking = [], [], [], [], []
    for ((key, _), _), value in zip(candidates, values, strict=True):
        stored = value.value
        if stored is None:
            continue
        del tr[key]
        message = StoredMessage(*_unpacked(scope, key, stored))
        if not message.envelope.readable:
            unreadable.append(message)
        elif message.envelope.schedule is not None:
            name = message.envelope.schedule
            ticking.append((message, schedules.get(name) or ticks.reads(tr, scope, name)))
        elif message.envelope.expired(now_ms):
            expired.append(message)
        elif message.position.index:
            resting.append(message)
        else:
            fresh.append(message)
    ready = time_to_live.expire(tr, scope, State.DELAYED, expired)
    ready += time_to_live.reject_unreadable(tr, scope, State.DELAYED, unreadable)
    returned = _return(tr, scope, resting)
    plain = len(fresh)
    fresh = last_values.remaining(tr, scope, REPLACE_DELAYED, fresh)  # Some were put off.
    fresh += ticks.fire(tr, scope, ticking)
    entries = [(message.position.level, message.envelope) for message in fresh]
    added = append.append(tr, scope, entries, PROMOTE, ends)
    for message in added:
        lookup.point(tr, scope.keys, message, message.place)
    last_values.replace_older(tr, scope, added)
    # One that waits for a slot is not ready.
    ready += returned + sum(each.turn is None for each in added)
    size = sum(weight(message.envelope) for message in (*fresh, *resting, *expired))
    # The next tick takes as much room as the one that comes.
    size += sum(weight(message.envelope) for message, _ in ticking)
    moved = plain + len(resting) + len(expired) + len(unreadable) + len(ticking)
    return ready, moved, size


def _unpacked(scope: Scope, key: bytes, value: bytes) -> tuple[Position, Envelope]:
    delayed = open_delayed(value, scope.lost(scope.keys.delayed.parse(key)[1]))
    return delayed.position, delayed.envelope


def _return(tr: fdb.Transaction, scope: Scope, resting: Sequence[StoredMessage]) -> int:
    """Put back what was ready before, unless a newer one has its last value; returns how many."""
    resting = last_values.remaining(tr, scope, REPLACE_DELAYED, resting)
    run.put_back(tr, scope, resting)
    for message in resting:
        lookup.point(tr, scope.keys, message, message.position)
    transitions.record(tr, scope, PROMOTE, resting)
    return len(resting)

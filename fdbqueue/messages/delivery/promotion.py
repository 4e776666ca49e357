"""Making due messages ready, and putting the next ticks of schedules in their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...schema.records import Delayed
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import PROMOTE, End, State
from .. import lookup, place, settle
from ..enqueue import append, last_values
from ..schedules import ticks
from ..settle import Leaving
from ..transaction_budget import weight


class DelayedRow(NamedTuple):
    """A delayed message, and its key. size: about how many bytes it takes to move it."""

    key: bytes
    message: StoredMessage
    size: int


def opened(scope: Scope, kv: fdb.KeyValue) -> DelayedRow:
    """The delayed message in a row."""
    _, _, random = scope.keys.delayed.parse(kv.key)
    delayed = Delayed.opened(kv.value, scope.lost(random))
    message = StoredMessage(delayed.position, delayed.envelope)
    # The next tick takes as much room as the one that comes.
    ticks = 1 if message.envelope.schedule is None else 2
    return DelayedRow(bytes(kv.key), message, ticks * weight(message.envelope))


@transactional
def admit(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[StoredMessage],
    ends: Mapping[int, place.LevelEndReads] | None = None,
) -> int:
    """Make delayed messages ready, already removed from their places; returns how many became
    ready.

    Expired ones end, and due ticks of schedules are replaced by the next ones. ends: the reads of
    the ends of some levels, if they have been issued; else a round trip. Conflicts with changes of
    the schedules of due ticks.
    """
    names = {message.envelope.schedule for message in messages} - {None}
    schedules = {name: ticks.reads(tr, scope, name) for name in names if name}
    levels = {message.position.level for message in messages}
    ends = dict(ends or {})
    # Issued with the reads of the schedules, before any is awaited.
    ends |= {level: place.reads(tr, scope.keys, level) for level in levels - ends.keys()}
    now_ms = scope.now_ms(tr)
    fresh, leaving, ticking = [], [], []
    for message in messages:
        name = message.envelope.schedule
        if name is not None and message.envelope.readable:
            ticking.append((message, schedules[name]))
        elif (unfit := settle.unfit(message, now_ms)) is not None:
            leaving.append(unfit)
        # It has stood somewhere before: it returns there, ahead of what came since.
        elif message.position.index:
            leaving.append(Leaving(message, End.RETURN))
        else:
            fresh.append(message)
    ready = settle.carry_out(tr, scope, State.SCHEDULED, leaving)
    fresh += ticks.fire(tr, scope, ticking)
    entries = [(message.position.level, message.envelope) for message in fresh]
    added = list(append.append(tr, scope, entries, PROMOTE, ends).messages())
    for message in added:
        lookup.point(tr, scope.keys, message, message.place)
    last_values.replace_older(tr, scope, added)
    # One that waits for a slot is not ready.
    return ready + sum(each.turn is None for each in added)

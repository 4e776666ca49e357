"""Changing what waits: the priority and the time of a message, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..schema import counters
from ..schema.codec.atomic import pack_index
from ..schema.codec.delayed import pack_delayed
from ..schema.codec.envelopes import Envelope
from ..schema.codec.lookup import Turn
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Due, Position
from ..values.states import PROMOTE, PUT_OFF, State
from . import inspection, lookup, transitions
from .delivery import promotion, requeue, scan
from .enqueue import delayed_row, level_order
from .lookup import Found
from .slots import hand_over


@transactional
def edit(
    tr: fdb.Transaction,
    scope: Scope,
    found: Sequence[Found],
    priority: int | None,
    due_ms: int | None,
) -> None:
    """Change the priority of waiting messages, the time they are due, or both.

    found: read with a conflict, and no dead letters. due_ms: 0 for as soon as possible.

    In another level they go behind all others; they keep their ids. Raises ``InvalidArgument``.
    """

    def changed(old: Envelope) -> Envelope:
        return old if priority is None else replace(old, priority=priority)

    change(tr, scope, [(each, changed(each.message.envelope)) for each in found], due_ms)


def change(
    tr: fdb.Transaction,
    scope: Scope,
    changes: Sequence[tuple[Found, Envelope]],
    due_ms: int | None,
) -> None:
    """``edit`` with envelopes of the same keys, limits and slots in place of those that wait.

    The caller has written what belongs to them, and removed what belonged to the others.
    """
    ready = [found.message for found, _ in changes if isinstance(found.place, Position)]
    # All leave before one returns: a row that they share is cleared from end to end.
    scan.remove(tr, scope.keys, ready)
    for found, envelope in changes:
        _change(tr, scope, found, envelope, due_ms)


def _change(
    tr: fdb.Transaction, scope: Scope, found: Found, envelope: Envelope, due_ms: int | None
) -> None:
    """``change`` of one, which has left its row if it was ready."""
    old, place = found.message, found.place
    level = scope.options.level(envelope.priority)
    waits = isinstance(place, Turn)  # Else it leaves the window of its key.
    envelope = replace(envelope, id=old.id, window=envelope.window if waits else None)
    new = StoredMessage(replace(old.position, level=level), envelope, turn=old.turn)
    if due_ms and old.envelope.gates and old.position.index:
        _put_outside(tr, scope, found, replace(new, envelope=envelope.outside()), due_ms)
        return
    if isinstance(place, Turn):
        tr[lookup.key(scope.keys, place)] = pack_delayed(new.position, envelope)
        counters.shift(tr, scope.keys, State.READY, old.position.level, level, old.envelope.size)
        counters.resize(tr, scope.keys, level, envelope.size - old.envelope.size)
        return
    if level != old.position.level and old.position.index:
        (new,) = level_order.assign(tr, scope, [(level, envelope)])
        # No other message may take its index while it is away.
        tr.max(scope.keys.tail(level), pack_index(new.position.index))
    if isinstance(place, Due):
        del tr[scope.keys.delayed(*place)]
        counters.shift(tr, scope.keys, State.DELAYED, old.position.level, level, envelope.size)
        _put(tr, scope, new, place.due_ms if due_ms is None else due_ms)
        return
    transitions.record(tr, scope, PUT_OFF, [old])
    counters.shift(tr, scope.keys, State.DELAYED, old.position.level, level, envelope.size)
    if due_ms:
        _put(tr, scope, new, due_ms)
        return
    requeue.put_back(tr, scope, [new])  # A cursor may have passed it as it was.
    lookup.point(tr, scope.keys, new, new.position)
    transitions.record(tr, scope, PROMOTE, [new])


def _put_outside(
    tr: fdb.Transaction, scope: Scope, found: Found, new: StoredMessage, due_ms: int
) -> None:
    """Keep a message with a key or limits until it is due, outside its gates: its slots are for
    others meanwhile. When it is due it comes in behind all others."""
    old, place = found.message, found.place
    ready = not isinstance(place, Due)
    if not isinstance(place, Position):
        inspection.take_out(tr, scope, found)
    hand_over.ended(tr, scope, [old], ready=ready)
    if ready:
        left = replace(old, envelope=old.envelope.outside(), turn=None)
        transitions.record(tr, scope, PUT_OFF, [left])
    before, after = old.position.level, new.position.level
    counters.shift(tr, scope.keys, State.DELAYED, before, after, new.envelope.size)
    _put(tr, scope, replace(new, position=replace(new.position, index=0), turn=None), due_ms)


def _put(tr: fdb.Transaction, scope: Scope, message: StoredMessage, due_ms: int) -> None:
    """Keep a message until it is due; make it ready if it is due already."""
    now_ms = scope.now_ms(tr)
    due = Due(due_ms or now_ms, message.position.random)
    lookup.point(tr, scope.keys, message, due)
    delayed_row.put(tr, scope, due.due_ms, message)
    if due.due_ms <= now_ms:
        promotion.promote(tr, scope, promotion.due(tr, scope))


def editable(found: Found | None) -> bool:
    """Whether a message waits, and can be read."""
    return (
        found is not None
        and found.message.envelope.opaque is None
        and isinstance(found.place, Position | Due | Turn)
    )

"""Changing what waits: the priority and the time of a message, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..schema import counters
from ..schema.envelope import Envelope
from ..schema.records import BacklogPlace, DeadLetter, DeadRecord, Delayed
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Due, Position
from ..values.states import (
    PROMOTE,
    PURGE_READY,
    PURGE_SCHEDULED,
    PUT_OFF,
    REVISE_DEAD,
    REVISE_READY,
    REVISE_SCHEDULED,
    State,
)
from . import history, lookup, payloads, place, run, transitions
from .delivery import promotion
from .enqueue import bounds, delayed
from .lookup import FoundMessage
from .slots import backlog, hand_over

Content = tuple[bytes, str]
"""A payload, and its content type."""
_REVISIONS = {each.target: each for each in (REVISE_READY, REVISE_SCHEDULED, REVISE_DEAD)}


@transactional
def edit(
    tr: fdb.Transaction,
    scope: Scope,
    found: Sequence[FoundMessage],
    priority: int | None,
    due_ms: int | None,
    content: Content | None = None,
) -> None:
    """Change the priority of waiting messages, the time they are due, or what they say.

    found: read with a conflict; dead letters only for ``content``. due_ms: 0 for as soon as
    possible.

    In another level they go behind all others; they keep their ids. Raises ``InvalidArgument``,
    and with ``content`` ``QueueFull`` and ``PayloadTooLarge``.
    """

    def changed(each: FoundMessage) -> Envelope:
        envelope = each.message.envelope
        if content is not None:
            envelope = revise(tr, scope, each, _saying(envelope, content))
        return envelope if priority is None else replace(envelope, priority=priority)

    changes = [(each, changed(each)) for each in found]
    for each, envelope in changes:
        if each.death is not None:
            position, death = each.message.position, each.death
            letter = DeadLetter(position, envelope.pack(), death.reason, death.died_at_ms)
            tr[lookup.key(scope.keys, each.place)] = letter.pack()
    change(tr, scope, [one for one in changes if one[0].death is None], due_ms)


def _saying(envelope: Envelope, content: Content) -> Envelope:
    payload, content_type = content
    return replace(
        envelope,
        payload=payload,
        content_type=content_type,
        compression="",
        raw_size=None,
        chunks=b"",
        chunk_bytes=0,
    )


def revise(tr: fdb.Transaction, scope: Scope, found: FoundMessage, envelope: Envelope) -> Envelope:
    """Store what a message says from now on; returns its envelope. Raises ``QueueFull`` and
    ``PayloadTooLarge``, before anything is written."""
    old = found.message
    if found.source is State.READY:
        grown = envelope.size - old.envelope.size
        bounds.check_growth(tr, scope, bounds.reads(tr, scope), grown)
    envelope = payloads.store(tr, scope, envelope)
    # After the new payload is stored, under another name: readers of the old one conflict with the
    # message itself.
    payloads.remove(tr, scope.keys, old.envelope)
    history.record(tr, scope, _REVISIONS[found.source], [old])
    return envelope


def change(
    tr: fdb.Transaction,
    scope: Scope,
    changes: Sequence[tuple[FoundMessage, Envelope]],
    due_ms: int | None,
) -> None:
    """``edit`` with envelopes of the same keys, limits and slots in place of those that wait.

    The caller has written what belongs to them, and removed what belonged to the others.
    """
    # All leave before one comes in: a row that some share is cleared from end to end, and a slot
    # that one gives up, or the time, would let out another that is here to be changed.
    ready = [found.message for found, _ in changes if isinstance(found.place, Position)]
    run.remove(tr, scope.keys, run.pieces(scope.keys, ready))
    for found, _ in changes:
        # One that only changes its priority keeps its place in line, and is written over.
        if isinstance(found.place, BacklogPlace) and due_ms:
            backlog.take_out(tr, scope, found.place)
        elif not isinstance(found.place, Position):
            del tr[lookup.key(scope.keys, found.place)]
    changed = [_change(tr, scope, found, envelope, due_ms) for found, envelope in changes]
    comes = [message for message in changed if message is not None]
    if comes:
        promotion.admit(tr, scope, comes)


def _change(
    tr: fdb.Transaction, scope: Scope, found: FoundMessage, envelope: Envelope, due_ms: int | None
) -> StoredMessage | None:
    """``change`` of one, which has left its place; returns it if it was delayed and comes now."""
    old, stands = found.message, found.place
    level = scope.level(envelope.priority)
    waits = isinstance(stands, BacklogPlace)  # Else it leaves the window of its key.
    envelope = replace(envelope, id=old.id, window=envelope.window if waits else None)
    new = StoredMessage(replace(old.position, level=level), envelope, turn=old.turn)
    # A message that waits for a time must not hold a slot for that long.
    if due_ms and old.envelope.gates and old.position.index:
        return _put_outside(tr, scope, found, replace(new, envelope=envelope.outside()), due_ms)
    if isinstance(stands, BacklogPlace):
        tr[lookup.key(scope.keys, stands)] = Delayed(new.position, envelope.pack()).pack()
        counters.shift(tr, scope.keys, State.READY, old, new)
        return None
    if level != old.position.level and old.position.index:
        (position,) = place.assign(tr, scope, level, 1, [envelope])
        new = StoredMessage(position, envelope)
        # No other message may take its index while it is away.
        place.leave(tr, scope.keys.levels[level], new.position.index)
    if isinstance(stands, Due):
        counters.shift(tr, scope.keys, State.SCHEDULED, old, new)
        return _put(tr, scope, new, stands.due_ms if due_ms is None else due_ms)
    transitions.record(tr, scope, PUT_OFF, [old])
    counters.shift(tr, scope.keys, State.SCHEDULED, old, new)
    if due_ms:
        return _put(tr, scope, new, due_ms)
    run.put_back(tr, scope, [new])  # A cursor may have passed it as it was.
    lookup.point(tr, scope.keys, new, new.position)
    transitions.record(tr, scope, PROMOTE, [new])
    return None


def _put_outside(
    tr: fdb.Transaction, scope: Scope, found: FoundMessage, new: StoredMessage, due_ms: int
) -> StoredMessage | None:
    """Keep a message with a key or limits until it is due, outside its gates: its slots are for
    others meanwhile. When it is due it comes in behind all others."""
    old, ready = found.message, not isinstance(found.place, Due)
    hand_over.freed(tr, scope, [old], PURGE_READY if ready else PURGE_SCHEDULED)
    if ready:
        transitions.record(tr, scope, PUT_OFF, [replace(old, envelope=old.envelope.outside())])
    counters.shift(tr, scope.keys, State.SCHEDULED, old, new)
    outside = replace(new, position=replace(new.position, index=0), turn=None)
    return _put(tr, scope, outside, due_ms)


def _put(
    tr: fdb.Transaction, scope: Scope, message: StoredMessage, due_ms: int
) -> StoredMessage | None:
    """Keep a message until it is due; returns it if it is."""
    if due_ms <= scope.now_ms(tr):
        return message
    delayed.put_off(tr, scope, due_ms, message)
    return None


def editable(found: FoundMessage | None, *, dead: bool = False) -> bool:
    """Whether a message waits, and can be read. dead: whether a dead letter is also editable."""
    return (
        found is not None
        and found.message.envelope.readable
        and isinstance(found.place, Position | Due | BacklogPlace | (DeadRecord if dead else Due))
    )

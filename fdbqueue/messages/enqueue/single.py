"""Enqueue of one message at once: what most calls do, in one pass."""

from __future__ import annotations

from msgspec.structs import replace

from ...schema import changes, due, once
from ...schema.catalogue import Entry
from ...schema.counters import BYTE, OPERAND_BYTES, unit
from ...schema.envelope import GATED_INLINE_LIMIT, INLINE_LIMIT, Envelope
from ...schema.keys import What
from ...schema.records import Turn
from ...store.binding import fdb
from ...values.states import ENQUEUE
from .. import place, run
from ..slots import backlog, taking
from .admission import Draft

_ENQUEUED = unit(ENQUEUE)


def may_take(entry: Entry, draft: Draft) -> bool:
    """Whether ``append`` takes a message, as far as is known without a read."""
    envelope, known = draft.envelope, entry.known
    if draft.due_ms is not None or draft.dedup_id is not None:
        return False
    if envelope.unique is not None or envelope.limits is not None:
        return False
    if envelope.key is not None and len(envelope.payload) > GATED_INLINE_LIMIT:
        return False
    return known is None or len(envelope.payload) <= known.plain_bytes


def append(tr: fdb.Transaction, entry: Entry, envelope: Envelope) -> str | None:
    """Append a message that ``may_take`` lets through; returns its id.

    Does what ``admission.admit`` does. Returns None, with nothing written, where the queue or the
    message asks for more: that has bounds, a history or an order of its own
    (``Scope.plain_bytes``), or the payload does not stand in the row.

    One round trip; with a key two if that had a backlog lately and has none now. Conflicts as
    ``append.append``. Raises ``QueueNotFound``, ``InvalidArgument``.
    """
    keys, known, priority, key = entry.keys, entry.known, envelope.priority, envelope.key
    size, ends, found = len(envelope.payload), None, None
    if known is not None and type(priority) is int and 0 <= priority < len(known.levels):
        # Issued before it is sure that the options are still these, so that nothing waits for that.
        ends = place.reads(tr, keys, number := known.levels[priority])
        found = None if key is None else taking.read(tr, known, key)
    scope = entry.scope(tr, ends and ends.last)
    if size > scope.plain_bytes:
        return None
    if ends is None or scope is not known:
        ends = place.reads(tr, keys, number := scope.level(priority))
        found = None if key is None else taking.read(tr, scope, key)
    packed = envelope.pack()
    if len(packed) > INLINE_LIMIT:
        return None
    level = keys.levels[number]
    (position,) = place.behind(tr, keys, number, 1, ends)
    message_id = position.to_id()
    waits = False
    if found is not None and key is not None:
        once.change(tr, keys)
        one = taking.Taking(tr, scope, key, found)
        given = one.give(scope, number, message_id)
        if given is None:
            waits, packed = True, replace(envelope, id=message_id).pack()
            turn = Turn(key, one.following(), position.random)
            backlog.write(tr, scope, turn, message_id, position, packed)
        else:
            envelope = replace(envelope, slot=given[0], window=given[1])
            packed = envelope.pack()
    tr.add(level.count, (_ENQUEUED + size * BYTE).to_bytes(OPERAND_BYTES, "little"))
    if envelope.expires_at_ms is not None:
        due.tidy(tr, keys, envelope.expires_at_ms, What.EXPIRED, message_id)
    if waits:
        return message_id
    run.enter(tr, keys, position, (packed,))
    tr.add(keys.change, changes.ONE)
    if scope.index is not None:
        changes.announce_to_subscriptions(tr, scope, [envelope.properties(position)])
    return message_id

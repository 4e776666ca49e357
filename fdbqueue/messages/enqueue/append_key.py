"""Enqueue of one message that has a key and nothing else beside its envelope, the fast way."""

from __future__ import annotations

from msgspec.structs import replace

from ...schema import changes, once
from ...schema.catalogue import Entry
from ...schema.codec.envelopes import GATED_INLINE_LIMIT, Envelope
from ...schema.codec.lookup import Turn
from ...schema.counters import BYTE, operand, unit
from ...store.binding import fdb
from ...values.states import ENQUEUE
from ..slots import backlog, taking
from . import index_allocation

_ENQUEUED = unit(ENQUEUE)


def append(
    tr: fdb.Transaction,
    entry: Entry,
    envelope: Envelope,
    key: str,
) -> str | None:
    """Append a message with a key; returns its id. As ``index_allocation.append_plain``.

    One round trip, two if the key had a backlog lately and has none now. Conflicts as ``append``.
    """
    keys, known, priority = entry.keys, entry.known, envelope.priority
    if known is None or not (type(priority) is int and 0 <= priority < len(known.levels)):
        return None
    # Issued before it is sure that the options are still these, so that nothing waits for that.
    number = known.levels[priority]
    ends = index_allocation.reads(tr, keys, number)
    found = taking.read(tr, known, key)
    scope, size = entry.scope(tr, ends.last), len(envelope.payload)
    if scope is not known or size > min(scope.plain_bytes, GATED_INLINE_LIMIT):
        return None
    (position,) = index_allocation.reserve(tr, keys, number, 1, ends)
    message_id = position.to_id()
    one = taking.Taking(tr, scope, key, found)
    given = one.give(scope, message_id)
    if given is None:
        envelope = replace(envelope, id=message_id)
    else:
        slot, window = given
        envelope = replace(envelope, slot=slot, window=window)
    packed = envelope.pack()
    once.change(tr, keys)
    tr.add(keys.levels[number].count, operand(_ENQUEUED + size * BYTE))
    if given is None:
        turn = Turn(key, one.following(), position.random)
        backlog.write(tr, scope, turn, message_id, position, packed)
        return message_id
    tr.set(keys.ready(position), packed)
    tr.add(keys.change, changes.ONE)
    if scope.index is not None:
        changes.announce_to_subscriptions(tr, scope, [envelope.properties(position)])
    return message_id

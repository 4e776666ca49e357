"""Enqueue without conflicts: behind all others, by snapshot reads alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...schema.codec.envelopes import Envelope, pack_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import ENQUEUE, Transition
from .. import transitions
from . import index_allocation, ordering_keys


@transactional
def append(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    transition: Transition = ENQUEUE,
    reads: Mapping[int, index_allocation.Reads] | None = None,
) -> list[StoredMessage]:
    """Put messages, given as (level, envelope), behind all others of their level, in their order.

    Returns where they stand, in the same order. Messages of one level take consecutive indexes.
    One with an ordering key waits in the line of its key while another of the key is out.

    Reads, all at snapshot isolation and in one round trip: per level the last READY key and TAIL.
    Adds a read conflict on the FENCE keys of the indexes that it takes, which nothing writes but
    a cursor that passes them; so appends conflict neither with each other nor with a dequeue.
    Messages with an ordering key add an ordinary read of its line, and conflict with appends and
    ends of the same key. The reads are ``reads``, by level, where the caller has issued them.
    """
    lines = ordering_keys.reads(tr, scope.keys, [envelope for _, envelope in entries])
    placed = index_allocation.assign(tr, scope, entries, reads)
    if lines:
        placed = ordering_keys.line_up(tr, scope, placed, lines)
    for message in placed:
        if message.turn is None:
            tr[scope.keys.ready(message.position)] = pack_envelope(message.envelope)
    transitions.record(tr, scope, transition, placed)
    return placed

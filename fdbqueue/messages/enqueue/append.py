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

    Returns them with their positions, in the same order. Messages of one level take consecutive
    indexes. One with an ordering key waits in the line of its key while another of the key is out.

    One round trip of snapshot reads, ``reads`` by level if the caller has issued them: the last
    READY key of each level, and TAIL. Adds a read conflict on the FENCE keys of the indexes that it
    takes, which only a cursor that passes them writes; so appends conflict neither with each other
    nor with a dequeue. An ordering key adds an ordinary read of its line, and conflicts with
    appends and ends of the same key.
    """
    lines = ordering_keys.reads(tr, scope.keys, [envelope for _, envelope in entries])
    added = index_allocation.assign(tr, scope, entries, reads)
    if lines:
        added = ordering_keys.line_up(tr, scope, added, lines)
    for message in added:
        if message.turn is None:
            tr[scope.keys.ready(message.position)] = pack_envelope(message.envelope)
    transitions.record(tr, scope, transition, added)
    return added

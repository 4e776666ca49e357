"""Delivery history: one line per transition, for queues that keep one.

A line's key is the versionstamp of its commit, so lines stand in the order in which things
happened, and writing one reads nothing and conflicts with nobody.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..schema.codec.history import pack_event, unpack_event
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND
from ..values.model import Event
from ..values.states import State, Transition

# Tells apart, and keeps in order, the lines of one transaction: they are all written here.
_numbers = itertools.count()


@transactional
def record(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Write one line for every message that has made a transition. Writes blindly.

    Whoever takes messages removes the lines that are too old, so that history does not grow.
    """
    if transition.source is State.READY:
        trim(tr, scope)
    now_ms = scope.now_ms(tr)
    for message in messages:
        line = pack_event(
            transition.name,
            message.id,
            message.position.level,
            message.envelope.attempts,
            message.consumer,
            now_ms,
            "" if message.turn else message.position.to_id(),
        )
        tr.set_versionstamped_key(scope.keys.new_event(next(_numbers)), line)


@transactional
def read(tr: fdb.Transaction, scope: Scope, limit: int, after: bytes) -> list[Event]:
    """Lines of history, the oldest first. A snapshot read, no conflicts."""
    lines = scope.keys.events_after(after)
    return [
        Event(scope.keys.event_stamp(kv.key), *unpack_event(kv.value))
        for kv in tr.snapshot.get_range(lines.start, lines.stop, limit=limit)
    ]


@transactional
def trim(tr: fdb.Transaction, scope: Scope) -> None:
    """Remove the lines that are older than the queue keeps them, by the database's version.

    One range clear; writes blindly.
    """
    kept = scope.options.history_seconds
    if kept is not None:
        oldest = scope.version(tr) - int(kept * VERSIONS_PER_SECOND)
        lines = scope.keys.events_before(max(0, oldest))
        tr.clear_range(lines.start, lines.stop)

"""Delivery history: one line for each transition, if the queue's options say so.

The key of a line is the versionstamp of its commit, so lines are in the order of commits, and
writing one neither reads nor conflicts.
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

# Orders the lines of one transaction.
_numbers = itertools.count()


@transactional
def record(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Write one line for each message that made a transition. Writes blindly.

    Taking messages also removes lines that are too old.
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
    """Lines of history, oldest first. A snapshot read, no conflicts."""
    lines = scope.keys.events_after(after)
    return [
        Event(scope.keys.event_stamp(kv.key), *unpack_event(kv.value))
        for kv in tr.snapshot.get_range(lines.start, lines.stop, limit=limit)
    ]


@transactional
def trim(tr: fdb.Transaction, scope: Scope) -> None:
    """Remove lines older than the queue keeps them, by the database's version. Writes blindly."""
    kept = scope.options.history_seconds
    if kept is not None:
        oldest = scope.version(tr) - int(kept * VERSIONS_PER_SECOND)
        lines = scope.keys.events_before(max(0, oldest))
        tr.clear_range(lines.start, lines.stop)

"""Requeue: the one place that puts messages back at their positions.

A subscription never reads behind its cursor. So a message that becomes ready at its old position
also moves back the cursors that are ahead of it, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...schema import once
from ...schema.codec.envelopes import pack_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional


@transactional
def put_back(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Make messages ready at their old positions; the caller records the transition.

    Moves back the cursor of each subscription that wants such a message. Writes blindly: BYTE_MIN
    leaves a cursor that is not ahead. The scope's read conflict on META covers the list of
    subscriptions, and a new cursor starts at the beginning.
    """
    keys = scope.keys
    skipping = [definition for definition in scope.subscriptions if definition.skips]
    now_ms = scope.now_ms(tr) if skipping else 0
    lowest: dict[tuple[str, int], bytes] = {}
    tried = once.attempt(tr)
    for each in messages:
        position, key = each.position, keys.ready(each.position)
        # It has left the window of its key, and comes back beside it.
        tr[key] = pack_envelope(
            each.envelope if each.envelope.window is None else replace(each.envelope, window=None)
        )
        tried.put_back(key)
        message = each.envelope.properties(position) if skipping else None
        for definition in skipping:
            # A message that never matches would only be skipped again.
            if message and (definition.timed or definition.matches(message, now_ms)):
                cursor = (definition.name, position.level)
                place = keys.place(position)
                lowest[cursor] = min(place, lowest.get(cursor, place))
    for (name, level), place in lowest.items():
        tr.byte_min(keys.cursor(name, level), place)

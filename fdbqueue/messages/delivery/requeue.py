"""Requeue: the one place that puts messages back at their positions.

A subscription never reads behind its cursor. So a message that becomes ready at its old position
also moves back the cursors that are ahead of it, in the same transaction. So does a new message of
a sorted level, which may come in anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...schema import once
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional


@transactional
def put_back(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Make messages ready at their old positions; the caller records the transition.

    Moves back the cursor of each subscription that wants such a message. Writes blindly: BYTE_MIN
    leaves a cursor that is not ahead. The scope's read conflict on META covers the list of
    subscriptions, and a new cursor starts at the beginning.
    """
    keys, tried, back = scope.keys, once.attempt(tr), list(messages)
    for each in back:
        key = keys.ready(each.position)
        # It has left the window of its key, and comes back beside it.
        tr[key] = (
            each.envelope if each.envelope.window is None else replace(each.envelope, window=None)
        ).pack()
        tried.put_back(key)
    take_cursors_back(tr, scope, back)


def take_cursors_back(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Move the cursor of each subscription that wants such a message back to it; see ``put_back``.

    For messages that become ready where cursors may have passed.
    """
    skipping = [definition for definition in scope.subscriptions if definition.skips]
    if not skipping:
        return
    keys, now_ms = scope.keys, scope.now_ms(tr)
    lowest: dict[tuple[str, int], bytes] = {}
    for each in messages:
        position = each.position
        message = each.envelope.properties(position)
        for definition in skipping:
            # A message that never matches would only be skipped again.
            if definition.timed or definition.matches(message, now_ms):
                cursor = (definition.name, position.level)
                place = keys.place(position)
                lowest[cursor] = min(place, lowest.get(cursor, place))
    for (name, level), place in lowest.items():
        tr.byte_min(keys.cursor(name, level), place)

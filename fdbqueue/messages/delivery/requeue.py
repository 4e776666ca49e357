"""Putting messages back where they stood: the one place where that is done.

A subscription's cursor says that nothing before it is of interest. A message that becomes ready at
a position of before has to take the cursors that passed it back to it, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...schema import once
from ...schema.codec.envelopes import pack_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional


@transactional
def put_back(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Make messages ready where they stood before; the transition is the caller's to record.

    Moves the cursor of every subscription that takes such a message back to it. Writes blindly,
    no reads and no conflicts of its own: BYTE_MIN leaves a cursor that has not come so far. Which
    subscriptions there are is known under the read conflict on META that comes with the scope,
    and a cursor that is created meanwhile begins behind nothing.
    """
    keys = scope.keys
    skipping = [definition for definition in scope.subscriptions if definition.skips]
    now_ms = scope.now_ms(tr) if skipping else 0
    lowest: dict[tuple[str, int], bytes] = {}
    tried = once.attempt(tr)
    for standing in messages:
        position, key = standing.position, keys.ready(standing.position)
        tr[key] = pack_envelope(standing.envelope)
        tried.put_back(key)
        message = standing.envelope.properties(position) if skipping else None
        for definition in skipping:
            # What does not match, and never will, would only be passed again.
            if message and (definition.timed or definition.matches(message, now_ms)):
                cursor = (definition.name, position.level)
                place = keys.place(position)
                lowest[cursor] = min(place, lowest.get(cursor, place))
    for (name, level), place in lowest.items():
        tr.byte_min(keys.cursor(name, level), place)

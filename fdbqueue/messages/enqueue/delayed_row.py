"""The row of a message that waits for its time."""

from __future__ import annotations

from ...schema import changes, due
from ...schema.records import Delayed
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb


def put(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Write a delayed message, and wake sleepers if it is due soon. The caller does the rest."""
    keys, position = scope.keys, message.position
    key = keys.delayed(position.level, due_ms, position.random)
    value = Delayed(position, message.envelope.pack()).pack()
    due.add(tr, keys, key, value)
    if due_ms < scope.now_ms(tr) + changes.SOON_MS:
        # Sleepers would not look before it is due.
        changes.announce(tr, scope, [message])

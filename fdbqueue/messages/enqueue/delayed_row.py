"""The row of a message that waits for its time."""

from __future__ import annotations

from ...schema import changes
from ...schema.codec.delayed import Delayed
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb


def put(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Write a delayed message, and wake sleepers if it is due soon. The caller does the rest."""
    key = scope.keys.delayed(due_ms, message.position.random)
    tr[key] = Delayed(message.position, message.envelope.pack()).pack()
    if due_ms < scope.now_ms(tr) + changes.SOON_MS:
        # Sleepers would not look before it is due.
        changes.announce(tr, scope, [message])

"""Messages that wait for their time, by the wall clock.

A scheduled message takes a position when it is due, behind all others of its level, so that no
cursor misses it. A message that was delivered before returns to its position.
"""

from __future__ import annotations

from ...schema import change_counters, due
from ...schema.records import Delayed
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.model import Due
from .. import lookup


def put(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Write a delayed message whose id leads there, and wake sleepers if it is due soon. The caller
    records that. Writes blindly."""
    keys, position = scope.keys, message.position
    key = keys.delayed(position.level, due_ms, position.random)
    value = Delayed(position, message.envelope.pack()).pack()
    due.add(tr, keys, key, value)
    if due_ms < scope.now_ms(tr) + change_counters.SOON_MS:
        # Sleepers would not look before it is due.
        change_counters.announce(tr, scope, [message])


def put_off(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """``put`` for a message that was somewhere else before."""
    place = Due(message.position.level, due_ms, message.position.random)
    lookup.point(tr, scope.keys, message, place)
    put(tr, scope, due_ms, message)

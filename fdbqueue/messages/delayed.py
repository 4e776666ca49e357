"""Messages that wait for their time, by the wall clock.

A scheduled message takes a position when it is due, behind all others of its level, so that no
cursor misses it. A message that was delivered before returns to its position.
"""

from __future__ import annotations

from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Due
from ..values.states import DEFER, SCHEDULE, Transition
from . import lookup, transitions
from .enqueue import delayed_row


@transactional
def schedule(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a new message, with a level and no index, until it is due. Writes blindly."""
    _put(tr, scope, SCHEDULE, due_ms, message)


@transactional
def defer(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a message, whose lease has ended, until it returns to its position. Writes blindly."""
    place = Due(message.position.level, due_ms, message.position.random)
    lookup.point(tr, scope.keys, message, place)
    _put(tr, scope, DEFER, due_ms, message)


def _put(
    tr: fdb.Transaction, scope: Scope, transition: Transition, due_ms: int, message: StoredMessage
) -> None:
    delayed_row.put(tr, scope, due_ms, message)
    transitions.record(tr, scope, transition, [message])

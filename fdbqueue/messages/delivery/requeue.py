"""Requeue: the one place that puts messages back at their positions.

A subscription never reads behind its cursor. So a message that becomes ready at its old position
also moves back the cursors that are ahead of it, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...schema import once
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from .. import place


@transactional
def put_back(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Make messages ready at their old positions; the caller records the transition.

    Moves back the cursor of each subscription that wants such a message. Writes blindly.
    """
    keys, tried, back = scope.keys, once.attempt(tr), list(messages)
    for each in back:
        key = keys.ready(each.position)
        # It has left the window of its key, and comes back beside it.
        tr[key] = (
            each.envelope if each.envelope.window is None else replace(each.envelope, window=None)
        ).pack()
        tried.put_back(key)
    place.take_cursors_back(tr, scope, back)

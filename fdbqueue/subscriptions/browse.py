"""Looking at every message once, in order, and leaving it where it is."""

from __future__ import annotations

from ..messages.delivery import scan
from ..schema.keys import QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..schema.subscription_definitions import Definition
from ..store.binding import fdb, transactional
from .acquire import Found, enough
from .cursors import Walk

PAGE = 100
"""Messages that one transaction of a plain look reads."""


@transactional
def onward(tr: fdb.Transaction, scope: Scope, definition: Definition, limit: int) -> Found:
    """The next messages that match, and move the cursors behind them.

    A message is judged once, when the browser comes by. Round trips as in ``acquire.first``.
    Conflicts with another move of the same cursors and with whoever adds a message to a level
    before the last one that was passed there; with nobody who takes one. If the subscription
    closes itself for what this returns, also with any arrival.
    """
    walk = Walk(tr, scope, definition.name, limit)
    now_ms = scope.now_ms(tr)
    seen: list[StoredMessage] = []
    for standing in walk:
        if standing.envelope.expired(now_ms):
            continue
        if definition.matches(standing.envelope.properties(standing.position), now_ms):
            seen.append(standing)
            if enough(seen, limit):
                break
    for level in walk.passed:
        walk.move(level)
    found = Found(seen, walk.ended, walk.reached)
    if definition.auto_close and found.empty:
        walk.rely_on_ends()
    return found


def page(tr: fdb.Transaction, keys: QueueKeys, level: int, place: bytes) -> list[StoredMessage]:
    """The next messages of a level from a place on; none at its end. Snapshot, no conflicts."""
    within = keys.ready_from(level, place)
    found = tr.snapshot.get_range(
        within.start, within.stop, limit=PAGE, streaming_mode=fdb.StreamingMode.want_all
    )
    return scan.batch(keys, found)

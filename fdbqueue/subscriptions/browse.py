"""Looking at each message once, in order, and leaving it in place."""

from __future__ import annotations

from ..messages.delivery import scan
from ..schema.keys import QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..schema.subscription_definitions import Definition
from ..store.binding import fdb
from .acquire import Found, enough
from .cursors import CursorScan

PAGE = 100
"""How many messages one transaction reads without a subscription."""


def advance(tr: fdb.Transaction, scope: Scope, definition: Definition, limit: int) -> Found:
    """The next matching messages; moves the cursors behind them.

    Each message is matched once. Round trips as in ``acquire.first``. Conflicts with other moves of
    the same cursors, and with messages added to a level before the last one read there; never with
    takers. If the subscription closes itself as a result, also with any arrival.
    """
    messages = CursorScan(tr, scope, definition.name, limit)
    now_ms = scope.now_ms(tr)
    seen: list[StoredMessage] = []
    for message in messages:
        if message.envelope.expired(now_ms):
            continue
        if definition.matches(message.envelope.properties(message.position), now_ms):
            seen.append(message)
            if enough(seen, limit):
                break
    for level in messages.passed:
        messages.move(level)
    found = Found(seen, messages.ended, messages.reached)
    if definition.auto_close and found.empty:
        messages.rely_on_ends()
    return found


def page(tr: fdb.Transaction, keys: QueueKeys, level: int, place: bytes) -> list[StoredMessage]:
    """The next messages of a level, from a place on; none at its end. Snapshot, no conflicts."""
    within = keys.ready_from(level, place)
    found = tr.snapshot.get_range(
        within.start, within.stop, limit=PAGE, streaming_mode=fdb.StreamingMode.want_all
    )
    return scan.batch(keys, found, PAGE, begin=within.start)

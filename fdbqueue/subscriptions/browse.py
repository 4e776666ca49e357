"""Looking at each message once, in order, and leaving it in place."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..messages.delivery import scan
from ..messages.place import fence
from ..schema.consumers import Definition
from ..schema.keys import LOWEST, QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Position
from .acquire import ScanResult, enough
from .cursors import CursorScan, behind, put

PAGE = 100
"""How many messages one transaction reads without a subscription."""


def advance(tr: fdb.Transaction, scope: Scope, definition: Definition, limit: int) -> ScanResult:
    """The next matching messages; moves the cursors behind them.

    Each message is matched once. Round trips as in ``acquire.first``. Conflicts with other moves of
    the same cursors, and with messages added to a level before the last one read there; never with
    takers. If the subscription closes itself as a result, also with any arrival.
    """
    messages, seen = _seen(tr, scope, definition, limit)
    for level in messages.passed:
        messages.move(level)
    found = ScanResult(seen, messages.ended, messages.reached)
    if definition.auto_close and found.empty:
        messages.rely_on_ends()
    return found


class Passage(Struct, frozen=True):
    """What a browser has found in front of its cursors: the last place in each level, and where the
    cursor was."""

    last: Mapping[int, Position]
    cursors: Mapping[int, bytes]


def next_matching(
    tr: fdb.Transaction, scope: Scope, definition: Definition, limit: int
) -> tuple[ScanResult, Passage]:
    """The next matching messages, which stay in front of the cursors until ``pass_by``.

    Nothing is enqueued in front of them any more once this has committed. A message that returns
    there is not found if the cursor then passes it. Round trips and conflicts as ``advance``.
    """
    messages, seen = _seen(tr, scope, definition, limit)
    last = {message.position.level: message.position for message in seen}
    for level, index in messages.passed.items():
        if level in last:
            # The cursor stays, but nothing may come in before it any more: ``pass_by`` would pass
            # that unseen.
            fence(tr, scope.keys, level, index)
        else:
            messages.move(level)
    found = ScanResult(seen, messages.ended, messages.reached)
    if definition.auto_close and found.empty:
        messages.rely_on_ends()
    return found, Passage(last, {level: messages.places[level] for level in last})


def pass_by(tr: fdb.Transaction, scope: Scope, subscription: str, passage: Passage) -> None:
    """Move the cursors behind what was found, but for those that somebody has moved meanwhile.

    One round trip. Conflicts with other moves of the same cursors.
    """
    keys = scope.keys
    stored = {level: tr.get(keys.cursor(subscription, level)) for level in passage.last}
    for level, position in passage.last.items():
        # Read with a conflict: a message that returned, or a seek, has moved it, and that must
        # hold.
        if (stored[level].value or LOWEST) == passage.cursors[level]:
            put(tr, keys, subscription, level, behind(keys, position), position.index)


def page(tr: fdb.Transaction, keys: QueueKeys, level: int, place: bytes) -> list[StoredMessage]:
    """The next messages of a level, from a place on; none at its end. Snapshot, no conflicts."""
    within = keys.ready_from(level, place)
    found = tr.snapshot.get_range(
        within.start, within.stop, limit=PAGE, streaming_mode=fdb.StreamingMode.want_all
    )
    return scan.batch(keys, found, PAGE, begin=within.start)


def _seen(
    tr: fdb.Transaction, scope: Scope, definition: Definition, limit: int
) -> tuple[CursorScan, list[StoredMessage]]:
    """The next messages that match, and the scan that has come to them."""
    messages = CursorScan(tr, scope, definition.name, limit)
    now_ms = scope.now_ms(tr)
    seen: list[StoredMessage] = []
    for message in messages:
        # Left for takers to end: a browser conflicts with nobody who takes.
        if message.envelope.expired(now_ms):
            continue
        if definition.matches(message.envelope.properties(message.position), now_ms):
            seen.append(message)
            if enough(seen, limit):
                break
    return messages, seen

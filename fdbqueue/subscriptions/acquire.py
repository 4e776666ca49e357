"""Taking what a selector matches, in strict order of priority, and leaving the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..messages import time_to_live
from ..schema.scope import Scope, StoredMessage
from ..schema.subscription_definitions import Definition
from ..store.binding import fdb, transactional
from ..values.records import record
from .cursors import MAX_WALKED_BYTES, Walk

WORTHWHILE = 16
"""Messages that a cursor passes at once. A move conflicts with enqueues at these indexes and with
other consumers of the subscription; to look at a few messages again costs less."""
WORTHWHILE_BYTES = 50_000


@record
class Found:
    """What a walk has found, whether it has seen the end of the queue, and how far it has come."""

    messages: list[StoredMessage]
    ended: bool
    reached: Mapping[int, bytes]

    @property
    def empty(self) -> bool:
        """Whether there was nothing to find."""
        return self.ended and not self.messages

    @property
    def unfinished(self) -> bool:
        """Whether to go on in another transaction: nothing was found, and the end not seen."""
        return not self.messages and not self.ended


def enough(messages: Sequence[StoredMessage], limit: int) -> bool:
    """Whether a transaction has found as many messages as it is to give, or can carry."""
    chunks = sum(message.envelope.chunk_bytes for message in messages)
    return len(messages) == limit or chunks >= MAX_WALKED_BYTES


@transactional
def first(
    tr: fdb.Transaction,
    scope: Scope,
    definition: Definition,
    limit: int,
    *,
    strict: bool = True,
    resume: Mapping[int, bytes] | None = None,
) -> Found:
    """The first messages that match, read with a conflict on each, and not yet removed.

    strict: whether to conflict with the arrival of something more urgent, and of anything where
        there are less than ``limit``. Else the order, and that there are no more, holds for the
        moment at which the transaction began.
    resume: the places that an earlier transaction of the call has come to, for a selector that
        reads the age.

    Where it passes enough messages that do not match to be worth it, it moves the cursor behind
    them. It does not do so if the selector reads the age of messages: what does not match now may
    match later. Such a subscription looks at all of them again each time.

    Two round trips, and one for each hundred messages of a level that it passes. Conflicts with
    whoever takes one of the messages, adds one before the last of its level, or moves the cursor.
    """
    walk = Walk(tr, scope, definition.name, limit, resume if definition.timed else None)
    now_ms = scope.now_ms(tr)
    taken: list[StoredMessage] = []
    skipped: Counter[int] = Counter()
    weight: Counter[int] = Counter()
    expired: list[StoredMessage] = []
    for standing in walk:
        if not time_to_live.deliverable(standing, now_ms):
            tr.add_read_conflict_key(scope.keys.ready(standing.position))
            expired.append(standing)
        elif definition.matches(standing.envelope.properties(standing.position), now_ms):
            if standing.envelope.alone and taken:
                break
            tr.add_read_conflict_key(scope.keys.ready(standing.position))
            taken.append(standing)
            if standing.envelope.alone or enough(taken, limit):
                break
        else:
            skipped[standing.position.level] += 1
            weight[standing.position.level] += len(standing.envelope.payload)
    time_to_live.remove_undeliverable(tr, scope, expired)
    found = Found(taken, walk.ended, walk.reached)
    if not definition.timed:
        for level, count in skipped.items():
            if found.unfinished or count >= WORTHWHILE or weight[level] >= WORTHWHILE_BYTES:
                walk.move(level)
    if strict or (definition.auto_close and found.empty):
        walk.rely_on_ends()
    return found

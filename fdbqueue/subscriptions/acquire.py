"""Taking what a selector matches, in strict order of priority, and leaving the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..binding import fdb
from ..queue import expiring
from ..queue.definitions import Definition
from ..queue.scope import Scope, Standing
from .cursor import MAX_WALKED_BYTES, Walk


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk has found, whether it has seen the end of the queue, and how far it has come."""

    messages: list[Standing]
    ended: bool
    reached: Mapping[int, bytes]

    @property
    def unfinished(self) -> bool:
        """Whether to go on in another transaction: nothing was found, and the end not seen."""
        return not self.messages and not self.ended


def enough(messages: Sequence[Standing], limit: int) -> bool:
    """Whether a transaction has found as many messages as it is to give, or can carry."""
    chunks = sum(message.envelope.chunk_bytes for message in messages)
    return len(messages) == limit or chunks >= MAX_WALKED_BYTES


@fdb.transactional
def first(
    tr: fdb.Transaction,
    scope: Scope,
    definition: Definition,
    limit: int,
    resume: Mapping[int, bytes] | None = None,
) -> Found:
    """The first messages that match, read with a conflict on each, and not yet removed.

    Where it passes messages that do not match, it moves the cursor behind them. It does not do
    so if the selector reads the age of messages: what does not match now may match later. Such a
    subscription looks at all of them again each time, and ``resume`` lets a call that spans
    transactions go on where the last one came to.

    Two round trips, and one for each hundred messages of a level that it passes. Conflicts with
    whoever takes one of the messages, adds one before the last of them, or moves the cursor.
    """
    walk = Walk(tr, scope, definition.name, limit, resume if definition.timed else None)
    now_ms = scope.clock.wall_ms()
    taken: list[Standing] = []
    skipped: set[int] = set()
    expired: list[Standing] = []
    for standing in walk:
        if standing.envelope.expired(now_ms):
            tr.add_read_conflict_key(scope.keys.ready(standing.position))
            expired.append(standing)
        elif definition.matches(standing.envelope.properties(standing.position), now_ms):
            tr.add_read_conflict_key(scope.keys.ready(standing.position))
            taken.append(standing)
            if enough(taken, limit):
                break
        else:
            skipped.add(standing.position.level)
    expiring.living(tr, scope, expired)
    if not definition.timed:
        for level in skipped:
            walk.move(level)
    return Found(taken, walk.ended, walk.reached)

"""The first messages that may be delivered: in order, and alive."""

from __future__ import annotations

from ..binding import fdb
from ..errors import ExpiredBacklog
from . import dequeue, expiring
from .scope import Scope, Standing

MAX_DISPOSED = 1_000
"""Messages whose time to live is over that one transaction disposes of to find others."""
_MORE = 200


@fdb.transactional
def first(
    tr: fdb.Transaction, scope: Scope, limit: int, found: fdb.FDBRange | None = None
) -> list[Standing]:
    """Read the first ``limit`` ready messages; those whose time to live is over are disposed of.

    found: the read that ``dequeue.first`` issued, with a conflict. One more round trip for every
    two hundred that are disposed of. Conflicts as that read. Raises ``ExpiredBacklog``.
    """
    if found is None:
        found = dequeue.first(tr, scope.keys, limit)
    disposed = 0
    while True:
        messages = dequeue.standing(scope.keys, found)
        alive = expiring.living(tr, scope, messages)
        if len(alive) == len(messages) or len(alive) >= limit:
            return alive[:limit]
        disposed += len(messages) - len(alive)
        if disposed > MAX_DISPOSED:
            raise ExpiredBacklog(name=scope.name, count=disposed)
        found = dequeue.first(tr, scope.keys, max(limit, _MORE))


@fdb.transactional
def pop(tr: fdb.Transaction, scope: Scope, limit: int) -> list[Standing]:
    """Remove and return the first ``limit`` ready messages; fewer if there are no more.

    One round trip. Conflicts with whoever takes or adds a message at or before the last one
    taken, so the order is serializable; with no enqueue behind it. Raises ``ExpiredBacklog``.
    """
    taken = first(tr, scope, limit)
    dequeue.finish(tr, scope, taken)
    return taken

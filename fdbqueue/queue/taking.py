"""The first messages that may be delivered: in order, and alive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..binding import fdb
from ..errors import ExpiredBacklog
from ..states import DEQUEUE
from . import dequeue, expiring, life, payloads
from .scope import Scope, Standing

MAX_DISPOSED = 1_000
"""Messages whose time to live is over that one transaction disposes of to find others."""
_MORE = 200


def alive(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[Standing],
    again: Callable[[], Sequence[Standing]],
) -> list[Standing]:
    """Those of some first messages whose time is not over; the others are disposed of.

    again: reads the first messages anew, for when none of them is left; none only if there are
        none. Both reads are made with the conflicts that the caller needs.

    Raises ``ExpiredBacklog``.
    """
    disposed = 0
    while True:
        living = expiring.living(tr, scope, messages)
        if living or not messages:
            return living
        disposed += len(messages)
        if disposed > MAX_DISPOSED:
            raise ExpiredBacklog(name=scope.name, count=disposed)
        messages = again()


def first(
    tr: fdb.Transaction, scope: Scope, limit: int, messages: Sequence[Standing]
) -> list[Standing]:
    """Up to ``limit`` first messages that are alive, of those that were read and what follows.

    One more round trip for every two hundred that are not. Conflicts as
    ``dequeue.conflicting``. Raises ``ExpiredBacklog``.
    """

    def again() -> list[Standing]:
        more = dequeue.first(tr, scope.keys, max(limit, _MORE))
        return dequeue.conflicting(tr, scope.keys, more)

    return alive(tr, scope, messages, again)[:limit]


def together(messages: list[Standing], *, suspects: bool = True) -> list[Standing]:
    """Those of some first messages that are handed over together.

    One whose lease has lapsed comes alone, so that it is known which message a consumer dies of. If
    that was not enough to know, it comes only to who begins with it at once, beside no other, which
    is what ``suspects`` says.
    """
    for n, message in enumerate(messages):
        if message.envelope.alone:
            return messages[: n or (suspects or not message.envelope.suspect)]
    return messages


@fdb.transactional
def pop(tr: fdb.Transaction, scope: Scope, limit: int) -> list[Standing]:
    """Remove and return the first ``limit`` ready messages; fewer if there are no more.

    One round trip. Conflicts with whoever takes or adds a message at or before the last one
    taken, so the order is serializable; with no enqueue behind it, unless there is nothing to
    take. Raises ``ExpiredBacklog``.
    """
    found = dequeue.conflicting(tr, scope.keys, dequeue.first(tr, scope.keys, limit))
    taken = first(tr, scope, limit, found)
    # Issued before the end of the messages removes the chunks.
    chunks = payloads.look(tr, scope.keys, taken)
    taken = payloads.load(taken, chunks)
    dequeue.remove(tr, scope.keys, taken)
    life.moved(tr, scope, DEQUEUE, taken)
    return taken

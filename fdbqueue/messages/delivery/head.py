"""The first messages that may be delivered: in order, and alive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import ExpiredBacklog
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import DEQUEUE
from .. import payloads, time_to_live, transitions
from . import scan

MAX_DISPOSED = 1_000
"""Messages whose time to live is over that one transaction disposes of to find others."""
_MORE = 200


def alive(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[StoredMessage],
    again: Callable[[], Sequence[StoredMessage]],
) -> list[StoredMessage]:
    """Those of some first messages whose time is not over; the others are disposed of.

    again: reads the first messages anew, for when none of them is left; none only if there are
        none. Both reads are made with the conflicts that the caller needs.

    Raises ``ExpiredBacklog``.
    """
    disposed = 0
    while True:
        living = time_to_live.remove_undeliverable(tr, scope, messages)
        if living or not messages:
            return living
        disposed += len(messages)
        if disposed > MAX_DISPOSED:
            raise ExpiredBacklog(name=scope.name, count=disposed)
        messages = again()


def first(
    tr: fdb.Transaction, scope: Scope, limit: int, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Up to ``limit`` first messages that are alive, of those that were read and what follows.

    One more round trip for every two hundred that are not. Conflicts as
    ``dequeue.conflicting``. Raises ``ExpiredBacklog``.
    """

    def again() -> list[StoredMessage]:
        more = scan.first(tr, scope.keys, max(limit, _MORE))
        return scan.conflicting(tr, scope.keys, more)

    return alive(tr, scope, messages, again)[:limit]


def together(messages: list[StoredMessage], *, suspects: bool = True) -> list[StoredMessage]:
    """Those of some first messages that are handed over together.

    One whose lease has lapsed comes alone, so that it is known which message a consumer dies of. If
    that was not enough to know, it comes only to who begins with it at once, beside no other, which
    is what ``suspects`` says.
    """
    for n, message in enumerate(messages):
        if message.envelope.alone:
            return messages[: n or (suspects or not message.envelope.suspect)]
    return messages


@transactional
def pop(tr: fdb.Transaction, scope: Scope, limit: int) -> list[StoredMessage]:
    """Remove and return the first ``limit`` ready messages; fewer if there are no more.

    One round trip. Conflicts with whoever takes or adds a message at or before the last one
    taken, so the order is serializable; with no enqueue behind it, unless there is nothing to
    take. Raises ``ExpiredBacklog``.
    """
    found = scan.conflicting(tr, scope.keys, scan.first(tr, scope.keys, limit))
    taken = first(tr, scope, limit, found)
    # Issued before the end of the messages removes the chunks.
    chunks = payloads.reads(tr, scope.keys, taken)
    taken = payloads.load(taken, chunks)
    scan.remove(tr, scope.keys, taken)
    transitions.record(tr, scope, DEQUEUE, taken)
    return taken

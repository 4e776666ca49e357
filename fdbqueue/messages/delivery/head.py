"""The head: the first messages that may be delivered, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import ExpiredBacklog
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from .. import settle, time_to_live
from ..transaction_budget import PAGE_BYTES, weight
from . import limits, scan

MAX_DISPOSED = 1_000
"""The most expired messages that one transaction removes to reach others."""
_MORE = 200


def alive(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[StoredMessage],
    again: Callable[[], Sequence[StoredMessage]],
) -> list[StoredMessage]:
    """The deliverable ones of some first messages; the others are removed.

    again: reads the first messages again if none is left. Both reads make the conflicts that the
        caller needs.

    Raises ``ExpiredBacklog``.
    """
    disposed = size = 0
    while True:
        living = time_to_live.remove_undeliverable(tr, scope, messages)
        if living or not messages:
            return living
        disposed += len(messages)
        # Two of these pages, and what a range read brings beyond them, are all that one reads.
        if disposed > MAX_DISPOSED or size > PAGE_BYTES // 2:
            raise ExpiredBacklog(name=scope.name, count=disposed)
        messages = again()
        size += sum(weight(each.envelope) for each in messages)


def first(
    tr: fdb.Transaction, scope: Scope, limit: int, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Up to ``limit`` first deliverable messages, from those that were read on.

    One more round trip for every two hundred others. Conflicts as ``scan.conflicting``. Raises
    ``ExpiredBacklog``.
    """

    def again() -> list[StoredMessage]:
        most = max(limit, _MORE)
        rows = scan.first(tr, scope.keys, most)
        return scan.conflicting(tr, scope.keys, rows, most, PAGE_BYTES)

    return alive(tr, scope, messages, again)[:limit]


def together(messages: list[StoredMessage], *, suspects: bool = True) -> list[StoredMessage]:
    """How many of some first messages to deliver together.

    A message whose lease has expired comes alone, to find out which message kills consumers. If
    that was not conclusive, it goes only to consumers that handle it at once, beside no other,
    which ``suspects`` tells.
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
    limit = limits.room(tr, scope, limit, leases=False)
    if not limit:
        return []
    found = scan.conflicting(tr, scope.keys, scan.first(tr, scope.keys, limit), limit)
    return settle.dequeue(tr, scope, first(tr, scope, limit, found))

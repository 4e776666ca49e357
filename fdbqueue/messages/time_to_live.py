"""Expired messages: whoever meets one removes it, as the queue's option ``expired`` says.

An entry of the agenda has the end of each time to live: so what nobody meets goes, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..schema.due import Entry
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.states import End, State
from . import lookup, run, settle
from .delivery import scan
from .transaction_budget import PAGE_BYTES, Done, weight

MAX_SKIPPED = 100
"""The most messages that one transaction looks at for unreadable ones."""
STEP_ROWS = 10
"""How many of them are read before it is known how large they are."""


def remove_undeliverable(
    tr: fdb.Transaction, scope: Scope, ready: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """The ready messages that can be delivered; the others are removed.

    Unreadable ones become dead letters, expired ones as the queue says. The caller has read each
    with a conflict.
    """
    now_ms = scope.now_ms(tr)
    leaving = [each for message in ready if (each := settle.unfit(message, now_ms))]
    if not leaving:
        return list(ready)
    run.remove(tr, scope.keys, run.pieces(scope.keys, [each.message for each in leaving]))
    settle.carry_out(tr, scope, State.READY, leaving)
    return [message for message in ready if settle.unfit(message, now_ms) is None]


@transactional
def skip_unreadable(tr: fdb.Transaction, scope: Scope) -> int:
    """Make dead letters of the unreadable ones of the first ready messages; returns how many.

    Conflicts with other takers of one of them.
    """
    rows = scan.first(tr, scope.keys, MAX_SKIPPED)
    first = scan.batch(scope.keys, rows, MAX_SKIPPED, PAGE_BYTES)
    found = [message for message in first if not message.envelope.readable]
    # The page was read at snapshot isolation; only the unreadable ones leave, so only they
    # conflict.
    run.watch(tr, found)
    remove_undeliverable(tr, scope, found)
    return len(found)


def end_expired(tr: fdb.Transaction, scope: Scope, entries: Sequence[Entry], room: int) -> Done:
    """End messages whose time is over by entries of the agenda, as long as there is room, if they
    are ready or delayed. A leased one ends when it returns.

    Up to three round trips for every ten. Conflicts with whatever moves these messages.
    """
    expired: dict[str, lookup.FoundMessage] = {}
    now_ms, n, size = scope.now_ms(tr), 0, 0
    while n < len(entries) and size < room:
        # A few at once: their sizes are known only when they are read, and ten of the largest
        # messages still fit.
        some = entries[n : n + STEP_ROWS]
        n += len(some)
        issued = [lookup.reads(tr, scope.keys, str(each.name)) for each in some]
        for found in [lookup.find(tr, scope, each) for each in issued]:
            # Leased, dead or gone: none of these expires here. A lease that returns finds its time
            # to live over.
            if found is None or found.state is State.DEAD or found.message.id in expired:
                continue
            if found.message.envelope.expired(now_ms):
                expired[found.message.id] = found
                size += weight(found.message.envelope)
    ready = settle.end(tr, scope, expired.values(), End.EXPIRE)
    return Done(ready, expired=len(expired), size=size, handled=n)

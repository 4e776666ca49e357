"""Expired messages: whoever meets one removes it, as the queue's option ``expired`` says.

An entry of the agenda has the end of each time to live: so what nobody meets goes, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..schema.due import Entry
from ..schema.envelope import UNREADABLE
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.states import EXPIRE_DELAYED, EXPIRE_LEASED, EXPIRE_READY, State
from . import dead_letters, inspection, lookup, run, transitions
from .delivery import scan
from .transaction_budget import PAGE_BYTES, Done, weight

MAX_SKIPPED = 100
"""The most messages that one transaction looks at for unreadable ones."""
STEP_ROWS = 10
"""How many of them are read before it is known how large they are."""
REASON = "its time to live was over"

_ENDS = {
    State.READY: EXPIRE_READY,
    State.DELAYED: EXPIRE_DELAYED,
    State.LEASED: EXPIRE_LEASED,
}


@transactional
def expire(
    tr: fdb.Transaction, scope: Scope, source: State, messages: Sequence[StoredMessage]
) -> int:
    """End expired messages that were in the state ``source``, already removed from their places;
    returns how many others became ready."""
    if scope.options.expired == "dead":
        return dead_letters.add(tr, scope, source, [(message, REASON) for message in messages])
    return transitions.record(tr, scope, _ENDS[source], messages)


def remove_undeliverable(
    tr: fdb.Transaction, scope: Scope, ready: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """The ready messages that can be delivered; the others are removed.

    Unreadable ones become dead letters, expired ones as the queue says. The caller has read each
    with a conflict.
    """
    now_ms = scope.now_ms(tr)
    expired = [message for message in ready if message.envelope.expired(now_ms)]
    unreadable = [message for message in ready if not message.envelope.readable]
    if not expired and not unreadable:
        return list(ready)
    run.remove(tr, scope.keys, [*expired, *unreadable])
    expire(tr, scope, State.READY, expired)
    reject_unreadable(tr, scope, State.READY, unreadable)
    return [message for message in ready if deliverable(message, now_ms)]


def deliverable(message: StoredMessage, now_ms: int) -> bool:
    """Whether a message may be delivered."""
    return message.envelope.readable and not message.envelope.expired(now_ms)


def reject_unreadable(
    tr: fdb.Transaction, scope: Scope, source: State, messages: Sequence[StoredMessage]
) -> int:
    """Make dead letters of messages that cannot be read, already removed; returns how many others
    became ready."""
    return dead_letters.add(
        tr, scope, source, [(each, each.envelope.last_error or UNREADABLE) for each in messages]
    )


@transactional
def skip_unreadable(tr: fdb.Transaction, scope: Scope) -> int:
    """Make dead letters of the unreadable ones of the first ready messages; returns how many.

    Conflicts with other takers of one of them.
    """
    rows = scan.first(tr, scope.keys, MAX_SKIPPED)
    first = scan.batch(scope.keys, rows, MAX_SKIPPED, PAGE_BYTES)
    found = [message for message in first if not message.envelope.readable]
    run.watch(tr, found)
    run.remove(tr, scope.keys, found)
    reject_unreadable(tr, scope, State.READY, found)
    return len(found)


def end_expired(tr: fdb.Transaction, scope: Scope, entries: Sequence[Entry], room: int) -> Done:
    """End messages whose time is over by entries of the agenda, as long as there is room, if they
    are ready or delayed. A leased one ends when it returns.

    Up to three round trips for every ten. Conflicts with whatever moves these messages.
    """
    expired: dict[State, list[StoredMessage]] = {State.READY: [], State.DELAYED: []}
    now_ms, n, size = scope.now_ms(tr), 0, 0
    while n < len(entries) and size < room:
        some = entries[n : n + STEP_ROWS]
        n += len(some)
        issued = [lookup.reads(tr, scope.keys, str(each.name)) for each in some]
        for found in [lookup.find(tr, scope, each) for each in issued]:
            if found is None or not found.message.envelope.expired(now_ms):
                continue
            state = inspection.take_out(tr, scope, found)
            if state is not None:
                expired[state].append(found.message)
                size += weight(found.message.envelope)
    ready = sum(expire(tr, scope, state, messages) for state, messages in expired.items())
    return Done(ready, expired=sum(map(len, expired.values())), size=size, handled=n)

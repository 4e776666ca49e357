"""Expired messages: whoever meets one removes it, as the queue's option ``expired`` says.

MORTAL keeps the ids of messages with a time to live in the order of its end, for the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..schema.envelope import UNREADABLE
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.states import EXPIRE_DELAYED, EXPIRE_LEASED, EXPIRE_READY, State
from . import dead_letters, inspection, lookup, run, transitions
from .delivery import scan
from .transaction_budget import PAGE_BYTES, weight

MAX_EXPIRED = 100
"""The most messages that one step of a sweep removes."""
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
    rows = scan.first(tr, scope.keys, MAX_EXPIRED)
    first = scan.batch(scope.keys, rows, MAX_EXPIRED, PAGE_BYTES)
    found = [message for message in first if not message.envelope.readable]
    run.watch(tr, found)
    run.remove(tr, scope.keys, found)
    reject_unreadable(tr, scope, State.READY, found)
    return len(found)


@transactional
def sweep(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """Remove expired messages that are ready or delayed, a step at a time.

    begin: the key to continue from; empty for the first step. Returns how many were removed, and
    the key to continue from, empty at the end. A leased message is left to the end of its lease.
    Up to three round trips for every ten. Conflicts with whatever moves these messages.
    """
    keys, now_ms = scope.keys, scope.now_ms(tr)
    over = keys.mortal.before(now_ms + 1)
    entries = tr.snapshot.get_range(
        max(begin, over.start), over.stop, limit=MAX_EXPIRED, streaming_mode=fdb.StreamingMode.exact
    ).to_list()
    expired: dict[State, list[StoredMessage]] = {State.READY: [], State.DELAYED: []}
    room, n = PAGE_BYTES, 0
    while n < len(entries) and room > 0:
        step = entries[n : n + STEP_ROWS]
        n += len(step)
        issued = [lookup.reads(tr, keys, keys.mortal.parse(kv.key)[1]) for kv in step]
        for found in [lookup.find(tr, scope, each) for each in issued]:
            state = inspection.take_out(tr, scope, found)
            if found is not None and state is not None:
                expired[state].append(found.message)
                room -= weight(found.message.envelope)
    for state, messages in expired.items():
        expire(tr, scope, state, messages)
    more = n < len(entries) or n == MAX_EXPIRED
    return sum(map(len, expired.values())), entries[n - 1].key + b"\x00" if more else b""

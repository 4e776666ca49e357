"""Deleting a queue that has been unused for a while, as Qpid deletes auto-delete queues.

Unused: no messages but dead letters, no waiting consumer, no subscription, no consumer of plans, no
schedule, no result that is kept, no callback of a group that is still to come.
"""

from __future__ import annotations

from ..schema import catalogue, counters
from ..schema.keys import QueueKeys
from ..schema.records import EmptySince
from ..schema.scope import Scope
from ..store.binding import fdb, transactional

_IN_USE = (
    QueueKeys.ready,
    QueueKeys.waiting,
    QueueKeys.delayed,
    QueueKeys.lease,
    QueueKeys.state,
    QueueKeys.subscription,
    QueueKeys.planner,
    QueueKeys.schedule,
    QueueKeys.result,
)


@transactional
def drained(tr: fdb.Transaction, scope: Scope) -> bool:
    """Whether the queue is unused now. One round trip; conflicts with whatever changes that."""
    reads = [
        tr.get_range(keys.start, keys.stop, limit=1, streaming_mode=fdb.StreamingMode.exact)
        for keys in (
            *map(scope.keys.holding, _IN_USE),
            scope.keys.line.requests,
            scope.keys.work(),
        )
    ]
    return not any(read.to_list() for read in reads)


@transactional
def delete_if_idle(tr: fdb.Transaction, scope: Scope) -> bool:
    """Delete an auto-delete queue that has been unused for long enough; returns whether it did.

    Stores since when the queue has been unused, with the number of messages enqueued until then:
    another message restarts the time.
    """
    options = scope.options
    if options.auto_delete is None:
        return False
    marked = tr.get(scope.keys.idle)
    idle = drained(tr, scope)
    total = sum(depth.enqueued for depth in counters.depths(tr, scope.keys).values())
    mark = marked.value
    if not idle:
        if mark is not None:
            del tr[scope.keys.idle]
        return False
    now_ms = scope.now_ms(tr)
    seen = EmptySince(-1, now_ms) if mark is None else EmptySince.unpack(mark)
    if seen.enqueued != total:
        seen = EmptySince(total, now_ms)
        tr[scope.keys.idle] = seen.pack()
    if now_ms - seen.since_ms < options.auto_delete * 1000:
        return False
    catalogue.delete(tr, scope.root, scope.name)
    return True

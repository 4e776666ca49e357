"""The limit of messages in flight: how many of a queue may be leased at once.

The counters of the queue change in the transaction that leases a message, and in that which ends
the lease. So as of its read version a taker knows how many are leased. Ends that commit meanwhile
only make them fewer, and takers exclude each other by a key that is never written. So nothing is
stored beside the leases, an end conflicts with no taker, and there is nothing to reconcile.
"""

from __future__ import annotations

from ...schema import counters
from ...schema.changes import ONE
from ...schema.scope import Scope
from ...store.binding import fdb


def room(tr: fdb.Transaction, scope: Scope, wanted: int) -> int:
    """How many of ``wanted`` messages may be leased now.

    One snapshot read, none without a limit. It sees what the transaction itself leases and ends.
    Whoever leases them calls ``exclude``.
    """
    limit = scope.options.max_in_flight
    return wanted if limit is None else max(0, min(wanted, limit - leased(tr, scope)))


def full(tr: fdb.Transaction, scope: Scope) -> bool:
    """Whether no other message may be leased. One snapshot read, none without a limit."""
    return room(tr, scope, 1) == 0


def leased(tr: fdb.Transaction, scope: Scope) -> int:
    """How many messages are leased, also by the transaction itself. One snapshot read."""
    return sum(depth.leased for depth in counters.depths(tr, scope.keys).values())


def exclude(tr: fdb.Transaction, scope: Scope) -> None:
    """Conflict with others that lease messages of the queue, if it has a limit."""
    if scope.options.max_in_flight is not None:
        tr.add_read_conflict_key(scope.keys.taking)
        tr.add_write_conflict_key(scope.keys.taking)


def freed(tr: fdb.Transaction, scope: Scope) -> None:
    """Tell who waits for it that leases end in a queue with a limit. Writes blindly."""
    tr.add(scope.keys.freed, ONE)

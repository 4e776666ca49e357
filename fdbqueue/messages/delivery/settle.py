"""Settling deliveries: acknowledge, release, reject.

Each function ends the leases of all its deliveries, or raises ``LeaseLost`` for the first that is
gone, before anything is written. One round trip, two for extended leases. Conflicts only with
another settlement of the same leases, and with their expiry: exactly one succeeds. While leases
share a row, also with a settlement of others of that row; the first of them gives each its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schema import counters
from ...schema.catalogue import Entry
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Delivery
from ...values.states import ACK, DROP, RELEASE, State
from .. import dead_letters, transitions
from . import lease_rows, redelivery

_ACKNOWLEDGED = counters.unit(ACK)
_ONE = counters.operand(_ACKNOWLEDGED)


def ack(tr: fdb.Transaction, entry: Entry, deliveries: Sequence[Delivery]) -> None:
    """Acknowledge deliveries."""
    reads = lease_rows.reads(tr, entry.keys, deliveries)
    done(tr, entry.scope(tr), deliveries, reads)


def done(
    tr: fdb.Transaction,
    scope: Scope,
    deliveries: Sequence[Delivery],
    reads: Sequence[lease_rows.Read],
) -> bool:
    """Acknowledge deliveries, given the reads of their leases.

    Returns whether nothing else changed: the end of a message with an ordering key makes the next
    one ready.
    """
    silent, levels = scope.options.history_seconds is None, scope.keys.levels
    counts: dict[int, int] = {}
    others = []
    for each in lease_rows.end_unread(tr, scope, deliveries, reads):
        if silent and each.plain:
            level = each.position.level
            counts[level] = counts[level] + _ACKNOWLEDGED if level in counts else _ACKNOWLEDGED
        else:
            others.append(lease_rows.message_of(each))
    for level, total in counts.items():
        tr.add(levels[level].count, _ONE if total == _ACKNOWLEDGED else counters.operand(total))
    if others:
        transitions.record(tr, scope, ACK, others)
    return not others


@transactional
def release(
    tr: fdb.Transaction,
    scope: Scope,
    deliveries: Sequence[Delivery],
    delay: float | None,
    error: str | None,
) -> int:
    """Return messages to their positions, after ``delay`` seconds; returns how many became ready.

    With an error the attempt failed, and the redelivery policy decides what happens. Without one
    the attempt does not count.
    """
    now_ms = scope.now_ms(tr)
    failure = None if error is None else error or "it failed at the last attempt"
    verdicts = [
        (
            held,
            redelivery.decide(
                scope.options, held.envelope, now_ms, failure=failure, error=error, delay=delay
            ),
        )
        for held in lease_rows.end(tr, scope, deliveries)
    ]
    return redelivery.carry_out(tr, scope, RELEASE, verdicts)


@transactional
def reject(
    tr: fdb.Transaction, scope: Scope, deliveries: Sequence[Delivery], reason: str, drop: bool
) -> None:
    """Make dead letters of messages, or drop them. The attempt failed."""
    failed = [
        StoredMessage(held.position, held.envelope.failed(reason), held.consumer)
        for held in lease_rows.end(tr, scope, deliveries)
    ]
    if drop:
        transitions.record(tr, scope, DROP, failed)
    else:
        dead_letters.add(tr, scope, State.LEASED, [(message, reason) for message in failed])

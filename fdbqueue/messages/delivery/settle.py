"""Settling deliveries: acknowledge, release, reject.

Each function ends the leases of all its deliveries, or raises ``LeaseLost`` that names those that
are gone, before anything is written. One round trip, two for extended leases. Conflicts only with
another settlement of the same leases, and with their expiry: exactly one succeeds. While leases
share a row, also with a settlement of others of that row; the first of them gives each its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ...schema import counters, once
from ...schema.catalogue import Entry
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import ACK, DROP, RELEASE, State
from .. import dead_letters, transitions
from . import lease_rows, limits, redelivery
from .lease_rows import Held
from .redelivery import Disposition

_ACKNOWLEDGED = counters.unit(ACK)
_ONE = counters.operand(_ACKNOWLEDGED)


def ack(tr: fdb.Transaction, entry: Entry, held: Sequence[Held]) -> None:
    """Acknowledge deliveries."""
    reads = lease_rows.reads(tr, entry.keys, held)
    # As ``lease_rows.single``, without its call, since the calls of an acknowledgement are limited.
    first = reads[0] if reads else None
    scope = entry.scope(tr, None if type(first) is lease_rows.InSpan else first)
    done(tr, scope, held, reads)


def done(
    tr: fdb.Transaction, scope: Scope, held: Sequence[Held], reads: Sequence[lease_rows.Read]
) -> bool:
    """Acknowledge deliveries, given the reads of their leases.

    Returns whether no other message became ready: the end of one with a key may let the next out.
    """
    silent, levels = scope.options.history_seconds is None, scope.keys.levels
    counts: dict[int, int] = {}
    others = []
    leases, rows = lease_rows.end_unread(tr, scope, held, reads)
    for each in leases:
        if silent and each.plain:
            level = each.position.level
            counts[level] = counts[level] + _ACKNOWLEDGED if level in counts else _ACKNOWLEDGED
        else:
            others.append(lease_rows.message_of(each))
    for row in rows:
        if silent and row.plain:
            total = (row.end - row.begin) * _ACKNOWLEDGED
            counts[row.level] = counts.get(row.level, 0) + total
        else:
            others += map(lease_rows.message_of, row.leases(scope.keys))
    if counts:
        once.change(tr, scope.keys)
        if scope.options.max_in_flight is not None:
            limits.freed(tr, scope)
    for level, total in counts.items():
        tr.add(levels[level].count, _ONE if total == _ACKNOWLEDGED else counters.operand(total))
    return not others or transitions.record(tr, scope, ACK, others) == 0


class Return(Struct, frozen=True):
    """A verdict: the message goes back to its place, after ``delay`` seconds.

    With an error the attempt failed, and the redelivery policy decides what happens. Without one
    the attempt does not count.
    """

    delay: float | None = None
    error: str | None = None


class Refuse(Struct, frozen=True):
    """A verdict: the message becomes a dead letter, or is dropped. The attempt failed."""

    reason: str
    drop: bool = False


Verdict = Return | Refuse


@transactional
def settle(
    tr: fdb.Transaction,
    scope: Scope,
    held: Sequence[Held],
    verdicts: Mapping[str, Verdict],
    others: Verdict | None = None,
) -> None:
    """Settle deliveries, each by its verdict.

    verdicts: by the ids of the messages. others: the verdict of all others; None if they are done.
    """
    now_ms = scope.now_ms(tr)
    done: list[StoredMessage] = []
    dropped: list[StoredMessage] = []
    died: list[tuple[StoredMessage, str]] = []
    returned: list[tuple[StoredMessage, redelivery.Verdict]] = []
    for message in lease_rows.end(tr, scope, held):
        match verdicts.get(message.id, others):
            case None:
                done.append(message)
            case Return(delay, error):
                failure = None if error is None else error or "it failed at the last attempt"
                envelope, options = message.envelope, scope.options
                decided = redelivery.decide(
                    options, envelope, now_ms, failure=failure, error=error, delay=delay
                )
                returned.append((message, decided))
            case Refuse() if message.envelope.cancelled:
                returned.append((message, redelivery.Verdict(Disposition.CANCEL, message.envelope)))
            case Refuse(reason, drop):
                envelope = message.envelope.failed(reason)
                failed = StoredMessage(message.position, envelope, message.consumer)
                dropped += [failed] if drop else []
                died += [] if drop else [(failed, reason)]
    transitions.record(tr, scope, ACK, done)
    redelivery.carry_out(tr, scope, RELEASE, returned)
    transitions.record(tr, scope, DROP, dropped)
    dead_letters.add(tr, scope, State.LEASED, died)

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
from ...schema.keys import QueueKeys
from ...schema.leases import unpack_until
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Delivery
from ...values.states import ACK, DROP, RELEASE, State
from .. import dead_letters, run, transitions
from ..run import Held, One, WholeRow
from . import limits, redelivery
from .redelivery import Disposition

_ACKNOWLEDGED = counters.unit(ACK)
_ONE = counters.operand(_ACKNOWLEDGED)


class Ending:
    """Leases to end: their reads, issued and not awaited.

    deliveries: those that are not of a whole row. last: the last read of a single key, if there is
    one.
    """

    def __init__(self, tr: fdb.Transaction, keys: QueueKeys, held: Sequence[Held]) -> None:
        self._tr = tr
        self._keys = keys
        self._rows: list[tuple[WholeRow, fdb.Value]] = []
        self.deliveries: list[Delivery] = []
        for one in held:
            if type(one) is WholeRow:
                self._rows.append((one, tr.get(one.row.key)))
            else:
                self.deliveries.append(one)
        self._leases = run.Leases(tr, keys, [each.token for each in self.deliveries])
        self.last = self._rows[-1][1] if self._rows else self._leases.last

    def end(self) -> tuple[list[One], list[WholeRow]]:
        """End the leases; returns them, but those of rows that nobody has changed as rows.

        A second round trip if a row has changed: to tell which of its leases are gone; and one if
        a lease was extended.
        """
        tr, keys, deliveries = self._tr, self._keys, self.deliveries
        rows: list[WholeRow] = []
        changed: list[Delivery] = []
        for row, read in self._rows:
            if read.value == row.row.value:
                rows.append(row)
            else:
                changed += row.deliveries
        if changed:
            deliveries = [*deliveries, *changed]
            self._leases = run.Leases(tr, keys, [each.token for each in deliveries])
        found = self._leases.held(deliveries)
        claims: dict[bytes, tuple[int, int]] = {}  # Their ends, and how many leases they had.
        left: dict[bytes, int] = {}
        extended: dict[bytes, fdb.Value] = {}
        for one, delivery in zip(found, deliveries, strict=True):
            lease = one.row.lease
            name = lease.claim
            if name not in claims:
                claims[name] = lease.expiry_version, lease.together
                left[name] = lease.together
            left[name] -= 1
            if lease.expiry_ms != delivery.expires_at_ms and name not in extended:
                extended[name] = tr.snapshot.get(keys.until(name))
        for row in rows:
            claim = row.row.claim
            name = claim.name
            claims[name] = claim.version, claim.together
            left[name] = left.get(name, claim.together) - (row.end - row.begin)
            if claim.wall_ms != row.expires_at_ms and name not in extended:
                extended[name] = tr.snapshot.get(keys.until(name))
        later = {}
        for name, read in extended.items():
            later[name] = unpack_until(read.value)
        self._leases.remove(found)
        for row in rows:
            tr.clear(row.row.key)
        for name, (version, together) in claims.items():
            if left[name]:
                continue
            until, expiry = keys.until(name), keys.expiry(version, name)
            # Also where there is none: an extension may have committed since.
            tr.clear(until)
            if name not in later or len(later[name]) < together:
                tr.clear(expiry)
            if name in later:
                for each in {end.version for end in later[name].values()}:
                    tr.clear(keys.expiry(each, name))
        return found, rows


def end(tr: fdb.Transaction, scope: Scope, held: Sequence[Held]) -> list[StoredMessage]:
    """End leases and return their messages; the caller records where these go.

    One round trip, two for extended leases. Conflicts with another settlement of the same leases
    and with their expiry, never with an extension. Raises ``LeaseLost`` that names all leases that
    are gone, and ``MessagePlanned`` for one of a plan, before anything is written.
    """
    found, rows = Ending(tr, scope.keys, held).end()
    messages = [one.message for one in found]
    for row in rows:
        messages += row.messages
    return messages


def ack(tr: fdb.Transaction, entry: Entry, held: Sequence[Held]) -> None:
    """Acknowledge deliveries."""
    ending = Ending(tr, entry.keys, held)
    done(tr, entry.scope(tr, ending.last), ending)


def done(tr: fdb.Transaction, scope: Scope, ending: Ending) -> bool:
    """Acknowledge deliveries, given the reads of their leases.

    Returns whether no other message became ready: the end of one with a key may let the next out.
    """
    silent, levels = scope.options.history_seconds is None, scope.keys.levels
    counts: dict[int, int] = {}
    others: list[StoredMessage] = []
    found, rows = ending.end()
    for one in found:
        if silent and one.row.lease.plain:
            level = one.row.position.level
            counts[level] = counts[level] + _ACKNOWLEDGED if level in counts else _ACKNOWLEDGED
        else:
            others.append(one.message)
    for row in rows:
        if silent and row.row.plain:
            total = (row.end - row.begin) * _ACKNOWLEDGED
            level = row.row.piece.position.level
            counts[level] = counts.get(level, 0) + total
        else:
            others += row.messages
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
    for message in end(tr, scope, held):
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

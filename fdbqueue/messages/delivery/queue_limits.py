"""The limits of a queue: how many messages may be leased at once, and taken in how much time.

The counters of the queue change in the transaction that leases a message, and in that which ends
the lease. So as of its read version a taker knows how many are leased. Ends that commit meanwhile
only make them fewer. PACE has the theoretical arrival time of the next message by the rate, which
only takers change (see ``slots.rates`` for the algorithm). Takers exclude each other by a key that
is never written. So nothing is stored beside the leases, an end conflicts with no taker, and there
is nothing to reconcile.
"""

from __future__ import annotations

from ...schema import counters
from ...schema.change_counters import ONE
from ...schema.records import Reached
from ...schema.scope import Scope
from ...store.binding import fdb
from ..slots import rates


def room(tr: fdb.Transaction, scope: Scope, wanted: int, *, leases: bool = True) -> int:
    """How many of ``wanted`` messages may be taken now.

    A snapshot read for each limit, none without. It sees what the transaction itself takes and
    ends. Whoever takes them calls ``count``. Writes only where PACE says what another rate, or a
    wrong clock, has set: that must not move on with the time.

    leases: whether they are to be leased.
    """
    limit, rate = scope.options.max_in_flight, scope.pace
    if rate is not None:
        reached, now_us = _reached(tr, scope), scope.now_ms(tr) * 1_000
        tat_us = rates.tat_us(reached, rate, now_us)
        # Stored once, so that the bound holds from now on: recomputed at each call, it would move
        # along with the clock and never come.
        if reached is not None and tat_us < reached.tat_us:
            _set(tr, scope, Reached(tat_us, rate))
        wanted = min(wanted, rates.may_come(reached, rate, now_us))
    if limit is not None and leases:
        # The counters are exact as of the read version, and takers exclude each other: so the limit
        # is never exceeded, only sometimes not used up.
        wanted = min(wanted, max(0, limit - leased(tr, scope)))
    return wanted


def full(tr: fdb.Transaction, scope: Scope) -> bool:
    """Whether no other message may be leased now. Reads as ``room``."""
    return room(tr, scope, 1) == 0


def crowded(tr: fdb.Transaction, scope: Scope) -> bool:
    """Whether a lease must end before another message may be leased. One snapshot read, none
    without a limit."""
    limit = scope.options.max_in_flight
    return limit is not None and leased(tr, scope) >= limit


def leased(tr: fdb.Transaction, scope: Scope) -> int:
    """How many messages are leased, also by the transaction itself. One snapshot read."""
    return sum(depth.leased for depth in counters.depths(tr, scope.keys).values())


def next_seconds(tr: fdb.Transaction, scope: Scope) -> float | None:
    """In how many seconds the rate lets the next message be taken; None if it does so now.

    One snapshot read, none without a rate.
    """
    rate = scope.pace
    if rate is None:
        return None
    now_ms = scope.now_ms(tr)
    left_ms = rates.next_ms(_reached(tr, scope), rate, now_ms) - now_ms
    return left_ms / 1_000 if left_ms > 0 else None


def count(tr: fdb.Transaction, scope: Scope, messages: int, *, leases: bool = True) -> None:
    """Count messages that are taken, and conflict with others that take any of the queue, if it has
    a limit for them. One snapshot read if it has a rate.

    leases: as for ``room``.
    """
    limit, rate = scope.options.max_in_flight, scope.pace
    if rate is None and (limit is None or not leases):
        return
    if rate is None:
        _exclude(tr, scope)
        return
    tat_us = rates.tat_us(_reached(tr, scope), rate, scope.now_ms(tr) * 1_000)
    _set(tr, scope, Reached(tat_us + messages * rate.interval_us, rate))


def freed(tr: fdb.Transaction, scope: Scope) -> None:
    """Tell who waits for it that leases end in a queue with a limit. Writes blindly."""
    # Those who wait for room watch this key; the counters change with every enqueue, and would wake
    # them for nothing.
    tr.add(scope.keys.in_flight, ONE)


def _set(tr: fdb.Transaction, scope: Scope, reached: Reached) -> None:
    _exclude(tr, scope)
    tr[scope.keys.pace] = reached.pack()


def _exclude(tr: fdb.Transaction, scope: Scope) -> None:
    # A key that nobody writes, with both conflicts: takers collide with takers, while settlements,
    # which only make room, pass.
    tr.add_read_conflict_key(scope.keys.taking)
    tr.add_write_conflict_key(scope.keys.taking)


def _reached(tr: fdb.Transaction, scope: Scope) -> Reached | None:
    value = tr.snapshot.get(scope.keys.pace)
    return Reached.unpack(value.value or b"") if value.present() else None

"""Rates: when the messages of a key may become ready, by the generic cell rate algorithm.

GCRA is the virtual scheduling of ITU-T I.371 and the ATM Forum's Traffic Management Specification
4.0, which Brandur Leach describes for redis-cell ("Rate Limiting, Cells, and GCRA"). A key has a
theoretical arrival time, TAT. A message may come at TAT less the tolerance, and moves TAT on by one
interval, from now if TAT has passed. So in any time t at most burst + t / interval messages come.

The message that may not come yet waits in the backlog of the key, with all that follow it. RATE
has TAT, and names the entry of the agenda with which somebody looks at the key again: for the next
message, or where none waits for the rate, to remove what is stored. Every RATE has one, so a key
that rests leaves nothing, and nobody looks for it. That of a key that rests is lazy: it falls due
early where more messages have come since, and is set again. Who relies on a RATE reads it with a
conflict. The entry of a key that is owed slots (see ``hand_over``) is due at 0, and needs no RATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from msgspec.structs import replace

from ...schema import change_counters
from ...schema.due import Entry
from ...schema.keys import TIDYING, WORK
from ...schema.records import Paced, Reached, Timer
from ...schema.scope import Scope
from ...store.binding import fdb
from ...store.clocks import BELIEVED_MS
from ...values.limits import Gate
from ...values.rates import Rate
from ..transaction_budget import Done
from . import gates

MAX_TIDIED = 100
"""The most keys and limits that rest that one transaction looks at."""
_SKEW_US = 2 * BELIEVED_MS * 1_000
"""How far apart two clocks may be that are believed."""


def issue_rate(tr: fdb.Transaction, scope: Scope, gate: Gate) -> fdb.Value | None:
    """Issue a snapshot read of the RATE of a limit, or of a key if keys of the queue have any."""
    # META notes the first rate of any key: without one, no message of a key pays for this read.
    if "rates" not in scope.noted and isinstance(gate, str):
        return None
    return tr.snapshot.get(gates.keys(scope, gate).rate(gate))


def tidy(tr: fdb.Transaction, scope: Scope, entries: Sequence[Entry], room: int) -> Done:
    """Remove what has no meaning any more of keys or limits that rest, and look later at others.

    One round trip. Conflicts with enqueues and ends of the same keys, but not with enqueues to a
    backlog.
    """
    now_ms = scope.now_ms(tr)
    rates = [gates.keys(scope, each.name).rate(each.name) for each in entries]
    stored = [tr.get(rate) for rate in rates]
    for each, rate, value in zip(entries, rates, stored, strict=True):
        known = None if value.value is None else Paced.unpack(value.value)
        # RATE has another entry by now: this one is left over, and already removed.
        if known is None or known.timer != (each.rank, each.due_ms):
            continue
        last = _ms(known.tat_us)
        if last <= now_ms:
            del tr[rate]
        else:
            gates.look_later(tr, scope, each.name, TIDYING, last)
            tr[rate] = replace(known, timer=Timer(TIDYING, last)).pack()
    return Done(handled=len(entries))


def tat_us(known: Reached | None, rate: Rate, now_us: int) -> int:
    """The theoretical arrival time of the next message; ``now_us`` if that has passed.

    It is never more than the burst ahead of the clock that set it. So what is further ahead comes
    from a clock that was wrong, or from another rate, and would stop the key for long.
    """
    if known is None:
        return now_us
    # Without this bound, one process with its clock a day ahead would stop the key for a day.
    most = now_us + rate.burst * rate.interval_us
    return max(now_us, min(known.tat_us, most + (_SKEW_US if known.rate == rate else 0)))


def next_ms(known: Reached | None, rate: Rate, now_ms: int) -> int:
    """When the next message may come: ``now_ms``, or later."""
    return max(now_ms, _ms(tat_us(known, rate, now_ms * 1_000) - rate.tolerance_us))


def may_come(known: Reached | None, rate: Rate, now_us: int) -> int:
    """How many messages may come now."""
    early = now_us + rate.tolerance_us - tat_us(known, rate, now_us)
    return max(0, early // rate.interval_us + 1)


@final
class Pace:
    """The rate of a key or a limit in a transaction: like ``Permits``, but nobody hands them back.

    rate: None for a key that has none now. stored: its RATE, read at snapshot isolation.
    """

    over = False

    def __init__(
        self, tr: fdb.Transaction, scope: Scope, gate: Gate, rate: Rate | None, stored: fdb.Value
    ) -> None:
        self._tr, self._scope, self._gate, self._rate = tr, scope, gate, rate
        value = stored.value
        known = None if value is None else Paced.unpack(value)
        self._timer = None if known is None else known.timer
        self._now = scope.now_ms(tr) * 1_000
        self._tat = self._now if rate is None else tat_us(known, rate, self._now)

    @property
    def left(self) -> bool:
        """Whether another message may come now."""
        return self._rate is None or self._next <= self._now

    @property
    def _next(self) -> int:
        assert self._rate is not None
        return self._tat - self._rate.tolerance_us

    def take(self, scope: Scope, message_id: str) -> None:
        """Let a message come."""
        if self._rate is None:
            return
        self._tat += self._rate.interval_us
        # The entry it has stays, though it now falls due early: to move it at each message would
        # cost two writes.
        self._write(self._timer or self._last)

    def rely(self, scope: Scope, level: int) -> None:
        """Have somebody look when the next message may come, which is one of a level of a queue."""
        self._write(Timer(WORK + level, _ms(self._next)))
        if self._next < self._now + change_counters.SOON_MS * 1_000:
            # Sleepers would not look before that.
            change_counters.ring(self._tr, scope)

    def fire(self, entry: Entry) -> bool:
        """Use up an entry that was due, already removed; returns whether it is that of the key."""
        if self._timer != (entry.rank, entry.due_ms):
            return False
        self._tr.add_read_conflict_key(self._row)
        self._timer = None
        return True

    def rest(self) -> None:
        """See to it that something looks at the key again, once its timer has been used up, or that
        nothing is left."""
        if self._timer is not None:
            return
        if self._tat > self._now:
            self._write(self._last)
        else:
            self._tr.clear(self._row)

    @property
    def _row(self) -> bytes:
        return gates.keys(self._scope, self._gate).rate(self._gate)

    @property
    def _last(self) -> Timer:
        return Timer(TIDYING, _ms(self._tat))

    def _write(self, timer: Timer) -> None:
        tr, scope, gate = self._tr, self._scope, self._gate
        assert self._rate is not None
        # RATE was read at snapshot isolation; whoever moves it relies on what it said.
        tr.add_read_conflict_key(self._row)
        if timer != self._timer:
            if self._timer is not None:
                tr.clear(gates.entry(scope, gate, *self._timer))
            gates.look_later(tr, scope, gate, *timer)
            self._timer = timer
        tr[self._row] = Paced(self._tat, self._rate, timer).pack()


def _ms(us: int) -> int:
    """The first millisecond that is not before a moment."""
    # Rounded up: an entry due a moment early would find the rate not yet ready, and be set again.
    return -(-us // 1_000)

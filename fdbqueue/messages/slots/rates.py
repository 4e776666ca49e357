"""Rates: when the messages of a key may become ready, by the generic cell rate algorithm.

GCRA is the virtual scheduling of ITU-T I.371 and the ATM Forum's Traffic Management Specification
4.0, which Brandur Leach describes for redis-cell ("Rate Limiting, Cells, and GCRA"). A key has a
theoretical arrival time, TAT. A message may come at TAT less the tolerance, and moves TAT on by one
interval, from now if TAT has passed. So in any time t at most burst + t / interval messages come.

The message that may not come yet waits in the backlog of the key, with all that follow it. RATE
has TAT, and TIMER the time at which to look at the key again: for the next message, or where none
waits for the rate, to remove what is stored. Every RATE has one such TIMER, so a key that rests
leaves nothing, and nobody looks for it. A timer of a key that rests is lazy: it falls due early
where more messages have come since, and is set again. Who relies on a RATE reads it with a
conflict. The TIMER of a key that is owed slots (see ``hand_over``) is due at 0, and needs no RATE.
"""

from __future__ import annotations

from typing import NamedTuple, final

from msgspec.structs import replace

from ...schema import changes
from ...schema.keys import SlotKeys
from ...schema.records import Paced, Reached, Timer
from ...schema.scope import Scope
from ...store.binding import fdb
from ...store.clocks import BELIEVED_MS
from ...values.limits import Gate
from ...values.rates import Rate
from . import gates

MAX_FIRED = 50
"""The most timers of keys with a backlog that one transaction uses up."""
MAX_TIDIED = 100
"""The same of keys that rest."""
_SKEW_US = 2 * BELIEVED_MS * 1_000
"""How far apart two clocks may be that are believed."""


class Due(NamedTuple):
    """The reads of timers that are due, issued and not awaited: of keys of which messages wait, and
    of keys that rest."""

    waited: fdb.FDBRange
    rested: fdb.FDBRange


def due(tr: fdb.Transaction, scope: Scope) -> list[tuple[SlotKeys, Due]]:
    """Issue snapshot reads of the timers that are due, wherever there may be any."""
    return [(keys, _due(tr, scope, keys)) for keys in gates.timed(scope)]


def _due(tr: fdb.Transaction, scope: Scope, keys: SlotKeys) -> Due:
    mode, until = fdb.StreamingMode.want_all, scope.now_ms(tr) + 1
    limits = enumerate((MAX_FIRED, MAX_TIDIED))
    ranges = [(keys.timer.before(rests, until), limit) for rests, limit in limits]
    return Due(
        *(
            tr.snapshot.get_range(every.start, every.stop, limit=limit, streaming_mode=mode)
            for every, limit in ranges
        )
    )


def read(tr: fdb.Transaction, scope: Scope, gate: Gate) -> fdb.Value | None:
    """Issue a snapshot read of the RATE of a limit, or of a key if keys of the queue have any."""
    if "rates" not in scope.noted and isinstance(gate, str):
        return None
    return tr.snapshot.get(gates.keys(scope, gate).rate(gate))


def is_due(keys: SlotKeys, first: bytes, now_ms: int) -> bool:
    """Whether the first TIMER, or what stands there, is due. It stands for all others: one of a key
    that rests is only removed together with those of which messages wait."""
    timer = keys.timer
    rested = timer.before(1, now_ms + 1)
    waited = timer.before(0, now_ms + 1)
    return bool(first < waited.stop or rested.start <= first < rested.stop)


def tidy(tr: fdb.Transaction, scope: Scope, keys: SlotKeys, timers: fdb.FDBRange) -> int:
    """Remove what has no meaning any more of keys or limits that rest, and look later at others;
    returns how many timers were used up.

    One round trip if any are due. Conflicts with enqueues and ends of the same keys, but not with
    enqueues to a backlog.
    """
    now_ms = scope.now_ms(tr)
    due = [keys.timer.parse(kv.key) for kv in timers]
    stored = [tr.get(keys.rate(key)) for *_, key in due]
    for (*timer, key), value in zip(due, stored, strict=True):
        known = None if value.value is None else Paced.unpack(value.value)
        if known is None or list(known.timer) != timer:
            continue
        del tr[keys.timer(*known.timer, key)]
        last = _ms(known.tat_us)
        if last <= now_ms:
            del tr[keys.rate(key)]
        else:
            tr[keys.timer(1, last, key)] = b""
            tr[keys.rate(key)] = replace(known, timer=Timer(1, last)).pack()
    return len(due)


def tat_us(known: Reached | None, rate: Rate, now_us: int) -> int:
    """The theoretical arrival time of the next message; ``now_us`` if that has passed.

    It is never more than the burst ahead of the clock that set it. So what is further ahead comes
    from a clock that was wrong, or from another rate, and would stop the key for long.
    """
    if known is None:
        return now_us
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
        self._keys = gates.keys(scope, gate)
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
        self._write(self._timer or self._last)

    def rely(self, scope: Scope) -> None:
        """Have somebody look when the next message may come, which is one of a queue."""
        self._write(Timer(0, _ms(self._next)))
        if self._next < self._now + changes.SOON_MS * 1_000:
            # Sleepers would not look before that.
            changes.ring(self._tr, scope)

    def fire(self, due_ms: int) -> bool:
        """Use up the timer that is due; returns whether it is that of the key."""
        if self._timer != (0, due_ms):
            return False
        self._tr.add_read_conflict_key(self._row)
        self._tr.clear(self._keys.timer(0, due_ms, self._gate))
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
        return self._keys.rate(self._gate)

    @property
    def _last(self) -> Timer:
        return Timer(1, _ms(self._tat))

    def _write(self, timer: Timer) -> None:
        tr, keys = self._tr, self._keys
        assert self._rate is not None
        tr.add_read_conflict_key(self._row)
        if timer != self._timer:
            if self._timer is not None:
                tr.clear(keys.timer(*self._timer, self._gate))
            tr[keys.timer(*timer, self._gate)] = b""
            self._timer = timer
        tr[self._row] = Paced(self._tat, self._rate, timer).pack()


def _ms(us: int) -> int:
    """The first millisecond that is not before a moment."""
    return -(-us // 1_000)

"""Permits: what a message of a key needs to become ready, a slot and a place in the window.

A message of a limit needs a slot.

Both are numbers below a limit, each at a key of its own that names the message that holds it. So
no limit is exceeded, and nothing is counted. The rate of a key gives a third kind, in ``rates``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ...schema.key_kinds import KindKeys
from ...schema.keys import SlotKeys
from ...schema.scope import Scope
from ...store import world
from ...store.binding import fdb
from ...values.limits import Gate
from . import gates

PART_ROWS = 64
"""How many rows of permits that are held are read at first."""
MOST_OF_PART = 8
"""How many are given of a part: one that fills up tells of no free number to others."""
LOOKS = 3
"""How often more are read, where none of those is free."""

Numbers = tuple[int | None, int | None]
"""The slot and the place in the window that a message holds; None for one that it does not need."""


def kinds(keys: SlotKeys) -> tuple[KindKeys[Gate, int], KindKeys[Gate, int]]:
    """Where slots are, and where the places of windows are."""
    return keys.slot, keys.window


def held(tr: fdb.TransactionRead, rows: KindKeys[Gate, int], gate: Gate) -> fdb.FDBRange:
    """Issue a read of the permits of one kind that are held."""
    every = rows.under(gate)
    return tr.get_range(every.start, every.stop, streaming_mode=fdb.StreamingMode.want_all)


class PermitReads(NamedTuple):
    """A read of the first permits that are held from a number on, issued and not awaited. Where
    many are, one is usually free among these."""

    begin: int
    rows: fdb.FDBRange


def part(tr: fdb.TransactionRead, rows: KindKeys[Gate, int], gate: Gate, limit: int) -> PermitReads:
    """Issue the read of a part, where there are probably so many permits."""
    # At a random place: producers that all looked from 0 on would want the same free number.
    begin = world.random.randrange(max(1, limit - PART_ROWS))
    start, stop, mode = rows(gate, begin), rows.under(gate).stop, fdb.StreamingMode.want_all
    return PermitReads(begin, tr.get_range(start, stop, limit=PART_ROWS, streaming_mode=mode))


class Permit(Protocol):
    """One kind of permit of a key, in a transaction."""

    over: bool

    @property
    def left(self) -> bool:
        """Whether another message may have one."""

    def take(self, scope: Scope, message_id: str) -> int | None:
        """Give one to a message of a queue; returns its number, None where it has none."""

    def rely(self, scope: Scope, level: int) -> None:
        """See to it that who has to wait, a message of a level of a queue, is not forgotten: none
        is left."""


class Permits:
    """The slots of a key or a limit, or the places of a key's window, in a transaction.

    limit: how many there are; None for any number, which are not stored. held: the rows that were
    read, all or a part; None to give no others than those that the transaction has freed. freed:
    these; they are given first.

    Numbers are given at random: so others rarely want the same, and few rows tell of a free one
    where most are held. A round trip, of up to four, where a part is not enough.
    """

    def __init__(
        self,
        tr: fdb.Transaction,
        rows: KindKeys[Gate, int],
        gate: Gate,
        limit: int | None,
        held: fdb.FDBRange | PermitReads | None,
        freed: Sequence[int] = (),
    ) -> None:
        self._tr, self._rows, self._gate, self.limit = tr, rows, gate, limit
        self.over = False
        self._freed, self._free = [*freed[::-1]], list[int]()
        self._looks = 0
        """How often to look on where none is left: at a part, and the last time at all."""
        if limit is None:
            return
        if isinstance(held, PermitReads):
            self._looks = LOOKS
            self._look(held, limit)
        elif held is not None:
            self._count(self._numbers(held), limit)

    def _numbers(self, held: Iterable[fdb.KeyValue]) -> list[int]:
        return [self._rows.parse(kv.key)[1] for kv in held]

    def _look(self, held: PermitReads, limit: int) -> None:
        """Find free ones in a part; none if any is held beyond the limit: then all count."""
        used = self._numbers(held.rows)
        goes_on = len(used) == PART_ROWS
        if not goes_on and held.begin == 0:  # It is all.
            self._looks = 0
            self._count(used, limit)
            return
        end = min(limit, used[-1]) if goes_on else limit
        over = bool(used) and used[-1] >= limit
        if goes_on and not over:
            begin, stop = self._rows(self._gate, limit), self._rows.under(self._gate).stop
            over = any(True for _ in self._tr.snapshot.get_range(begin, stop, limit=1))
        if over:
            self._looks = 1
        else:
            unused = sorted({*range(held.begin, end)}.difference(used))
            # Few of a part: others that look at the same one meanwhile must find some left.
            self._free = world.random.sample(unused, min(len(unused), MOST_OF_PART))

    def _count(self, used: Sequence[int], limit: int) -> None:
        """Find all free ones, given all that are held."""
        known = {*used, *self._freed}
        self._free = [n for n in range(limit) if n not in known]
        self.over = any(n >= limit for n in used)
        if self.over:
            # The limit was higher: it matters how many are held, and not only which is free.
            # Every freed one may bring the number below the limit: whoever frees one must not be
            # missed.
            self.rely()
            left = max(0, limit - len(used))
            self._freed = self._freed[:left]
            self._free = self._free[: left - len(self._freed)]

    @property
    def left(self) -> bool:
        """Whether another message may have one."""
        if self.limit is None:
            return True
        while self._looks and not (self._free or self._freed):
            self._looks -= 1
            snapshot, rows, gate = self._tr.snapshot, self._rows, self._gate
            if self._looks:
                self._look(part(snapshot, rows, gate, self.limit), self.limit)
            else:
                self._count(self._numbers(held(snapshot, rows, gate)), self.limit)
        return bool(self._free or self._freed)

    def rely(self, scope: Scope | None = None, level: int = 0) -> None:
        """Conflict with whoever frees one."""
        every = self._rows.under(self._gate)
        # Held permits were read at snapshot isolation, but "none is free" is a claim about all of
        # them.
        self._tr.add_read_conflict_range(every.start, every.stop)

    def take(self, scope: Scope, message_id: str) -> int | None:
        """Give one to a message of a queue; returns its number, None where there is no limit."""
        if self.limit is None:
            return None
        if self._freed:
            # Freed in this transaction, so nobody else can want it: no retry.
            n = self._freed.pop()
        else:
            at = world.random.randrange(len(self._free))
            self._free[at], self._free[-1] = self._free[-1], self._free[at]
            n = self._free.pop()
        row = self._rows(self._gate, n)
        # The number was seen free at snapshot isolation: of two that take it, one fails and looks
        # again.
        self._tr.add_read_conflict_key(row)
        if isinstance(self._gate, str):
            self._tr[row] = message_id.encode()
        else:
            gates.hold(self._tr, scope, self._gate, n, message_id)
        return n


def exhausted(some: Sequence[Permit]) -> bool:
    """Whether something is used up, and nothing beyond its limit is held."""
    return not all(each.left for each in some) and not any(each.over for each in some)


def give(some: Sequence[Permit], messages: Iterable[tuple[Scope, int, str]]) -> list[Numbers]:
    """Give messages, as (queue, level, id), what they need, until something is used up, and rely on
    that. Returns what each of the first ones got."""
    given: list[Numbers] = []
    for scope, level, message_id in messages:
        lacking = next((each for each in some if not each.left), None)
        if lacking is not None:
            lacking.rely(scope, level)
            break
        slot, place, *_ = [each.take(scope, message_id) for each in some]
        given.append((slot, place))
    return given

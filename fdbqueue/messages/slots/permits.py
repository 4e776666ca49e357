"""Permits: what a message of a key needs to become ready, a slot and a place in the window.

Both are numbers below a limit, each at a key of its own that names the message that holds it. So
no limit is exceeded, and nothing is counted. The rate of a key gives a third kind, in ``rates``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from ...schema.keys import KindKeys, SlotKeys
from ...store.binding import fdb

N = TypeVar("N")
"""What has slots."""
Numbers = tuple[int | None, int | None]
"""The slot and the place in the window that a message holds; None for one that it does not need."""


def kinds(keys: SlotKeys[N]) -> tuple[KindKeys[N, int], KindKeys[N, int]]:
    """Where slots are, and where the places of windows are."""
    return keys.slot, keys.window


def held(tr: fdb.TransactionRead, rows: KindKeys[N, int], key: N) -> fdb.FDBRange:
    """Issue a read of the permits of one kind that are held."""
    every = rows.under(key)
    return tr.get_range(every.start, every.stop, streaming_mode=fdb.StreamingMode.want_all)


class Permit(Protocol):
    """One kind of permit of a key, in a transaction."""

    over: bool

    @property
    def left(self) -> bool:
        """Whether another message may have one."""

    def take(self, message_id: str) -> int | None:
        """Give one to a message; returns its number, None where it has none."""

    def rely(self) -> None:
        """See to it that who has to wait is not forgotten: none is left."""


class Permits(Generic[N]):
    """The slots of a key, or the places of its window, in a transaction.

    limit: how many there are; None for any number, which are not stored. held: the rows that were
    read; None to give no others than those that the transaction has freed. freed: these; they are
    given first.
    """

    def __init__(
        self,
        tr: fdb.Transaction,
        rows: KindKeys[N, int],
        key: N,
        limit: int | None,
        held: fdb.FDBRange | None,
        freed: Sequence[int] = (),
    ) -> None:
        self._tr, self._rows, self._key, self.limit = tr, rows, key, limit
        self.used: set[int] = set()
        self.over = False
        self._free: list[int] = []
        if limit is None:
            return
        self._free = [*freed[::-1]]
        if held is None:
            return
        self.used = {rows.parse(kv.key)[1] for kv in held}
        unused = [n for n in range(limit) if n not in self.used and n not in freed]
        at = random.randrange(len(unused) + 1)  # Others rarely want the same then.
        self._free = [*unused[at:], *unused[:at], *self._free]
        self.over = any(n >= limit for n in self.used)
        if self.over:
            # The limit was higher: it matters how many are held, and not only which is free.
            self.rely()
            self._free = self._free[: max(0, limit - len(self.used))]

    @property
    def left(self) -> bool:
        """Whether another message may have one."""
        return self.limit is None or bool(self._free)

    def rely(self) -> None:
        """Conflict with whoever frees one."""
        every = self._rows.under(self._key)
        self._tr.add_read_conflict_range(every.start, every.stop)

    def take(self, message_id: str) -> int | None:
        """Give one to a message; returns its number, None where there is no limit."""
        if self.limit is None:
            return None
        n = self._free.pop()
        self.used.add(n)
        row = self._rows(self._key, n)
        self._tr.add_read_conflict_key(row)
        self._tr[row] = message_id.encode()
        return n


def exhausted(some: Sequence[Permit]) -> bool:
    """Whether something is used up, and nothing beyond its limit is held."""
    return not all(each.left for each in some) and not any(each.over for each in some)


def give(some: Sequence[Permit], ids: Iterable[str]) -> list[Numbers]:
    """Give messages what they need, until something is used up, and rely on that. Returns what each
    of the first ones got."""
    given: list[Numbers] = []
    for message_id in ids:
        lacking = next((each for each in some if not each.left), None)
        if lacking is not None:
            lacking.rely()
            break
        slot, place, *_ = [each.take(message_id) for each in some]
        given.append((slot, place))
    return given

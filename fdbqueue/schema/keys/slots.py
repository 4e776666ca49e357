"""The keys of slots, of what waits for them, and of how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...store.binding import fdb
from ...values.limits import Gate
from .kinds import Kind, KindKeys

SLOT_KINDS = (
    *(Kind.WAITING, Kind.SLOT, Kind.WINDOW, Kind.BACKLOG, Kind.LIMITS),
    *(Kind.RATE, Kind.TIMER),
)
_TUPLE = b"\x05"
"""What a tuple within a key begins with."""


class SlotKeys:
    """The keys of slots, each kind below its prefix.

    Those of a queue's own keys have all that is stored of them in the queue. A limit has its slots,
    its line and what is known of it below the root; there WAITING and SLOT name the queue and the
    message, and the queue has a row of its own with the same elements for each.
    """

    def __init__(self, begin: Mapping[Kind, bytes]) -> None:
        def rows(kind: Kind, form: int = -1) -> Any:
            return KindKeys.of(begin[kind], kind, form)

        self.waiting: KindKeys[Gate, int, bytes] = rows(Kind.WAITING)
        self.slot: KindKeys[Gate, int] = rows(Kind.SLOT)
        self.window: KindKeys[Gate, int] = rows(Kind.WINDOW)
        self.backlog: KindKeys[Gate] = rows(Kind.BACKLOG, 0)
        self.backlog_count: KindKeys[Gate, int] = rows(Kind.BACKLOG)
        self.limits: KindKeys[Gate] = rows(Kind.LIMITS)
        self.rate: KindKeys[Gate] = rows(Kind.RATE)
        self.timer: KindKeys[int, int, Gate] = rows(Kind.TIMER)
        self.timer_end = begin[Kind.TIMER] + b"\xff"
        self.first_timer = fdb.KeySelector.first_greater_or_equal(begin[Kind.TIMER])

    def of_limits(self, kind: KindKeys[Gate, int, bytes] | KindKeys[Gate, int]) -> slice:
        """The rows of a kind that are those of limits, and not of keys."""
        begin = kind.prefix + _TUPLE
        return slice(begin, begin + b"\xff")

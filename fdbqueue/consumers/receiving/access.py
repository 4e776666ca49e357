"""What receiving remembers of a queue between calls."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...messages.run import Held
from ...schema.catalogue import CachedScope
from ...schema.consumers import Request
from ...schema.keys import OnceKeys
from ...store import world
from ...store.binding import fdb
from ...store.combine import Combiner
from ...values.model import Delivery
from ..line import Ticket
from ..queue_supply import QueueSupply
from ..supply import Supply

Outcome = Sequence[Delivery] | Ticket | None
"""Deliveries, or a request in line; None if there is more to look through, in a next transaction.
"""


Asked = tuple[Sequence[Request], Sequence[Held]]
"""What a caller asks for, and what it acknowledges in the same transaction."""
AskAll = Callable[["Access", fdb.Database, Sequence[Asked]], Sequence[list[Outcome]]]

MAX_GATHERED = 100
"""Messages that callers may want together."""


class Access:
    """What receiving needs of a queue or a subscription, with hints from the last receive, which
    only save reads.

    Callers that share a queue share this. The one that has the turn of the combiner uses it.

    supply, line: where its messages come from, and through which line. once: where its commits are
    recorded. crowded: whether there was a line. busy: whether there was an agenda, or what is left
    of a line. lead: the claim under which it leads the line while it is away. rounds, alone: how
    often it has served the line since, and nobody but itself. served: when it did so last.
    expected: how many messages its next round may need. returned: when the last receive returned.
    returns: whether it is expected to ask again soon. rests: for how many requests it leaves the
    lead to others, since it has led. answered: after how many seconds its request in line is likely
    to be answered. shared: tasks that wait together, by their loop and what they want. Times are
    those of the monotonic clock.
    """

    __slots__ = (
        "__weakref__",
        "alone",
        "answered",
        "busy",
        "combiner",
        "crowded",
        "entry",
        "expected",
        "keys",
        "lead",
        "line",
        "once",
        "rests",
        "returned",
        "returns",
        "rounds",
        "scope",
        "served",
        "shared",
        "supply",
    )

    def __init__(
        self,
        ask_all: AskAll,
        undo: Callable[[Access, fdb.Database, list[Outcome]], object],
        entry: CachedScope,
        supply: Supply | None = None,
        once: OnceKeys | None = None,
    ) -> None:
        """ask_all: asks for several callers in one transaction. undo: gives back what was given."""
        self.entry = entry
        self.keys = entry.keys
        self.once = once or entry.keys.once
        self.supply = supply or QueueSupply(entry.keys)
        self.line = self.supply.line
        self.scope = entry.scope
        self.crowded = False
        self.busy = False
        self.rounds = 0
        self.alone = 0
        self.expected = 0
        self.returned = 0.0
        self.returns = False
        self.rests = 0
        self.served = 0.0
        self.answered = 0.002
        self.combiner: Combiner[Asked, list[Outcome]] = Combiner(
            partial(ask_all, self),
            partial(undo, self),
            most=MAX_GATHERED,
            most_size=MAX_GATHERED,
            timeout=self.once.timeout,
        )
        self._begin()
        _known.add(self)

    def _begin(self) -> None:
        """It leads no line, and no task waits."""
        self.lead: bytes | None = None
        self.shared: dict[object, Any] = {}

    @staticmethod
    def after_fork() -> None:
        """The lead is that of the parent."""
        for access in _known:
            access._begin()

    def take_lead(self, claim: bytes) -> None:
        """Lead the line from now on, while it is away."""
        self.lead, self.rounds, self.alone = claim, 0, 0
        self.served = world.monotonic()


class Accesses:
    """What the threads of a process share to receive from one place.

    The main thread has its own: the handler of a signal may raise anywhere in it, also while it has
    the turn or is about to pass it on, and others would wait for ever.
    """

    __slots__ = ("_main", "_others")

    def __init__(self, make: Callable[[], Access]) -> None:
        self._main, self._others = make(), make()

    @property
    def mine(self) -> Access:
        """That of the thread that asks."""
        return self._main if world.in_main_thread() else self._others


_known: weakref.WeakSet[Access] = weakref.WeakSet()
os.register_at_fork(after_in_child=Access.after_fork)

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
from .hints import Hints

Outcome = Sequence[Delivery] | Ticket | None
"""Deliveries, or a request in line; None if there is more to look through, in a next transaction.
"""


Asked = tuple[Sequence[Request], Sequence[Held]]
"""What a caller asks for, and what it acknowledges in the same transaction."""
AskAll = Callable[["Access", fdb.Database, Sequence[Asked]], Sequence[list[Outcome]]]

MAX_GATHERED = 100
"""Messages that callers may want together."""


class Access:
    """What receiving needs of a queue or a subscription. Callers that share a queue share this; the
    one that has the turn of the combiner uses it.

    supply, line: where its messages come from, and through which line. once: where its commits are
    recorded. hints: what is remembered of earlier calls. shared: tasks that wait together, by their
    loop and what they want.
    """

    __slots__ = (
        "__weakref__",
        "combiner",
        "entry",
        "hints",
        "keys",
        "line",
        "once",
        "scope",
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
        """It remembers nothing, and no task waits."""
        self.hints = Hints()
        self.shared: dict[object, Any] = {}

    @staticmethod
    def after_fork() -> None:
        """The lead is that of the parent."""
        for access in _known:
            access._begin()


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

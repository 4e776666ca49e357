"""What receiving remembers of a queue between calls."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...messages.run import Held
from ...schema.catalogue import CachedScope
from ...schema.consumers import Request
from ...schema.keys import OnceKeys
from ...store import tasks, world
from ...store.binding import fdb
from ...values.model import Delivery
from ..line import Ticket
from ..queue_supply import QueueSupply
from ..supply import Supply

Outcome = Sequence[Delivery] | Ticket | None
"""Deliveries, or a request in line; None if there is more to look through, in a next transaction.
"""


class ReceiveCall:
    """What one thread asks for, and what it is given once that is done.

    turn: set once it is done, or it is the thread's turn to ask. leads: whether the thread then
    asks, for itself and others.
    """

    __slots__ = ("ack", "db", "done", "error", "leads", "outcome", "request", "turn")

    def __init__(self, db: fdb.Database, request: Request, ack: Sequence[Held] = ()) -> None:
        self.db = db
        self.request = request
        self.ack = ack
        self.turn = tasks.Event()
        self.leads = self.done = False
        self.outcome: Outcome = []
        self.error: BaseException | None = None


class Access:
    """What receiving needs of a queue or a subscription, with hints from the last receive, which
    only save reads.

    Threads that share a queue share this. The one that has the turn uses it: taken says whether
    one has, and calls those that wait for it.

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
        "calls",
        "crowded",
        "entry",
        "expected",
        "keys",
        "lead",
        "line",
        "mutex",
        "once",
        "rests",
        "returned",
        "returns",
        "rounds",
        "scope",
        "served",
        "shared",
        "supply",
        "taken",
    )

    def __init__(
        self, entry: CachedScope, supply: Supply | None = None, once: OnceKeys | None = None
    ) -> None:
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
        self._begin()
        _known.add(self)

    def _begin(self) -> None:
        """Nobody has the turn, or leads."""
        self.lead: bytes | None = None
        self.mutex = world.Lock()
        self.taken = False
        self.calls: list[ReceiveCall] = []
        self.shared: dict[object, Any] = {}

    @staticmethod
    def after_fork() -> None:
        """The threads that had turns, and the lead, are those of the parent."""
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

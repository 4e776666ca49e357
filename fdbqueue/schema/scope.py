"""What a storage operation works on: the keys and options of a queue, and the clocks."""

from __future__ import annotations

import time
from dataclasses import field

from ..store.binding import fdb
from ..store.clocks import Clock
from ..values.model import Position
from ..values.options import QueueOptions
from ..values.records import record
from .codec.envelopes import Envelope
from .codec.lookup import Turn
from .keys import QueueKeys, RootKeys
from .subscription_definitions import Definition


class Chore:
    """What each handle on a queue does now and then, beside what it is asked for."""

    __slots__ = ("_next", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        """Whether to do it now; then not again for a while."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self.seconds
        return True

    def go_on(self) -> None:
        """There was something to do: it is due again at once."""
        self._next = 0.0


@record
class Scope:
    """One queue as one transaction sees it; ``root`` leads to the queues beside it.

    identity: what tells the queue from others that had its name before, or will have it.
    """

    name: str
    identity: str
    root: RootKeys
    keys: QueueKeys
    options: QueueOptions
    clock: Clock
    subscriptions: tuple[Definition, ...]
    strays: Chore | None = field(default=None, repr=False, compare=False)
    """When to look for leases of another cluster; see ``lapse``."""
    _version: list[int] = field(default_factory=list, repr=False, compare=False)

    def version(self, tr: fdb.Transaction) -> int:
        """The version at which the transaction reads, asked for once."""
        if not self._version:
            self._version.append(self.clock.version(tr))
        return self._version[0]

    def now_ms(self, tr: fdb.Transaction) -> int:
        """The time, on which all who use the queue agree: see ``Clock.now_ms``."""
        return self.clock.now_ms(tr)


@record
class StoredMessage:
    """A message and where it stands; ``consumer`` is who had it in hand, for the history.

    ``turn`` is where it waits for others of its ordering key, if it does: then it is not at its
    position, and never was.
    """

    position: Position
    envelope: Envelope
    consumer: str = ""
    turn: Turn | None = None

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.envelope.id or self.position.to_id()

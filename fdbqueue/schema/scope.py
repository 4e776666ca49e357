"""What a storage operation works on: the keys and options of a queue, and the clocks."""

from __future__ import annotations

import time

from ..store.binding import fdb
from ..store.clocks import Clock
from ..values.model import Position
from ..values.options import MAX_PAYLOAD, QueueOptions
from ..values.records import record
from . import once
from .codec.envelopes import INLINE_LIMIT, Envelope
from .codec.lookup import Turn
from .keys import QueueKeys, RootKeys
from .subscription_definitions import Definition


class Chore:
    """What each handle on a queue does now and then, beside what it is asked for."""

    __slots__ = ("next", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.next = 0.0

    def due(self) -> bool:
        """Whether to do it now; then not again for a while."""
        now = time.monotonic()
        if now < self.next:
            return False
        self.next = now + self.seconds
        return True

    def go_on(self) -> None:
        """There was something to do: it is due again at once."""
        self.next = 0.0


class Scope:
    """One queue as transactions see it, made once for what META says; threads share it.

    identity: what tells the queue from others that had its name before, or will have it.
    root: leads to the queues beside it.
    strays: when to look for leases of another cluster; see ``lease_expiry``.
    levels: the level of each priority.
    plain_bytes: up to so many bytes, a payload is stored as it is, and nothing beside its message;
        less than any has where the queue has bounds or a history.
    """

    __slots__ = (
        "clock",
        "identity",
        "keys",
        "levels",
        "name",
        "options",
        "plain_bytes",
        "root",
        "strays",
        "subscriptions",
    )

    def __init__(
        self,
        name: str,
        identity: str,
        root: RootKeys,
        keys: QueueKeys,
        options: QueueOptions,
        clock: Clock,
        subscriptions: tuple[Definition, ...],
        strays: Chore | None = None,
    ) -> None:
        self.name = name
        self.identity = identity
        self.root = root
        self.keys = keys
        self.options = options
        self.clock = clock
        self.subscriptions = subscriptions
        self.strays = strays
        self.levels = tuple(map(options.level, range(options.max_priority + 1)))
        self.plain_bytes = _plain_bytes(options)

    def version(self, tr: fdb.Transaction) -> int:
        """The version at which the transaction reads."""
        return once.attempt(tr).version + self.clock.versions_ahead()

    def now_ms(self, tr: fdb.Transaction) -> int:
        """The time, on which all who use the queue agree: see ``Clock.now_ms``."""
        return self.clock.now_ms(tr)


def _plain_bytes(options: QueueOptions) -> int:
    beside = (options.history_seconds, options.max_messages, options.max_bytes)
    if any(option is not None for option in beside):
        return -1
    packed = MAX_PAYLOAD if options.compression == "none" else options.compress_from - 1
    return min(options.max_payload, INLINE_LIMIT, packed)


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

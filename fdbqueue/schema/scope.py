"""Scope: what a storage operation works on, a queue's keys, options and clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from ..store import world
from ..store.binding import fdb
from ..store.clocks import Clock
from ..values import compression
from ..values.limits import Gate
from ..values.model import Message, Position
from ..values.options import MAX_PAYLOAD, QueueOptions
from ..values.rates import Rate
from ..values.serializers import Declared
from . import once
from .consumers import Definition, SubscriptionIndex
from .envelope import PLAIN_INLINE_LIMIT, Envelope
from .keys import QueueKeys, RootKeys
from .records import BacklogPlace

MAX_WAITED = 1_000
"""Of how many keys and limits a process remembers that they had a backlog."""


@dataclass(slots=True, eq=False)
class Chore:
    """Something that each handle on a queue does now and then."""

    seconds: float
    next: float = 0.0

    def due(self) -> bool:
        """Whether it is due; if so, the next time is ``seconds`` later."""
        now = world.monotonic()
        if now < self.next:
            return False
        self.next = now + self.seconds
        return True

    def go_on(self) -> None:
        """Make it due again at once: there was something to do."""
        self.next = 0.0


Noted = Literal["rates", "cancels"]
"""What a queue may have come to: keys may have rates, and leased messages may have been
cancelled."""


Scheme = Literal["auto", "first", "staged"]
"""What receivers of one queue do when they want the same message. "first": each tries to take the
first message; "staged": one of them serves all in the order in which they came; "auto": first until
a conflict or a line, then staged."""


@dataclass(slots=True, eq=False)
class Scope:
    """One queue as transactions see it, made once for a value of META; threads share it.

    identity: tells the queue from earlier and later ones of its name. root: the keys beside it.
    strays: when to read for leases of another cluster; see ``lease_expiry``. levels: the level of
    each priority. index: which subscriptions want a message; None where there is none.
    inline_bytes: the largest payload that certainly stands unchanged in the row of its message.
    pace: the queue's rate.
    waited: keys and limits that had a backlog lately, as far as this process knows. shared: whether
    messages count in limits, as far as it knows. noted: what META notes of the queue.
    serializer: what META says of the one that the queue was first opened with.
    """

    name: str
    identity: str
    root: RootKeys
    keys: QueueKeys
    options: QueueOptions
    clock: Clock
    subscriptions: tuple[Definition, ...]
    strays: Chore | None = None
    noted: frozenset[Noted] = frozenset()
    scheme: Scheme = "auto"
    serializer: Declared | None = None
    index: SubscriptionIndex | None = field(init=False)
    levels: tuple[int, ...] = field(init=False)
    inline_bytes: int = field(init=False)
    pace: Rate | None = field(init=False)
    waited: set[Gate] = field(init=False, default_factory=set)
    shared: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.index = SubscriptionIndex(self.subscriptions) if self.subscriptions else None
        self.levels = tuple(map(self.options.level, range(self.options.max_priority + 1)))
        self.pace = self.options.pace
        self.inline_bytes = _inline_bytes(self.options)

    def level(self, priority: int) -> int:
        """The level of a priority. Raises ``InvalidArgument`` if there is no such priority."""
        if type(priority) is int and 0 <= priority < len(self.levels):
            return self.levels[priority]
        return self.options.level(priority)

    def lost(self, random: bytes) -> Position:
        """The position of a message of which nothing else can be read: in the least urgent
        level."""
        return Position(self.options.levels - 1, 0, random)

    def note_backlog(self, gate: Gate) -> None:
        """Note that a key or a limit has a backlog."""
        if len(self.waited) >= MAX_WAITED:
            # Forgetting costs one read for each key that has a backlog, once.
            self.waited.clear()
        self.waited.add(gate)

    def version(self, tr: fdb.Transaction) -> int:
        """The version at which the transaction reads."""
        # The clock of a test may be ahead of its database; in production it adds nothing.
        return once.version(tr) + self.clock.versions_ahead()

    def now_ms(self, tr: fdb.Transaction) -> int:
        """The time, as ``Clock.now_ms``."""
        return self.clock.now_ms(tr)


def _inline_bytes(options: QueueOptions) -> int:
    packed = MAX_PAYLOAD if options.compression == "none" else compression.COMPRESSED_FROM - 1
    # From the size on at which payloads are compressed, only ``payloads.store`` knows what stands
    # in the row.
    return min(options.max_payload, PLAIN_INLINE_LIMIT, packed)


class StoredMessage(Struct, frozen=True, gc=False):
    """A message and its position.

    consumer: the name of its last consumer, for the history. turn: its place in
    the backlog of its key or limit, if it waits for a slot; then it was never ready at its
    position. row: that it was read in, if it is ready (see ``messages.run``). payload: as it was
    enqueued, once it is read, if its envelope has it compressed or not at all. since_ms: when its
    last consumer took it, by the wall clock, if it has just had it.
    """

    position: Position
    envelope: Envelope
    consumer: str = ""
    turn: BacklogPlace | None = None
    row: object | None = None
    payload: bytes | None = None
    since_ms: int = 0

    @property
    def place(self) -> Position | BacklogPlace:
        """Where it stands if it is ready, or waits for a slot."""
        return self.turn or self.position

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.envelope.id or self.position.to_id()

    @property
    def opened(self) -> Message:
        """The message as consumers see it; its payload must have been read."""
        envelope, payload = self.envelope, self.payload
        if payload is None:
            assert envelope.raw_size is None, "the payload was not read"
            payload = envelope.payload
        return envelope.message(self.position, payload)

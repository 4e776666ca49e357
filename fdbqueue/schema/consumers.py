"""What is stored of consumers and subscriptions, and which subscriptions want a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice

from ..store.clocks import Moment
from ..values.model import HeaderValue, Message
from ..values.selector import Selector, Test, type_of
from .codec import Part, Stored

MAX_TESTS = 20_000
"""Selectors that one transaction evaluates: some hundredths of a second. What it has not come to
counts as wanted; at worst that wakes a consumer for nothing."""


class Running(Part, frozen=True):
    """A message that a handler has had since some time (wall clock, milliseconds)."""

    id: str
    key: str | None
    attempt: int
    since_ms: int


class Work(Part, frozen=True):
    """What a worker does in a queue, as its last sign of life told.

    worker, handler: their names. taken: how many of its ``places``, which all its queues share, are
    taken. handled, failed: how many messages in the last minute. usual_ms: the median of how long
    handling takes; None if few were handled. running: what it handles, the
    first ``MAX_RUNNING``.
    """

    queue: str
    worker: str
    handler: str
    places: int
    taken: int
    handled: int
    failed: int
    usual_ms: int | None
    running: tuple[Running, ...]


MAX_RUNNING = 20
"""How many messages that it handles a worker names."""


class WaitingCalls(Part, frozen=True):
    """How many calls of a process wait for room in a full queue, and since when (wall clock,
    milliseconds) the first one does."""

    queue: str
    calls: int
    since_ms: int


class Session(Stored, frozen=True):
    """A process that has consumers, or waits for room, and its last sign of life.

    expired: whether it was declared dead; then its consumers are being removed. work: what its
    workers do. waits: of one without consumers, for what it waits.
    """

    host: str
    process: int
    started_at_ms: int
    version: int
    wall_ms: int
    expired: bool = False
    work: tuple[Work, ...] = ()
    waits: WaitingCalls | None = None

    @property
    def heartbeat(self) -> Moment:
        """Its last sign of life."""
        return Moment(self.version, self.wall_ms)


class ConsumerRef(Stored, frozen=True):
    """A consumer as keys name it. ``session`` is empty for one that gives its own sign of life, and
    ``subscription`` for one that takes any message of the queue."""

    id: bytes
    priority: int = 0
    session: bytes = b""
    subscription: str = ""


class ConsumerRecord(Stored, frozen=True):
    """A registered consumer. ``version`` and ``wall_ms`` are the sign of life of one without a
    session, else 0."""

    name: str
    priority: int
    started_at_ms: int
    version: int = 0
    wall_ms: int = 0
    subscription: str = ""

    @property
    def heartbeat(self) -> Moment:
        """Its own last sign of life."""
        return Moment(self.version, self.wall_ms)


class Listed(Stored, frozen=True):
    """A consumer on a list: its session, and, of one that waits, since which version."""

    session: bytes
    since: int = 0


class Request(Stored, frozen=True):
    """What a consumer asks for: the same from its call to its row in the line.

    seconds: how long it wants its leases to last; None for the queue's own lease time.
    consumer: its name in listings. holder: the end of its claims, if it is registered.
    waits: whether it stays in line while the queue is empty; otherwise it gets an empty answer.
    begins, suspects: whether it handles at once, beside no other, a message that comes alone; and
    a suspect message.
    priority: of the consumer; who has a higher one is served first.
    max_bytes: of payloads, in all; None for no limit. above: a single message of more bytes than
    this is accepted all the same; None if none is.

    The others are set when it joins the line.
    alive_until: the version after which it counts as dead, unless it extends that.
    called: whether it is asked to lead; its own watch sees the change.
    returns: whether it may lead while it is away, as it will soon ask again.
    soon: whether it has asked within milliseconds of its last message, and looks for its answer at
    once.
    """

    max_messages: int
    seconds: float | None = None
    consumer: str = ""
    waits: bool = False
    begins: bool = True
    suspects: bool = True
    holder: bytes = b""
    priority: int = 0
    max_bytes: int | None = None
    above: int | None = None
    alive_until: int = 0
    called: bool = False
    returns: bool = False
    soon: bool = False


class Holder(Stored, frozen=True):
    """The consumer that an exclusive subscription serves, and until when."""

    token: bytes
    expiry_version: int
    expiry_ms: int

    def lasts(self, at: Moment) -> bool:
        """Whether it is served still: as a lease, until both clocks are past the expiry."""
        return self.expiry_version > at.version or self.expiry_ms > at.wall_ms


class Mode(Enum):
    """Whether a subscription takes messages or only reads them."""

    ACQUIRE = "acquire"
    BROWSE = "browse"


class Definition(Stored, frozen=True):
    """A subscription as it is stored.

    selector: which messages it wants; None for all.
    exclusive: whether it serves one consumer at a time.
    auto_close: whether it removes itself at the end of the queue.
    """

    name: str
    mode: Mode = Mode.ACQUIRE
    selector: Selector | None = None
    exclusive: bool = False
    auto_close: bool = False

    @property
    def skips(self) -> bool:
        """Whether it takes some messages and leaves others; its cursor must not skip a match."""
        return self.mode is Mode.ACQUIRE and self.selector is not None

    @property
    def timed(self) -> bool:
        """Whether a waiting message may begin to match later."""
        return self.selector is not None and self.selector.timed

    def matches(self, message: Message, now_ms: int) -> bool:
        """Whether it wants a message, at ``now_ms`` of the wall clock."""
        return self.selector is None or self.selector.matches(message, now_ms)


class SubscriptionIndex:
    """The subscriptions of a queue, by what they want. Made once for a value of META.

    A subscription whose selector demands ``header = constant`` is looked up by the header's value,
    so a thousand of them cost about as much as one. The others are evaluated one by one.

    names: of all. everything: of those that want every message.
    """

    __slots__ = ("_by_header", "_others", "everything", "names")

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self.names = frozenset(one.name for one in definitions)
        self.everything = frozenset(one.name for one in definitions if one.selector is None)
        self._by_header: dict[str, dict[tuple[type, HeaderValue], list[tuple[str, Test]]]] = {}
        self._others: list[tuple[str, Test]] = []
        for one in definitions:
            if one.selector is None:
                continue
            tests = self._others
            if one.selector.equalities:
                # One is enough to find it by; the test still asks for all of it.
                header, kind, value = one.selector.equalities[0]
                tests = self._by_header.setdefault(header, {}).setdefault((kind, value), [])
            tests.append((one.name, one.selector.test))

    @property
    def selective(self) -> bool:
        """Whether any subscription has a selector."""
        return len(self.everything) < len(self.names)

    def wanting(self, messages: Iterable[Message], now_ms: int) -> set[str]:
        """The subscriptions that want at least one of some messages, at ``now_ms`` of the wall
        clock. Reads no more messages than it needs."""
        found = set(self.everything)
        if not self.selective:
            return found
        tests = self._tests(messages, found)
        for message, name, test in islice(tests, MAX_TESTS):
            # None is unknown, as in SQL, and no match.
            if test(message, now_ms) is True:
                found.add(name)
        return found if next(tests, None) is None else set(self.names)

    def _tests(
        self, messages: Iterable[Message], found: set[str]
    ) -> Iterator[tuple[Message, str, Test]]:
        """What may want which message, but for those that were found before."""
        for message in messages:
            for header, value in message.headers.items():
                values = self._by_header.get(header)
                # With the type: True equals 1 in Python, but not in a selector.
                for name, test in values.get((type_of(value), value), ()) if values else ():
                    if name not in found:
                        yield message, name, test
            for name, test in self._others:
                if name not in found:
                    yield message, name, test
            if len(found) == len(self.names):
                return

"""The values that users hold: messages, positions, deliveries and depths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from ..errors import InvalidArgument
from .durations import Seconds
from .records import record
from .states import State

if TYPE_CHECKING:  # with a default (PEP 696), so that what names no type is one of anything
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)

HeaderValue = str | int | float | bool | None
Headers = Mapping[str, HeaderValue]

RANDOM_BYTES = 8
BYTES = "application/octet-stream"
"""The content type of a payload that no serializer made."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a message stands in its queue; the order of positions is the order of delivery."""

    level: int
    index: int
    random: bytes

    def to_id(self) -> str:
        """The message id that names this position; ids of one queue sort in delivery order."""
        return f"{self.level:02x}-{self.index:012x}-{self.random.hex()}"

    @classmethod
    def from_id(cls, message_id: str) -> Position:
        """The position that ``message_id`` names.

        Raises ``InvalidArgument`` if the text is not an id that an enqueue returned.
        """
        try:
            level, index, random = message_id.split("-")
            position = cls(int(level, 16), int(index, 16), bytes.fromhex(random))
            if position.to_id() == message_id:
                return position
        except (ValueError, AttributeError):
            pass
        raise InvalidArgument(argument="id", value=message_id, problem="not a message id")


class Due(NamedTuple):
    """Where a delayed message rests: until when (wall clock, milliseconds), and a random part."""

    due_ms: int
    random: bytes

    def to_id(self) -> str:
        """The id of a message that was scheduled: it had no position when it was enqueued."""
        return f"d-{self.due_ms:012x}-{self.random.hex()}"


def parse_id(message_id: str) -> Position | Due:
    """The first place of a message, which its id names. Raises ``InvalidArgument``."""
    if not isinstance(message_id, str) or not message_id.startswith("d-"):
        return Position.from_id(message_id)
    try:
        _, due_ms, random = message_id.split("-")
        due = Due(int(due_ms, 16), bytes.fromhex(random))
        if due.to_id() == message_id:
            return due
    except ValueError:
        pass
    raise InvalidArgument(argument="id", value=message_id, problem="not a message id")


@record
class NewMessage(Generic[T_co]):
    """One message to enqueue; the arguments are those of ``Queue.enqueue``, and two more.

    content_type: what the payload is: then it is bytes, and stored as they are, whatever the
        serializer. ttl_ends_at: instead of ``ttl``, the moment (with its time zone) after which it
        is delivered no more; that may have passed. Both are for what comes from elsewhere.
    """

    payload: T_co
    priority: int = 4
    headers: Headers | None = None
    delay: Seconds = 0.0
    at: datetime | None = None
    ttl: Seconds | None = None
    max_attempts: int | None = None
    backoff: Any = None
    dedup_id: str | None = None
    unique: str | None = None
    key: str | None = None
    content_type: str | None = None
    ttl_ends_at: datetime | None = None


class Enqueued(list[str]):
    """The ids that ``Queue.enqueue_many`` returns, in the order of its messages.

    new: how many of the messages came in; the others were known by their dedup ids or unique keys,
    and their ids are those of the messages that were there.
    """

    def __init__(self, ids: Iterable[str], new: int) -> None:
        super().__init__(ids)
        self.new = new

    def __reduce__(self) -> tuple[type[Enqueued], tuple[list[str], int]]:
        return Enqueued, (list(self), self.new)


@record
class Death:
    """Why and when (wall clock, milliseconds) a message became a dead letter.

    ``queue`` is the queue that it died in, ``id`` its id there, ``attempts`` how many failed.
    """

    reason: str
    died_at_ms: int
    attempts: int
    queue: str
    id: str


@record
class Message:
    """One message as consumers see it.

    ``attempts`` counts the attempts that failed before this look at it, and ``redelivered`` tells
    whether a consumer may have begun with it before, also one that was lost;
    ``enqueued_at_ms`` is the enqueuer's wall clock in milliseconds since the epoch, and after
    ``expires_at_ms`` it is delivered no more (None: never). ``last_error`` is what the last failed
    attempt said. ``death`` is set on what came in as another queue's dead letter. ``max_attempts``,
    ``backoff`` (as plain data), ``unique`` and ``key`` are what the enqueuer gave.
    """

    id: str
    payload: bytes
    headers: Headers
    priority: int
    level: int
    attempts: int
    enqueued_at_ms: int
    expires_at_ms: int | None = None
    last_error: str | None = None
    death: Death | None = None
    content_type: str = BYTES
    redelivered: bool = False
    max_attempts: int | None = None
    backoff: Mapping[str, Any] | None = None
    unique: str | None = None
    key: str | None = None

    @property
    def enqueued_at(self) -> datetime:
        """The enqueuer's wall clock at the enqueue, in UTC."""
        return datetime.fromtimestamp(self.enqueued_at_ms / 1000, UTC)


@record
class Delivery:
    """A message under a lease. Settle it with ``ack``, ``extend`` or ``release``.

    ``token`` is the lease's unguessable name: whoever holds it can settle the message once.
    ``attempt`` is 1 until an attempt has failed. ``expires_at_ms`` is the wall clock of the
    receiver, in milliseconds, until which the lease is safe if it is not extended.
    """

    message: Message
    token: bytes = field(repr=False)
    attempt: int
    expires_at_ms: int
    begun: bool = field(default=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id

    @property
    def payload(self) -> bytes:
        """The payload of the message."""
        return self.message.payload


@record
class LeasedMessage:
    """A lease as a listing shows it; ``delivery`` is what its holder settles it with.

    The message is without its payload. ``lapsed`` says that the lease is over, and the next
    receive or sweep takes the message back; ``planned`` that it belongs to a plan, never lapses
    (its expiry is 0) and is settled with the plan alone.
    """

    delivery: Delivery
    consumer: str
    lapsed: bool
    planned: bool = False


@record
class MessageState:
    """Where a message stands now.

    ``due_at_ms`` is set while it is delayed; ``lease_expires_at_ms`` and ``consumer`` while it is
    leased, but no expiry if it is in a plan; ``death`` while it is a dead letter. Times are wall
    clocks in milliseconds. ``waits_for_key`` says that it is ready but for another message of its
    ordering key.
    """

    message: Message
    state: State
    due_at_ms: int | None = None
    lease_expires_at_ms: int | None = None
    consumer: str = ""
    death: Death | None = None
    waits_for_key: bool = False

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id


@record
class DeadMessage:
    """A dead letter: the message as it was, and how it died."""

    message: Message
    death: Death

    @property
    def id(self) -> str:
        """The id of the message in the queue that it died in."""
        return self.death.id


@record
class Event:
    """One line of a queue's history: a message made a transition.

    ``stamp`` orders events as they were committed and names the place to read on from. ``attempt``
    is how many deliveries had been made; ``at_ms`` the wall clock of whoever did it. ``place``
    names the position of the message, by which the ready ones are delivered; it is empty where
    the message waits for others of its ordering key.
    """

    stamp: bytes
    transition: str
    id: str
    level: int
    attempt: int
    consumer: str
    at_ms: int
    place: str


@record
class Swept:
    """What ``Queue.sweep`` found to do.

    staged: rows of writes that nobody came back to, and that were removed. deleted: whether the
    queue itself is gone.
    """

    promoted: int = 0
    expired: int = 0
    staged: int = 0
    deleted: bool = False


@record
class Depth:
    """How many messages of a queue, or of one level of it, are in which state.

    ``enqueued`` counts every message that ever came in; the states add up to it.
    ``ready_bytes`` is the size of the ready messages' payloads.
    """

    enqueued: int = 0
    ready: int = 0
    delayed: int = 0
    leased: int = 0
    dead: int = 0
    done: int = 0
    expired: int = 0
    purged: int = 0
    ready_bytes: int = 0

    def __add__(self, other: Depth) -> Depth:
        return Depth(*(getattr(self, n) + getattr(other, n) for n in self.__match_args__))


@record
class Deviation:
    """One thing in which the stored state of a queue is not what it must be.

    kind: what is wrong, as docs/verify.md lists it. subject: the id of the message, or the key.
    repaired: whether it was mended.
    """

    kind: str
    subject: str
    detail: str
    repaired: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.detail}" + " (repaired)" * self.repaired


@record
class Verification:
    """What a verification has found.

    unchecked: what could not be checked, since it is too large to be read at one version.
    messages: how many messages were looked at. staged: rows that writes have staged, and that are
    not decided to be enqueued.
    """

    deviations: tuple[Deviation, ...]
    unchecked: tuple[str, ...]
    messages: int
    staged: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything was checked and no deviation is left."""
        return not self.unchecked and all(one.repaired for one in self.deviations)


@record
class Progress:
    """How far an operation on many messages has come.

    taken: messages that it moved, copied or removed. looked_at: those that it went through.
    place: where it goes on, for ``resume``.
    """

    taken: int
    looked_at: int
    place: bytes = field(repr=False)


@record
class Plan:
    """The messages of one batch, leased until the batch is acknowledged or given back.

    messages: how many were planned, of ``size`` bytes with their headers. left: how many are
    still leased. state: "open" while messages are added, "sealed", "acknowledged" or "returning"
    while they come to their end. planned_at_ms: the wall clock at the beginning.
    """

    batch: int
    state: str
    messages: int
    size: int
    left: int
    planned_at_ms: int


@record
class PlanConsumer:
    """A consumer that takes messages by plans: the last batch it has acknowledged, and what it
    has in hand; that is one plan at most, but for what comes to its end."""

    name: str
    acknowledged: int
    plans: tuple[Plan, ...]

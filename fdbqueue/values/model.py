"""The values users hold: messages, positions, deliveries and depths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, TypedDict

from msgspec import Meta, Struct

from ..errors import InvalidArgument
from .durations import Seconds
from .options import MAX_LEVELS
from .states import State
from .text import excerpt

if TYPE_CHECKING:  # with a default (PEP 696): a bare Queue is a Queue[Any]
    from typing_extensions import TypeVar

    S = TypeVar("S", default=Any)
    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S")
    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)

HeaderValue = str | int | float | bool | None
Headers = Mapping[str, HeaderValue]

RANDOM_BYTES = 8
BYTES = "application/octet-stream"
"""The content type of payloads of bytes."""


NOT_AN_ID = "not a message id, which is a str such as '05-000000000001-83ca4e58174f03bb'"


class Position(Struct, frozen=True, order=True, array_like=True, gc=False):
    """Where a message stands in its queue. Positions sort in delivery order."""

    level: Annotated[int, Meta(ge=0, lt=MAX_LEVELS)]
    index: Annotated[int, Meta(ge=0)]
    random: bytes

    def to_id(self) -> str:
        """The message id that names this position. Ids of one queue sort in delivery order."""
        return f"{self.level:02x}-{self.index:012x}-{self.random.hex()}"

    @classmethod
    def from_id(cls, message_id: str) -> Position:
        """The position that ``message_id`` names; raises ``InvalidArgument`` for any other text."""
        try:
            level, index, random = message_id.split("-")
            position = cls(int(level, 16), int(index, 16), bytes.fromhex(random))
            # `int` and `fromhex` also take spaces, signs and capitals: a message has one id.
            if position.to_id() == message_id:
                return position
        except (ValueError, AttributeError, TypeError):
            pass
        raise InvalidArgument(argument="id", value=message_id, problem=NOT_AN_ID)


class Due(NamedTuple):
    """Where a delayed message waits: its level, until when (wall clock, milliseconds), and a random
    part."""

    level: int
    due_ms: int
    random: bytes

    def to_id(self) -> str:
        """The id of a message enqueued with a delay, and so without a position."""
        return f"d-{self.level:02x}-{self.due_ms:012x}-{self.random.hex()}"


def parse_id(message_id: str) -> Position | Due:
    """Where a message was first stored, as its id says. Raises ``InvalidArgument``."""
    if not isinstance(message_id, str) or not message_id.startswith("d-"):
        return Position.from_id(message_id)
    try:
        _, level, due_ms, random = message_id.split("-")
        due = Due(int(level, 16), int(due_ms, 16), bytes.fromhex(random))
        if due.to_id() == message_id:
            return due
    except ValueError:
        pass
    raise InvalidArgument(argument="id", value=message_id, problem=NOT_AN_ID)


OnConflict = Literal["keep", "replace", "debounce"]
"""What an enqueue does if a waiting message holds its unique key."""


class NewMessage(Struct, Generic[T_co], frozen=True):
    """One message to enqueue, with the arguments of ``Queue.enqueue`` and two for messages that
    come from elsewhere.

    content_type: the type of a payload of bytes, which are stored as they are.
    ttl_ends_at: in place of ``ttl``, when the message expires, with a time zone; may be past.
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
    on_conflict: OnConflict = "keep"
    max_delay: Seconds | None = None
    keep_result: Seconds | None = None
    limits: Mapping[str, str] | None = None


class MessageTerms(TypedDict, total=False):
    """What ``NewMessage`` takes besides the payload, where it is enqueued as it is."""

    priority: int
    headers: Headers | None
    delay: Seconds
    at: datetime | None
    ttl: Seconds | None
    max_attempts: int | None
    backoff: Any
    dedup_id: str | None
    unique: str | None
    on_conflict: OnConflict
    max_delay: Seconds | None
    key: str | None
    keep_result: Seconds | None
    limits: Mapping[str, str] | None


class Enqueued(list[str]):
    """The ids that ``Queue.enqueue_many`` returns, in the order of its messages.

    new: how many messages were added. The others had a known dedup id or unique key; each has the
    id of the message that was there already, or replaced it. group: the name of their group; empty
    if they are in none.
    """

    def __init__(self, ids: Iterable[str], new: int, group: str = "") -> None:
        super().__init__(ids)
        self.new = new
        self.group = group

    def __reduce__(self) -> tuple[type[Enqueued], tuple[list[str], int, str]]:
        # A list pickles without what its `__init__` needs.
        return Enqueued, (list(self), self.new, self.group)


class Death(Struct, frozen=True, array_like=True, gc=False):
    """Why and when (wall clock, milliseconds) a message became a dead letter.

    ``queue`` is where it died, ``id`` its id there, ``attempts`` how many failed.
    """

    reason: str
    died_at_ms: int
    attempts: int
    queue: str
    id: str


SHOWN = 40
"""How many characters of a payload are shown in place of a message."""


class Message(Struct, frozen=True, gc=False):
    """One message as consumers see it.

    ``attempts`` counts failed attempts, and ``deaths`` consumers that died, or let their leases
    expire, as they handled it alone. ``redelivered`` tells whether any consumer, even one that
    crashed, may have begun to handle it before. ``enqueued_at_ms`` is the producer's wall clock in
    milliseconds since the epoch; after ``expires_at_ms`` (None: never) the message is not
    delivered. ``last_error`` is the error of the last failed attempt. ``death`` is set on another
    queue's dead letter. ``max_attempts``, ``backoff`` (as plain data), ``unique``, ``key``,
    ``keep_result_ms`` and ``limits`` are the producer's.
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
    keep_result_ms: int | None = None
    limits: Mapping[str, str] | None = None
    deaths: int = 0

    def __repr__(self) -> str:
        return f"Message({self.id!r}, {excerpt(self.payload, SHOWN)!r})"

    @property
    def enqueued_at(self) -> datetime:
        """The producer's wall clock at the enqueue, in UTC."""
        return datetime.fromtimestamp(self.enqueued_at_ms / 1000, UTC)


class Failure(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A failed attempt to handle a message, or the death of a consumer that handled it alone.

    Times are wall clocks in milliseconds. ``started_at_ms`` is when a worker's handler began, or
    else when the message was taken. ``ended_at_ms`` is when the attempt was given up, or its lease
    was found to have expired. ``consumer`` had the lease. ``error`` has up to 500 characters,
    ``traceback`` up to 4,000 bytes, from the first frame of the handler on; it is empty where there
    was no exception.
    """

    started_at_ms: int
    ended_at_ms: int
    consumer: str
    error: str
    traceback: str = ""


class Delivery(Struct, frozen=True, gc=False):
    """A message under a lease. Settle it with ``ack``, ``extend`` or ``release``.

    ``token`` is the lease's unguessable name, and the right to settle the message, once.
    ``attempt`` is 1 until an attempt has failed. Unless extended, the lease is safe until
    ``expires_at_ms``, in milliseconds of the receiver's wall clock. ``cancelled``: whether the
    message was cancelled before it was read, or extended, as this delivery. Then it is never
    delivered again.
    """

    message: Message
    token: bytes
    attempt: int
    expires_at_ms: int
    begun: bool = False
    cancelled: bool = False

    def __repr__(self) -> str:
        return f"Delivery({self.id!r}, {excerpt(self.payload, SHOWN)!r}, attempt={self.attempt})"

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id

    @property
    def payload(self) -> bytes:
        """The payload of the message."""
        return self.message.payload


class LeasedMessage(Struct, frozen=True):
    """A lease in a listing; ``delivery`` settles it. The message comes without its payload.

    ``expired``: the lease is over, and the next receive or sweep returns the message to the
    queue. ``planned``: the lease belongs to a plan, never expires (its expiry is 0), and is settled
    with the plan. ``since_ms``: when it was taken, by the wall clock in milliseconds; 0 of a plan.
    """

    delivery: Delivery
    consumer: str
    expired: bool
    planned: bool = False
    since_ms: int = 0


class MessageState(Struct, frozen=True):
    """The state of a message now.

    ``due_at_ms`` is set while it is delayed, ``lease_expires_at_ms`` and ``consumer`` while it is
    leased (no expiry in a plan), ``death`` while it is a dead letter. Times are wall clocks in
    milliseconds. ``waits_for``: the key, or the dimension and the name of the limit, for which it
    waits. ``cancelled``: it is leased, and never delivered again. ``leased_at_ms``: since when it
    is leased, not by a plan. ``group``: that of which it is a member. ``failures``: its last failed
    attempts and deaths, up to eight, the oldest first; in a listing none.
    """

    message: Message
    state: State
    due_at_ms: int | None = None
    lease_expires_at_ms: int | None = None
    consumer: str = ""
    death: Death | None = None
    waits_for: str | tuple[str, str] | None = None
    cancelled: bool = False
    leased_at_ms: int | None = None
    group: str | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id


class DeadMessage(Struct, frozen=True):
    """A dead letter: the message as it was, and how it died; ``failures`` as in a
    ``MessageState``."""

    message: Message
    death: Death
    failures: tuple[Failure, ...] = ()

    @property
    def id(self) -> str:
        """The id of the message in the queue where it died."""
        return self.death.id


class Event(Struct, frozen=True):
    """One line of a queue's history: a message made a transition.

    ``stamp`` orders events by commit; pass it to continue reading there. ``attempt`` counts the
    deliveries so far, and ``at_ms`` is the wall clock of the process that acted. ``consumer`` is
    who had it, or, of one that was moved, an arrow and the queue that it went to. ``place`` names
    the message's position, which orders deliveries; it is empty while the message waits for a slot
    of its key.
    """

    stamp: bytes
    transition: str
    id: str
    level: int
    attempt: int
    consumer: str
    at_ms: int
    place: str


class Swept(Struct, frozen=True):
    """What ``Queue.admin.sweep`` did.

    staged: how many rows of abandoned writes it removed. deleted: whether it deleted the queue.
    """

    promoted: int = 0
    expired: int = 0
    staged: int = 0
    deleted: bool = False


class Depth(Struct, frozen=True):
    """How many messages of a queue, or of one of its levels, are in each state.

    ``enqueued`` counts every message ever added; the states add up to it. ``ready_bytes`` is the
    size of the payloads of those that are ready or waiting.
    """

    enqueued: int = 0
    ready: int = 0
    waiting: int = 0
    retrying: int = 0
    scheduled: int = 0
    leased: int = 0
    dead: int = 0
    done: int = 0
    expired: int = 0
    purged: int = 0
    ready_bytes: int = 0

    @property
    def unsettled(self) -> int:
        """How many are still to be handled: all but the dead ones and those that are gone."""
        return self.ready + self.waiting + self.retrying + self.scheduled + self.leased

    def __add__(self, other: Depth) -> Depth:
        return Depth.total((self, other))

    @staticmethod
    def total(depths: Iterable[Depth]) -> Depth:
        """The sum of several."""
        return Depth(*map(sum, zip(*map(_counters, depths), strict=True)))


_counters = attrgetter(*Depth.__struct_fields__)


class Deviation(Struct, frozen=True):
    """One defect of what is stored for a queue.

    kind: what is wrong, as docs/verify.md lists it. subject: the id of the message, or the key.
    """

    kind: str
    subject: str
    detail: str
    repaired: bool = False

    @property
    def passing(self) -> bool:
        """Whether it is only what a process left behind that died: workers tidy that up."""
        return self.kind in ("request of the dead", "consumer dead")

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.detail}" + " (repaired)" * self.repaired


class Verification(Struct, frozen=True):
    """The result of a verification.

    unchecked: what was not checked because it is too large to be read at one version. messages:
    how many messages were checked. staged: how many staged rows are undecided.
    """

    deviations: tuple[Deviation, ...]
    unchecked: tuple[str, ...]
    messages: int
    staged: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything was checked and no defect is left."""
        return not self.unchecked and all(one.repaired for one in self.deviations)


class Progress(Struct, frozen=True):
    """How far an operation on many messages has come. It is true if any was taken.

    taken: how many it moved, copied, changed or removed. checked: how many it has read. place: pass
    it as ``resume`` to continue. ids: those of messages that were moved or copied, in the other
    queue, so far: the list grows while the operation goes on.
    """

    taken: int
    checked: int
    place: bytes
    ids: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"Progress(taken={self.taken}, checked={self.checked})"

    def __bool__(self) -> bool:
        return self.taken > 0


class Plan(Struct, frozen=True):
    """The messages of one batch, leased until the batch is acknowledged or given back.

    messages: how many were planned, of ``size`` bytes with their headers. left: how many are
    still leased. state: "open" while messages are added, then "sealed"; "acknowledged" or
    "returning" while the batch ends. planned_at_ms: the wall clock when it began.
    """

    batch: int
    state: str
    messages: int
    size: int
    left: int
    planned_at_ms: int


class PlanConsumer(Struct, frozen=True):
    """A consumer that takes messages by plans: the last batch it acknowledged, and its plans: at
    most one, besides those that are ending. begins: from which index on it takes messages, by
    level; from the first in the others."""

    name: str
    acknowledged: int
    plans: tuple[Plan, ...]
    begins: Mapping[int, int]

"""The values that users hold: messages, positions, deliveries and depths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .errors import InvalidArgument

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


@dataclass(frozen=True, slots=True)
class NewMessage:
    """One message to enqueue; the arguments are those of ``Queue.enqueue``."""

    payload: Any
    priority: int = 4
    headers: Headers | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message as consumers see it.

    ``attempts`` counts the deliveries that failed or lapsed before this look at it;
    ``enqueued_at_ms`` is the enqueuer's wall clock in milliseconds since the epoch.
    """

    id: str
    payload: bytes
    headers: Headers
    priority: int
    level: int
    attempts: int
    enqueued_at_ms: int
    content_type: str = BYTES

    @property
    def enqueued_at(self) -> datetime:
        """The enqueuer's wall clock at the enqueue, in UTC."""
        return datetime.fromtimestamp(self.enqueued_at_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message under a lease. Settle it with ``ack``, ``extend`` or ``release``.

    ``token`` is the lease's unguessable name: whoever holds it can settle the message once.
    ``attempt`` is 1 at the first delivery. ``expires_at_ms`` is the wall clock of the receiver,
    in milliseconds, until which the lease is safe if it is not extended.
    """

    message: Message
    token: bytes = field(repr=False)
    attempt: int
    expires_at_ms: int

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id

    @property
    def payload(self) -> bytes:
        """The payload of the message."""
        return self.message.payload


@dataclass(frozen=True, slots=True)
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
        return Depth(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))

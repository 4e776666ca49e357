"""Consumers: records, signs of life, requests in the line, and holders of subscriptions."""

from __future__ import annotations

from typing import ClassVar

from ...store.clocks import Moment
from . import Stored
from .atomic import pack_index, unpack_index


class Session(Stored, frozen=True):
    """A process that has consumers, and its last sign of life.

    expired: whether it was declared dead; then its consumers are being removed.
    """

    kind: ClassVar[str] = "a session"

    host: str
    process: int
    started_at_ms: int
    version: int
    wall_ms: int
    expired: bool = False

    @property
    def heartbeat(self) -> Moment:
        """Its last sign of life."""
        return Moment(self.version, self.wall_ms)


class ConsumerRef(Stored, frozen=True):
    """A consumer as keys name it. ``session`` is empty for one that gives its own sign of life, and
    ``subscription`` for one that takes any message of the queue."""

    kind: ClassVar[str] = "a guard"

    id: bytes
    priority: int = 0
    session: bytes = b""
    subscription: str = ""


class ConsumerRecord(Stored, frozen=True):
    """A registered consumer. ``version`` and ``wall_ms`` are the sign of life of one without a
    session, else 0."""

    kind: ClassVar[str] = "a consumer"

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


class Request(Stored, frozen=True):
    """The request of a consumer in the line.

    waits: whether it stays in line while the queue is empty; otherwise it gets an empty answer.
    alive_until: the version after which it counts as dead, unless it extends that.
    called: whether it is asked to lead; its own watch sees the change.
    begins, suspects: whether it handles at once, beside no other, a message that comes alone; and
    a suspect message.
    returns: whether it is expected to ask again within a few milliseconds.
    priority: of the consumer; who has a higher one is served first.
    max_bytes: of payloads, in all; None for no limit. above: a single message of more bytes than
    this is accepted all the same; None if none is.
    """

    kind: ClassVar[str] = "a request"

    max_messages: int
    seconds: float
    consumer: str
    waits: bool
    alive_until: int
    called: bool = False
    begins: bool = True
    suspects: bool = True
    returns: bool = False
    priority: int = 0
    max_bytes: int | None = None
    above: int | None = None

    def admits(self, size: int, given: int, spent: int) -> bool:
        """Whether its credit admits one more message, besides ``given`` of ``spent`` bytes."""
        if self.max_bytes is None or spent + size <= self.max_bytes:
            return True
        return not given and self.above is not None and size > self.above


class Holder(Stored, frozen=True):
    """The consumer that an exclusive subscription serves, and until when."""

    kind: ClassVar[str] = "a holder"

    token: bytes
    expiry_version: int
    expiry_ms: int

    def lasts(self, at: Moment) -> bool:
        """Whether it is served still: as a lease, until both clocks are past the expiry."""
        return self.expiry_version > at.version or self.expiry_ms > at.wall_ms


def pack_state(session: bytes, since: int = 0) -> bytes:
    return pack_index(since) + session


def unpack_state(value: bytes) -> tuple[bytes, int]:
    """A consumer's session from its stored state, and since which version it waits."""
    return value[8:], unpack_index(value[:8])

"""Consumers: records, signs of life, requests in the line, and holders of subscriptions."""

from __future__ import annotations

from typing import NamedTuple

from . import pack, unpack_fields
from .atomic import pack_index, unpack_index


class Beat(NamedTuple):
    """A sign of life: the database's version and the wall clock when it was given."""

    version: int
    wall_ms: int


class Session(NamedTuple):
    """A process that has consumers, and its last sign of life.

    expired: whether it was declared dead; then its consumers are being removed.
    """

    host: str
    process: int
    started_at_ms: int
    version: int
    wall_ms: int
    expired: bool = False

    @property
    def beat(self) -> Beat:
        """Its last sign of life."""
        return Beat(self.version, self.wall_ms)


class ConsumerRef(NamedTuple):
    """A consumer as keys name it. ``session`` is empty for one that gives its own sign of life."""

    id: bytes
    priority: int = 0
    session: bytes = b""


class ConsumerRecord(NamedTuple):
    """A registered consumer. ``version`` and ``wall_ms`` are the sign of life of one without a
    session, else 0."""

    name: str
    priority: int
    started_at_ms: int
    version: int = 0
    wall_ms: int = 0

    @property
    def beat(self) -> Beat:
        """Its own last sign of life."""
        return Beat(self.version, self.wall_ms)


class Request(NamedTuple):
    """The request of a consumer in the line.

    waits: whether it stays in line while the queue is empty; otherwise it gets an empty answer.
    alive_until: the version after which it counts as dead, unless it extends that.
    called: whether it is asked to lead; its own watch sees the change.
    begins, suspects: whether it handles at once, beside no other, a message that comes alone; and
    a suspect message.
    """

    max_messages: int
    seconds: float
    consumer: str
    waits: bool
    alive_until: int
    called: bool = False
    begins: bool = True
    suspects: bool = True


class Holder(NamedTuple):
    """The consumer that an exclusive subscription serves, and until when."""

    token: bytes
    expiry_version: int
    expiry_ms: int


def pack_session(session: Session) -> bytes:
    """The stored form of a session."""
    return pack(list(session))


def unpack_session(value: bytes) -> Session:
    """A session from its stored form."""
    return unpack_fields(value, "a session", Session)


def pack_consumer(record: ConsumerRecord) -> bytes:
    """The stored form of a consumer."""
    return pack(list(record))


def unpack_consumer(value: bytes) -> ConsumerRecord:
    """A consumer from its stored form."""
    return unpack_fields(value, "a consumer", ConsumerRecord)


def pack_state(session: bytes, since: int = 0) -> bytes:
    """The stored form of a consumer's state: its session, and since which version it waits."""
    return pack_index(since) + session


def unpack_state(value: bytes) -> tuple[bytes, int]:
    """A consumer's session from its stored state, and since which version it waits."""
    return value[8:], unpack_index(value[:8])


def pack_guard(consumer: ConsumerRef) -> bytes:
    """The stored form of the guard."""
    return pack(list(consumer))


def unpack_guard(value: bytes) -> ConsumerRef:
    """The guard from its stored form."""
    return unpack_fields(value, "a guard", ConsumerRef)


def pack_request(request: Request) -> bytes:
    """The stored form of a request."""
    return pack(list(request))


def unpack_request(value: bytes) -> Request:
    """A request from its stored form."""
    return unpack_fields(value, "a request", Request)


def pack_holder(holder: Holder) -> bytes:
    """The stored form of a holder."""
    return pack(list(holder))


def unpack_holder(value: bytes) -> Holder:
    """A holder from its stored form."""
    return unpack_fields(value, "a holder", Holder)

"""Consumers: who is registered and alive, waits in line, or holds a subscription."""

from __future__ import annotations

from typing import NamedTuple

from . import pack, unpack_fields
from .atomic import pack_index, unpack_index


class Beat(NamedTuple):
    """A sign of life: the database's version and the wall clock when it was given."""

    version: int
    wall_ms: int


class ConsumerRecord(NamedTuple):
    """A consumer that is registered: its name and priority, and the process that it runs in."""

    name: str
    priority: int
    host: str
    process: int
    started_at_ms: int


class Request(NamedTuple):
    """What a consumer that stands in line asks for.

    waits: whether it stays in line while the queue is empty; else it is told so.
    alive_until: the version after which it is taken for dead, unless it says that it is not.
    called: whether it has been called to lead; its own watch sees the change.
    begins, suspects: whether it begins at once with a message that it is handed alone, beside no
    other; and whether it does with one that asks for that.
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


def pack_beat(beat: Beat, consumer: bytes = b"") -> bytes:
    """A sign of life, and whose it is where the key does not tell."""
    return pack_index(beat.version) + pack_index(beat.wall_ms) + consumer


def unpack_beat(value: bytes) -> tuple[Beat, bytes]:
    """A sign of life from its stored form, and whose it is."""
    return Beat(unpack_index(value[:8]), unpack_index(value[8:16])), value[16:]


def pack_consumer(record: ConsumerRecord, beat: Beat) -> bytes:
    """The stored form of a consumer and its last sign of life."""
    return pack([*record, beat.version, beat.wall_ms])


def unpack_consumer(value: bytes) -> tuple[ConsumerRecord, Beat]:
    """A consumer from its stored form."""
    return unpack_fields(
        value, "a consumer", lambda *stored: (ConsumerRecord(*stored[:-2]), Beat(*stored[-2:]))
    )


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

"""Leases, and when one that was extended ends."""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from ...errors import CorruptData
from ...values.model import Position
from . import VERSION, pack, unpack
from .atomic import pack_index, unpack_index


class Until(NamedTuple):
    """When a lease ends: the database's version and the wall clock."""

    version: int
    wall_ms: int


class Lease(NamedTuple):
    """A message in the hands of a consumer. ``envelope`` stays packed until it is needed.

    begun: whether its consumer began to handle it at once, and no other message. Otherwise an
    expired lease does not count as a failed attempt.

    The expiry is the original one; an extended lease ends later, see ``Until``. A lease of a plan
    never expires: its expiry is 0.

    claim: random bytes that tell the lease from others of its message; zeros in a plan. plain:
    whether the message has no side records, so that it can end without reading its envelope.
    """

    position: Position
    expiry_version: int
    expiry_ms: int
    consumer: str
    envelope: bytes
    begun: bool = True
    claim: bytes = bytes(16)
    plain: bool = False

    @property
    def planned(self) -> bool:
        """Whether it belongs to a plan: it never expires, and is settled with the plan."""
        return self.expiry_version == 0

    def ends(self, extended: bytes | None) -> Until:
        """When it ends, given its stored extension, if any."""
        if extended is None:
            return Until(self.expiry_version, self.expiry_ms)
        return unpack_until(extended)


def pack_lease(lease: Lease) -> bytes:
    """The stored form of a lease."""
    return pack(
        [
            lease.position.level,
            lease.position.index,
            lease.position.random,
            lease.expiry_version,
            lease.expiry_ms,
            lease.consumer,
            lease.envelope,
            lease.begun,
            lease.claim,
            lease.plain,
        ]
    )


def unpack_lease(value: bytes) -> Lease:
    """A lease from its stored form."""
    try:
        if value[0] != VERSION:
            unpack(value, "a lease")  # raises
        level, index, random, *terms = msgpack.unpackb(value[1:])
        return Lease(Position(level, index, random), *terms)
    except (TypeError, ValueError, IndexError) as error:
        raise CorruptData(what="a lease", problem=repr(error)) from None


def pack_planned_lease(position: Position, consumer: str, envelope: bytes) -> bytes:
    """The stored form of a lease of a plan, which never expires."""
    return pack([position.level, position.index, position.random, 0, 0, consumer, envelope])


def pack_expiry(wall_ms: int, claim: bytes) -> bytes:
    """The wall clock at which a lease ends, in milliseconds, and the claim of the lease."""
    return pack_index(wall_ms) + claim


def unpack_expiry(value: bytes) -> tuple[int, bytes]:
    """The wall clock at which a lease ends, and its claim."""
    return unpack_index(value[:8]), value[8:]


def pack_until(until: Until) -> bytes:
    """The stored form of the end of a lease."""
    return pack_index(until.version) + pack_index(until.wall_ms)


def unpack_until(value: bytes) -> Until:
    """The end of a lease from its stored form."""
    return Until(unpack_index(value[:8]), unpack_index(value[8:]))

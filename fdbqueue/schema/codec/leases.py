"""Leases, and the ends of extended ones; also their keys, which are packed together."""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from ...errors import CorruptData
from ...store.client import pack_int
from ...store.clocks import Moment
from ...values.model import BYTES, Message, Position
from ..keys import CLAIM_BYTES, QueueKeys
from . import VERSION, pack, unpack
from .atomic import pack_index, unpack_index
from .envelopes import BESIDE, FIELDS


class Lease(NamedTuple):
    """A message in the hands of a consumer. ``envelope`` stays packed until it is needed.

    begun: whether its consumer began to handle it at once, and no other message. Otherwise an
    expired lease does not count as a failed attempt.

    The expiry is the original one; UNTIL has that of an extended lease. A lease of a plan never
    expires: its expiry is 0.

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

    def ends(self, extended: bytes | None) -> Moment:
        """When it ends, given its stored extension, if any."""
        if extended is None:
            return Moment(self.expiry_version, self.expiry_ms)
        return unpack_until(extended)


Leasing = tuple[int, int, bytes, bytes, bytes, bytes]


def leasing(keys: QueueKeys, ready: bytes, claim: bytes, version: bytes) -> Leasing:
    """What a lease of a ready message needs of its READY key: level, index, random, the token, and
    the keys LEASE and EXPIRY.

    version: of the expiry, packed.
    """
    rest = ready[len(keys.ready_prefix) :]
    middle = rest[0] - 0x13
    end = middle + rest[middle] - 0x13
    return (
        int.from_bytes(rest[1:middle], "big"),
        int.from_bytes(rest[middle + 1 : end], "big"),
        rest[end + 1 : -1].replace(b"\x00\xff", b"\x00"),
        claim + rest,
        keys.lease_prefix + rest,
        keys.expiry_prefix + version + rest,
    )


def expiries_end(keys: QueueKeys, version: int) -> bytes:
    """Where the EXPIRY keys of versions before this one end."""
    return keys.expiry_prefix + pack_int(version)


def lease_key(keys: QueueKeys, token: bytes) -> bytes:
    """LEASE: (level, index, random)."""
    return keys.lease_prefix + token[CLAIM_BYTES:]


def leased(keys: QueueKeys, token: bytes, version: int) -> tuple[bytes, bytes, bytes]:
    """The keys LEASE, UNTIL and EXPIRY of a lease that expires at a version."""
    claim, position = token[:CLAIM_BYTES].replace(b"\x00", b"\x00\xff"), token[CLAIM_BYTES:]
    return (
        keys.lease_prefix + position,
        keys.until_prefix + b"\x01" + claim + b"\x00" + position,
        keys.expiry_prefix + pack_int(version) + position,
    )


_VERSION = bytes([VERSION])
_OPENED = {
    FIELDS[name]
    for name in (
        *("payload", "priority", "enqueued_at_ms"),
        *("headers", "attempts", "id", "expires_at_ms", "max_attempts", "backoff", "last_error"),
        *("unique", "content_type", "key", "released", "former_key"),
    )
}
_HEADERS, _ATTEMPTS, _ID, _EXPIRES = (
    FIELDS[name] for name in ("headers", "attempts", "id", "expires_at_ms")
)
_MAX_ATTEMPTS, _BACKOFF, _LAST_ERROR = (
    FIELDS[name] for name in ("max_attempts", "backoff", "last_error")
)
_UNIQUE, _CONTENT_TYPE, _KEY = (FIELDS[name] for name in ("unique", "content_type", "key"))


def open_message(value: bytes, place: str, level: int, now_ms: int) -> tuple[Message, bool] | None:
    """The message in a stored envelope, and whether it is plain (see ``Lease``), at one go.

    place: the id of where it stands. None for one that needs a closer look: it has expired at
    ``now_ms`` or expired in other hands, its payload is compressed or elsewhere, or it cannot be
    read.
    """
    try:
        stored = msgpack.unpackb(value[1:], strict_map_key=False)
        if value[0] != VERSION:
            return None
        payload = stored[1]
        if type(payload) is not bytes:
            return None
        if len(stored) == 3:
            return Message(place, payload, {}, stored[2], level, 0, stored[3]), True
        if not stored.keys() <= _OPENED:
            return None
        field = stored.get
        expires_at_ms = field(_EXPIRES)
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            return None
        attempts = field(_ATTEMPTS, 0)
        found = Message(
            field(_ID, place),
            payload,
            field(_HEADERS, {}),
            stored[2],
            level,
            attempts,
            stored[3],
            expires_at_ms,
            field(_LAST_ERROR),
            None,
            field(_CONTENT_TYPE, BYTES),
            attempts > 0,
            field(_MAX_ATTEMPTS),
            field(_BACKOFF),
            field(_UNIQUE),
            field(_KEY),
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        return None
    return found, BESIDE.isdisjoint(stored)


def pack_lease(lease: Lease) -> bytes:
    """The stored form of a lease."""
    position, *terms = lease
    return pack_terms(position.level, position.index, position.random, *terms)


def pack_terms(level: int, index: int, random: bytes, *terms: object) -> bytes:
    """The stored form of a lease, given the elements of its position and its other fields."""
    return _VERSION + bytes(msgpack.packb((level, index, random, *terms)))


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


def pack_until(until: Moment) -> bytes:
    """The stored form of the end of a lease."""
    return pack_index(until.version) + pack_index(until.wall_ms)


def unpack_until(value: bytes) -> Moment:
    """The end of a lease from its stored form."""
    return Moment(unpack_index(value[:8]), unpack_index(value[8:]))

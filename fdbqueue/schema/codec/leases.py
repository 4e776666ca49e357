"""Leases, and the ends of claims; also their keys, which are packed together.

A place is what a READY key adds to its kind: the packed elements level, index and random.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgpack

from ...errors import CorruptData
from ...store import world
from ...store.client import pack_bytes, pack_int
from ...store.clocks import Moment
from ...values.model import BYTES, Message, Position
from ..keys import CLAIM_BYTES, QueueKeys
from . import VERSION, pack, unpack
from .atomic import unpack_index
from .envelopes import BESIDE, FIELDS

HOLDER_BYTES = 8
"""The end of a claim: that of the id of the registered consumer that holds it, else random."""


def new_claim(holder: bytes = b"") -> bytes:
    """An unguessable name for what one consumer is given at once."""
    return world.urandom(CLAIM_BYTES - len(holder)) + holder


def holder_of(name: bytes) -> bytes:
    """What the id of a consumer has in common with its claims."""
    return name[-HOLDER_BYTES:]


class Lease(NamedTuple):
    """A message in the hands of a consumer. ``envelope`` stays packed until it is needed.

    begun: whether its consumer began to handle it at once, and no other message. Otherwise an
    expired lease does not count as a failed attempt.

    The expiry is the original one; UNTIL has that of an extended lease. A lease of a plan never
    expires: its expiry is 0.

    claim: shared by the leases that were taken together, see ``new_claim``; zeros in a plan. plain:
    whether the message has no side records, so that it can end without reading its envelope.
    together: how many leases the claim had at first.
    """

    position: Position
    expiry_version: int
    expiry_ms: int
    consumer: str
    envelope: bytes
    begun: bool = True
    claim: bytes = bytes(16)
    plain: bool = False
    together: int = 1

    @property
    def planned(self) -> bool:
        """Whether it belongs to a plan: it never expires, and is settled with the plan."""
        return self.expiry_version == 0

    @property
    def place(self) -> bytes:
        """The place of its message."""
        position = self.position
        return pack_int(position.level) + pack_int(position.index) + pack_bytes(position.random)

    def ends(self, others: Mapping[bytes, Moment]) -> Moment:
        """When it ends, given the other ends of its claim by place."""
        return others.get(self.place) or Moment(self.expiry_version, self.expiry_ms)


Leasing = tuple[int, int, bytes, bytes]


def leasing(keys: QueueKeys, ready: bytes) -> Leasing:
    """What a lease of a ready message needs of its READY key: level, index, random and place."""
    place = ready[keys.place_begin :]
    middle = place[0] - 0x13
    end = middle + place[middle] - 0x13
    return (
        int.from_bytes(place[1:middle], "big"),
        int.from_bytes(place[middle + 1 : end], "big"),
        place[end + 1 : -1].replace(b"\x00\xff", b"\x00"),
        place,
    )


def expiries_end(keys: QueueKeys, version: int) -> bytes:
    return keys.expiry_prefix + pack_int(version)


def lease_key(keys: QueueKeys, token: bytes) -> bytes:
    """LEASE: (level, index, random)."""
    return keys.lease_prefix + token[CLAIM_BYTES:]


def claim_keys(keys: QueueKeys, claim: bytes, version: int) -> tuple[bytes, bytes]:
    packed = pack_bytes(claim)
    return keys.until_prefix + packed, keys.expiry_prefix + pack_int(version) + packed


def split_places(places: bytes) -> list[bytes]:
    """Places that follow each other."""
    found, begin = [], 0
    try:
        while begin < len(places):
            index = begin + places[begin] - 0x13
            random = index + places[index] - 0x13
            if not begin < index < random:
                raise ValueError("no level and index")
            end = places.index(b"\x00", random) + 1
            while places[end : end + 1] == b"\xff":
                end = places.index(b"\x00", end) + 1
            found.append(places[begin:end])
            begin = end
    except (ValueError, IndexError) as error:
        raise CorruptData(what="places of leases", problem=repr(error)) from None
    return found


_VERSION = bytes([VERSION])
NEEDED_FIELDS = tuple(FIELDS[name] for name in ("payload", "priority", "enqueued_at_ms"))
"""The fields that every envelope has."""
MESSAGE_FIELDS = {
    *NEEDED_FIELDS,
    *(
        FIELDS[name]
        for name in (
            *("headers", "attempts", "id", "expires_at_ms", "max_attempts", "backoff"),
            *("last_error", "unique", "content_type", "key", "released", "former_key", "slot"),
            *("last_value", "keep_result_ms", "group", "limits", "slots"),
        )
    ),
}
"""The fields of envelopes that ``message_of`` opens."""
_HEADERS, _ATTEMPTS, _ID, _EXPIRES = (
    FIELDS[name] for name in ("headers", "attempts", "id", "expires_at_ms")
)
_MAX_ATTEMPTS, _BACKOFF, _LAST_ERROR = (
    FIELDS[name] for name in ("max_attempts", "backoff", "last_error")
)
_UNIQUE, _CONTENT_TYPE, _KEY, _KEEP_RESULT, _LIMITS = (
    FIELDS[name] for name in ("unique", "content_type", "key", "keep_result_ms", "limits")
)


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
        if not stored.keys() <= MESSAGE_FIELDS or has_expired(stored, now_ms):
            return None
        return message_of(stored, place, level), BESIDE.isdisjoint(stored)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def has_expired(stored: Mapping[int, Any], now_ms: int) -> bool:
    """Whether the time to live of a message is over, by the fields of its envelope."""
    expires_at_ms = stored.get(_EXPIRES)
    return expires_at_ms is not None and expires_at_ms <= now_ms


def message_of(stored: Mapping[int, Any], place: str, level: int) -> Message:
    """The message of an envelope that has but ``MESSAGE_FIELDS``, and all ``NEEDED_FIELDS``."""
    if len(stored) == 3:
        return Message(place, stored[1], {}, stored[2], level, 0, stored[3])
    field = stored.get
    attempts = field(_ATTEMPTS, 0)
    return Message(
        field(_ID, place),
        stored[1],
        field(_HEADERS, {}),
        stored[2],
        level,
        attempts,
        stored[3],
        field(_EXPIRES),
        field(_LAST_ERROR),
        None,
        field(_CONTENT_TYPE, BYTES),
        attempts > 0,
        field(_MAX_ATTEMPTS),
        field(_BACKOFF),
        field(_UNIQUE),
        field(_KEY),
        field(_KEEP_RESULT),
        field(_LIMITS),
    )


def pack_lease(lease: Lease) -> bytes:
    position, *terms = lease
    return pack_terms(position.level, position.index, position.random, *terms)


def pack_terms(level: int, index: int, random: bytes, *terms: object) -> bytes:
    return _VERSION + bytes(msgpack.packb((level, index, random, *terms)))


def unpack_lease(value: bytes) -> Lease:
    try:
        if value[0] != VERSION:
            unpack(value, "a lease")  # raises
        level, index, random, *terms = msgpack.unpackb(value[1:])
        return Lease(Position(level, index, random), *terms)
    except (TypeError, ValueError, IndexError) as error:
        raise CorruptData(what="a lease", problem=repr(error)) from None


def pack_planned_lease(position: Position, consumer: str, envelope: bytes) -> bytes:
    return pack([position.level, position.index, position.random, 0, 0, consumer, envelope])


def pack_expiry(wall_ms: int, places: Iterable[bytes]) -> bytes:
    """The wall clock at which leases of a claim end, in milliseconds, and their places."""
    return wall_ms.to_bytes(8, "little") + b"".join(places)


def unpack_expiry(value: bytes) -> tuple[int, bytes]:
    """The wall clock at which leases of a claim end, and their places, one after the other."""
    return unpack_index(value[:8]), value[8:]


def pack_until(ends: Mapping[bytes, Moment]) -> bytes:
    places: dict[Moment, bytes] = {}
    for place, end in ends.items():
        places[end] = places.get(end, b"") + place
    return pack([[*end, some] for end, some in places.items()])


def unpack_until(value: bytes | None) -> dict[bytes, Moment]:
    """The ends of a claim's leases by place; none if nothing is stored."""
    if value is None:
        return {}
    try:
        return {
            place: Moment(version, wall_ms)
            for version, wall_ms, places in unpack(value, "the ends of a claim")
            for place in split_places(places)
        }
    except (TypeError, ValueError) as error:
        raise CorruptData(what="the ends of a claim", problem=repr(error)) from None

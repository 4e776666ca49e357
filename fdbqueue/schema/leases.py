"""Leases, and the ends of claims.

A place is what a READY key adds to its kind: the packed elements level, index and random.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import CorruptData
from ..store import world
from ..store.client import pack_bytes, pack_int
from ..store.clocks import Moment
from ..values.model import Position
from .codec import Stored, pack, unpack, unpack_index

_End = tuple[int, int, bytes]
CLAIM_BYTES = 16
HOLDER_BYTES = 8
"""The end of a claim: that of the id of the registered consumer that holds it, else random."""


def new_claim(holder: bytes = b"") -> bytes:
    """An unguessable name for what one consumer is given at once."""
    # The end names the holder, so that the leases of a consumer that is gone are found by their
    # claims, without an index that every receive would have to write.
    return world.urandom(CLAIM_BYTES - len(holder)) + holder


def holder_of(name: bytes) -> bytes:
    """What the id of a consumer has in common with its claims."""
    return name[-HOLDER_BYTES:]


class Lease(Stored, frozen=True):
    """A message in the hands of a consumer. ``envelope`` stays packed until it is needed.

    begun: whether its consumer began to handle it at once, and no other message. Otherwise an
    expired lease does not count as a death.

    The expiry is the original one; UNTIL has that of an extended lease. A lease of a plan never
    expires: its expiry is 0.

    claim: shared by the leases that were taken together, see ``new_claim``; zeros in a plan. plain:
    whether the message has no side records, so that it can end without reading its envelope.
    together: how many leases the claim had at first. lasts_ms: how long it was to last.
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
    lasts_ms: int = 0

    @property
    def since_ms(self) -> int:
        """When it was taken, by the wall clock in milliseconds; 0 of a plan."""
        return self.expiry_ms - self.lasts_ms

    @property
    def planned(self) -> bool:
        """Whether it belongs to a plan: it never expires, and is settled with the plan."""
        return self.expiry_version == 0


def place_of(position: Position) -> bytes:
    """The place of a message."""
    return pack_int(position.level) + pack_int(position.index) + pack_bytes(position.random)


def split_places(places: bytes) -> list[bytes]:
    """Places that follow each other."""
    found, begin = [], 0
    try:
        while begin < len(places):
            # FoundationDB's tuple layer writes an integer of n bytes behind the byte 0x14 + n: the
            # first byte of an element tells where the next begins.
            index = begin + places[begin] - 0x13
            random = index + places[index] - 0x13
            if not begin < index < random:
                raise ValueError("no level and index")
            end = places.index(b"\x00", random) + 1
            # A zero byte within the random part is escaped as 00 FF: only another zero ends it.
            while places[end : end + 1] == b"\xff":
                end = places.index(b"\x00", end) + 1
            found.append(places[begin:end])
            begin = end
    except (ValueError, IndexError) as error:
        raise CorruptData(what="places of leases", problem=repr(error)) from None
    return found


def pack_expiry(wall_ms: int, places: Iterable[bytes]) -> bytes:
    """The wall clock at which leases of a claim end, in milliseconds, and their places."""
    return wall_ms.to_bytes(8, "little") + b"".join(places)


def unpack_expiry(value: bytes) -> tuple[int, bytes]:
    """The wall clock at which leases of a claim end, and their places, one after the other."""
    return unpack_index(value[:8]), value[8:]


def pack_until(ends: Mapping[bytes, Moment]) -> bytes:
    places: dict[Moment, bytes] = {}
    for place, end in ends.items():
        # Leases of a claim mostly end together: the moment is stored once.
        places[end] = places.get(end, b"") + place
    return pack([(*end, some) for end, some in places.items()])


def unpack_until(value: bytes | None) -> dict[bytes, Moment]:
    """The ends of a claim's leases by place; none if nothing is stored."""
    if value is None:
        return {}
    return {
        place: Moment(version, wall_ms)
        for version, wall_ms, places in unpack(value, list[_End], "the ends of a claim")
        for place in split_places(places)
    }

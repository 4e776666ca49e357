"""Shortening leases: those of consumers that are gone end before their time.

Their claims are found by what they have in common with the ids of the consumers, in the order of
their ends. Nothing leads from a consumer to its claims: that would cost each receive and each
settlement a key, and consumers seldom die.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...errors import CorruptData
from ...schema.keys import QueueKeys
from ...schema.leases import holder_of, split_places, unpack_expiry, unpack_until
from ...store.binding import fdb, transactional
from ...store.clocks import Moment
from . import lease

MAX_READ = 5_000
"""Claims that one transaction reads."""
MAX_READ_BYTES = 1_000_000
MAX_SHORTENED = 500
"""Claims whose ends one transaction changes."""
MAX_SHORTENED_BYTES = 250_000


class Shortened(NamedTuple):
    """What one transaction did.

    claims: how many end earlier now. read: how many it read. following: where to continue; empty at
    the end.
    """

    claims: int
    read: int
    following: bytes


class _Late(NamedTuple):
    """An EXPIRY that is too late: its key, its claim, the places that it names, and the new end."""

    key: bytes
    version: int
    claim: bytes
    places: list[bytes]
    end: Moment


@transactional
def shorten(
    tr: fdb.Transaction,
    keys: QueueKeys,
    ends: Mapping[bytes, Moment],
    begin: bytes,
    limit: int = MAX_READ,
) -> Shortened:
    """Let all leases of consumers end by a moment; those that end earlier anyway stay as they are.

    ends: the moments by what the consumers' claims have in common, see ``holder_of``.
    begin: where to continue; empty for the beginning.

    Reads up to ``limit`` claims at snapshot isolation, and in a second round trip the ends of those
    that it changes. Conflicts with extensions of these, and with their expiry and settlement.
    """
    found: list[_Late] = []
    read = size = weight = 0
    following = b""
    # What ends by then anyway stays as it is.
    start = begin or keys.expiry.begin(min(end.version for end in ends.values()) + 1)
    mode = fdb.StreamingMode.want_all
    for kv in tr.snapshot.get_range(start, keys.expiry.rows.stop, limit, streaming_mode=mode):
        read, size = read + 1, size + len(kv.value)
        one = _late(keys, kv, ends)
        if one is not None:
            found.append(one)
            weight += len(kv.value)
        if (
            read == limit
            or size > MAX_READ_BYTES
            or len(found) == MAX_SHORTENED
            or weight > MAX_SHORTENED_BYTES
        ):
            following = kv.key + b"\x00"
            break
    stored = [tr.get(keys.until(one.claim)) for one in found]
    # The new end may be the key of an EXPIRY with other places of the claim, which must not be
    # overwritten.
    beside = [tr.get(keys.expiry(one.end.version, one.claim)) for one in found]
    known: dict[bytes, dict[bytes, Moment]] = {}
    for one, until, other in zip(found, stored, beside, strict=True):
        try:
            later = known.setdefault(one.claim, unpack_until(until.value))
        except CorruptData:
            continue  # verify reports it; it must not keep the consumer.
        _move(tr, keys, one, later, taken=other.present())
    return Shortened(len(found), read, following)


def _late(keys: QueueKeys, kv: fdb.KeyValue, ends: Mapping[bytes, Moment]) -> _Late | None:
    try:
        version, claim = keys.expiry.parse(kv.key)
        end = ends.get(holder_of(claim))
        if end is None or version <= end.version:
            return None
        wall_ms, named = unpack_expiry(kv.value)
        places = split_places(named)
    except CorruptData:
        return None  # verify reports it
    return _Late(kv.key, version, claim, places, Moment(end.version, min(end.wall_ms, wall_ms)))


def _move(
    tr: fdb.Transaction,
    keys: QueueKeys,
    late: _Late,
    ends: dict[bytes, Moment],
    *,
    taken: bool,
) -> None:
    """Let the leases that end with an EXPIRY end earlier; removes it.

    ends: of the claim, as UNTIL has them; they are updated. taken: whether the claim had an EXPIRY
    of the new version already.
    """
    # Read at snapshot isolation: of this and an expiry that finishes the same claim, one must fail.
    # Extensions conflict on UNTIL.
    tr.add_read_conflict_key(late.key)
    del tr[late.key]
    version, wall_ms = late.end
    if taken and version not in {end.version for end in ends.values()}:
        # It is the original end, and has the places of leases that are not in ``ends``.
        version += 1
    moved = [each for each in late.places if ends.get(each, late).version == late.version]
    if moved:
        lease.end_at(tr, keys, late.claim, ends, moved, Moment(version, wall_ms))

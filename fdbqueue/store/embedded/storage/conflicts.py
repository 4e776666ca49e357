"""What recent commits wrote, and whether a transaction that read at some version conflicts.

Every commit leaves a row (version, keys and ranges written) in the store for a few seconds. Each
process keeps the tail of that log in memory and tops it up from the table, so that a check costs
a look at the commits of all processes since the transaction's snapshot.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable

from ..transactions.ranges import KeySet, RangeSet

_LENGTH = struct.Struct("<I")
# Searching a commit's bytes for this many keys takes about as long as decoding them.
_FEW = 8


class _Heads(dict[int, bytes]):
    """What stands before a key of some length."""

    def __missing__(self, length: int) -> bytes:
        head = self[length] = _LENGTH.pack(length << 1)
        return head


_HEADS = _Heads()


def encode(written: KeySet) -> bytes:
    """A set of keys as stored in the log: lengths shifted by a range flag.

    Ranges come first, so that the first byte tells whether there are any.
    """
    if not written.ranges.begins:
        return b"".join([_HEADS[len(key)] + key for key in written.keys])
    parts: list[bytes] = []
    for begin, end in written.ranges:
        parts.append(_LENGTH.pack(len(begin) << 1 | 1))
        parts.append(begin)
        parts.append(_LENGTH.pack(len(end)))
        parts.append(end)
    parts.extend(_HEADS[len(key)] + key for key in written.keys)
    return b"".join(parts)


def suspects(reads: KeySet) -> list[bytes]:
    """Byte strings, one of which is in the encoding of any set that shares a single key with
    ``reads``: the keys read, and the common prefixes of ranges. Empty for many keys."""
    if len(reads.keys) + len(reads.ranges.begins) > _FEW:
        # Every encoding holds the empty string, so each commit is decoded.
        return [b""]
    return [*reads.keys, *(_common(begin, end) for begin, end in reads.ranges)]


def conflicting(reads: KeySet, written: Iterable[KeySet]) -> RangeSet:
    """The ranges read in which something was written."""
    everything = KeySet()
    for each in written:
        everything.update(each)
    overlapping = everything.coalesced()
    found = RangeSet()
    for begin, end in reads.coalesced():
        if overlapping.overlaps(begin, end):
            found.add(begin, end)
    return found


def decode(data: bytes) -> KeySet:
    """The set of keys that ``encode`` stored."""
    written = KeySet()
    position = 0
    while position < len(data):
        (head,) = _LENGTH.unpack_from(data, position)
        start = position + 4
        position = start + (head >> 1)
        key = data[start:position]
        if head & 1:
            (size,) = _LENGTH.unpack_from(data, position)
            start = position + 4
            position = start + size
            written.add_range(key, data[start:position])
        else:
            written.keys.add(key)
    return written


def _common(one: bytes, other: bytes) -> bytes:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return one[:length]


def has_ranges(data: bytes) -> bool:
    """Whether an encoded set has ranges, not only single keys."""
    return bool(data) and bool(data[0] & 1)


class RecentCommits:
    """The tail of the log in memory; used only by the holder of the commit lock.

    Attributes:
        newest: version of the newest commit known.
        complete_from: every commit after this version is in memory.
    """

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.complete_from = newest
        self._versions: list[int] = []
        # Encoded until needed: most commits of other processes are older than any transaction
        # that is still to be checked here.
        self._written: list[KeySet | bytes] = []

    def append(self, version: int, written: KeySet | bytes) -> None:
        """Note a commit newer than all known ones."""
        self._versions.append(version)
        self._written.append(written)
        self.newest = version

    def top_up(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Note what other processes committed: the rows of the table from `newest` on.

        The first row must be the newest one known. If it is gone, the table was trimmed past it,
        the commits in between are unknown, and transactions that began before are too old.
        """
        iterator = iter(rows)
        first = next(iterator, None)
        if first is None:
            return
        # What the trimmed rows wrote is unknown. `complete_from` says so: transactions that read
        # before it are refused as too old.
        if first[0] != self.newest:
            self._versions.clear()
            self._written.clear()
            self.newest = self.complete_from = first[0]
        for version, data in iterator:
            self.append(version, data)

    def since(self, version: int, reads: KeySet) -> list[KeySet]:
        """What was written by each commit after a version that may have touched ``reads``.

        Most commits are unrelated, and searching the bytes of one costs a tenth of decoding it.
        """
        if version >= self.newest:
            return []
        first = bisect_right(self._versions, version)
        known: list[KeySet] = []
        signs = suspects(reads)
        for index in range(first, len(self._written)):
            written = self._written[index]
            if isinstance(written, bytes):
                # A range covers keys whose bytes it does not hold, so this tells only of single
                # keys. Bytes found by chance, across two keys, cost a decoding and nothing else.
                if not has_ranges(written) and not any(sign in written for sign in signs):
                    continue
                written = decode(written)
                self._written[index] = written
            known.append(written)
        return known

    def trim(self, version: int) -> None:
        """Forget commits up to a version, once they are the larger part of the log."""
        cut = bisect_right(self._versions, version)
        # Deleting from the front moves all that stays. This way a row is moved once, on average.
        if cut * 2 > len(self._versions):
            self.complete_from = self._versions[cut - 1]
            del self._versions[:cut]
            del self._written[:cut]

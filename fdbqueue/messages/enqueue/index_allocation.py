"""Giving messages a place at the end of their level.

After FoundationDB's queue recipe: the index of a new message follows the last one that a snapshot
read sees, and a random part tells apart the messages that took the same index at the same time.
TAIL is an addition: it remembers the highest index that was ever removed, so that indexes grow for
ever, also when the queue runs empty.

A cursor that passes an index aborts whoever is about to take it (FENCE). A transaction that takes
long would meet that again and again, so every time that it is tried again it *leaps*: it takes an
index further ahead, where no cursor comes by that soon. Gaps are no harm, and whoever begins after
it has committed sees its key, and goes behind it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...schema import once
from ...schema.codec.atomic import unpack_index
from ...schema.codec.envelopes import Envelope
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.model import RANDOM_BYTES, Position

FIRST_LEAP = 16
MAX_LEAP = 65_536
_VERSIONS_PER_INDEX = 1_000
"""A message a millisecond: more than others enqueue beside a transaction that takes long."""


class Looked(NamedTuple):
    """The reads of the end of a level, issued and not awaited."""

    last: fdb.FDBRange
    tail: fdb.Value


def look(tr: fdb.Transaction, keys: QueueKeys, level: int) -> Looked:
    """Issue snapshot reads of the end of a level, without waiting for them."""
    ready = keys.ready_level(level)
    last = tr.snapshot.get_range(
        ready.start, ready.stop, limit=1, reverse=True, streaming_mode=fdb.StreamingMode.exact
    )
    return Looked(last, tr.snapshot.get(keys.tail(level)))


def next_index(keys: QueueKeys, last: fdb.FDBRange, tail: fdb.Value) -> int:
    """The index of the next message of a level."""
    highest = max((keys.parse_ready(kv.key).index for kv in last), default=0)
    return 1 + max(highest, unpack_index(tail.value))


def leap(retries: int, versions: int) -> int:
    """How many indexes a transaction leaves out.

    retries: how often it was tried before. versions: how long the last time took, by the
        database's version: as many messages may come meanwhile as come in that time.
    """
    if not retries:
        return 0
    return min(MAX_LEAP, max(FIRST_LEAP << (retries - 1), versions // _VERSIONS_PER_INDEX))


def _begin(
    tr: fdb.Transaction, keys: QueueKeys, looks: Mapping[int, Looked], counts: Mapping[int, int]
) -> dict[int, int]:
    """The first of the indexes, by level, that so many messages take; they conflict with cursors
    that pass these."""
    following = {level: next_index(keys, *looks[level]) for level in counts}
    begins = {}
    for level, index in following.items():
        tried = once.attempt(tr)
        begin = index + leap(tried.retries, tried.before)
        end = begin + counts[level]
        tried.give(tr, keys, keys.tail(level), begin, end)
        tr.add_read_conflict_range(keys.fence(level, begin), keys.fence(level, end))
        begins[level] = begin
    return begins


def assign(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    looks: Mapping[int, Looked] | None = None,
) -> list[StoredMessage]:
    """Give messages, as (level, envelope), positions behind all others; writes none of them.

    One round trip of snapshot reads, unless the caller has issued them: ``looks`` by level. Adds
    a read conflict on the FENCE keys of the indexes, which nothing writes but a cursor that
    passes them. A transaction that is tried again leaves out more and more indexes before them.
    """
    counts = Counter(level for level, _ in entries)
    looks = looks or {level: look(tr, scope.keys, level) for level in counts}
    randoms = os.urandom(RANDOM_BYTES * len(entries))
    following = _begin(tr, scope.keys, looks, counts)
    placed = []
    for n, (level, envelope) in enumerate(entries):
        random = randoms[RANDOM_BYTES * n : RANDOM_BYTES * (n + 1)]
        placed.append(StoredMessage(Position(level, following[level], random), envelope))
        following[level] += 1
    return placed


def reserve(
    tr: fdb.Transaction, keys: QueueKeys, level: int, count: int, looked: Looked
) -> list[bytes]:
    """READY keys behind all others of a level, for ``count`` messages; as ``assign``."""
    begin = _begin(tr, keys, {level: looked}, {level: count})[level]
    return keys.ready_keys(level, begin, os.urandom(RANDOM_BYTES * count))

"""Giving messages a place at the end of their level.

After FoundationDB's queue recipe: the index of a new message follows the last one that a snapshot
read sees, and a random part tells apart the messages that took the same index at the same time.
TAIL is an addition: it remembers the highest index that was ever removed, so that indexes grow for
ever, also when the queue runs empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..binding import fdb
from ..codec import Envelope, unpack_index
from ..keys import QueueKeys
from ..model import RANDOM_BYTES, Position
from .scope import Scope, Standing


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


def assign(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    looks: Mapping[int, Looked] | None = None,
) -> list[Standing]:
    """Give messages, as (level, envelope), positions behind all others; writes none of them.

    One round trip of snapshot reads, unless the caller has issued them: ``looks`` by level. Adds
    a read conflict on the FENCE keys of the indexes, which nothing writes but a cursor that
    passes them.
    """
    keys = scope.keys
    levels = {level for level, _ in entries}
    looks = looks or {level: look(tr, keys, level) for level in levels}
    randoms = os.urandom(RANDOM_BYTES * len(entries))
    first = {level: next_index(keys, *looks[level]) for level in levels}
    following = dict(first)
    placed = []
    for n, (level, envelope) in enumerate(entries):
        random = randoms[RANDOM_BYTES * n : RANDOM_BYTES * (n + 1)]
        placed.append(Standing(Position(level, following[level], random), envelope))
        following[level] += 1
    for level, begin in first.items():
        tr.add_read_conflict_range(keys.fence(level, begin), keys.fence(level, following[level]))
    return placed


def reserve(
    tr: fdb.Transaction, keys: QueueKeys, level: int, count: int, looked: Looked
) -> list[bytes]:
    """READY keys behind all others of a level, for ``count`` messages; as ``assign``."""
    begin = next_index(keys, *looked)
    tr.add_read_conflict_range(keys.fence(level, begin), keys.fence(level, begin + count))
    return keys.ready_keys(level, begin, os.urandom(RANDOM_BYTES * count))

"""Enqueue without conflicts.

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
from ..codec import Envelope, pack_envelope, unpack_index
from ..keys import QueueKeys
from ..model import RANDOM_BYTES, Position
from ..states import ENQUEUE, Transition
from . import life
from .scope import Scope, Standing


class Looked(NamedTuple):
    """The reads of the end of a level, issued and not awaited."""

    last: fdb.FDBRange
    tail: fdb.Value


@fdb.transactional
def append(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    transition: Transition = ENQUEUE,
    looks: Mapping[int, Looked] | None = None,
) -> list[Standing]:
    """Put messages, given as (level, envelope), behind all others of their level, in their order.

    Returns where they stand, in the same order. Messages of one level take consecutive indexes.

    Reads, all at snapshot isolation and in one round trip: per level the last READY key and TAIL.
    Adds a read conflict on the FENCE keys of the indexes that it takes, which nothing writes but
    a cursor that passes them; so appends conflict neither with each other nor with a dequeue.
    The reads are ``looks`` by level where the caller has issued them before.
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
        position = Position(level, following[level], random)
        following[level] += 1
        tr[keys.ready(position)] = pack_envelope(envelope)
        placed.append(Standing(position, envelope))
    for level, begin in first.items():
        tr.add_read_conflict_range(keys.fence(level, begin), keys.fence(level, following[level]))
    life.moved(tr, scope, transition, placed)
    return placed


def look(tr: fdb.Transaction, keys: QueueKeys, level: int) -> Looked:
    """Issue an append's reads of a level, without waiting for them."""
    ready = keys.ready_level(level)
    last = tr.snapshot.get_range(
        ready.start, ready.stop, limit=1, reverse=True, streaming_mode=fdb.StreamingMode.exact
    )
    return Looked(last, tr.snapshot.get(keys.tail(level)))


def next_index(keys: QueueKeys, last: fdb.FDBRange, tail: fdb.Value) -> int:
    highest = max((keys.parse_ready(kv.key).index for kv in last), default=0)
    return 1 + max(highest, unpack_index(tail.value))

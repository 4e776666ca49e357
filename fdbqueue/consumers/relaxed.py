"""Relaxed order: take any of the first messages, for throughput.

A consumer takes messages from a random place in the first ``window``, and conflicts only with
consumers that take the same ones. The window spans levels, so a less urgent message can be taken
before a more urgent one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from ..messages.delivery import scan
from ..schema.codec import blocks
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional

_position = attrgetter("position")
_RANDOM = random.SystemRandom()
"""Forked processes do not share its state."""
SHORT_BYTES = 1_000_000
"""Bytes to read at most of a queue that is shorter than the window."""


class Reads(NamedTuple):
    """The read of the window up to a random place, issued and not awaited.

    place: how many messages to pass over. limit: how many to take.
    """

    found: fdb.FDBRange
    place: int
    limit: int


def offset(window: int, limit: int, source: random.Random) -> int:
    """A random place in the window with room for ``limit`` messages. Places do not overlap, so two
    consumers take the same messages or none in common."""
    return limit * source.randrange(max(1, window // limit))


def reads(tr: fdb.Transaction, scope: Scope, limit: int) -> Reads:
    """Issue a snapshot read of the messages up to a random place in the window, and of up to
    ``limit`` there.

    It begins at the first: a row may hold many messages.
    """
    place = offset(scope.options.window, limit, _RANDOM)
    return Reads(scan.first(tr, scope.keys, place + limit), place, limit)


@transactional
def pick(
    tr: fdb.Transaction, scope: Scope, reads: Reads, room: int = scan.BATCH_BYTES
) -> list[StoredMessage]:
    """The messages at the place that was read, or random ones if the queue is shorter than that, or
    too many bytes stand before it.

    One round trip, or a few for large messages. Conflicts with consumers that take the same
    messages, or others of the same row; if the queue is empty, with any message that becomes ready.
    """
    page = iter(reads.found)
    before, complete = _before(page, reads.place)
    if any(map(blocks.shared, before)):
        rows = scan.rows(scope.keys, chain(before, page if complete else ()))
        few = list(islice(rows, reads.place))
    else:
        rows, few = scan.rows(scope.keys, page if complete else ()), []
    messages = scan.fitting(scope.keys, rows, reads.limit, room)
    if not messages:
        few = few or list(scan.rows(scope.keys, before))
        chosen = sorted(_RANDOM.sample(few, min(reads.limit, len(few))), key=_position)
        messages = scan.fitting(scope.keys, chosen, reads.limit, min(room, SHORT_BYTES))
    if not messages:
        scan.rely_on_emptiness(tr, scope.keys)
    scan.watch(tr, scope.keys, messages)
    return messages


def _before(page: Iterator[fdb.KeyValue], place: int) -> tuple[list[fdb.KeyValue], bool]:
    """The rows before a place, or the first ``SHORT_BYTES`` of them; and whether these are all."""
    found: list[fdb.KeyValue] = []
    room = SHORT_BYTES
    for kv in islice(page, place):
        found.append(kv)
        room -= len(kv.value)
        if room < 0:
            return found, False
    return found, True

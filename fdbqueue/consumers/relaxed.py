"""Relaxed order: take any of the first messages, for throughput.

A consumer takes messages from a random place in the first ``window``, and conflicts only with
consumers that take the same ones. The window spans levels, so a less urgent message can be taken
before a more urgent one.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from ..messages.delivery import scan
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from . import fulfilment

_RANDOM = random.SystemRandom()
"""Forked processes do not share its state."""
SHORT_BYTES = 1_000_000
"""Bytes to read at most of a queue that is shorter than the window."""


class Reads(NamedTuple):
    """The read of a random place in the window, issued and not awaited."""

    found: fdb.FDBRange
    limit: int


def offset(window: int, limit: int, source: random.Random) -> int:
    """A random place in the window with room for ``limit`` messages. Places do not overlap, so two
    consumers take the same messages or none in common."""
    return limit * source.randrange(max(1, window // limit))


def reads(tr: fdb.Transaction, scope: Scope, limit: int) -> Reads:
    """Issue a snapshot read of up to ``limit`` messages at a random place in the window."""
    ready = scope.keys.ready_range()
    place = offset(scope.options.window, limit, _RANDOM)
    begin = fdb.KeySelector.first_greater_or_equal(ready.start) + place
    mode = fdb.StreamingMode.exact if limit <= scan.PAGE else fdb.StreamingMode.want_all
    found = tr.snapshot.get_range(begin, ready.stop, limit=limit, streaming_mode=mode)
    return Reads(found, limit)


@transactional
def pick(
    tr: fdb.Transaction, scope: Scope, reads: Reads, room: int = scan.BATCH_BYTES
) -> list[StoredMessage]:
    """The messages at the place that was read, or random ones if the queue is shorter than that.

    One round trip, or two if the queue is shorter than the window. Conflicts with consumers that
    take the same messages; if the queue is empty, with any message that becomes ready.
    """
    messages = scan.batch(scope.keys, reads.found, room)
    if not messages:
        wanted = max(scope.options.window, reads.limit)
        found = scan.first(tr, scope.keys, wanted)
        few = scan.batch(scope.keys, found, min(room, SHORT_BYTES))
        messages = sorted(
            _RANDOM.sample(few, min(reads.limit, len(few))), key=lambda each: each.position
        )
    if not messages:
        fulfilment.read_emptiness(tr, scope.keys)
    for message in messages:
        tr.add_read_conflict_key(scope.keys.ready(message.position))
    return messages

"""Taking any of the first messages: throughput for a queue that can do without strict order.

A consumer takes messages from a random place in the first ``window``, and conflicts only with
others that take the same ones. Levels are one line here: a less urgent message can be taken
before a more urgent one, if it stands within the window.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from ..messages.delivery import scan
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from . import fulfilment

_RANDOM = random.SystemRandom()
"""What the processes of a fork do not share."""
SHORT_BYTES = 1_000_000
"""What is read at most of a queue that is shorter than the window."""


class Reads(NamedTuple):
    """The read of a random place in the window, issued and not awaited."""

    found: fdb.FDBRange
    limit: int


def offset(window: int, limit: int, source: random.Random) -> int:
    """A random place in the window at which ``limit`` messages fit; places do not overlap, so
    that two consumers take the same messages or none in common."""
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
    """The messages at the place that was looked at; random ones of those there are, if the place
    is behind the last; none only if there are none at all.

    One round trip, two where the queue is shorter than the window. Conflicts with whoever takes
    the same messages; where there are none, with whatever becomes ready.
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

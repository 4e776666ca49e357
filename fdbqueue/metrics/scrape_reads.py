"""What a scrape reads of queues: counters and first rows, never every message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..consumers import registry, sessions
from ..consumers.consumer_states import ConsumerState
from ..errors import CorruptData
from ..messages.delivery import age
from ..messages.slots import usage as keys
from ..queue.internals import Internals
from ..queue.queue import Queue
from ..schema import catalogue, counters, due
from ..schema.keys import QueueKeys
from ..store.binding import fdb
from ..values.limits import KeyBacklog
from ..values.model import Depth
from ..values.options import QueueOptions

MOST_SUBSCRIPTIONS = 20
"""Of how many subscriptions of a queue the lag is read."""
MOST_KEYS = 1_000
"""How many keys of which messages wait are read of a queue."""


class ScrapedQueue(Struct, frozen=True):
    """One queue, as one transaction reads it; times are wall clocks in milliseconds.

    oldest_ms: when the oldest of the first ready messages was enqueued. due_ms: since when the
    first delayed message is due. leased_ms: since when the oldest lease lasts. Each None if there
    is none.
    """

    queue: str
    now_ms: int
    options: QueueOptions
    depths: dict[int, Depth]
    oldest_ms: int | None = None
    due_ms: int | None = None
    leased_ms: int | None = None
    consumers: Counter[ConsumerState] = msgspec.field(default_factory=Counter)
    backlogs: Sequence[KeyBacklog] = ()
    subscriptions: Sequence[str] = ()

    @property
    def total(self) -> Depth:
        """The counters of all levels together."""
        return sum(self.depths.values(), Depth())

    def levels(self, state: str) -> list[int]:
        """The levels with messages of a state."""
        return [level for level, depth in self.depths.items() if getattr(depth, state)]

    @property
    def pending(self) -> int:
        """How many messages there is work for. Of the delayed ones that are due, one counts: the
        next consumer makes them ready."""
        total = self.total
        return total.ready + total.leased + (self.due_ms is not None)


class _QueueReads(NamedTuple):
    meta: fdb.Value
    counts: fdb.FDBRange
    earliest: fdb.FDBRange
    lists: registry.ListReads
    backlogs: fdb.FDBRange
    subscriptions: fdb.FDBRange


def take(tr: fdb.Transaction, queues: Sequence[Queue]) -> list[ScrapedQueue | None]:
    """Snapshots of queues, None for each that cannot be read; without those that are
    gone. Two round trips for all together, at snapshot isolation: no conflicts."""
    issued = [(queue, _reads(tr, Internals(queue).keys)) for queue in queues]
    there = [(queue, reads) for queue, reads in issued if reads.meta.present()]
    found = [(Internals(queue).keys, _opened(tr, queue, reads)) for queue, reads in there]
    firsts = [
        None
        if one is None
        else (
            age.reads(tr, of, one.levels("ready")),
            age.lease_reads(tr, of, one.levels("leased")),
            _overdue(tr, of, one.now_ms, reads.earliest),
        )
        for (of, one), (_, reads) in zip(found, there, strict=True)
    ]
    return [
        None
        if one is None or first is None
        else replace(
            one,
            oldest_ms=age.oldest_ms(of, first[0]),
            leased_ms=age.leased_since_ms(first[1]),
            due_ms=_first_due(of, first[2]),
        )
        for (of, one), first in zip(found, firsts, strict=True)
    ]


def _reads(tr: fdb.Transaction, of: QueueKeys) -> _QueueReads:
    named = of.subscription.rows
    return _QueueReads(
        tr.snapshot.get(of.meta),
        counters.reads(tr, of),
        due.reads(tr, of),
        registry.list_reads(tr, of),
        keys.backlog_reads(tr, of, MOST_KEYS, None),
        tr.snapshot.get_range(named.start, named.stop, limit=MOST_SUBSCRIPTIONS),
    )


def _overdue(
    tr: fdb.Transaction, of: QueueKeys, now_ms: int, earliest: fdb.FDBRange
) -> list[fdb.FDBRange]:
    """Issue reads of the first delayed message of each level in which one may be due."""
    levels = [one.rank for one in due.ranks(of, earliest) if one.from_ms <= now_ms]
    each = [of.due(level, now_ms) for level in levels]
    mode = fdb.StreamingMode.exact
    return [tr.snapshot.get_range(one.start, one.stop, 1, streaming_mode=mode) for one in each]


def _first_due(of: QueueKeys, firsts: Sequence[fdb.FDBRange]) -> int | None:
    dues = [of.delayed.parse(kv.key)[1] for first in firsts for kv in first]
    return min(dues, default=None)


def _opened(tr: fdb.Transaction, queue: Queue, reads: _QueueReads) -> ScrapedQueue | None:
    """All but the age of messages; None if the queue cannot be read."""
    of, now_ms = Internals(queue).keys, Internals(queue).clock.now_ms(tr)
    try:
        options = catalogue.parsed(reads.meta.value or b"", queue.name)[1]
    except CorruptData:
        return None
    return ScrapedQueue(
        queue.name,
        now_ms,
        options,
        counters.parse(of, reads.counts),
        consumers=registry.counted(of, reads.lists, sessions.now(tr, Internals(queue).clock)),
        backlogs=keys.parse_backlogs(of, reads.backlogs),
        subscriptions=[of.subscription.parse(kv.key)[0] for kv in reads.subscriptions],
    )

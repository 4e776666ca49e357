"""How long messages have been waiting, and leased."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ...errors import CorruptData
from ...schema import counters
from ...schema.envelope import open_envelope
from ...schema.keys import QueueKeys
from ...schema.leases import Lease
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from .. import run

MOST_LEASES, LEASE_BYTES = 100, 200_000
"""How many rows of leases of a level are looked at, and up to how many bytes of each level."""


@transactional
def enqueued_at_ms(tr: fdb.Transaction, scope: Scope, levels: Iterable[int]) -> int | None:
    """When the oldest of the levels' first ready messages was enqueued, by its producer's wall
    clock in milliseconds; None if there are none. Snapshot reads in one round trip: no conflicts.
    """
    return oldest_ms(scope.keys, reads(tr, scope.keys, levels))


def reads(tr: fdb.Transaction, keys: QueueKeys, levels: Iterable[int]) -> list[fdb.FDBRange]:
    """Issue snapshot reads of the first ready row of each level."""
    mode = fdb.StreamingMode.exact
    ranges = [keys.ready.under(level) for level in levels]
    return [
        tr.snapshot.get_range(ready.start, ready.stop, limit=1, streaming_mode=mode)
        for ready in ranges
    ]


def lease_reads(tr: fdb.Transaction, keys: QueueKeys, levels: Iterable[int]) -> list[fdb.FDBRange]:
    """Issue snapshot reads of the first leases of each level, in the order of the messages."""
    ranges = [keys.lease.under(level) for level in levels]
    return [tr.snapshot.get_range(each.start, each.stop, limit=MOST_LEASES) for each in ranges]


def leased_since_ms(found: Iterable[fdb.FDBRange]) -> int | None:
    """Since when the first leases last, by the wall clock, of the one that has lasted longest; None
    without any. Those of plans do not count."""
    since = None
    for level in found:
        size = 0
        for kv in level:
            with suppress(CorruptData):
                lease = Lease.unpack(kv.value)
                if not lease.planned:
                    since = min(lease.since_ms, since or lease.since_ms)
            size += len(kv.value)
            if size > LEASE_BYTES:
                break
    return since


def oldest_ms(keys: QueueKeys, found: Iterable[fdb.FDBRange]) -> int | None:
    """When the oldest of the first messages was enqueued; None if there are none."""
    firsts = [next(run.ready(keys, first), None) for first in found]
    envelopes = [open_envelope(first.value) for first in firsts if first]
    return min((one.enqueued_at_ms for one in envelopes if one.readable), default=None)


@transactional
def ready_since_ms(tr: fdb.Transaction, scope: Scope) -> int | None:
    """``enqueued_at_ms`` of all levels with ready messages. One more round trip."""
    depths = counters.depths(tr, scope.keys)
    return enqueued_at_ms(tr, scope, [level for level, depth in depths.items() if depth.ready])

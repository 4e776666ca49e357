"""When the next delayed message is due or the next lease expires."""

from __future__ import annotations

from typing import NamedTuple

from ..schema.codec.leases import unpack_expiry
from ..schema.keys import Kind
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import VERSIONS_PER_SECOND


class Reads(NamedTuple):
    """The reads, issued and not awaited."""

    delayed: fdb.FDBRange
    expiry: fdb.FDBRange


def reads(tr: fdb.Transaction, scope: Scope) -> Reads:
    """Issue snapshot reads of the first delayed message and the first lease to expire."""

    def first(kind: Kind) -> fdb.FDBRange:
        keys = scope.keys.kind(kind)
        return tr.snapshot.get_range(
            keys.start, keys.stop, limit=1, streaming_mode=fdb.StreamingMode.exact
        )

    return Reads(first(Kind.DELAYED), first(Kind.EXPIRY))


def next_event_seconds(tr: fdb.Transaction, scope: Scope, reads: Reads) -> float | None:
    """Seconds until the next delayed message is due or the next lease may expire; None if none.

    Until then a waiting consumer needs to look only if it is woken.
    """
    now_ms = scope.now_ms(tr)
    times = [(scope.keys.delayed.parse(kv.key)[0] - now_ms) / 1000 for kv in reads.delayed]
    for kv in reads.expiry:
        version, _ = scope.keys.parse_expiry(kv.key)
        by_version = (version - scope.version(tr)) / VERSIONS_PER_SECOND
        times.append(max(by_version, (unpack_expiry(kv.value)[0] - now_ms) / 1000))
    return max(0.0, min(times)) if times else None

"""When the next delayed message is due, the next lease expires, a rate lets the next message come,
or the callback of a group is tried again."""

from __future__ import annotations

from typing import NamedTuple

from ..schema.codec.leases import unpack_expiry
from ..schema.keys import Kind, SlotKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import VERSIONS_PER_SECOND
from .delivery import limits
from .slots import gates


class Reads(NamedTuple):
    """The reads, issued and not awaited."""

    delayed: fdb.FDBRange
    expiry: fdb.FDBRange
    timers: list[tuple[SlotKeys, fdb.FDBRange]]
    group: fdb.FDBRange | None


def reads(tr: fdb.Transaction, scope: Scope) -> Reads:
    """Issue snapshot reads of the first delayed message, lease to expire, and timer of a rate, and
    of the first group to look at if the queue has groups."""

    def first(keys: slice) -> fdb.FDBRange:
        return tr.snapshot.get_range(
            keys.start, keys.stop, limit=1, streaming_mode=fdb.StreamingMode.exact
        )

    timers = [(keys, first(keys.timer.under(0))) for keys in gates.timed(scope)]
    delayed, expiry = scope.keys.kind(Kind.DELAYED), scope.keys.kind(Kind.EXPIRY)
    group = first(scope.keys.groups.all_due()) if "groups" in scope.noted else None
    return Reads(first(delayed), first(expiry), timers, group)


def next_event_seconds(tr: fdb.Transaction, scope: Scope, reads: Reads) -> float | None:
    """Seconds until the next delayed message, timer or group is due, the next lease may expire, or
    the queue's rate lets somebody take the next message; None if none.

    One round trip if the queue has a rate: it sees what the transaction takes.

    Until then a waiting consumer needs to look only if it is woken.
    """
    now_ms = scope.now_ms(tr)
    times = [(scope.keys.delayed.parse(kv.key)[0] - now_ms) / 1000 for kv in reads.delayed]
    for keys, timer in reads.timers:
        times += [(keys.timer.parse(kv.key)[1] - now_ms) / 1000 for kv in timer]
    for kv in reads.group or ():
        times.append((scope.keys.groups.due.parse(kv.key)[0] - now_ms) / 1000)
    for kv in reads.expiry:
        version, _ = scope.keys.parse_expiry(kv.key)
        by_version = (version - scope.version(tr)) / VERSIONS_PER_SECOND
        times.append(max(by_version, (unpack_expiry(kv.value)[0] - now_ms) / 1000))
    paced = limits.next_seconds(tr, scope)
    if paced is not None:
        times.append(paced)
    return max(0.0, min(times)) if times else None

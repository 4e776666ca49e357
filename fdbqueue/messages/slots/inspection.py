"""Looking at keys: what each may do, what is out, and what waits."""

from __future__ import annotations

from collections.abc import Iterable

from ...schema.codec.atomic import unpack_counters
from ...schema.codec.delayed import unpack_delayed
from ...schema.codec.slots import unpack_backlog, unpack_limits, unpack_paced
from ...schema.keys import Kind, QueueKeys
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values.limits import KeyBacklog, KeyState, OwnLimits
from . import backlog, limits, permits, rates


@transactional
def state(tr: fdb.Transaction, scope: Scope, key: str) -> KeyState:
    """What is known of a key. One round trip of snapshot reads, no conflicts."""
    keys, snapshot = scope.keys, tr.snapshot
    own, known = snapshot.get(keys.limits(key)), snapshot.get(keys.backlog(key))
    count = snapshot.get(keys.backlog_count(key, 0))
    slots, places = (permits.held(snapshot, rows, key) for rows in permits.kinds(keys))
    paced = snapshot.get(keys.rate(key))
    first = backlog.first(tr, keys, key, 1).to_list()
    (waiting,) = unpack_counters(count.value, 1)
    waits, effective = known.present(), limits.effective(scope, own.value)
    now_ms, next_ms = scope.now_ms(tr), None
    if paced.present() and effective.allowed.rate:
        coming = rates.next_ms(unpack_paced(paced.value or b""), effective.allowed.rate, now_ms)
        next_ms = coming if coming > now_ms else None
    return KeyState(
        key=key,
        limits=effective,
        own=unpack_limits(own.value),
        out={keys.slot.parse(kv.key)[1]: kv.value.decode(errors="replace") for kv in slots},
        in_window=sum(1 for _ in places),
        waiting=waiting,
        since_ms=unpack_backlog(known.value).since_ms if waits else None,
        oldest_ms=unpack_delayed(first[0].value)[1].enqueued_at_ms if first else None,
        next_ms=next_ms,
    )


@transactional
def backlogs(tr: fdb.Transaction, scope: Scope, limit: int, after: str | None) -> list[KeyBacklog]:
    """The keys of which messages wait, in their order. One snapshot read, no conflicts."""
    return parse_backlogs(scope.keys, backlog_reads(tr, scope.keys, limit, after))


def backlog_reads(
    tr: fdb.Transaction, keys: QueueKeys, limit: int, after: str | None
) -> fdb.FDBRange:
    """Issue the read of ``backlogs``."""
    every = keys.kind(Kind.BACKLOG)
    begin = every.start if after is None else keys.backlog.under(after).stop
    return tr.snapshot.get_range(begin, every.stop, limit=2 * limit)


def parse_backlogs(keys: QueueKeys, rows: Iterable[fdb.KeyValue]) -> list[KeyBacklog]:
    """The keys of which messages wait, as they were read."""
    since: dict[str, int] = {}
    counts: dict[str, int] = {}
    for kv in rows:
        key, *count = keys.backlog_count.parse(kv.key)
        if count:
            (counts[key],) = unpack_counters(kv.value, 1)
        else:
            since[key] = unpack_backlog(kv.value).since_ms
    return [KeyBacklog(key, counts.get(key, 0), since_ms) for key, since_ms in since.items()]


@transactional
def own_limits(
    tr: fdb.Transaction, scope: Scope, limit: int, after: str | None
) -> dict[str, OwnLimits]:
    """The keys that have limits of their own. One snapshot read, no conflicts."""
    keys = scope.keys
    every = keys.kind(Kind.LIMITS)
    begin = every.start if after is None else keys.limits(after) + b"\x00"
    rows = tr.snapshot.get_range(begin, every.stop, limit=limit)
    return {keys.limits.parse(kv.key)[0]: unpack_limits(kv.value) for kv in rows}

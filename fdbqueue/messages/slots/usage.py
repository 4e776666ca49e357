"""Looking at keys and limits: what each may do, what is out, and what waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...schema.codec import unpack_counters
from ...schema.key_kinds import KindKeys
from ...schema.keys import QueueKeys, RootKeys, SlotKeys
from ...schema.records import Backlog, Delayed, Limited, Paced, unpack_limits
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values.limits import (
    Gate,
    KeyBacklog,
    KeyLimits,
    KeyState,
    Limit,
    LimitState,
    LimitSummary,
    OwnLimits,
)
from . import backlog, key_limits, permits, rates

LOOKED_AT = 1_000
"""The most messages of a limit's backlog that are looked at to say whose they are."""
SHOWN = 10
"""The most of them that are named."""


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
    waits, effective = known.present(), key_limits.effective(scope, key, own.value)
    now_ms, next_ms = scope.now_ms(tr), None
    if paced.present() and effective.allowed.rate:
        coming = rates.next_ms(Paced.unpack(paced.value or b""), effective.allowed.rate, now_ms)
        next_ms = coming if coming > now_ms else None
    return KeyState(
        key=key,
        limits=effective,
        own=unpack_limits(own.value),
        out={keys.slot.parse(kv.key)[1]: kv.value.decode(errors="replace") for kv in slots},
        in_window=sum(1 for _ in places),
        waiting=waiting,
        since_ms=Backlog.unpack(known.value).since_ms if waits else None,
        oldest_ms=Delayed.unpack(first[0].value).envelope.enqueued_at_ms if first else None,
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
    every = keys.backlog.rows
    begin = every.start if after is None else keys.backlog.under(after).stop
    # Two rows for each: since when messages wait, and how many.
    return tr.snapshot.get_range(begin, every.stop, limit=2 * limit)


def parse_backlogs(keys: QueueKeys, rows: Iterable[fdb.KeyValue]) -> list[KeyBacklog]:
    """The keys of which messages wait, as they were read."""
    return [KeyBacklog(str(key), *found) for key, found in _backlogs(keys, rows).items()]


def _backlogs(keys: SlotKeys, rows: Iterable[fdb.KeyValue]) -> dict[Gate, tuple[int, int]]:
    """How many messages wait for each, and since when."""
    since: dict[Gate, int] = {}
    counts: dict[Gate, int] = {}
    for kv in rows:
        gate, *count = keys.backlog_count.parse(kv.key)
        if count:
            (counts[gate],) = unpack_counters(kv.value, 1)
        else:
            since[gate] = Backlog.unpack(kv.value).since_ms
    return {gate: (counts.get(gate, 0), since_ms) for gate, since_ms in since.items()}


@transactional
def own_limits(
    tr: fdb.Transaction, scope: Scope, limit: int, after: str | None
) -> dict[str, OwnLimits]:
    """The keys that have limits of their own. One snapshot read, no conflicts."""
    keys = scope.keys
    every = keys.limits.rows
    begin = every.start if after is None else keys.limits(after) + b"\x00"
    rows = tr.snapshot.get_range(begin, every.stop, limit=limit)
    return {str(keys.limits.parse(kv.key)[0]): unpack_limits(kv.value) for kv in rows}


@transactional
def shared_state(tr: fdb.Transaction, root: RootKeys, limit: Limit, now_ms: int) -> LimitState:
    """What is known of a limit. One round trip of snapshot reads, no conflicts."""
    keys, snapshot = root.limits, tr.snapshot
    own, known = snapshot.get(keys.limits(limit)), snapshot.get(keys.backlog(limit))
    count, paced = snapshot.get(keys.backlog_count(limit, 0)), snapshot.get(keys.rate(limit))
    held = permits.held(snapshot, keys.slot, limit)
    out = {keys.slot.parse(kv.key)[1]: Limited.unpack(kv.value) for kv in held}
    first = [Limited.unpack(kv.value) for kv in backlog.first(tr, keys, limit, LOOKED_AT)]
    (waiting,) = unpack_counters(count.value, 1)
    effective, next_ms = key_limits.shared(own.value), None
    if paced.present() and effective.allowed.rate:
        coming = rates.next_ms(Paced.unpack(paced.value or b""), effective.allowed.rate, now_ms)
        next_ms = coming if coming > now_ms else None
    return LimitState(
        *limit,
        concurrency=effective.concurrency,
        paused=effective.paused,
        out={n: (each.queue, each.id) for n, each in out.items()},
        waiting=waiting,
        next=[(each.queue, each.id) for each in first[:SHOWN]],
        waiting_in=dict(Counter(each.queue for each in first)),
        since_ms=Backlog.unpack(known.value).since_ms if known.present() else None,
        rate=effective.rate,
        next_ms=next_ms,
    )


@transactional
def shared(
    tr: fdb.Transaction, root: RootKeys, limit: int, after: Limit | None
) -> list[LimitSummary]:
    """The limits that are set, or for which messages wait, in their order. One round trip of
    snapshot reads, no conflicts."""
    keys, snapshot = root.limits, tr.snapshot

    def rows(kind: KindKeys[Gate], each: int) -> fdb.FDBRange:
        every = kind.rows
        begin = every.start if after is None else kind.under(after).stop
        return snapshot.get_range(begin, every.stop, limit=each * limit)

    issued, backlogs = rows(keys.limits, 1), _backlogs(keys, rows(keys.backlog, 2))
    own = {keys.limits.parse(kv.key)[0]: key_limits.shared(kv.value) for kv in issued}
    found = []
    # Both lists have the first of theirs, so the first of both together are among them.
    for gate in sorted({*own, *backlogs}, key=keys.limits)[:limit]:
        assert not isinstance(gate, str), "a limit"
        terms, (waiting, since_ms) = own.get(gate, KeyLimits(None)), backlogs.get(gate, (0, None))
        found.append(
            LimitSummary(
                *gate,
                terms.concurrency,
                terms.paused,
                waiting=waiting,
                since_ms=since_ms,
                rate=terms.rate,
            )
        )
    return found

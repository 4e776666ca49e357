"""The ends of groups: the callback is enqueued, together with the end of the last member."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import CorruptData, QueueNotFound
from ...schema import catalogue, once
from ...schema import due as agenda
from ...schema.codec import unpack_counters
from ...schema.keys import TIDYING, WORK, RootKeys, What
from ...schema.records import Callback, GroupEnd, GroupRecord, Pause, Tally
from ...schema.scope import Scope, StoredMessage
from ...store import world
from ...store.binding import fdb
from ...values.model import RANDOM_BYTES, Due, HeaderValue, Position
from .. import payloads
from ..enqueue import delayed, level_order

KEPT_MS = 7 * 24 * 3_600_000
"""How long a group is known after its end: so long it is not made again under its name."""
RETRY_MS = 60_000
"""How long a callback waits that its queue does not take, before somebody tries again. It waits
twice as long each time after that."""
MAX_RETRY_MS = 600_000
"""How long it waits at most."""

NAME_HEADER, TOTAL_HEADER, UNDONE_HEADER = "group", "group_total", "group_undone"
HEADERS = (NAME_HEADER, TOTAL_HEADER, UNDONE_HEADER)
"""What each callback tells: the name of the group, how many members it had, and how many of them
were not done."""


def opened(value: bytes | None) -> GroupRecord | None:
    """A group from its stored form; None where there is none, or it cannot be read: ``verify``
    reports it, and it must not keep messages from their ends."""
    try:
        return None if value is None else GroupRecord.unpack(value)
    except CorruptData:
        return None


def due_ms(end: GroupEnd) -> int:
    """When to look at a group that has ended: to forget it, or to try its callback again."""
    return end.at_ms + (RETRY_MS if end.outcome == "blocked" else KEPT_MS)


def entry(scope: Scope, name: str, end: GroupEnd) -> bytes:
    """The entry of the agenda of a group that has ended."""
    rank = WORK if end.outcome == "blocked" else TIDYING
    return scope.keys.entry(rank, due_ms(end), What.GROUP, name)


def longer_ms(row: bytes | None) -> int:
    """The pause after the one that a row has with which a group was looked at."""
    try:
        return max(RETRY_MS, min(2 * Pause.unpack(row).ms, MAX_RETRY_MS)) if row else RETRY_MS
    except CorruptData:
        return RETRY_MS


def tally(tr: fdb.TransactionRead, scope: Scope, name: str) -> Tally:
    """The counters of a group. One round trip."""
    every = scope.keys.group_ends.under(name, 1)
    total = Tally()
    for kv in tr.get_range(every.start, every.stop):
        total = total.plus(unpack_counters(kv.value, 3))
    return total


def end(
    tr: fdb.Transaction, scope: Scope, name: str, pause_ms: int = RETRY_MS
) -> list[tuple[Scope, StoredMessage]]:
    """End a group of which no member is left; returns its callback with its queue, if it comes.

    pause_ms: after how long it is tried again, if its queue does not take it.

    The callback is written as a message that is due, and the caller records that it came. Two round
    trips, another for a callback of another queue. Conflicts with whatever changes the group.
    """
    keys = scope.keys
    stored = tr.get(keys.group(name))
    counted = tally(tr, scope, name)
    record, now_ms = opened(stored.value), scope.now_ms(tr)
    # The record is written again, and the callback is a message.
    once.attempt(tr).let_out_bytes -= 2 * len(stored.value or b"")
    # Another has ended it, or it cannot be read: an end of a message must not fail by that.
    if record is None or (record.end is not None and record.end.outcome != "blocked"):
        return []
    if record.end is None:
        every = keys.group_ends.under(name, 1)
        # The record keeps their sum: a group that is known for a week needs one key, not sixteen.
        tr.clear_range(every.start, every.stop)
    else:
        # The counters were removed when it ended; a blocked callback is told what they said then.
        counted = record.end.tally
    found: list[tuple[Scope, StoredMessage]] = []
    if record.then_on == "done" and counted.failed:
        ended = GroupEnd("failed", now_ms, "", counted)
    else:
        found = _enqueued(tr, scope, name, record, counted, now_ms)
        if found:
            ended = GroupEnd("complete", now_ms, found[0][1].id, counted)
        else:
            # due_ms looks at it a minute after the time that is written here.
            ended = GroupEnd("blocked", now_ms + pause_ms - RETRY_MS, "", counted)
    tr[keys.group(name)] = replace(record, end=ended).pack()
    paused = ended.outcome == "blocked"
    agenda.add(tr, keys, entry(scope, name, ended), Pause(pause_ms).pack() if paused else b"")
    return found


def _enqueued(
    tr: fdb.Transaction, scope: Scope, name: str, record: GroupRecord, counted: Tally, now_ms: int
) -> list[tuple[Scope, StoredMessage]]:
    """Put the callback of a group among the delayed messages of its queue; nothing if that is gone
    or does not take it. Its bounds do not hold: an end of a message must not fail by them."""
    callback = record.callback
    other = queue_of(tr, scope, callback)
    if other is None:
        return []
    undone = record.members - counted.done
    told: dict[str, HeaderValue] = dict(zip(HEADERS, (name, record.members, undone), strict=True))
    priority = min(callback.envelope.priority, other.options.max_priority)
    level, random = other.level(priority), world.urandom(RANDOM_BYTES)
    due = Due(level, now_ms + callback.delay_ms, random)
    envelope = replace(
        callback.envelope,
        priority=priority,
        headers=callback.envelope.headers | told,
        enqueued_at_ms=now_ms,
        expires_at_ms=None if callback.ttl_ms is None else now_ms + callback.ttl_ms,
        id=due.to_id(),
    )
    # Asked first: an error here would abort the acknowledgement of the last member.
    if not _takes(other, envelope.size, callback):
        return []
    envelope = payloads.store(tr, other, envelope)
    message = StoredMessage(Position(level, 0, random), envelope)
    delayed.put(tr, other, due.due_ms, message)
    if envelope.expires_at_ms is not None:
        agenda.tidy(tr, other.keys, envelope.expires_at_ms, What.EXPIRED, message.id)
    return [(other, message)]


def queue_of(tr: fdb.Transaction, scope: Scope, callback: Callback) -> Scope | None:
    """The queue of a callback; None if there is none that can be read."""
    root = RootKeys(fdb.Subspace(rawPrefix=callback.root)) if callback.root else scope.root
    if root.queue(callback.queue).prefix == scope.keys.prefix:
        return scope
    try:
        return catalogue.found(tr, root, callback.queue, scope.clock)
    except (QueueNotFound, CorruptData):
        return None


def _takes(other: Scope, size: int, callback: Callback) -> bool:
    envelope = callback.envelope
    if other.options.ordered and envelope.gate is not None:
        return False
    return size <= other.options.max_payload and level_order.takes(other.options, envelope)

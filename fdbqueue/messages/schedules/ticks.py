"""Ticks: the next one of each schedule waits as a delayed message."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from ...errors import CorruptData
from ...schema import due as agenda
from ...schema.keys import What
from ...schema.records import ScheduleProgress, ScheduleRecord
from ...schema.scope import Scope, StoredMessage
from ...store import world
from ...store.binding import fdb, transactional
from ...values import schedules
from ...values.model import RANDOM_BYTES, Due, HeaderValue, Position
from ...values.schedules import LATE_MS, TickStep
from ...values.states import PURGE_SCHEDULED
from .. import lookup, payloads, transitions
from ..enqueue import append, delayed

NAME_HEADER, TICK_HEADER = "schedule", "tick"
"""The headers of each message of a schedule: its name, and its time."""
MAX_SKIPPED = 1_000
"""How many ticks of a schedule are left out in one transaction."""

log = logging.getLogger("fdbqueue")


class ScheduleReads(NamedTuple):
    """The reads of a schedule, issued and not awaited."""

    definition: fdb.Value
    progress: fdb.Value


def reads(tr: fdb.TransactionRead, scope: Scope, name: str) -> ScheduleReads:
    """Issue the reads; on a transaction they conflict with changes and ticks of the schedule."""
    return ScheduleReads(tr.get(scope.keys.schedule(name)), tr.get(scope.keys.progress(name, 0)))


def opened(reads: ScheduleReads) -> tuple[ScheduleRecord, ScheduleProgress] | None:
    """A schedule; None if there is none. Raises ``CorruptData``."""
    definition, progress = reads.definition.value, reads.progress.value
    if definition is None:
        return None
    return (
        ScheduleRecord.unpack(definition),
        ScheduleProgress() if progress is None else ScheduleProgress.unpack(progress),
    )


def stamped(definition: ScheduleRecord, name: str, tick_ms: int) -> dict[str, HeaderValue]:
    """The headers of a message of a schedule."""
    shown = schedules.shown(tick_ms)
    return {**definition.envelope.headers, NAME_HEADER: name, TICK_HEADER: shown}


@transactional
def arm(
    tr: fdb.Transaction, scope: Scope, name: str, definition: ScheduleRecord, next_ms: int | None
) -> str:
    """Let the next tick wait; returns its message's id, empty where there is none. Blind."""
    if next_ms is None:
        return ""
    level = scope.level(definition.envelope.priority)
    due = Due(level, next_ms, world.urandom(RANDOM_BYTES))
    envelope = replace(
        definition.envelope,
        headers=stamped(definition, name, next_ms),
        enqueued_at_ms=next_ms,
        schedule=name,
        id=due.to_id(),
    )
    envelope = payloads.store(tr, scope, envelope)
    position = Position(level, 0, due.random)
    append.schedule(tr, scope, next_ms, StoredMessage(position, envelope))
    return due.to_id()


def fire(
    tr: fdb.Transaction, scope: Scope, found: Iterable[tuple[StoredMessage, ScheduleReads]]
) -> list[StoredMessage]:
    """Put the next ticks in the places of those that are due; returns the messages that come now.

    found: the messages of due ticks, read with a conflict and removed from their places, with the
    reads of their schedules. Where ticks may be left out, reads also the messages before, at
    snapshot: a few round trips for each. A tick whose schedule cannot be read here waits for a
    process that can.
    """
    fired = []
    for message, issued in found:
        try:
            comes = _fire(tr, scope, message, issued)
        except (CorruptData, LookupError, ValueError, OSError) as error:
            name = message.envelope.schedule
            log.error("schedule %s of queue %s cannot tick here: %s", name, scope.name, error)
            # A process without this time zone's data must not stop the others: the tick waits for
            # one of them.
            delayed.put_off(tr, scope, scope.now_ms(tr) + LATE_MS, message)
            continue
        if comes is not None:
            fired.append(comes)
    return fired


def _fire(
    tr: fdb.Transaction, scope: Scope, message: StoredMessage, issued: ScheduleReads
) -> StoredMessage | None:
    name, known = message.envelope.schedule or "", opened(issued)
    due_ms = None if known is None else known[1].next_ms
    # The schedule names another tick, or is gone: this one must not come, or there would be two
    # from now on.
    if known is None or due_ms is None or known[1].next_id != message.id:
        transitions.record(tr, scope, PURGE_SCHEDULED, [message])  # ``verify`` would have told.
        return None
    definition, progress = known
    timing, now_ms = definition.timing, scope.now_ms(tr)
    step = schedules.step(timing, definition.catch_up, due_ms, now_ms)
    if definition.overlap == "skip" and step.now_ms and _lives(tr, scope, progress.last_id):
        skipped = 1
        # After a long outage the missed ticks are passed in one go, up to a bound that one
        # transaction affords.
        while step.next_ms is not None and step.next_ms <= now_ms and skipped < MAX_SKIPPED:
            due_ms = step.next_ms
            step, skipped = TickStep(None, timing.following(step.next_ms)), skipped + 1
        progress = replace(progress, skipped=progress.skipped + skipped)
        step = TickStep(None, step.next_ms)
    keys, progress = scope.keys, replace(progress, passed_ms=step.now_ms or due_ms)
    if step.now_ms is None and step.next_ms is not None:
        headers = stamped(definition, name, step.next_ms)
        later = replace(message.envelope, headers=headers, enqueued_at_ms=step.next_ms)
        delayed.put_off(tr, scope, step.next_ms, replace(message, envelope=later))
        tr[keys.progress(name, 0)] = replace(progress, next_ms=step.next_ms).pack()
        return None
    if step.now_ms is None:
        transitions.record(tr, scope, PURGE_SCHEDULED, [message])
        tr[keys.progress(name, 0)] = replace(progress, next_ms=None, next_id="").pack()
        return None
    tr[keys.progress(name, 0)] = ScheduleProgress(
        next_ms=step.next_ms,
        # In the transaction that lets this one come: the chain of ticks never breaks, and never
        # forks.
        next_id=arm(tr, scope, name, definition, step.next_ms),
        last_ms=step.now_ms,
        last_id=message.id,
        fired=progress.fired + 1,
        skipped=progress.skipped,
        passed_ms=progress.passed_ms,
    ).pack()
    envelope = replace(
        message.envelope,
        schedule=None,
        headers=stamped(definition, name, step.now_ms),
        enqueued_at_ms=step.now_ms,
        expires_at_ms=_expiry(now_ms, definition.ttl_ms),
    )
    if envelope.expires_at_ms is not None:
        agenda.tidy(tr, keys, envelope.expires_at_ms, What.EXPIRED, message.id)
    return replace(message, envelope=envelope)


def _expiry(now_ms: int, ttl_ms: int | None) -> int | None:
    return None if ttl_ms is None else now_ms + ttl_ms


def _lives(tr: fdb.Transaction, scope: Scope, message_id: str) -> bool:
    """Whether a message is not done yet. Snapshot reads."""
    if not message_id:
        return False
    snapshot = tr.snapshot
    # At snapshot isolation: the message may end at any moment, which must not abort the tick; it
    # then counts as alive, and the next tick comes.
    waiting = lookup.find(snapshot, scope, lookup.reads(snapshot, scope.keys, message_id))
    if waiting is not None:
        return waiting.death is None
    return lookup.current(tr, scope, message_id) is not None  # It is leased.

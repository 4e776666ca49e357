"""Setting, pausing, running and removing schedules, and looking at them."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import NotFound
from ...schema.records import ScheduleProgress, ScheduleRecord
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values import schedules
from ...values.durations import Seconds
from ...values.schedules import Schedule, Timing
from ...values.states import End
from .. import lookup, settle
from ..enqueue import admission, level_order
from ..enqueue.admission import Draft
from . import ticks


class Timed:
    """When a schedule is to tick, as its user says; ``timing`` checks it."""

    def __init__(self, cron: str | None, every: Seconds | None, timezone: str) -> None:
        self.cron, self.every, self.timezone = cron, every, timezone

    def timing(self, now_ms: int, before: Timing | None) -> Timing:
        """The timing, which goes on with that of before if it is the same interval."""
        return schedules.timing(self.cron, self.every, self.timezone, now_ms, before)


@transactional
def put(
    tr: fdb.Transaction, scope: Scope, name: str, timed: Timed, given: ScheduleRecord
) -> Schedule:
    """Make a schedule, or change it; ``given``: all but its timing and whether it is paused.

    The same again changes nothing. The next tick stays if the timing does. One round trip, and up
    to two if it changes.
    """
    now_ms = scope.now_ms(tr)
    known = ticks.opened(ticks.reads(tr, scope, name))
    before, progress = known or (None, ScheduleProgress())
    timing = timed.timing(now_ms, None if before is None else before.timing)
    definition = replace(given, timing=timing, paused=before is not None and before.paused)
    envelope = definition.envelope
    scope.level(envelope.priority)
    if scope.options.ordered:
        level_order.check_sortable(scope.options, envelope.headers, envelope.gate)
    # A deployment sets its schedules at each start: unchanged, that writes nothing and moves no
    # tick.
    if definition != before:
        next_ms = progress.next_ms
        if before is None or timing != before.timing:
            # Not before the last tick: a clock that was set back must not tick the same moment
            # twice.
            next_ms = timing.following(max(now_ms, progress.passed_ms))
        _disarm(tr, scope, progress)
        next_ms = None if definition.paused else next_ms
        progress = _armed(tr, scope, name, definition, progress, next_ms)
        tr[scope.keys.schedule(name)] = definition.pack()
    return described(name, definition, progress)


@transactional
def pause(tr: fdb.Transaction, scope: Scope, name: str, paused: bool) -> Schedule:
    """Pause a schedule, or let it go on with the next tick from now. Raises
    ``NotFound``."""
    definition, progress = _known(tr, scope, name)
    if definition.paused != paused:
        definition = replace(definition, paused=paused)
        _disarm(tr, scope, progress)
        after_ms = max(scope.now_ms(tr), progress.passed_ms)
        next_ms = None if paused else definition.timing.following(after_ms)
        progress = _armed(tr, scope, name, definition, progress, next_ms)
        tr[scope.keys.schedule(name)] = definition.pack()
    return described(name, definition, progress)


@transactional
def run(tr: fdb.Transaction, scope: Scope, name: str) -> str:
    """Enqueue the message of a schedule now, beside its ticks; returns its id.

    Raises ``NotFound``, ``QueueFull``.
    """
    definition, progress = _known(tr, scope, name)
    now_ms = scope.now_ms(tr)
    envelope = replace(
        definition.envelope,
        headers=ticks.stamped(definition, name, now_ms),
        enqueued_at_ms=now_ms,
        expires_at_ms=None if definition.ttl_ms is None else now_ms + definition.ttl_ms,
    )
    (message_id,) = admission.admit(tr, scope, [Draft(envelope)]).ids
    progress = replace(progress, last_ms=now_ms, last_id=message_id)
    tr[scope.keys.progress(name, 0)] = progress.pack()
    return message_id


@transactional
def remove(tr: fdb.Transaction, scope: Scope, name: str) -> bool:
    """Remove a schedule; returns whether there was one. Messages that have come stay."""
    keys = scope.keys
    issued = ticks.reads(tr, scope, name)
    if not issued.definition.present():
        return False
    progress = issued.progress.value
    _disarm(
        tr, scope, ScheduleProgress() if progress is None else ScheduleProgress.unpack(progress)
    )
    del tr[keys.schedule(name)]
    del tr[keys.progress(name, 0)]
    return True


@transactional
def find(tr: fdb.Transaction, scope: Scope, name: str) -> Schedule | None:
    """What is known of a schedule; None if there is none. Snapshot reads."""
    known = ticks.opened(ticks.reads(tr.snapshot, scope, name))
    return None if known is None else described(name, *known)


@transactional
def page(tr: fdb.Transaction, scope: Scope, limit: int, after: str | None) -> list[Schedule]:
    """Schedules by name, behind the name ``after``. Snapshot reads."""
    keys = scope.keys
    every = keys.schedule.under()
    begin = every.start if after is None else keys.progress(after, 0) + b"\x00"
    found: dict[str, ScheduleRecord] = {}
    progress: dict[str, ScheduleProgress] = {}
    for kv in tr.snapshot.get_range(begin, every.stop, limit=2 * limit):
        match keys.progress.parse(kv.key):
            case [name, _]:
                progress[name] = ScheduleProgress.unpack(kv.value)
            case [name]:
                found[name] = ScheduleRecord.unpack(kv.value)
    return [
        described(name, definition, progress[name])
        for name, definition in list(found.items())[:limit]
        if name in progress
    ]


def described(name: str, definition: ScheduleRecord, progress: ScheduleProgress) -> Schedule:
    """What is known of a schedule."""
    timing, ttl_ms, envelope = definition.timing, definition.ttl_ms, definition.envelope
    return Schedule(
        name=name,
        payload=envelope.payload,
        content_type=envelope.content_type,
        priority=envelope.priority,
        headers=envelope.headers,
        max_attempts=envelope.max_attempts,
        backoff=envelope.backoff,
        key=envelope.key,
        limits=envelope.limits,
        cron=timing.cron,
        every=None if timing.every_ms is None else timing.every_ms / 1000,
        timezone=timing.timezone,
        overlap=definition.overlap,
        catch_up=definition.catch_up,
        ttl=None if ttl_ms is None else ttl_ms / 1000,
        paused=definition.paused,
        next_ms=progress.next_ms,
        last_ms=progress.last_ms,
        last_id=progress.last_id or None,
        fired=progress.fired,
        skipped=progress.skipped,
    )


def _known(tr: fdb.Transaction, scope: Scope, name: str) -> tuple[ScheduleRecord, ScheduleProgress]:
    known = ticks.opened(ticks.reads(tr, scope, name))
    if known is None:
        raise NotFound(kind="schedule", queue=scope.name, name=name)
    return known


def _armed(
    tr: fdb.Transaction,
    scope: Scope,
    name: str,
    definition: ScheduleRecord,
    progress: ScheduleProgress,
    next_ms: int | None,
) -> ScheduleProgress:
    """Let the next tick wait, and keep that."""
    next_id = ticks.arm(tr, scope, name, definition, next_ms)
    progress = replace(progress, next_ms=next_ms, next_id=next_id)
    tr[scope.keys.progress(name, 0)] = progress.pack()
    return progress


def _disarm(tr: fdb.Transaction, scope: Scope, progress: ScheduleProgress) -> None:
    """Remove the message of the tick that waits, if one does."""
    if not progress.next_id:
        return
    found = lookup.find(tr, scope, lookup.reads(tr, scope.keys, progress.next_id))
    # An id that is found without its schedule has become an ordinary message: it came, and stays.
    if found is not None and found.message.envelope.schedule is not None:
        settle.end(tr, scope, [found], End.PURGE)

"""Checks of schedules and their next ticks, page by page."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from ...errors import CorruptData
from ...schema.keys import QueueKeys
from ...schema.records import Delayed, ScheduleProgress, ScheduleRecord
from .. import lookup
from ..schedules import ticks
from .verification import Audit


def schedules(audit: Audit, begin: bytes) -> bytes:
    """The next tick of every schedule waits as a delayed message."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.schedule, begin)
    named = [keys.progress.parse(kv.key) for kv in rows]
    names = [each[0] for each in named if len(each) == 1]
    issued = [(name, ticks.reads(audit.reads, audit.scope, name)) for name in names]
    waiting: list[tuple[str, tuple[ScheduleRecord, ScheduleProgress], lookup.IdReads]] = []
    for name, each in issued:
        try:
            known = ticks.opened(each)
        except CorruptData as error:
            audit.report("unreadable", name, f"schedule {name}: {error}")
            continue
        if known is not None and known[1].next_id:
            found = lookup.reads(audit.reads, keys, known[1].next_id)
            waiting.append((name, known, found))
    for name, (definition, progress), place in waiting:
        message = lookup.find(audit.reads, audit.scope, place)
        if message is None or message.message.envelope.schedule != name:
            put_back = partial(_put_back, audit, name, definition, progress)
            audit.report("schedule without tick", name, "it would never tick again", put_back)
    return following


def _put_back(
    audit: Audit, name: str, definition: ScheduleRecord, progress: ScheduleProgress
) -> None:
    """Let the next tick of a schedule wait again."""
    next_id = ticks.arm(audit.tr, audit.scope, name, definition, progress.next_ms)
    progress = replace(progress, next_id=next_id)
    audit.tr[audit.scope.keys.progress(name, 0)] = progress.pack()


def waiting_ticks(audit: Audit, begin: bytes) -> bytes:
    """Every tick that waits is the next one of its schedule."""
    rows, following = audit.page(QueueKeys.delayed, begin)
    issued = []
    for kv in rows:
        try:
            envelope = Delayed.unpack(kv.value).envelope
        except CorruptData:
            continue  # ``messages`` reports it.
        if envelope.schedule is not None:
            read = ticks.reads(audit.reads, audit.scope, envelope.schedule)
            issued.append((envelope, read))
    for envelope, read in issued:
        try:
            known = ticks.opened(read)
        except CorruptData:
            continue
        if known is None or known[1].next_id != envelope.id:
            problem = f"it is not the next tick of schedule {envelope.schedule}"
            audit.report("tick without schedule", envelope.id or "", problem)
    return following

"""What goes wrong with queues and their workers: plain values in, findings out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from fdbqueue.values import rates
from fdbqueue.values.groups import Group
from fdbqueue.values.model import Depth
from fdbqueue.values.options import QueueOptions

from .. import terminal
from ..queues import queue_list
from .diagnosis import OK, PROBLEM, WARNING, Finding

if TYPE_CHECKING:
    from fdbqueue.queue.admin.backlogs import WaitingMessages
    from fdbqueue.queue.admin.verification import Verification
    from fdbqueue.schema.catalogue import Pause
    from fdbqueue.schema.consumers import Running, Session, Work

SILENT_MS, MISSED_MS = 12_000, 6_500
"""How long a process may give no sign of life, which it does every 5 s; and how long one of which
the system says that it is stopped or gone."""
STUCK_MS = 10_000
"""How long something may last that usually is shorter."""
FAR = 10
"""How many times the median is far above it."""
FAILURES = 3
"""From how many failures on, without any success, all attempts fail."""
HELD_MS = 20_000
"""How long messages may wait for a key or a limit, without a break, or for a rate until the last
one comes."""
UNATTENDED_MS, DESERTED_MS = 3_000, 25_000
"""How long a message may be ready while no consumer is there; and until that is a problem, as no
program comes now and then to take some."""
LATE_MS = 10_000
"""How late a tick may be."""
EXPIRED_MS = 10_000
"""How long an expired lease may wait until a consumer reclaims it."""
STAGED_MS = 15 * 60_000
"""How long a write may stage nothing new."""
NEARLY_FULL = 0.9

Lines = Iterator[tuple[str, str, str, str]]
"""How bad it is, what was looked at, what is wrong, and what to do."""


class Seen(Struct):
    """What the doctor found out about a queue; times are in milliseconds.

    now_ms: the wall clock. pause: since when it is paused, and by whom. waiting_ms: for how long
    the first message could have been taken. consumers: how many that live take messages. works:
    what living workers do in it, each with its process. errors: of messages that have failed, how
    often each of the newest errors comes. deadly: messages at which processes died: the id, how
    many, and the state. holding: which process holds which messages. overdue_ms: time since each
    expired lease ended. held: what waits for keys and limits. late: schedules, and how late each
    is. groups: those that wait in vain. producing: who has waited for long for room in it. unread:
    subscriptions without a reader, and how many messages they have not seen. target_exists: whether
    the queue for its dead letters does. staged: each sink with its undecided rows, and the time
    since the last was added. verified: None if the queue was not verified.
    """

    name: str
    options: QueueOptions
    depth: Depth
    now_ms: int = 0
    pause: Pause | None = None
    waiting_ms: int = 0
    consumers: int = 0
    works: Sequence[tuple[str, Work]] = ()
    errors: Sequence[tuple[str, int]] = ()
    deadly: Sequence[tuple[str, int, str]] = ()
    holding: Sequence[tuple[tuple[str, int], tuple[str, str]]] = ()
    overdue_ms: Sequence[int] = ()
    held: Sequence[WaitingMessages] = ()
    late: Sequence[tuple[str, int]] = ()
    groups: Sequence[Group] = ()
    producing: Sequence[str] = ()
    unread: Sequence[tuple[str, int]] = ()
    target_exists: bool = True
    staged: Sequence[tuple[str, int, int]] = ()
    verified: Verification | None = None

    @property
    def quoted(self) -> str:
        """The name, as an argument of a command."""
        return shlex.quote(self.name)

    @property
    def fullness(self) -> Iterator[tuple[str, int, int]]:
        """Of what it has a bound: how much it holds, and how much it may."""
        bounds = self.options.bounds
        if bounds.messages is not None:
            yield "messages", self.depth.unsettled, bounds.messages
        if bounds.bytes is not None:
            yield "bytes", self.depth.ready_bytes, bounds.bytes


def of(seen: Seen) -> Iterator[Finding]:
    """The findings about a queue."""
    for check in CHECKS:
        for state, about, detail, advice in check(seen):
            yield Finding(state, about, seen.name, detail, "" if state == OK else advice)


def silent(
    session: Session, silent_ms: int, state: str, holding: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """A process that has given no sign of life for so long. state: what the system says of it here:
    "stopped", "gone", or nothing. holding: what it has leased, by queue and id."""
    # One missed sign of life is enough where the system, too, says that the process is stopped.
    if silent_ms <= (MISSED_MS if state else SILENT_MS):
        return
    told = [(work.queue, one.id) for work in session.work for one in work.running]
    held = [*dict.fromkeys([*told, *holding])]
    is_so = f"it is {state}, and" if state else "it"
    detail = f"{is_so} has given no sign of life for {terminal.age(silent_ms)}"
    advice = "its messages come back by themselves; start a worker in its place"
    if held:
        some = ", ".join(f"{queue} {one}" for queue, one in held[:3])
        detail += f"; it holds {some}{' and others' * (len(held) > 3)}"
        queue, one = held[0]
        advice += f"; fdbq message show {shlex.quote(queue)} {one}"
    if state == "stopped":
        number = session.process
        advice = f"continue it: kill -CONT {number}; or end it: kill -KILL {number}"
    yield Finding(PROBLEM, "process", f"{session.host}:{session.process}", detail, advice)


def _paused(seen: Seen) -> Lines:
    if seen.options.paused:
        ready = terminal.count(seen.depth.ready, "message") + " ready"
        lasts = "" if seen.pause is None else f" {queue_list.paused(seen.pause, seen.now_ms)}"
        detail = f"it is paused{lasts}, with {ready}"
        yield WARNING, "pause", detail, f"fdbq queue resume {seen.quoted}"


def _no_worker(seen: Seen) -> Lines:
    attended = seen.options.paused or seen.consumers or seen.depth.leased
    if seen.waiting_ms > UNATTENDED_MS and not attended:
        lasts = terminal.age(seen.waiting_ms)
        detail = f"messages could have been taken for {lasts}, and no worker takes any"
        state = PROBLEM if seen.waiting_ms > DESERTED_MS else WARNING
        yield state, "workers", detail, "start one: fdbq worker MODULE:NAME"


def _stuck(seen: Seen) -> Lines:
    """Handlers that take far longer than usual, or all of whose places are taken for long."""
    for place, work in seen.works:
        slow = [one for one in work.running if _far(one, work, seen.now_ms)]
        full = work.taken >= work.places and not work.handled + work.failed
        lasting = [one for one in work.running if seen.now_ms - one.since_ms > STUCK_MS]
        # Full alone is no fault: a busy worker with short messages is full all the time.
        if full and lasting and (slow or work.usual_ms is None):
            state, one = PROBLEM, lasting[0]
            begin = f"all {work.places} places of {work.worker} are taken and nothing ends: "
            end = ""
        elif slow:
            state, one, begin = WARNING, slow[0], ""
            others = f", and {len(slow) - 1} others" if len(slow) > 1 else ""
            end = f"{others}; it usually takes {terminal.age(work.usual_ms or 0)}"
        else:
            continue
        lasts = terminal.age(seen.now_ms - one.since_ms)
        advice = (
            f"see what it waits for in process {place}; fdbq message show {seen.quoted} {one.id}; "
            f"to end it: fdbq message cancel {seen.quoted} {one.id}"
        )
        yield state, "handlers", f"{begin}{work.handler} has had {one.id} for {lasts}{end}", advice


def _far(one: Running, work: Work, now_ms: int) -> bool:
    lasts = now_ms - one.since_ms
    return work.usual_ms is not None and lasts > max(STUCK_MS, FAR * work.usual_ms)


def _failing(seen: Seen) -> Lines:
    failed = sum(work.failed for _, work in seen.works)
    if failed < FAILURES or any(work.handled for _, work in seen.works):
        return
    detail = f"all {failed:,} attempts of the last minute failed"
    if seen.errors:
        error, count = max(seen.errors, key=lambda each: each[1])
        detail += f", {count:,} of the last ones with: {error}"
    advice = f"fix the cause, then: fdbq message retry {seen.quoted} --state retrying --all"
    yield PROBLEM, "failures", detail, advice


def _deadly(seen: Seen) -> Lines:
    for message_id, deaths, state in seen.deadly[:3]:
        who = "a process died as it" if deaths == 1 else f"{deaths:,} processes died as they"
        which = f"{seen.quoted} {message_id}"
        # Cancelled, it never comes again, also while somebody handles it.
        end = "purge" if state == "dead" else "cancel"
        advice = f"fdbq message show {which}; fdbq message {end} {which}"
        yield PROBLEM, "deaths", f"{who} handled {message_id}, which is {state}", advice


def _held(seen: Seen) -> Lines:
    for each in seen.held:
        last = "" if each.last_ms is None else f"; the last comes in {terminal.age(each.last_ms)}"
        if each.paused or max(each.since_ms or 0, each.last_ms or 0) > HELD_MS:
            waiting = terminal.count(each.waiting, "message")
            of = f" --queue {seen.quoted}" if each.gate.startswith("key ") else ""
            verb, name = "resume" if each.paused else "show", each.gate.partition(" ")[2]
            advice = f"fdbq limit {verb} {shlex.quote(name)}{of}"
            yield WARNING, "waiting", f"{waiting} of {each.gate}: {each.why}{last}", advice
    if seen.options.rate is not None and not seen.options.paused:
        last_ms = seen.depth.ready * rates.parse(seen.options.rate).interval_us // 1000
        if last_ms > HELD_MS:
            detail = (
                f"{seen.depth.ready:,} ready messages wait for the rate of the queue; the last "
            )
            detail += f"can be taken in {terminal.age(last_ms)}"
            yield WARNING, "waiting", detail, f"remove it: fdbq queue set {seen.quoted} rate=none"


def _late(seen: Seen) -> Lines:
    full = any(held >= most for unit, held, most in seen.fullness if unit == "messages")
    for name, late_ms in seen.late:
        if late_ms <= LATE_MS:
            continue
        if seen.options.paused:
            why, advice = "the queue is paused", f"fdbq queue resume {seen.quoted}"
        elif not seen.consumers:
            why, advice = "no worker looks for messages", "start one: fdbq worker MODULE:NAME"
        elif full:
            why, advice = "the queue is full", f"fdbq queue show {seen.quoted}"
        else:
            why, advice = "workers have not come to it", f"fdbq worker list {seen.quoted}"
        detail = f"schedule {name} is late by {terminal.age(late_ms)}: {why}"
        yield PROBLEM, "schedules", detail, advice


def _groups(seen: Seen) -> Lines:
    for each in seen.groups[:3]:
        if each.state == "blocked":
            detail = f"group {each.name}: queue {each.queue} does not take its callback"
            advice = f"fdbq queue show {shlex.quote(each.queue)}"
        else:
            dead = terminal.count(each.dead + each.failed, "member")
            detail = f"group {each.name} waits for {dead} that died or ended otherwise"
            advice = f"fdbq message retry {seen.quoted} --all; "
            advice += f"or fdbq group forget {seen.quoted} {shlex.quote(each.name)}"
        yield PROBLEM, "groups", detail, advice


def _producing(seen: Seen) -> Lines:
    if seen.producing:
        detail = f"producers wait for room: {'; '.join(seen.producing[:3])}"
        advice = f"start workers, or raise its bounds: fdbq queue show {seen.quoted}"
        yield WARNING, "producers", detail, advice


def _unread(seen: Seen) -> Lines:
    for name, lag in seen.unread:
        detail = f"nobody reads subscription {name}, which has {lag:,} messages to see"
        forget = f"fdbq subscription delete {seen.quoted} {shlex.quote(name)}"
        yield WARNING, "subscriptions", detail, f"start its reader, or {forget}"


def _expired(seen: Seen) -> Lines:
    if stuck := [overdue for overdue in seen.overdue_ms if overdue > EXPIRED_MS]:
        leases, ago = terminal.count(len(stuck), "lease"), terminal.age(max(stuck))
        detail = f"{leases} expired, the first {ago} ago, and no consumer reclaims the messages"
        yield WARNING, "leases", detail, f"fdbq debug sweep {seen.quoted}"


def _full(seen: Seen) -> Lines:
    for unit, held, most in seen.fullness:
        if held >= NEARLY_FULL * most:
            raised = f"fdbq queue set {seen.quoted} bounds.{unit}={2 * most}"
            detail = f"it holds {held:,} of at most {most:,} {unit}"
            state = PROBLEM if held >= most else WARNING
            yield state, "limits", detail, f"consume faster, or raise it: {raised}"


def _staged(seen: Seen) -> Lines:
    for sink, rows, idle_ms in seen.staged:
        # A running write has staged rows, too; one that stages no more has most likely died.
        state, some = OK if idle_ms <= STAGED_MS else WARNING, terminal.count(rows, "row")
        ago = terminal.age(idle_ms)
        detail = f"{some} staged for sink {sink!r} and not enqueued, the last {ago} ago"
        forget = f"fdbq stream forget {seen.quoted} {shlex.quote(sink)}"
        yield state, "sinks", detail, f"if the write has died, repeat it, then run {forget}"


def _dead(seen: Seen) -> Lines:
    if seen.depth.dead:
        detail = terminal.count(seen.depth.dead, "dead letter")
        yield WARNING, "dead", detail, f"fdbq message find {seen.quoted} --state dead"
    if not seen.target_exists:
        target = str(seen.options.dead_letter_queue)
        detail = f"its dead letter queue {target!r} does not exist"
        yield PROBLEM, "dead", detail, f"fdbq queue create {shlex.quote(target)}"


def _verified(seen: Seen) -> Lines:
    if seen.verified is None:
        return
    for deviation in seen.verified.deviations:
        state = OK if deviation.repaired or deviation.passing else PROBLEM
        yield state, "counters", str(deviation), f"fdbq doctor {seen.quoted} --repair"
    for what in seen.verified.unchecked:
        detail = f"too large to be checked at one version: {what}"
        yield WARNING, "counters", detail, f"fdbq doctor {seen.quoted}, at a quieter time"


CHECKS = (
    *(_paused, _no_worker, _stuck, _failing, _deadly, _held, _late, _groups, _producing),
    *(_unread, _expired, _full, _staged, _dead, _verified),
)

"""What goes wrong with queues and their workers: plain values in, findings out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from fdbqueue.values.groups import Group
from fdbqueue.values.model import Depth

from .. import terminal
from .findings import PROBLEM, WARNING, Finding

if TYPE_CHECKING:
    from fdbqueue.schema.consumers import Running, Work

    from ..queues.queue_list import WaitingMessages

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


class Process(Struct, frozen=True):
    """A process that has workers. place: its host and number. silent_ms: since its last sign of
    life. state: what the system says of it here: "stopped", "gone", or nothing."""

    place: str
    silent_ms: int
    works: Sequence[Work]
    state: str = ""


class Scene(Struct, frozen=True):
    """What is known of a queue, and of those who work for it; times are in milliseconds.

    waiting_ms: for how long the first message could have been taken. consumers: how many that live
    take messages. works: what living workers do in it. errors: of messages that have failed, how
    often each of the newest errors comes. deadly: messages at which processes died: the id, how
    many, and the state. held: what waits for keys and limits. last_ms: when the last ready message
    can be taken by the queue's rate. late: schedules, and how late each is. groups: those that wait
    in vain. producing: who has waited for long for room in it. unread: subscriptions without a
    reader, and how many messages they have not seen.
    """

    name: str
    depth: Depth
    paused: bool = False
    full: bool = False
    waiting_ms: int | None = None
    consumers: int = 0
    now_ms: int = 0
    works: Sequence[tuple[str, Work]] = ()
    errors: Sequence[tuple[str, int]] = ()
    deadly: Sequence[tuple[str, int, str]] = ()
    held: Sequence[WaitingMessages] = ()
    last_ms: int | None = None
    late: Sequence[tuple[str, int]] = ()
    groups: Sequence[Group] = ()
    producing: Sequence[str] = ()
    unread: Sequence[tuple[str, int]] = ()


def silent(processes: Sequence[Process]) -> Iterator[Finding]:
    """Processes that give no sign of life."""
    for each in processes:
        # One missed sign of life is enough where the system, too, says that the process is stopped.
        if each.silent_ms <= (MISSED_MS if each.state else SILENT_MS):
            continue
        held = [(work.queue, one) for work in each.works for one in work.running]
        did = ", ".join(f"{queue} {one.id}" for queue, one in held[:3])
        is_so = f"it is {each.state}, and" if each.state else "it"
        detail = f"{is_so} has given no sign of life for {terminal.age(each.silent_ms)}"
        detail += f"; it handled {did}{' and others' * (len(held) > 3)}" if did else ""
        number = each.place.rpartition(":")[2]
        advice = "its messages come back by themselves; start a worker in its place"
        if each.state == "stopped":
            advice = f"continue it: kill -CONT {number}; or end it: kill -KILL {number}"
        yield Finding(PROBLEM, "process", each.place, detail, advice)


def of(seen: Scene) -> Iterator[Finding]:
    """What is wrong with a queue."""
    checks = (_no_worker, _stuck, _failing, _deadly, _held, _late, _groups, _producing, _unread)
    for check in checks:
        yield from check(seen)


def _no_worker(seen: Scene) -> Iterator[Finding]:
    depth = seen.depth
    waits = (seen.waiting_ms or 0) > UNATTENDED_MS
    if seen.paused or seen.consumers or depth.leased or not waits:
        return
    lasts = terminal.age(seen.waiting_ms or 0)
    detail = f"messages could have been taken for {lasts}, and no worker takes any"
    state = PROBLEM if (seen.waiting_ms or 0) > DESERTED_MS else WARNING
    yield Finding(state, "workers", seen.name, detail, "start one: fdbq worker MODULE:NAME")


def _stuck(seen: Scene) -> Iterator[Finding]:
    """Handlers that take far longer than usual, or all of whose places are taken for long."""
    for place, work in seen.works:
        slow = [one for one in work.running if _far(one, work, seen.now_ms)]
        full = work.taken >= work.places and not work.handled + work.failed
        lasting = [one for one in work.running if seen.now_ms - one.since_ms > STUCK_MS]
        # Full alone is no fault: a busy worker with short messages is full all the time.
        if full and lasting and (slow or work.usual_ms is None):
            detail = (
                f"all {work.places} places of {work.worker} are taken and nothing ends: "
                f"{work.handler} has had {lasting[0].id} for "
                f"{terminal.age(seen.now_ms - lasting[0].since_ms)}"
            )
            yield Finding(
                PROBLEM, "handlers", seen.name, detail, _ended(seen.name, lasting[0], place)
            )
        elif slow:
            usual = terminal.age(work.usual_ms or 0)
            lasts = terminal.age(seen.now_ms - slow[0].since_ms)
            others = f", and {len(slow) - 1} others" if len(slow) > 1 else ""
            detail = (
                f"{work.handler} has had {slow[0].id} for {lasts}{others}; it usually takes {usual}"
            )
            yield Finding(WARNING, "handlers", seen.name, detail, _ended(seen.name, slow[0], place))


def _far(one: Running, work: Work, now_ms: int) -> bool:
    lasts = now_ms - one.since_ms
    return work.usual_ms is not None and lasts > max(STUCK_MS, FAR * work.usual_ms)


def _ended(name: str, one: Running, place: str) -> str:
    quoted = shlex.quote(name)
    return (
        f"see what it waits for in process {place}; fdbq message show {quoted} {one.id}; "
        f"to end it: fdbq message cancel {quoted} {one.id}"
    )


def _failing(seen: Scene) -> Iterator[Finding]:
    failed = sum(work.failed for _, work in seen.works)
    if failed < FAILURES or any(work.handled for _, work in seen.works):
        return
    detail = f"all {failed:,} attempts of the last minute failed"
    if seen.errors:
        error, count = max(seen.errors, key=lambda each: each[1])
        detail += f", {count:,} of the last ones with: {error}"
    advice = (
        f"fix the cause, then: fdbq message retry {shlex.quote(seen.name)} --state retrying --all"
    )
    yield Finding(PROBLEM, "failures", seen.name, detail, advice)


def _deadly(seen: Scene) -> Iterator[Finding]:
    for message_id, deaths, state in seen.deadly[:3]:
        who = "a process died as it" if deaths == 1 else f"{deaths:,} processes died as they"
        detail = f"{who} handled {message_id}, which is {state}"
        quoted = shlex.quote(seen.name)
        advice = (
            f"fdbq message show {quoted} {message_id}; fdbq message purge {quoted} {message_id}"
        )
        yield Finding(PROBLEM, "deaths", seen.name, detail, advice)


def _held(seen: Scene) -> Iterator[Finding]:
    for each in seen.held:
        last = "" if each.last_ms is None else f"; the last comes in {terminal.age(each.last_ms)}"
        long = max(each.since_ms or 0, each.last_ms or 0) > HELD_MS
        if not each.paused and not long:
            continue
        detail = f"{terminal.count(each.waiting, 'message')} of {each.gate}: {each.why}{last}"
        name = each.gate.partition(" ")[2]
        of = f" --queue {shlex.quote(seen.name)}" if each.gate.startswith("key ") else ""
        verb = "resume" if each.paused else "show"
        advice = f"fdbq limit {verb} {shlex.quote(name)}{of}"
        yield Finding(WARNING, "waiting", seen.name, detail, advice)
    if seen.last_ms is not None and seen.last_ms > HELD_MS and not seen.paused:
        detail = f"{seen.depth.ready:,} ready messages wait for the rate of the queue; the last "
        detail += f"can be taken in {terminal.age(seen.last_ms)}"
        advice = f"fdbq queue set {shlex.quote(seen.name)} rate=…"
        yield Finding(WARNING, "waiting", seen.name, detail, advice)


def _late(seen: Scene) -> Iterator[Finding]:
    for name, late_ms in seen.late:
        if late_ms <= LATE_MS:
            continue
        quoted = shlex.quote(seen.name)
        if seen.paused:
            why, advice = "the queue is paused", f"fdbq queue resume {quoted}"
        elif not seen.consumers:
            why, advice = "no worker looks for messages", "start one: fdbq worker MODULE:NAME"
        elif seen.full:
            why, advice = "the queue is full", f"fdbq queue show {quoted}"
        else:
            why, advice = "workers have not come to it", f"fdbq worker list {quoted}"
        detail = f"schedule {name} is late by {terminal.age(late_ms)}: {why}"
        yield Finding(PROBLEM, "schedules", seen.name, detail, advice)


def _groups(seen: Scene) -> Iterator[Finding]:
    for each in seen.groups[:3]:
        quoted = shlex.quote(seen.name)
        if each.state == "blocked":
            detail = f"group {each.name}: queue {each.queue} does not take its callback"
            advice = f"fdbq queue show {shlex.quote(each.queue)}"
        else:
            dead = terminal.count(each.dead + each.failed, "member")
            detail = f"group {each.name} waits for {dead} that died or ended otherwise"
            advice = f"fdbq message retry {quoted} --all; or fdbq group forget {quoted} {each.name}"
        yield Finding(PROBLEM, "groups", seen.name, detail, advice)


def _producing(seen: Scene) -> Iterator[Finding]:
    if seen.producing:
        detail = f"producers wait for room: {'; '.join(seen.producing[:3])}"
        advice = f"start workers, or raise its bounds: fdbq queue show {shlex.quote(seen.name)}"
        yield Finding(WARNING, "producers", seen.name, detail, advice)


def _unread(seen: Scene) -> Iterator[Finding]:
    for name, lag in seen.unread:
        detail = f"nobody reads subscription {name}, which has {lag:,} messages to see"
        quoted = f"{shlex.quote(seen.name)} {shlex.quote(name)}"
        advice = f"start its reader, or fdbq subscription delete {quoted}"
        yield Finding(WARNING, "subscriptions", seen.name, detail, advice)

"""The diagnosis of ``fdbq doctor``: plain values in, findings out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from fdbqueue.values.model import Depth, Verification
from fdbqueue.values.options import QueueOptions

from .. import terminal
from . import incidents
from .findings import OK, PROBLEM, WARNING, Finding
from .incidents import Scene

SLOW_MS = 250
FREE_BYTES = 1_000_000_000
NEARLY_FULL = 0.9
EXPIRED_MS = 10_000
"""How long an expired lease may wait until a consumer reclaims it."""
STAGED_MS = 15 * 60_000
"""How long a write may stage nothing new."""
SKEW_SECONDS = 2.0
BAD_SKEW_SECONDS = 30.0


class Seen(Struct, frozen=True):
    """What the doctor found out about a queue; times are in milliseconds.

    overdue_ms: time since each expired lease ended. paused_by: since when it is paused, and by
    whom, if that is known. scene: what incidents show. staged: each sink with its undecided rows,
    and the time since the last was added. verified: None if the queue was not verified.
    """

    name: str
    options: QueueOptions
    depth: Depth
    overdue_ms: Sequence[int] = ()
    paused_by: str = ""
    scene: Scene | None = None
    target_exists: bool = True
    staged: Sequence[tuple[str, int, int]] = ()
    verified: Verification | None = None


def _finding(state: str, check: str, subject: str, detail: str, advice: str) -> Finding:
    """A finding, with advice unless all is well."""
    return Finding(state, check, subject, detail, "" if state == OK else advice)


def latency(commit_ms: float, begin_ms: float) -> Finding:
    """The latency of the store."""
    state = OK if max(commit_ms, begin_ms) <= SLOW_MS else WARNING
    detail = f"begin {begin_ms:.1f} ms, commit {commit_ms:.1f} ms"
    advice = "the store or the network is slow: check its load"
    return _finding(state, "latency", "store", detail, advice)


def commits(error: str, full: bool) -> Finding:
    """The store takes no commits; full: as there is no room left for it."""
    advice = "see below"
    if full:
        advice = "free some space, or remove messages, which has a reserve: fdbq message purge"
    return Finding(PROBLEM, "commits", "store", f"it takes no commits: {error}", advice)


def pace(versions_per_second: float) -> Finding:
    """Whether the database's version advances as fast as the wall clock; leases depend on it."""
    millions = versions_per_second / 1_000_000
    state = OK if 0.8 <= millions <= 1.25 else WARNING
    detail = f"the database's version advances {millions:.2f} million per second"
    detail += "" if state == OK else ", not 1"
    advice = (
        "leases last longer or shorter than they should; after a recovery, run fdbq doctor again"
    )
    return _finding(state, "clock", "store", detail, advice)


def unreadable(name: str, problem: str) -> Finding:
    """A queue with data that cannot be read."""
    advice = "remove the queue with fdbq queue delete"
    return Finding(PROBLEM, "readable", name, problem, advice)


def skew(seconds: float) -> Finding:
    """The difference between this machine's wall clock and the cluster's."""
    apart, side = abs(seconds), "ahead of" if seconds > 0 else "behind"
    state = OK if apart <= SKEW_SECONDS else PROBLEM if apart > BAD_SKEW_SECONDS else WARNING
    detail = f"this machine's clock is {apart:.1f} s {side} the cluster's"
    advice = (
        "set this machine's clock, and run ntpd or chronyd: delays and times to live are wrong by "
        "this much (beyond a minute, fdbqueue uses the cluster's clock instead)"
    )
    return _finding(state, "clock", "machine", detail, advice)


def space(free: int, path: str) -> Finding:
    """The free disk space of an embedded store."""
    state = OK if free >= FREE_BYTES else PROBLEM
    detail = f"{free / 1e9:,.1f} GB free in {path}"
    return _finding(state, "disk", "store", detail, "free some space, or move the store")


def data(damages: Sequence[str]) -> Finding:
    """Whether all rows of an embedded store are what was written."""
    state = PROBLEM if damages else OK
    detail = "; ".join(damages) or "every row is what was written"
    return _finding(state, "data", "store", detail, "check the disk, and put a backup in its place")


def durability(synchronous: str) -> Finding:
    """Whether an embedded store syncs its commits to disk."""
    state = OK if synchronous == "full" else WARNING
    advice = "a power cut may lose the latest commits; full prevents that"
    detail = f"FDBQUEUE_SYNCHRONOUS is {synchronous}"
    return _finding(state, "durability", "store", detail, advice)


def cluster(status: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings of a cluster's own status."""
    advice = "fdbcli --exec 'status details'"
    client, inner = status.get("client", {}), status.get("cluster", {})
    database = client.get("database_status", {})
    if not database.get("available", True):
        yield Finding(PROBLEM, "cluster", "store", "the database is not available", advice)
    elif not database.get("healthy", True):
        yield Finding(WARNING, "cluster", "store", "the database is not healthy", advice)
    else:
        yield Finding(OK, "cluster", "store", "the database is available and healthy")
    limited = inner.get("qos", {}).get("performance_limited_by", {})
    if limited.get("name", "workload") != "workload":
        detail = f"the cluster limits its clients: {limited.get('description', limited['name'])}"
        yield Finding(WARNING, "limits", "store", detail, advice)
    for message in [*inner.get("messages", []), *client.get("messages", [])]:
        text = message.get("description") or message.get("name", "")
        yield Finding(WARNING, "cluster", "store", text, advice)


def queue(seen: Seen) -> Iterator[Finding]:
    """The findings about a queue."""
    name, depth, quoted = seen.name, seen.depth, shlex.quote(seen.name)

    def found(state: str, check: str, detail: str, advice: str) -> Finding:
        return Finding(state, check, name, detail, advice)

    ready = terminal.count(depth.ready, "message") + " ready"
    if seen.options.paused:
        detail = f"it is paused{seen.paused_by} with {ready}"
        yield found(WARNING, "pause", detail, f"fdbq queue resume {quoted}")
    yield from () if seen.scene is None else incidents.of(seen.scene)
    if stuck := [overdue for overdue in seen.overdue_ms if overdue > EXPIRED_MS]:
        detail = (
            f"{terminal.count(len(stuck), 'lease')} expired, the first {terminal.age(max(stuck))} "
            "ago, and no consumer reclaims the messages"
        )
        yield found(WARNING, "leases", detail, f"fdbq debug sweep {quoted}")
    held = depth.unsettled
    for unit, limit, holds in (
        ("messages", seen.options.bounds.messages, held),
        ("bytes", seen.options.bounds.bytes, depth.ready_bytes),
    ):
        if limit is not None and holds >= NEARLY_FULL * limit:
            state = PROBLEM if holds >= limit else WARNING
            detail = f"it holds {holds:,} of at most {limit:,} {unit}"
            change = f"fdbq queue set {quoted} bounds.{unit}={2 * limit}"
            advice = f"consume faster, or raise it: {change}"
            yield found(state, "limits", detail, advice)
    for sink, rows, idle_ms in seen.staged:
        # A running write has staged rows, too; one that stages no more has most likely died.
        state = OK if idle_ms <= STAGED_MS else WARNING
        detail = (
            f"{terminal.count(rows, 'row')} staged for sink {sink!r} and not enqueued, the last "
            f"{terminal.age(idle_ms)} ago"
        )
        advice = (
            "if the write has died, repeat it, then run "
            f"fdbq stream forget {quoted} {shlex.quote(sink)}"
        )
        yield _finding(state, "sinks", name, detail, advice)
    if depth.dead:
        detail = terminal.count(depth.dead, "dead letter")
        yield found(WARNING, "dead", detail, f"fdbq message find {quoted} --state dead")
    if not seen.target_exists:
        target = str(seen.options.dead_letter_queue)
        detail = f"its dead letter queue {target!r} does not exist"
        yield found(PROBLEM, "dead", detail, f"fdbq queue create {shlex.quote(target)}")
    for deviation in () if seen.verified is None else seen.verified.deviations:
        state = OK if deviation.repaired or deviation.passing else PROBLEM
        yield _finding(state, "counters", name, str(deviation), f"fdbq doctor {quoted} --repair")
    for what in () if seen.verified is None else seen.verified.unchecked:
        detail = f"too large to be checked at one version: {what}"
        yield found(WARNING, "counters", detail, f"fdbq doctor {quoted}, at a quieter time")

"""The diagnosis of ``fdbq doctor``: plain values in, findings out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from fdbqueue.values.model import Depth, Verification
from fdbqueue.values.options import QueueOptions

from ...values.records import record
from .. import terminal

OK, WARNING, PROBLEM = "ok", "warning", "problem"

SLOW_MS = 250
FREE_BYTES = 1_000_000_000
NEARLY_FULL = 0.9
EXPIRED_MS = 10_000
"""How long an expired lease may wait until a consumer reclaims it."""
UNATTENDED_MS = 15 * 60_000
STAGED_MS = 15 * 60_000
"""How long a write may stage nothing new."""
SKEW_SECONDS = 2.0
BAD_SKEW_SECONDS = 30.0


@record
class Finding:
    """One line of the report. ``advice`` is a command or a hint."""

    state: str
    check: str
    subject: str
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """JSON-ready."""
        return asdict(self)


@record
class Seen:
    """What the doctor found out about a queue; times are in milliseconds.

    waiting_ms: age of the oldest ready message. overdue_ms: time since each expired lease ended.
    staged: each sink with its undecided rows, and the time since the last was added. verified: None
    if the queue was not verified.
    """

    name: str
    options: QueueOptions
    depth: Depth
    waiting_ms: int | None = None
    overdue_ms: Sequence[int] = field(default_factory=list)
    consumers: int = 0
    stale: int = 0
    target_exists: bool = True
    staged: Sequence[tuple[str, int, int]] = field(default_factory=list)
    verified: Verification | None = None


def latency(commit_ms: float, begin_ms: float) -> Finding:
    """The latency of the store."""
    detail = f"begin {begin_ms:.1f} ms, commit {commit_ms:.1f} ms"
    if max(commit_ms, begin_ms) <= SLOW_MS:
        return Finding(OK, "latency", "store", detail)
    return Finding(
        WARNING, "latency", "store", detail, "the store or the network is slow: check its load"
    )


def pace(versions_per_second: float) -> Finding:
    """Whether the database's version advances as fast as the wall clock; leases depend on it."""
    share = versions_per_second / 1_000_000
    detail = f"the database's version advances {share:.2f} million per second"
    if 0.8 <= share <= 1.25:
        return Finding(OK, "clock", "store", detail)
    return Finding(
        WARNING,
        "clock",
        "store",
        f"{detail}, not 1",
        "leases last longer or shorter than they should; after a recovery, run fdbq doctor again",
    )


def unreadable(name: str, problem: str) -> Finding:
    """A queue with data that this release cannot read."""
    return Finding(
        PROBLEM,
        "readable",
        name,
        problem,
        "use the release that wrote it, or remove the queue with fdbq queue delete",
    )


def skew(seconds: float) -> Finding:
    """The difference between this machine's wall clock and the cluster's."""
    detail = f"this machine's clock is {abs(seconds):.1f} s " + (
        "ahead of" if seconds > 0 else "behind"
    )
    detail += " the cluster's"
    if abs(seconds) <= SKEW_SECONDS:
        return Finding(OK, "clock", "machine", detail)
    return Finding(
        PROBLEM if abs(seconds) > BAD_SKEW_SECONDS else WARNING,
        "clock",
        "machine",
        detail,
        "set this machine's clock, and run ntpd or chronyd: delays and times to live are wrong by "
        "this much (beyond a minute, fdbqueue uses the cluster's clock instead)",
    )


def space(free: int, path: str) -> Finding:
    """The free disk space of an embedded store."""
    detail = f"{free / 1e9:,.1f} GB free in {path}"
    if free >= FREE_BYTES:
        return Finding(OK, "disk", "store", detail)
    return Finding(PROBLEM, "disk", "store", detail, "free some space, or move the store")


def durability(synchronous: str) -> Finding:
    """Whether an embedded store syncs its commits to disk."""
    detail = f"FDBQUEUE_SYNCHRONOUS is {synchronous}"
    if synchronous == "full":
        return Finding(OK, "durability", "store", detail)
    return Finding(
        WARNING,
        "durability",
        "store",
        detail,
        "a power cut may lose the latest commits; full prevents that",
    )


def cluster(status: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings of a cluster's own status."""
    database = status.get("client", {}).get("database_status", {})
    if not database.get("available", True):
        yield Finding(PROBLEM, "cluster", "store", "the database is not available",
                      "fdbcli --exec 'status details'")  # fmt: skip
    elif not database.get("healthy", True):
        yield Finding(WARNING, "cluster", "store", "the database is not healthy",
                      "fdbcli --exec 'status details'")  # fmt: skip
    else:
        yield Finding(OK, "cluster", "store", "the database is available and healthy")
    inner = status.get("cluster", {})
    limited = inner.get("qos", {}).get("performance_limited_by", {})
    if limited.get("name", "workload") != "workload":
        yield Finding(WARNING, "limits", "store", f"the cluster limits its clients: "
                      f"{limited.get('description', limited['name'])}",
                      "fdbcli --exec 'status details'")  # fmt: skip
    for message in [*inner.get("messages", []), *status.get("client", {}).get("messages", [])]:
        text = message.get("description") or message.get("name", "")
        yield Finding(WARNING, "cluster", "store", text, "fdbcli --exec 'status details'")


def queue(seen: Seen) -> Iterator[Finding]:
    """The findings about a queue."""
    name, depth, quoted = seen.name, seen.depth, shlex.quote(seen.name)
    if seen.options.paused:
        yield Finding(WARNING, "pause", name, f"it is paused with {_messages(depth.ready)} ready",
                      f"fdbq queue resume {quoted}")  # fmt: skip
    elif _unattended(seen):
        yield Finding(
            WARNING,
            "consumers",
            name,
            f"{_messages(depth.ready)} ready, the oldest for "
            f"{terminal.age(seen.waiting_ms or 0)}, and no consumer",
            "start a worker: fdbq worker MODULE:NAME",
        )
    if seen.stale:
        yield Finding(WARNING, "consumers", name,
                      f"{terminal.count(seen.stale, 'consumer')} without a recent heartbeat",
                      f"fdbq consumer evict {quoted}")  # fmt: skip
    stuck = [overdue for overdue in seen.overdue_ms if overdue > EXPIRED_MS]
    if stuck:
        yield Finding(
            WARNING,
            "leases",
            name,
            f"{terminal.count(len(stuck), 'lease')} expired, the first {terminal.age(max(stuck))} "
            "ago, and no consumer reclaims the messages",
            f"fdbq sweep {quoted}",
        )
    yield from _limits(seen)
    yield from _staged(seen)
    if depth.dead:
        yield Finding(WARNING, "dead", name, terminal.count(depth.dead, "dead letter"),
                      f"fdbq dead list {quoted}")  # fmt: skip
    if not seen.target_exists:
        target = seen.options.dead_letter_queue
        yield Finding(PROBLEM, "dead", name, f"its dead letter queue {target!r} does not exist",
                      f"fdbq queue create {shlex.quote(str(target))}")  # fmt: skip
    yield from _verified(seen)


def _unattended(seen: Seen) -> bool:
    waits = seen.waiting_ms is not None and seen.waiting_ms > UNATTENDED_MS
    return waits and not seen.consumers and not seen.depth.leased


def _staged(seen: Seen) -> Iterator[Finding]:
    """Staged rows: a running write has them too, but a write that stages no more has died."""
    for sink, rows, idle_ms in seen.staged:
        detail = (
            f"{terminal.count(rows, 'row')} staged for sink {sink!r} and not enqueued, the last "
            f"{terminal.age(idle_ms)} ago"
        )
        if idle_ms <= STAGED_MS:
            yield Finding(OK, "sinks", seen.name, detail)
            continue
        yield Finding(
            WARNING,
            "sinks",
            seen.name,
            detail,
            f"if the write has died, repeat it, then run fdbq sink forget {shlex.quote(seen.name)} "
            f"{shlex.quote(sink)}",
        )


def _limits(seen: Seen) -> Iterator[Finding]:
    depth, options, quoted = seen.depth, seen.options, shlex.quote(seen.name)
    held = depth.ready + depth.delayed + depth.leased
    for unit, bound, holds in (
        ("messages", options.max_messages, held),
        ("bytes", options.max_bytes, depth.ready_bytes),
    ):
        if bound is not None and holds >= NEARLY_FULL * bound:
            yield Finding(
                PROBLEM if holds >= bound else WARNING,
                "limits",
                seen.name,
                f"it holds {holds:,} of at most {bound:,} {unit}",
                f"consume faster, or raise it: fdbq queue set {quoted} max_{unit}={2 * bound}",
            )


def _verified(seen: Seen) -> Iterator[Finding]:
    if seen.verified is None:
        return
    quoted = shlex.quote(seen.name)
    if wrong := len(seen.verified.deviations):
        first = seen.verified.deviations[0]
        more = f", and {wrong - 1:,} more" if wrong > 1 else ""
        yield Finding(PROBLEM, "counters", seen.name, f"{first}{more}",
                      f"fdbq queue verify {quoted} --repair")  # fmt: skip
    if seen.verified.unchecked:
        yield Finding(WARNING, "counters", seen.name, "too large to be checked completely",
                      f"fdbq queue verify {quoted}, at a quieter time")  # fmt: skip


def _messages(number: int) -> str:
    return terminal.count(number, "message")

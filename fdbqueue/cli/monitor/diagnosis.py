"""The diagnosis of ``fdbq doctor``: plain values in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

SLOW_MS = 250
FREE_BYTES = 1_000_000_000
SKEW_SECONDS = 2.0
BAD_SKEW_SECONDS = 30.0

OK, WARNING, PROBLEM = "ok", "warning", "problem"
"""A problem needs a person; a warning is to be known."""


class Finding(Struct, frozen=True):
    """One line of the report. ``advice`` is a command or a hint."""

    state: str
    check: str
    subject: str
    detail: str
    advice: str = ""

    def lines(self) -> list[str]:
        """For people."""
        found = [f"{self.state:<8} {self.check} {self.subject}: {self.detail}"]
        return [*found, f"         → {self.advice}"] if self.advice else found

    def to_json(self) -> dict[str, str]:
        """JSON-ready."""
        return structs.asdict(self)


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

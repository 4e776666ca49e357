"""What is known of the queues of a run, beside its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rules:
    """What must hold in a run of tools/chaos.

    max_attempts: of every queue. min_lease_ns: a little less than the shortest lease.
    early_ms: by how much a delivery may seem to come too early, since clocks are wrong.
    strict: the queues that keep order. exact: those of them that keep it at every commit.
    handled: the queues with a handler, which may see a delivery several times.
    filtered: the queue that is taken from by selectors. watched: the queue that is browsed.
    browsers: the browsers, and the region that each is about; empty where all.
    """

    max_attempts: int
    min_lease_ns: int
    early_ms: int
    strict: tuple[str, ...]
    exact: tuple[str, ...]
    handled: tuple[str, ...]
    filtered: str
    watched: str
    browsers: Mapping[str, str] = field(default_factory=dict)

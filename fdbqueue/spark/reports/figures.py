"""The figures of a report, as plain values and as text; docs/spark/jobs.md defines each.

Times are in milliseconds; points in time, since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest-rank percentiles of ``count`` times; None without any."""

    count: int
    p50: int | None
    p95: int | None
    p99: int | None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many events of each kind there were. A redelivery counts as a delivery, too."""

    enqueued: int
    delivered: int
    redelivered: int
    done: int
    returned: int
    dead: int
    expired: int
    purged: int


@dataclass(frozen=True, slots=True)
class LevelFigures(Counts):
    """One level of a queue, or the whole queue if ``level`` is None."""

    level: int | None
    waiting: Percentiles
    service: Percentiles
    whole: Percentiles


@dataclass(frozen=True, slots=True)
class TimeSpan(Counts):
    """One span of time.

    ready: the change in ready messages since the history began. longest_wait_ms: the longest wait
    of a delivery in the span.
    """

    begin_ms: int
    ready: int
    waiting: Percentiles
    longest_wait_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """One consumer. ``failed`` counts deliveries that came back or ended without success."""

    consumer: str
    delivered: int
    done: int
    failed: int
    service: Percentiles


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly a queue's consumers share its deliveries.

    ``evenness`` is Jain's index: 1 if all have the same number, 1/n if one of n has all.
    """

    consumers: int
    most: int
    least: int
    evenness: float


@dataclass(frozen=True, slots=True)
class Oldest:
    """The messages that the history leaves in a state, and the one enqueued first."""

    state: str
    messages: int
    id: str
    level: int
    deliveries: int
    since_ms: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One queue. ``consumers`` are the busiest; ``balance`` covers all."""

    queue: str
    whole: LevelFigures
    levels: tuple[LevelFigures, ...]
    spans: tuple[TimeSpan, ...]
    consumers: tuple[ConsumerFigures, ...]
    balance: Balance | None
    oldest: tuple[Oldest, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of some queues. The times are None without a history."""

    since_ms: int | None
    until_ms: int | None
    span_ms: int | None
    queues: tuple[QueueReport, ...]

    def to_json(self) -> Mapping[str, Any]:
        """All figures as plain dictionaries and lists."""
        return asdict(self)


def moment(milliseconds: int) -> str:
    """A point in time, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def share(part: int, whole: int) -> str:
    """A share in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"

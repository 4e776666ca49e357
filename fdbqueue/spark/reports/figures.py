"""The figures of a report, as plain values; docs/spark.md defines each.

Times are in milliseconds; points in time, since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...values.records import record


@record
class Percentiles:
    """Nearest-rank percentiles of ``count`` times; None without any."""

    count: int
    p50: int | None
    p95: int | None
    p99: int | None


@record
class LevelFigures:
    """One level of a queue, or the whole queue if ``level`` is None."""

    level: int | None
    enqueued: int
    delivered: int
    redelivered: int
    done: int
    returned: int
    dead: int
    expired: int
    purged: int
    waiting: Percentiles
    service: Percentiles
    whole: Percentiles


@record
class Span:
    """One span of time.

    ready: the change in ready messages since the history began. longest_wait_ms: the longest wait
    of a delivery in the span.
    """

    begin_ms: int
    enqueued: int
    delivered: int
    redelivered: int
    done: int
    returned: int
    dead: int
    expired: int
    purged: int
    ready: int
    waiting: Percentiles
    longest_wait_ms: int | None


@record
class ConsumerFigures:
    """One consumer. ``failed`` counts deliveries that came back or ended without success."""

    consumer: str
    delivered: int
    done: int
    failed: int
    service: Percentiles


@record
class Balance:
    """How evenly a queue's consumers share its deliveries.

    ``evenness`` is Jain's index: 1 if all have the same number, 1/n if one of n has all.
    """

    consumers: int
    most: int
    least: int
    evenness: float


@record
class Oldest:
    """The messages that the history leaves in a state, and the one enqueued first."""

    state: str
    messages: int
    id: str
    level: int
    deliveries: int
    since_ms: int
    age_ms: int


@record
class QueueReport:
    """One queue. ``consumers`` are the busiest; ``balance`` covers all."""

    queue: str
    whole: LevelFigures
    levels: tuple[LevelFigures, ...]
    spans: tuple[Span, ...]
    consumers: tuple[ConsumerFigures, ...]
    balance: Balance | None
    oldest: tuple[Oldest, ...]


@record
class Figures:
    """The figures of some queues. The times are None without a history."""

    since_ms: int | None
    until_ms: int | None
    span_ms: int | None
    queues: tuple[QueueReport, ...]

    def to_json(self) -> Mapping[str, Any]:
        """All figures as plain dictionaries and lists."""
        return asdict(self)

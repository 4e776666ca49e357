"""What a report says, as plain values. Every figure is defined in docs/spark.md.

Times are milliseconds; those of the clock are since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...values.records import record


@record
class Percentiles:
    """Of ``count`` times, those at three ranks (the nearest); None where there is no time."""

    count: int
    p50: int | None
    p95: int | None
    p99: int | None


@record
class LevelFigures:
    """One level of a queue, or all of it where ``level`` is None."""

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
    """What happened in one span of time.

    ``ready`` is how many more messages are ready at its end than before the history began;
    ``longest_wait_ms`` is the longest that a message had waited that was delivered in it.
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
    """One consumer. ``failed``: deliveries to it that came back, or ended without success."""

    consumer: str
    delivered: int
    done: int
    failed: int
    service: Percentiles


@record
class Balance:
    """How evenly deliveries are shared out among all consumers of a queue.

    ``evenness`` is Jain's index: 1 where all have got as many, 1/n where one of n has got all.
    """

    consumers: int
    most: int
    least: int
    evenness: float


@record
class Oldest:
    """The messages that the history leaves in a state, and the one that was enqueued first."""

    state: str
    messages: int
    id: str
    level: int
    deliveries: int
    since_ms: int
    age_ms: int


@record
class QueueReport:
    """One queue. ``consumers`` are the busiest; ``balance`` is about all of them."""

    queue: str
    whole: LevelFigures
    levels: tuple[LevelFigures, ...]
    spans: tuple[Span, ...]
    consumers: tuple[ConsumerFigures, ...]
    balance: Balance | None
    oldest: tuple[Oldest, ...]


@record
class Figures:
    """What the history of queues says; the times are None where there is no history."""

    since_ms: int | None
    until_ms: int | None
    span_ms: int | None
    queues: tuple[QueueReport, ...]

    def to_json(self) -> Mapping[str, Any]:
        """All of it as plain dictionaries and lists."""
        return asdict(self)

"""What a scrape tells of queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..consumers.consumer_states import ConsumerState
from ..errors import QueueNotFound
from ..queue.admin import finding
from ..queue.queue import Queue
from ..schema import once
from ..schema.keys import RootKeys
from ..store.binding import fdb
from ..values import durations, rates
from ..values.content import check_count
from ..values.durations import Seconds
from ..values.states import ENDS, State
from . import scrape_reads
from .scrape_reads import MOST_KEYS, ScrapedQueue

MOST_QUEUES = 1_000
TIMEOUT_SECONDS = 10.0
MOST_LAG = 1_000
"""How many messages of the lag of a subscription are counted."""
BATCH = 100
"""How many queues one transaction reads."""
KNOWN = ("shown", "unreadable", "left out")


class QueueCollector(Collector):
    """Collects how queues stand: depths by level and state, the load that is pending, the age of
    the oldest message, totals, consumers, and how many keys have messages that wait.

    queues: the queues, or a function that returns them, so that new queues are included.
    most: how many queues it shows at most, the first ones. keys: how many keys it shows by name
        of each queue, those with the most messages that wait, of the first thousand; every name
        makes a time series. timeout: how long one transaction may take, in seconds; None for no
        limit.

    Register it with a registry of prometheus_client. A scrape takes two round trips of snapshot
    reads for every 100 queues, and one for each level of each of the first 20 subscriptions of a
    queue; without conflicts. It reads no message but the first of each level, its first 100 leases,
    and of subscriptions up to 1,000 that they have not seen.
    Deleted queues are left out. Raises ``InvalidArgument``.
    """

    def __init__(
        self,
        db: fdb.Database,
        queues: Iterable[Queue] | Callable[[], Iterable[Queue]],
        *,
        most: int = MOST_QUEUES,
        keys: int = 0,
        timeout: Seconds | None = TIMEOUT_SECONDS,
    ) -> None:
        self._db = db
        self._queues = queues if callable(queues) else lambda: queues
        self._most = check_count("most", most, 1_000_000)
        self._keys = keys and check_count("keys", keys, MOST_KEYS)
        self._timeout = durations.limit("timeout", timeout)

    def exposition(self) -> tuple[str, bytes]:
        """All that it collects, for Prometheus: the content type, and the text."""
        registry = CollectorRegistry()
        registry.register(self)
        return CONTENT_TYPE_LATEST, generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Read the metrics."""
        known = Counter(dict.fromkeys(KNOWN, 0))
        families = _Families(self._keys)
        queues = [*self._queues()]
        lags: list[tuple[str, str]] = []
        known["left out"] = max(0, len(queues) - self._most)
        for start in range(0, min(len(queues), self._most), BATCH):
            some = queues[start : min(start + BATCH, self._most)]
            read = partial(scrape_reads.take, queues=some)
            keys = RootKeys(some[0]._root, self._timeout).once
            for found in once.run(self._db, keys, read, wrote=lambda _: False):
                known["unreadable" if found is None else "shown"] += 1
                if found is not None:
                    families.add(found)
                    lags += [(found.queue, name) for name in found.subscriptions]
        of = {queue.name: queue for queue in queues} if lags else {}
        for name, subscription in lags:
            with suppress(QueueNotFound):  # it was deleted a moment ago
                lag = finding.lag(self._db, of[name], subscription, MOST_LAG)
                families.lag.add_metric([name, subscription], lag)
        counted = GaugeMetricFamily(
            "fdbqueue_queues", "Queues that are shown, and that are not.", labels=["state"]
        )
        for state in KNOWN:
            counted.add_metric([state], known[state])
        yield counted
        yield from families.all


class _Families:
    """The metrics of queues, one after another. keys: how many keys of each are shown by name."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.messages = _gauge("messages", "Messages by level and state.", "level", "state")
        self.pending = _gauge("pending_messages", "Messages to be handled: ready, leased, or due.")
        self.sizes = _gauge("ready_bytes", "Payload bytes of the ready messages.")
        self.enqueued = _counter("enqueued", "Messages enqueued so far.")
        self.ended = _counter("ended", "Messages ended so far, by final state.", "state")
        self.ages = _gauge(
            "oldest_ready_age_seconds",
            "Age of the oldest message that is first of its level; 0 if none is ready.",
        )
        self.leased = _gauge(
            "oldest_lease_age_seconds",
            "Age of the oldest among the first 100 leases of each level; 0 if there is none.",
        )
        self.reasons = _gauge(
            "waiting_messages", "Messages that wait, by what for: a key, or a limit.", "reason"
        )
        self.lag = _gauge(
            "subscription_lag_messages",
            "Messages that a subscription has still to see, up to 1,000.",
            "subscription",
        )
        self.overdue = _gauge(
            "due_age_seconds", "For how long the first that came later has been due; 0 if none is."
        )
        self.paused = _gauge("paused", "Whether deliveries are paused.")
        self.in_flight = _gauge(
            "max_in_flight", "Most messages that may be in flight, of queues with such a limit."
        )
        self.rates = _gauge(
            "max_rate", "Most messages a second that may be taken, of queues with a rate."
        )
        self.consumers = _gauge("consumers", "Consumers by state.", "state")
        self.backlogs = _gauge("keys_waiting", "Keys of which messages wait, up to 1,000.")
        self.since = _gauge(
            "key_backlog_age_seconds",
            "How long messages of a key have waited without a break, at most; 0 if none waits.",
        )
        self.waiting = _gauge(
            "key_waiting", "Messages of a key that wait for a slot; the keys with the most.", "key"
        )

    @property
    def all(self) -> list[Metric]:
        """All of them."""
        return [each for each in vars(self).values() if isinstance(each, Metric)]

    def add(self, found: ScrapedQueue) -> None:
        """Add a queue."""
        name, total = found.queue, found.total

        def seconds(since_ms: int | None) -> float:
            return 0.0 if since_ms is None else max(0, found.now_ms - since_ms) / 1000

        for level, depth in sorted(found.depths.items()):
            for state in State:
                if state not in ENDS:
                    self.messages.add_metric(
                        [name, str(level), state.value], getattr(depth, state.value)
                    )
        self.pending.add_metric([name], found.pending)
        self.sizes.add_metric([name], total.ready_bytes)
        self.enqueued.add_metric([name], total.enqueued)
        for state in sorted(ENDS, key=lambda state: state.value):
            self.ended.add_metric([name, state.value], getattr(total, state.value))
        self.ages.add_metric([name], seconds(found.oldest_ms))
        self.leased.add_metric([name], seconds(found.leased_ms))
        of_keys = min(total.waiting, sum(each.waiting for each in found.backlogs))
        self.reasons.add_metric([name, "key"], of_keys)
        self.reasons.add_metric([name, "limit"], total.waiting - of_keys)
        self.overdue.add_metric([name], seconds(found.due_ms))
        self.paused.add_metric([name], found.options.paused)
        if found.options.max_in_flight is not None:
            self.in_flight.add_metric([name], found.options.max_in_flight)
        if found.options.rate is not None:
            self.rates.add_metric([name], 1e6 / rates.parse(found.options.rate).interval_us)
        for one in ConsumerState:
            self.consumers.add_metric([name, one.name.lower()], found.consumers[one])
        most = sorted(found.backlogs, key=lambda each: each.waiting, reverse=True)
        self.backlogs.add_metric([name], len(most))
        self.since.add_metric([name], seconds(min((each.since_ms for each in most), default=None)))
        for each in most[: self.keys]:
            self.waiting.add_metric([name, each.key], each.waiting)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fdbqueue_{name}", text, labels=["queue", *labels])


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"fdbqueue_{name}", text, labels=["queue", *labels])

"""Metrics for Prometheus. Needs ``fdbqueue[metrics]``.

``QueueCollector`` reads the state of queues from the store at each scrape: one process is enough.
``WorkerMetrics`` counts what a worker does, in the worker's process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field

from .consumers import registry
from .consumers.states import ConsumerState
from .errors import MissingPackage, QueueError
from .messages import age
from .messages.slots import inspection as keys
from .queue.queue import Queue
from .schema import counters, once
from .store.binding import fdb
from .values.limits import KeyBacklog
from .values.model import Delivery, Depth
from .values.records import record
from .values.states import ENDS, Outcome, State

try:
    import prometheus_client as prometheus
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
except ImportError as error:
    raise MissingPackage(
        purpose="fdbqueue.metrics", package="prometheus_client", extra="metrics"
    ) from error

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
KEYS_READ, KEYS_SHOWN = 1_000, 10
"""How many keys of which messages wait a scrape reads for each queue, and how many it shows."""
CODES = {1020: "conflict", 1021: "unknown result", 1007: "too old", 1031: "timed out"}


@record
class _Snapshot:
    """One queue, as one transaction reads it."""

    queue: str
    depths: dict[int, Depth]
    oldest_ms: int | None
    now_ms: int
    consumers: Sequence[registry.Consumer] = field(default_factory=list)
    backlogs: Sequence[KeyBacklog] = field(default_factory=list)


class QueueCollector(Collector):
    """Collects depths by state and level, the age of the oldest message, totals, consumers, and the
    keys of which messages wait: by name the ten with the most, of the first thousand.

    queues: the queues, or a function that returns them, so that new queues are included.

    Register it with a registry of prometheus_client. A scrape takes one transaction of snapshot
    reads for each queue, without conflicts. Deleted queues are skipped.
    """

    def __init__(
        self, db: fdb.Database, queues: Iterable[Queue] | Callable[[], Iterable[Queue]]
    ) -> None:
        self._db = db
        self._queues = queues if callable(queues) else lambda: queues

    def collect(self) -> Iterator[Metric]:
        """Read the metrics."""
        messages = GaugeMetricFamily(
            "fdbqueue_messages", "Messages by level and state.", labels=["queue", "level", "state"]
        )
        sizes = GaugeMetricFamily(
            "fdbqueue_ready_bytes", "Payload bytes of the ready messages.", labels=["queue"]
        )
        enqueued = CounterMetricFamily(
            "fdbqueue_enqueued", "Messages enqueued so far.", labels=["queue"]
        )
        ended = CounterMetricFamily(
            "fdbqueue_ended", "Messages ended so far, by final state.", labels=["queue", "state"]
        )
        ages = GaugeMetricFamily(
            "fdbqueue_oldest_ready_age_seconds",
            "Age of the oldest message that is first of its level; 0 if none is ready.",
            labels=["queue"],
        )
        consumers = GaugeMetricFamily(
            "fdbqueue_consumers", "Consumers by state.", labels=["queue", "state"]
        )
        waiting = GaugeMetricFamily(
            "fdbqueue_key_waiting",
            "Messages of a key that wait for a slot; the keys with the most.",
            labels=["queue", "key"],
        )
        backlogs = GaugeMetricFamily(
            "fdbqueue_keys_waiting", "Keys of which messages wait, up to 1,000.", labels=["queue"]
        )
        since = GaugeMetricFamily(
            "fdbqueue_key_backlog_age_seconds",
            "How long messages of a key have waited without a break, at most; 0 if none waits.",
            labels=["queue"],
        )
        for found in (each for queue in self._queues() if (each := self._snapshot(queue))):
            name, total = found.queue, sum(found.depths.values(), Depth())
            for level, depth in sorted(found.depths.items()):
                for state in State:
                    if state not in ENDS:
                        labels = [name, str(level), state.value]
                        messages.add_metric(labels, getattr(depth, state.value))
            sizes.add_metric([name], total.ready_bytes)
            enqueued.add_metric([name], total.enqueued)
            for state in sorted(ENDS, key=lambda state: state.value):
                ended.add_metric([name, state.value], getattr(total, state.value))
            oldest_ms = found.now_ms if found.oldest_ms is None else found.oldest_ms
            ages.add_metric([name], max(0, found.now_ms - oldest_ms) / 1000)
            states = [one.state for one in found.consumers]
            for consumer_state in ConsumerState:
                labels = [name, consumer_state.name.lower()]
                consumers.add_metric(labels, states.count(consumer_state))
            most = sorted(found.backlogs, key=lambda one: one.waiting, reverse=True)
            for one in most[:KEYS_SHOWN]:
                waiting.add_metric([name, one.key], one.waiting)
            backlogs.add_metric([name], len(most))
            begun_ms = min((one.since_ms for one in most), default=found.now_ms)
            since.add_metric([name], max(0, found.now_ms - begun_ms) / 1000)
        yield from (messages, sizes, enqueued, ended, ages, consumers, waiting, backlogs, since)

    def _snapshot(self, queue: Queue) -> _Snapshot | None:
        def snapshot(tr: fdb.Transaction) -> _Snapshot:
            scope = queue._scope(tr)
            depths = counters.depths(tr, scope.keys)
            levels = [level for level, depth in depths.items() if depth.ready]
            return _Snapshot(
                queue.name,
                depths,
                age.enqueued_at_ms(tr, scope, levels),
                scope.now_ms(tr),
                registry.consumers(tr, scope),
                keys.backlogs(tr, scope, KEYS_READ, None),
            )

        try:
            return once.run(self._db, queue._keys.once, snapshot, wrote=lambda _: False)
        except QueueError:
            return None


class WorkerMetrics:
    """Counts a worker's messages by outcome, latencies, redeliveries and retried transactions.

    Pass it to ``Worker(metrics=...)``. Create one per process, because it registers its names.
    """

    def __init__(self, metrics: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, *labels: str) -> prometheus.Counter:
            return prometheus.Counter(name, text, labels, registry=metrics)

        def seconds(name: str, text: str) -> prometheus.Histogram:
            return prometheus.Histogram(name, text, ["queue"], registry=metrics, buckets=SECONDS)

        self._handled = counter(
            "fdbqueue_handled", "Handled messages, by outcome.", "queue", "outcome"
        )
        self._redelivered = counter(
            "fdbqueue_redelivered", "Handled messages that had been delivered before.", "queue"
        )
        self._handling = seconds(
            "fdbqueue_handling_seconds", "Time to handle and settle a message, or a batch."
        )
        self._waited = seconds(
            "fdbqueue_waiting_seconds",
            "Time from the enqueue of a message to the start of its handler, at first delivery.",
        )
        self._retried = counter(
            "fdbqueue_transactions_retried",
            "Retried transactions of this process, by reason.",
            "reason",
        )
        once.on_retry(self._count_retry)

    def ended(
        self,
        queue: str,
        ended: Sequence[tuple[Delivery, Outcome]],
        started_ms: int,
        seconds: float,
    ) -> None:
        """Count an attempt: the outcome of each message, when it started and how long it took."""
        self._handling.labels(queue).observe(seconds)
        for delivery, outcome in ended:
            self._handled.labels(queue, outcome.value).inc()
            if delivery.message.redelivered:
                self._redelivered.labels(queue).inc()
            else:
                waited_ms = max(0, started_ms - delivery.message.enqueued_at_ms)
                self._waited.labels(queue).observe(waited_ms / 1000)

    def _count_retry(self, code: int) -> None:
        self._retried.labels(CODES.get(code, str(code))).inc()

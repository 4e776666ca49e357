"""What a worker counts."""

from __future__ import annotations

from collections.abc import Sequence

import prometheus_client as prometheus
from prometheus_client.registry import REGISTRY, CollectorRegistry

from ..schema import once
from ..values.model import Delivery
from ..values.states import Outcome

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
CODES = {1020: "conflict", 1021: "unknown result", 1007: "too old", 1031: "timed out"}


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
            *("fdbqueue_handled", "Handled messages, by handler and outcome."),
            *("queue", "handler", "outcome"),
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
        self._registry = metrics
        once.on_retry(self._count_retry)

    def exposition(self) -> tuple[str, bytes]:
        """All that its registry has, for Prometheus: the content type, and the text."""
        return prometheus.CONTENT_TYPE_LATEST, prometheus.generate_latest(self._registry)

    def ended(
        self,
        queue: str,
        ended: Sequence[tuple[Delivery, Outcome]],
        started_ms: int,
        seconds: float,
        handler: str,
    ) -> None:
        """Count an attempt: the outcome of each message, when it started, how long it took, and the
        name of the handler."""
        self._handling.labels(queue).observe(seconds)
        for delivery, outcome in ended:
            self._handled.labels(queue, handler, outcome.value).inc()
            if delivery.message.redelivered:
                self._redelivered.labels(queue).inc()
            else:
                waited_ms = max(0, started_ms - delivery.message.enqueued_at_ms)
                self._waited.labels(queue).observe(waited_ms / 1000)

    def _count_retry(self, code: int) -> None:
        self._retried.labels(CODES.get(code, str(code))).inc()

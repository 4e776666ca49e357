"""Metrics for Prometheus. Needs ``fdbqueue[metrics]``.

``QueueCollector`` reads the state of queues from the store at each scrape: one process is enough.
``WorkerMetrics`` counts what a worker does, in the worker's process.
"""

from __future__ import annotations

from ..errors import MissingPackage

try:
    import prometheus_client  # noqa: F401
except ImportError as error:
    raise MissingPackage(
        purpose="fdbqueue.metrics", package="prometheus_client", extra="metrics"
    ) from error

from .queues import QueueCollector
from .workers import WorkerMetrics

__all__ = ["QueueCollector", "WorkerMetrics"]

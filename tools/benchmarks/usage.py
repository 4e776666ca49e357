"""What one process uses in the measured time: requests to the database and processor time."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .client_counters import Counts, Meter
from .processes import Worker

T = TypeVar("T")


@dataclass
class Usage:
    """The result of a worker. undone: messages whose lease was lost."""

    counts: Counts = field(default_factory=Counts)
    cpu_seconds: float = 0.0
    undone: list[int] = field(default_factory=list)


class Gauge:
    """Measures a worker, from ``warm_up`` seconds after its start to its last call."""

    def __init__(self, worker: Worker, warm_up: float) -> None:
        self._worker = worker
        self._warm_up = int(warm_up * 1e9)
        self._base: tuple[Counts, float] | None = None
        self._meter = Meter()
        self._meter.install()

    def measured(self, call: Callable[..., T]) -> Callable[..., T]:
        """The call, noting what was used before the first one of the measured time."""

        def called(*arguments: object) -> T:
            begin = self._worker.span.begin + self._warm_up
            if self._base is None and time.monotonic_ns() >= begin:
                self._base = self._now()
            return call(*arguments)

        return called

    def finish(self, undone: Sequence[int] = ()) -> None:
        """Make the usage the result of the worker."""
        counts, cpu = self._now()
        base_counts, base_cpu = self._base or (counts, cpu)
        self._worker.report.result = Usage(counts - base_counts, cpu - base_cpu, [*undone])

    def _now(self) -> tuple[Counts, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Counts(*self._meter.counts.values()), used.ru_utime + used.ru_stime

"""One run: fill a queue, let processes work on it for a while, and compute figures."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fdbqueue.cli import durations

from . import baselines, processes, throughput
from .client_counters import Counts
from .processes import Report, Span, Worker
from .usage import Gauge
from .ways import SCHEMES

FILL = 500
"""Messages in a transaction that fills a queue."""
payload = partial(throughput.payload, size=100)
SETS = "blind sets"
"""The limit of the store, beside the schemes."""
WarmUp = Annotated[float, durations.option("Warm-up before each run.", 0)]


@dataclass(frozen=True)
class Plan:
    """What to run."""

    scheme: str
    consumers: int = 16
    producers: int = 0
    seconds: float = 4.0
    warm_up: float = 1.0
    backlog: int = 0
    batch: int = 1


@dataclass
class Figures:
    """The results. Latencies are milliseconds per call; rates are messages per second."""

    rate: float = 0.0
    put_rate: float = 0.0
    put_conflicts: int = 0
    attempts_per_success: float = 0.0
    commits_per_message: float = 0.0
    round_trips_per_message: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    most_to_least: float = 1.0
    cpu_seconds_per_thousand: float = 0.0


def run(plan: Plan) -> Figures:
    """Run consumers and producers on one queue, or the limit.

    Raises ``BenchmarkFailed``, also if a message was lost or delivered twice.
    """
    with processes.scratch() as space:
        return (_limit if plan.scheme == SETS else _queue)(plan, space)


def _queue(plan: Plan, space: bytes) -> Figures:
    backlog = plan.backlog
    processes.once(partial(_fill, plan.scheme, space, backlog))
    consuming = [partial(_consume, plan, space)] * plan.consumers
    producing = [partial(_produce, plan, space, n + 1) for n in range(plan.producers)]
    span, reports = processes.run([*consuming, *producing], plan.warm_up + plan.seconds)
    consumers, producers = reports[: plan.consumers], reports[plan.consumers :]
    put = [*range(backlog), *(n for report in producers for op in report.ops for n in op.messages)]
    undone = {n for report in consumers for n in report.result.undone}
    taken = [n for report in consumers for op in report.ops for n in op.messages if n not in undone]
    throughput.account(
        plan.scheme,
        put,
        taken,
        processes.once(partial(_remaining, plan.scheme, space)),
    )
    return _figures(plan, span, consumers, producers)


def _figures(
    plan: Plan, span: Span, consumers: Sequence[Report], producers: Sequence[Report]
) -> Figures:
    begin = span.begin + int(plan.warm_up * 1e9)

    def measured(reports: Sequence[Report]) -> list[processes.Op]:
        return [
            op
            for report in reports
            for op in report.ops
            if op.messages and begin <= op.returned < span.end
        ]

    ops = measured(consumers)
    count = sum(len(op.messages) for op in ops)
    counts = sum((report.result.counts for report in consumers), Counts())
    served = [sum(len(op.messages) for op in measured([report])) for report in consumers]
    latencies = [(op.returned - op.began) / 1e6 for op in ops]
    puts = measured(producers)
    return Figures(
        rate=count / plan.seconds,
        put_rate=sum(len(op.messages) for op in puts) / plan.seconds,
        put_conflicts=sum(report.result.counts.conflicts for report in producers),
        attempts_per_success=counts.attempts / max(1, counts.commits),
        commits_per_message=counts.commits / max(1, count),
        round_trips_per_message=counts.round_trips / max(1, count),
        p50_ms=throughput.quantile(latencies, 0.5),
        p99_ms=throughput.quantile(latencies, 0.99),
        most_to_least=max(served) / max(1, min(served)) if served else 1.0,
        cpu_seconds_per_thousand=sum(r.result.cpu_seconds for r in consumers)
        / max(1, count)
        * 1000,
    )


# -- work of the processes ------------------------------------------------------------------------


def _fill(scheme: str, space: bytes, count: int) -> None:
    put = SCHEMES[scheme].producer(*processes.opened(space))
    for first in range(0, count, FILL):
        put([payload(n) for n in range(first, min(first + FILL, count))])


def _remaining(scheme: str, space: bytes) -> list[int]:
    """The messages still in the queue."""
    return [throughput.number(data) for data in SCHEMES[scheme].remaining(*processes.opened(space))]


def _consume(plan: Plan, space: bytes, worker: Worker) -> None:
    gauge = Gauge(worker, plan.warm_up)
    db, part = processes.opened(space)
    consumer = SCHEMES[plan.scheme].consumer(db, part, plan.batch)
    worker.start()
    worker.repeat(gauge.measured(lambda: [throughput.number(data) for data in consumer.take()]))
    gauge.finish([throughput.number(data) for data in consumer.finish()])


def _produce(plan: Plan, space: bytes, nth: int, worker: Worker) -> None:
    gauge = Gauge(worker, plan.warm_up)
    put = SCHEMES[plan.scheme].producer(*processes.opened(space))
    worker.start()
    worker.repeat_numbered(
        gauge.measured(lambda numbers: put([payload(n) for n in numbers])), plan.batch, nth << 40
    )
    gauge.finish()


# -- the limit ------------------------------------------------------------------------------------


def _limit(plan: Plan, space: bytes) -> Figures:
    """Measure blind sets, ``plan.batch`` per transaction."""
    work = [partial(_blindly, plan, space, n) for n in range(plan.consumers)]
    span, reports = processes.run(work, plan.warm_up + plan.seconds)
    return _figures(plan, span, reports, [])


def _blindly(plan: Plan, space: bytes, mine: int, worker: Worker) -> None:
    gauge = Gauge(worker, plan.warm_up)
    db, part = processes.opened(space)
    data = [payload(mine)] * plan.batch

    def write(numbers: Sequence[int]) -> None:
        names = [b"%08d%016d" % (mine, n) + os.urandom(4) for n in numbers]
        baselines.set_blindly(db, part, names, data)

    worker.start()
    worker.repeat_numbered(gauge.measured(write), plan.batch)
    gauge.finish()


# -- the backlog ----------------------------------------------------------------------------------


def backlog(depths: Sequence[int], operations: int) -> list[float]:
    """The mean time of one enqueue, receive and acknowledge at each depth, without the slowest
    twentieth.

    The depths take turns, so that other load on the machine affects all of them alike.
    """
    with contextlib.ExitStack() as stack:
        spaces = {depth: stack.enter_context(processes.scratch()) for depth in depths}
        for depth, space in spaces.items():
            processes.once(partial(_fill, "auto", space, depth))
        found: list[float] = processes.once(partial(_turns, [*spaces.values()], operations))
    return found


def _turns(spaces: Sequence[bytes], operations: int) -> list[float]:
    steps: list[Callable[[], None]] = []
    for space in spaces:
        db, part = processes.opened(space)
        scheme = SCHEMES["auto"]
        put, take = scheme.producer(db, part), scheme.consumer(db, part, 1).take
        steps.append(partial(_step, put, take))
    samples: list[list[float]] = [[] for _ in steps]
    for _ in range(operations):
        for step, times in zip(steps, samples, strict=True):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
    kept = [sorted(times)[: int(0.95 * len(times))] for times in samples]
    return [sum(times) / len(times) for times in kept]


def _step(put: Callable[[Sequence[bytes]], None], take: Callable[[], list[bytes]]) -> None:
    put([payload(0)])
    take()

"""One run: fill a queue, let processes work on it for a while, and compute figures."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from ...store import binding
from ...store.binding import DEFAULT, Engine, fdb
from . import baselines, checks, processes
from .client_counters import Counts
from .processes import BenchmarkFailed, Report, Span, Worker
from .schemes import SCHEMES

ROOT = "fdbqueue-bench"
PAYLOAD_BYTES = 100
FILL = 500
"""Messages in a transaction that fills a queue."""
_ID = struct.Struct(">Q")


@dataclass(frozen=True)
class Plan:
    """What to run. ``faults``: share of calls that fail, on the embedded engine."""

    scheme: str
    consumers: int = 16
    producers: int = 0
    seconds: float = 4.0
    warm_up: float = 1.0
    backlog: int = 0
    batch: int = 1
    faults: float = 0.0


@dataclass
class Figures:
    """The results. Latencies are milliseconds per call; rates are messages per second."""

    plan: dict[str, Any]
    messages: int = 0
    rate: float = 0.0
    put_rate: float = 0.0
    put_conflicts: int = 0
    attempts_per_success: float = 0.0
    commits_per_message: float = 0.0
    round_trips_per_message: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    order_violations: int = 0
    most_to_least: float = 1.0
    cpu_seconds_per_thousand: float = 0.0
    served: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def payload(number: int, size: int = PAYLOAD_BYTES) -> bytes:
    return _ID.pack(number) + bytes(size - _ID.size)


def number(data: bytes) -> int:
    return int(_ID.unpack_from(data)[0])


@contextlib.contextmanager
def scratch() -> Iterator[bytes]:
    """A temporary subspace away from all queues, removed however the run ends."""
    space = fdb.Subspace((ROOT, uuid.uuid4().hex)).key()
    try:
        yield space
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            processes.once(partial(_clear, space))
        finally:
            signal.signal(signal.SIGINT, before)


def queue(plan: Plan) -> Figures:
    """Run consumers and producers on one queue.

    Raises ``BenchmarkFailed``, also if a message was lost or delivered twice.
    """
    with scratch() as space:
        return _queue(plan, space)


def _queue(plan: Plan, space: bytes) -> Figures:
    backlog = plan.backlog
    processes.once(partial(_fill, plan.scheme, space, backlog))
    work: list[tuple[str, processes.Work]] = [
        ("consumer", partial(_consume, plan, space)) for _ in range(plan.consumers)
    ]
    work += [
        ("producer", partial(_produce, plan, space, (n + 1) << 40)) for n in range(plan.producers)
    ]
    span, reports = processes.run(work, warm_up=plan.warm_up, seconds=plan.seconds)
    consumers = [report for report in reports if report.role == "consumer"]
    producers = [report for report in reports if report.role == "producer"]
    put = [checks.Put(n, 0, n - backlog, n - backlog) for n in range(backlog)]
    put += [
        checks.Put(n, 0, op.began, op.returned)
        for report in producers
        for op in report.ops
        for n in op.messages
    ]
    undone = {n for report in consumers for n in report.undone}
    taken = [
        checks.Taken(n, op.began, op.returned)
        for report in consumers
        for op in report.ops
        for n in op.messages
        if n not in undone
    ]
    account(
        plan.scheme,
        [one.message for one in put],
        [one.message for one in taken],
        processes.once(partial(remaining, plan.scheme, space)),
    )
    found = _figures(plan, span, consumers, producers)
    found.order_violations = checks.order_violations(put, taken)
    return found


def account(name: str, put: Sequence[int], taken: Sequence[int], left: Sequence[int]) -> None:
    """Raise ``BenchmarkFailed`` if a message was lost or delivered twice."""
    lost, doubled = checks.lost_and_doubled(put, taken, left)
    if lost or doubled:
        raise BenchmarkFailed(problem=f"{name} lost {lost[:10]} and duplicated {doubled[:10]}")


def _figures(
    plan: Plan, span: Span, consumers: Sequence[Report], producers: Sequence[Report]
) -> Figures:
    def measured(reports: Sequence[Report]) -> list[processes.Op]:
        return [
            op
            for report in reports
            for op in report.ops
            if op.messages and span.measured <= op.returned < span.end
        ]

    ops = measured(consumers)
    count = sum(len(op.messages) for op in ops)
    seconds = (span.end - span.measured) / 1e9
    counts = sum((report.counts for report in consumers), Counts())
    served = [
        sum(len(op.messages) for op in report.ops if span.measured <= op.returned < span.end)
        for report in consumers
    ]
    latencies = [(op.returned - op.began) / 1e6 for op in ops]
    puts = measured(producers)
    return Figures(
        plan=asdict(plan),
        messages=count,
        rate=count / seconds,
        put_rate=sum(len(op.messages) for op in puts) / seconds,
        put_conflicts=sum(report.counts.conflicts for report in producers),
        attempts_per_success=counts.attempts / max(1, counts.commits),
        commits_per_message=counts.commits / max(1, count),
        round_trips_per_message=counts.round_trips / max(1, count),
        p50_ms=checks.quantile(latencies, 0.5),
        p99_ms=checks.quantile(latencies, 0.99),
        most_to_least=checks.most_to_least(dict(enumerate(served))),
        cpu_seconds_per_thousand=sum(r.cpu_seconds for r in consumers) / max(1, count) * 1000,
        served=served,
    )


# -- work of the processes ------------------------------------------------------------------------


def opened(space: bytes) -> tuple[fdb.Database, fdb.Subspace]:
    return binding.open(), fdb.Subspace(rawPrefix=space)


def _fill(scheme: str, space: bytes, count: int) -> None:
    put = SCHEMES[scheme].producer(*opened(space))
    for first in range(0, count, FILL):
        put([payload(n) for n in range(first, min(first + FILL, count))])


def remaining(scheme: str, space: bytes) -> list[int]:
    """The messages still in the queue."""
    return [number(data) for data in SCHEMES[scheme].remaining(*opened(space))]


def _consume(plan: Plan, space: bytes, worker: Worker) -> None:
    db, part = opened(space)
    consumer = SCHEMES[plan.scheme].consumer(db, part, plan.batch)
    _inject(plan, worker)
    worker.start()
    worker.repeat(lambda: [number(data) for data in consumer.take()])
    worker.report.undone = [number(data) for data in consumer.finish()]


def _produce(plan: Plan, space: bytes, first: int, worker: Worker) -> None:
    put = SCHEMES[plan.scheme].producer(*opened(space))
    _inject(plan, worker)
    worker.repeat_numbered(lambda numbers: put([payload(n) for n in numbers]), plan.batch, first)


def _inject(plan: Plan, worker: Worker) -> None:
    if plan.faults and DEFAULT.engine is Engine.EMBEDDED:
        from ...store.embedded import faults

        kinds = [kind for kind in faults.KINDS if kind != "kill"]
        faults.inject(worker.report.number, dict.fromkeys(kinds, plan.faults))


# -- the limit ------------------------------------------------------------------------------------


def limit(name: str, plan: Plan) -> Figures:
    """Measure blind sets, or clears of known keys, ``plan.batch`` per transaction."""
    with scratch() as space:
        span, reports = processes.run(
            [
                ("consumer", partial(_blindly, name == "set", plan, space, n))
                for n in range(plan.consumers)
            ],
            warm_up=plan.warm_up,
            seconds=plan.seconds,
        )
    return _figures(plan, span, reports, [])


def _blindly(setting: bool, plan: Plan, space: bytes, mine: int, worker: Worker) -> None:
    db, part = opened(space)
    data = [payload(mine)] * plan.batch

    def write(numbers: Sequence[int]) -> None:
        names = [_ID.pack(mine) + _ID.pack(n) + os.urandom(4) for n in numbers]
        if setting:
            baselines.set_blindly(db, part, names, data)
        else:
            baselines.clear_blindly(db, part, names)

    worker.repeat_numbered(write, plan.batch)


def _clear(space: bytes) -> None:
    opened(space)[0].clear_range_startswith(space)


# -- the backlog ----------------------------------------------------------------------------------


def backlog(depths: Sequence[int], operations: int) -> list[dict[str, float]]:
    """The time of one enqueue, receive and acknowledge at each depth.

    The depths take turns, so that other load on the machine affects all of them alike.
    """
    with contextlib.ExitStack() as stack:
        spaces = {depth: stack.enter_context(scratch()) for depth in depths}
        for depth, space in spaces.items():
            processes.once(partial(_fill, "auto", space, depth))
        found: list[dict[str, float]] = processes.once(partial(_turns, spaces, operations))
    return found


def _turns(spaces: dict[int, bytes], operations: int) -> list[dict[str, float]]:
    steps: dict[int, Callable[[], None]] = {}
    for depth, space in spaces.items():
        db, part = opened(space)
        scheme = SCHEMES["auto"]
        steps[depth] = partial(_step, scheme.producer(db, part), scheme.consumer(db, part, 1).take)
    samples: dict[int, list[float]] = {depth: [] for depth in spaces}
    for _ in range(operations):
        for depth, step in steps.items():
            began = time.perf_counter()
            step()
            samples[depth].append(time.perf_counter() - began)
    return [
        {
            "depth": depth,
            "p50_ms": checks.quantile(times, 0.5) * 1000,
            "mean_ms": sum(sorted(times)[: int(0.95 * len(times))]) / (0.95 * len(times)) * 1000,
        }
        for depth, times in samples.items()
    ]


def _step(put: Callable[[Sequence[bytes]], None], take: Callable[[], list[bytes]]) -> None:
    put([payload(0)])
    take()

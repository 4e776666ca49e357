"""One run: fill a queue, let processes work on it for a while, and compute figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from typer import Option

from fdbqueue.cli import durations

from . import processes
from .baselines import BlindSets
from .client_counters import Counts, Meter
from .clients import Account, Client, payload, quantile
from .processes import Report, Work, Worker
from .ways import SCHEMES

FILL = 500
"""Messages in a transaction that fills a queue."""
SETS = "blind sets"
"""The limit of the store, beside the schemes."""
WarmUp = Annotated[
    float,
    Option(metavar="DURATION", parser=durations.at_least(0.0), help="Warm-up before each run."),
]


@dataclass(frozen=True)
class Plan:
    """What to run. Figures are those of the consumers, or of the producers if there are no
    consumers or ``puts`` says so."""

    scheme: str
    consumers: int = 16
    producers: int = 0
    seconds: float = 4.0
    warm_up: float = 1.0
    backlog: int = 0
    batch: int = 1
    puts: bool = False


@dataclass(frozen=True)
class Figures:
    """The results. Latencies are milliseconds per call; rates are messages per second.

    messages: those since the warm-up. cpu_us: processor time of each.
    """

    rate: float
    conflicts: int
    attempts_per_success: float
    commits_per_message: float
    round_trips_per_message: float
    p50_ms: float
    p99_ms: float
    most_to_least: float
    messages: int
    cpu_us: float

    @classmethod
    def of(cls, reports: Sequence[Report], begin: int, end: int) -> Figures:
        """Those of calls that moved messages and returned in a time (monotonic ns)."""

        def moved(reports: Iterable[Report], end: float = end) -> int:
            every = (op for report in reports for op in report.ops)
            return sum(len(op.messages) for op in every if begin <= op.returned < end)

        count = moved(reports)
        used = max(1, moved(reports, float("inf")))
        counts = sum((report.counts for report in reports), Counts())
        served = [moved([report]) for report in reports]
        times = [
            (op.returned - op.began) / 1e6
            for report in reports
            for op in report.ops
            if op.messages and begin <= op.returned < end
        ]
        return cls(
            rate=count / ((end - begin) / 1e9),
            conflicts=counts.conflicts,
            attempts_per_success=counts.attempts / max(1, counts.commits),
            commits_per_message=counts.commits / used,
            round_trips_per_message=counts.round_trips / used,
            p50_ms=quantile(times, 0.5),
            p99_ms=quantile(times, 0.99),
            most_to_least=max(served) / max(1, min(served)),
            messages=used,
            cpu_us=sum(report.cpu_seconds for report in reports) / used * 1e6,
        )


def run(plan: Plan) -> Figures:
    """Run consumers and producers on one queue, or the limit.

    Raises ``BenchmarkFailed``, also if a message was lost or delivered twice.
    """
    with processes.scratch() as space:
        opened = partial(_opened, plan.scheme, space)
        processes.once(partial(fill, opened, 0, plan.backlog))
        first = [n << 40 for n in range(1, plan.producers + 1)]
        works: list[Work] = [partial(take, opened, plan.batch, Meter)] * plan.consumers
        works += [partial(put, opened, plan.batch, n, Meter) for n in first]
        span, reports = processes.run(works, plan.seconds, plan.warm_up)
        consumers, producers = reports[: plan.consumers], reports[plan.consumers :]
        if plan.scheme != SETS:
            account = Account()
            account.put.update(range(plan.backlog), *moved(producers))
            account.taken.update(n for numbers in moved(consumers) for n in numbers)
            account.taken.subtract(n for report in consumers for n in report.result)
            account.settle(processes.once(partial(rest, opened)))
            if account.lost or account.doubled:
                problem = f"{plan.scheme} lost {account.lost} and doubled {account.doubled}"
                raise processes.BenchmarkFailed(problem=problem)
    of = producers if plan.puts or not plan.consumers else consumers
    return Figures.of(of, span.measured, span.end)


def moved(reports: Iterable[Report]) -> Iterable[Sequence[int]]:
    """The messages of each call."""
    return (op.messages for report in reports for op in report.ops)


# -- work of the processes ------------------------------------------------------------------------

Opened = Callable[[], Client]
Metered = Callable[[], Meter] | None
"""What makes a meter, if requests to the store are counted."""


def _opened(scheme: str, space: bytes) -> Client:
    made = BlindSets if scheme == SETS else SCHEMES[scheme]
    return made(*processes.opened(space))


def fill(opened: Opened, first: int, count: int) -> None:
    """Enqueue messages with the numbers from ``first`` on."""
    client = opened()
    for begin in range(first, first + count, FILL):
        client.put([payload(n) for n in range(begin, min(begin + FILL, first + count))])


def rest(opened: Opened) -> list[int]:
    """The messages still in the queue."""
    return [*map(int, opened().rest())]


def take(opened: Opened, batch: int, metered: Metered, worker: Worker) -> list[int]:
    """Receive and acknowledge; returns the messages whose lease was lost."""
    meter = metered and metered()
    client = opened()
    worker.repeat(lambda: [*map(int, client.take(batch))], meter)
    return [*map(int, client.finish())]


def put(opened: Opened, batch: int, first: int, metered: Metered, worker: Worker) -> None:
    """Enqueue messages with the numbers from ``first`` on."""
    meter = metered and metered()
    client = opened()
    following = first

    def enqueue() -> Sequence[int]:
        nonlocal following
        numbers = range(following, following + batch)
        following += batch
        if batch == 1:
            client.enqueue(payload(numbers[0]))
        else:
            client.put([payload(n) for n in numbers])
        return numbers

    worker.repeat(enqueue, meter)


# -- the backlog ----------------------------------------------------------------------------------


def backlog(depths: Sequence[int], operations: int) -> list[float]:
    """The mean time of one enqueue, receive and acknowledge at each depth, without the slowest
    twentieth.

    The depths take turns, so that other load on the machine affects all of them alike.
    """
    with ExitStack() as stack:
        every = []
        for depth in depths:
            every.append(partial(_opened, "auto", stack.enter_context(processes.scratch())))
            processes.once(partial(fill, every[-1], 0, depth))
        found: list[float] = processes.once(partial(_turns, every, operations))
    return found


def _turns(every: Sequence[Opened], operations: int) -> list[float]:
    clients = [opened() for opened in every]
    samples: list[list[float]] = [[] for _ in clients]
    for _ in range(operations):
        for client, times in zip(clients, samples, strict=True):
            began = time.perf_counter()
            client.enqueue(payload(0))
            client.take(1)
            times.append(time.perf_counter() - began)
    kept = [sorted(times)[: int(0.95 * len(times))] for times in samples]
    return [sum(times) / len(times) for times in kept]

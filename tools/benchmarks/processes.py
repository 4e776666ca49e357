"""Consumers and producers, each a process, that all work in the same span of time."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.metering import Counts, Meter

START_SECONDS = 120.0


@dataclass(frozen=True)
class Span:
    """When to work: from ``begin`` to ``end``; measured from ``measured`` on (monotonic ns)."""

    begin: int
    measured: int
    end: int


@dataclass
class Op:
    """One call: how many messages it moved, and when it began and returned."""

    messages: list[int]
    began: int
    returned: int


@dataclass
class Report:
    """What one process did: all its calls, and what it cost in the measured time."""

    role: str
    number: int
    ops: list[Op] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    cpu_seconds: float = 0.0
    error: str = ""


Work = Callable[["Worker"], None]


class Worker:
    """Runs in a process of its own: does calls until the time is over, and keeps account."""

    def __init__(self, role: str, number: int, meter: Meter, connection: Connection) -> None:
        self.report = Report(role, number)
        self._meter = meter
        self._connection = connection
        self._base: tuple[Counts, float] | None = None
        self._span: Span | None = None

    def start(self) -> None:
        """Say that all is ready, and wait for the others."""
        self._connection.send("ready")
        span: Span = self._connection.recv()
        self._span = span
        time.sleep(max(0, span.begin - time.monotonic_ns()) / 1e9)

    def repeat(self, call: Callable[[], Sequence[int]]) -> None:
        """Call until the time is over."""
        assert self._span is not None
        while (began := time.monotonic_ns()) < self._span.end:
            if self._base is None and began >= self._span.measured:
                self._base = self._now()
            moved = list(call())
            self.report.ops.append(Op(moved, began, time.monotonic_ns()))
        counts, cpu = self._now()
        base_counts, base_cpu = self._base or (counts, cpu)
        self.report.counts = counts - base_counts
        self.report.cpu_seconds = cpu - base_cpu

    def _now(self) -> tuple[Counts, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Counts(*self._meter.counts.values()), used.ru_utime + used.ru_stime


def _main(work: Work, role: str, number: int, connection: Connection) -> None:
    meter = Meter()
    meter.install()
    worker = Worker(role, number, meter, connection)

    def guarded() -> None:
        try:
            work(worker)
        except BaseException:
            worker.report.error = traceback.format_exc()

    # As a worker's threads do: the bindings make the main thread wait in a dearer way, so that
    # signals reach it.
    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    connection.send(worker.report)
    connection.close()
    # The network thread of a client library may not outlive the interpreter's end.
    os._exit(0)


def run(
    work: Sequence[tuple[str, Work]], *, warm_up: float, seconds: float
) -> tuple[Span, list[Report]]:
    """Run all at once; raises ``RuntimeError`` if one of them failed."""
    context: Any = multiprocessing.get_context("fork")
    running = []
    for number, (role, one) in enumerate(work):
        mine, theirs = context.Pipe()
        process = context.Process(target=_main, args=(one, role, number, theirs), daemon=True)
        process.start()
        theirs.close()
        running.append((process, mine))
    reports: list[Report] = []
    waiting = []
    for process, connection in running:
        if not connection.poll(START_SECONDS):
            raise RuntimeError("a process did not start in time")
        said = connection.recv()
        if isinstance(said, Report):
            raise RuntimeError(said.error)
        waiting.append((process, connection))
    begin = time.monotonic_ns() + 100_000_000
    span = Span(begin, begin + int(warm_up * 1e9), begin + int((warm_up + seconds) * 1e9))
    for _, connection in waiting:
        connection.send(span)
    for process, connection in waiting:
        if not connection.poll(warm_up + seconds + START_SECONDS):
            raise RuntimeError("a process did not end in time")
        reports.append(connection.recv())
        process.join()
    for report in reports:
        if report.error:
            raise RuntimeError(report.error)
    return span, reports


def once(work: Callable[[], Any]) -> Any:
    """Run one function in a process of its own; this process never opens the store, so that the
    others can be forked from it."""

    def body(worker: Worker) -> None:
        worker.report.undone = work()

    context: Any = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=_main, args=(body, "once", 0, theirs), daemon=True)
    process.start()
    theirs.close()
    report: Report = mine.recv()
    process.join()
    if report.error:
        raise RuntimeError(report.error)
    return report.undone

"""Consumers and producers in processes of their own that work at the same time."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from ...errors import QueueError
from ...store.binding import fdb
from .client_counters import Counts, Meter

START_SECONDS = 120.0


class BenchmarkFailed(QueueError):
    """Raised when a benchmark process failed, or a message was lost or delivered twice."""

    text = "the benchmark failed: {problem}"


@dataclass(frozen=True)
class Span:
    """When to work: from ``begin`` to ``end``, measuring from ``measured`` (monotonic ns)."""

    begin: int
    measured: int
    end: int


@dataclass
class Op:
    """One call: the messages it moved, and when it started and returned."""

    messages: list[int]
    began: int
    returned: int


@dataclass
class Report:
    """All calls of one process, and its cost in the measured time."""

    role: str
    number: int
    ops: list[Op] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    cpu_seconds: float = 0.0
    error: str = ""


Work = Callable[["Worker"], None]


class Worker:
    """Makes calls in its own process until the time is over, and records them."""

    def __init__(self, role: str, number: int, meter: Meter, connection: Connection) -> None:
        self.report = Report(role, number)
        self._meter = meter
        self._connection = connection
        self._base: tuple[Counts, float] | None = None
        self._span: Span | None = None

    def start(self) -> None:
        """Report that this process is ready, and wait for all others."""
        self._connection.send("ready")
        span: Span = self._connection.recv()
        self._span = span
        time.sleep(max(0, span.begin - time.monotonic_ns()) / 1e9)

    def repeat(self, call: Callable[[], Sequence[int]], *, until_empty: bool = False) -> None:
        """Call until the time is over or, with ``until_empty``, a call moves nothing."""
        assert self._span is not None
        while (began := time.monotonic_ns()) < self._span.end:
            if self._base is None and began >= self._span.measured:
                self._base = self._now()
            moved = list(call())
            self.report.ops.append(Op(moved, began, time.monotonic_ns()))
            if until_empty and not moved:
                break
        counts, cpu = self._now()
        base_counts, base_cpu = self._base or (counts, cpu)
        self.report.counts = counts - base_counts
        self.report.cpu_seconds = cpu - base_cpu

    def repeat_numbered(
        self, call: Callable[[Sequence[int]], None], batch: int = 1, first: int = 0
    ) -> None:
        """Start, and repeat a call with the next ``batch`` numbers."""
        following = itertools.count(first)

        def numbered() -> Sequence[int]:
            numbers = [*itertools.islice(following, batch)]
            call(numbers)
            return numbers

        self.start()
        self.repeat(numbered)

    def _now(self) -> tuple[Counts, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Counts(*self._meter.counts.values()), used.ru_utime + used.ru_stime


def _main(work: Work, role: str, number: int, connection: Connection) -> None:
    # The parent handles Ctrl-C: it ends this process and then removes the data.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    meter = Meter()
    meter.install()
    worker = Worker(role, number, meter, connection)

    def guarded() -> None:
        try:
            work(worker)
        except (QueueError, fdb.FDBError) as error:
            worker.report.error = str(error)
        except BaseException as error:
            worker.report.error = f"{type(error).__name__}: {error}"

    # In a thread, like a worker: in the main thread the bindings wait in a slower way that lets
    # signals through.
    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    connection.send(worker.report)
    connection.close()
    # The client library's network thread must not run during the interpreter's shutdown.
    os._exit(0)


class _Running:
    """Started processes; all of them end with the ``with`` block."""

    def __init__(self) -> None:
        self._context: Any = multiprocessing.get_context("fork")
        self._processes: list[Any] = []
        self.connections: list[Connection] = []

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def start(self, role: str, work: Work) -> Connection:
        mine: Connection
        mine, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_main, args=(work, role, len(self._processes), theirs), daemon=True
        )
        process.start()
        theirs.close()
        self._processes.append(process)
        self.connections.append(mine)
        return mine


def _next_message(connection: Connection, seconds: float | None) -> Any:
    """The next message of a process; raises ``BenchmarkFailed`` if it failed or is silent."""
    if not connection.poll(seconds):
        raise BenchmarkFailed(problem="a process did not respond in time")
    try:
        found = connection.recv()
    except EOFError:
        raise BenchmarkFailed(problem="a process died") from None
    if isinstance(found, Report) and found.error:
        raise BenchmarkFailed(problem=found.error)
    return found


def run(
    work: Sequence[tuple[str, Work]], *, warm_up: float, seconds: float
) -> tuple[Span, list[Report]]:
    """Run all work at the same time; raises ``BenchmarkFailed`` if a process failed."""
    with _Running() as running:
        for role, one in work:
            running.start(role, one)
        for connection in running.connections:
            _next_message(connection, START_SECONDS)
        begin = time.monotonic_ns() + 100_000_000
        span = Span(begin, begin + int(warm_up * 1e9), begin + int((warm_up + seconds) * 1e9))
        for connection in running.connections:
            connection.send(span)
        patience = warm_up + seconds + START_SECONDS
        return span, [_next_message(connection, patience) for connection in running.connections]


def once(work: Callable[[], Any]) -> Any:
    """Run one function in its own process.

    This process never opens the store, so that the others can be forked from it.
    """

    def body(worker: Worker) -> None:
        worker.report.undone = work()

    with _Running() as running:
        return _next_message(running.start("once", body), None).undone

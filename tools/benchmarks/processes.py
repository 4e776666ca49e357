"""Processes that work at the same time, whose calls are recorded, and that are killed at the end.

They are forks of this process, which therefore never opens the store; or new interpreters
(``spawn``), which choose their store by their environment.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from fdbqueue.errors import QueueError
from fdbqueue.store import binding
from fdbqueue.store.binding import fdb

from .client_counters import Counts, Meter

ROOT = "fdbqueue-bench"
START_SECONDS = 120.0


class BenchmarkFailed(QueueError):
    """Raised when a benchmark process failed, or a message was lost or delivered twice."""

    text = "the benchmark failed: {problem}"


@dataclass(frozen=True)
class Span:
    """When to work, and from when on to measure (monotonic ns)."""

    begin: int
    measured: int
    end: int


@dataclass
class Op:
    """One call: the messages it moved, and when it started and returned."""

    messages: Sequence[int]
    began: int
    returned: int


@dataclass
class Report:
    """All calls of one process, what it used in the measured time, and what else it found."""

    ops: list[Op] = field(default_factory=list)
    cpu_seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    result: Any = None
    error: str = ""


Work = Callable[["Worker"], Any]
"""What a process does, and what it finds."""


class Worker:
    """Makes calls in its own process until the time is over, and records them."""

    def __init__(self, connection: Connection) -> None:
        self.report = Report()
        self._connection = connection

    def ready(self) -> None:
        """Report that this process is ready."""
        self._connection.send(None)

    def repeat(self, call: Callable[[], Sequence[int]], meter: Meter | None = None) -> None:
        """Wait until all processes are ready, then call until the time is over."""
        self.ready()
        span: Span = self._connection.recv()
        time.sleep(max(0, span.begin - time.monotonic_ns()) / 1e9)
        self._until(span.measured, call)
        counts, used = meter.now() if meter else Counts(), _cpu_seconds()
        self._until(span.end, call)
        self.report.cpu_seconds = _cpu_seconds() - used
        if meter:
            self.report.counts = meter.now() - counts

    def _until(self, end: int, call: Callable[[], Sequence[int]]) -> None:
        while (began := time.monotonic_ns()) < end:
            moved = call()
            self.report.ops.append(Op(moved, began, time.monotonic_ns()))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_seconds(root: int) -> float:
    """Processor time of a process and all its descendants, ended ones too; 0 without ``/proc``."""
    parents, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # The process may have ended.
            parent, *fields = stat.read_text().rpartition(")")[2].split()[1:]
            pid = int(stat.parent.name)
            parents[pid], times[pid] = int(parent), sum(map(int, fields[9:13]))
    found, new = set[int](), {root} & {*times}
    while new:
        found |= new
        new = {pid for pid, parent in parents.items() if parent in new} - found
    return sum(times[pid] for pid in found) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class How:
    """How processes are started. handles_signals: the work is done in the main thread."""

    method: str = "fork"
    environment: Mapping[str, str] = field(default_factory=dict)
    handles_signals: bool = False


FORK = How()


@dataclass(frozen=True)
class Running:
    """A process that works."""

    pid: int
    connection: Connection

    def told(self, seconds: float | None = None) -> Any:
        """What it says next; raises ``BenchmarkFailed`` if it failed or is silent."""
        if not self.connection.poll(seconds):
            raise BenchmarkFailed(problem="a process did not respond in time")
        try:
            found = self.connection.recv()
        except EOFError:
            raise BenchmarkFailed(problem="a process died") from None
        if isinstance(found, Report) and found.error:
            raise BenchmarkFailed(problem=found.error)
        return found


@contextmanager
def started(work: Work, how: How = FORK) -> Iterator[Running]:
    """A process, which says its ``Report``; killed at the end, with all that it has started."""
    context: Any = get_context(how.method)
    mine, theirs = context.Pipe()
    process = context.Process(target=_main, args=(work, theirs, how.handles_signals))
    with mock.patch.dict(os.environ, how.environment):
        process.start()
    theirs.close()
    try:
        yield Running(process.pid, mine)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()  # It has no group of its own yet, or is no more.
        process.join()
        mine.close()


def _main(work: Work, connection: Connection, handles_signals: bool) -> None:
    os.setsid()  # The parent handles signals: it ends this process and then removes the data.
    worker = Worker(connection)

    def guarded() -> None:
        try:
            worker.report.result = work(worker)
        except (QueueError, fdb.FDBError) as error:
            worker.report.error = str(error)
        except BaseException as error:
            worker.report.error = f"{type(error).__name__}: {error}"

    if handles_signals:
        guarded()
    else:
        # In a thread, like a worker: in the main thread the bindings wait in a slower way that lets
        # signals through.
        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()
    connection.send(worker.report)
    connection.close()
    # Threads of libraries must not run during the interpreter's shutdown, or outlive this one.
    os._exit(0)


def run(
    works: Sequence[Work],
    seconds: float,
    warm_up: float = 0.0,
    how: How = FORK,
    mark: Callable[[], object] = lambda: None,
) -> tuple[Span, list[Report]]:
    """Run all work at the same time; raises ``BenchmarkFailed`` if a process failed.

    mark: called when the measured time begins, and at the end.
    """
    with ExitStack() as stack:
        running = [stack.enter_context(started(work, how)) for work in works]
        for process in running:
            process.told(START_SECONDS)
        begin = time.monotonic_ns() + 100_000_000
        measured = begin + int(warm_up * 1e9)
        span = Span(begin, measured, measured + int(seconds * 1e9))
        for process in running:
            process.connection.send(span)
        time.sleep(max(0, measured - time.monotonic_ns()) / 1e9)
        mark()
        reports = [process.told(seconds + START_SECONDS) for process in running]
        mark()
    return span, reports


def once(work: Callable[[], Any], how: How = FORK) -> Any:
    """Run one function in its own process."""
    return together([work], how)[0]


def together(works: Sequence[Callable[[], Any]], how: How = FORK) -> list[Any]:
    """As ``once``, for several functions at the same time."""
    with ExitStack() as stack:
        running = [stack.enter_context(started(partial(_only, work), how)) for work in works]
        return [process.told().result for process in running]


def _only(work: Callable[[], Any], _: Worker) -> Any:
    return work()


@contextmanager
def scratch() -> Iterator[bytes]:
    """A temporary subspace away from all queues, removed however the block ends.

    In the block, SIGTERM raises ``KeyboardInterrupt`` like Ctrl-C.
    """
    space = fdb.Subspace((ROOT, uuid.uuid4().hex)).key()
    with _handled(signal.SIGTERM, signal.default_int_handler):
        try:
            yield space
        finally:
            with (
                _handled(signal.SIGINT, signal.SIG_IGN),
                _handled(signal.SIGTERM, signal.SIG_IGN),
            ):
                once(partial(_clear, space))


@contextmanager
def _handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def opened(space: bytes) -> tuple[fdb.Database, fdb.Subspace]:
    """The store, and a subspace."""
    return binding.open(), fdb.Subspace(rawPrefix=space)


def _clear(space: bytes) -> None:
    opened(space)[0].clear_range_startswith(space)

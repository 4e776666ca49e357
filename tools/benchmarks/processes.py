"""Calls of several processes at the same time, recorded one by one."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from fdbqueue.errors import QueueError
from fdbqueue.store import binding
from fdbqueue.store.binding import fdb

ROOT = "fdbqueue-bench"
START_SECONDS = 120.0


class BenchmarkFailed(QueueError):
    """Raised when a benchmark process failed, or a message was lost or delivered twice."""

    text = "the benchmark failed: {problem}"


@dataclass(frozen=True)
class Span:
    """When to work (monotonic ns)."""

    begin: int
    end: int


@dataclass
class Op:
    """One call: the messages it moved, and when it started and returned."""

    messages: list[int]
    began: int
    returned: int


@dataclass
class Report:
    """All calls of one process, and what else its work found."""

    ops: list[Op] = field(default_factory=list)
    result: Any = None
    error: str = ""


Work = Callable[["Worker"], None]


class Worker:
    """Makes calls in its own process until the time is over, and records them."""

    def __init__(self, connection: Connection) -> None:
        self.report = Report()
        self.span = Span(0, 0)
        self._connection = connection

    def start(self) -> None:
        """Report that this process is ready, and wait for all others."""
        self._connection.send(None)
        self.span = self._connection.recv()
        time.sleep(max(0, self.span.begin - time.monotonic_ns()) / 1e9)

    def repeat(self, call: Callable[[], Sequence[int]]) -> None:
        """Call until the time is over."""
        while (began := time.monotonic_ns()) < self.span.end:
            moved = list(call())
            self.report.ops.append(Op(moved, began, time.monotonic_ns()))

    def repeat_numbered(
        self, call: Callable[[Sequence[int]], object], batch: int = 1, first: int = 0
    ) -> None:
        """Repeat a call with the next ``batch`` numbers."""
        following = itertools.count(first)

        def numbered() -> Sequence[int]:
            numbers = [*itertools.islice(following, batch)]
            call(numbers)
            return numbers

        self.repeat(numbered)


def run(work: Sequence[Work], seconds: float) -> tuple[Span, list[Report]]:
    """Run all work at the same time; raises ``BenchmarkFailed`` if a process failed."""
    with _started(work) as connections:
        for connection in connections:
            _next_message(connection, START_SECONDS)
        begin = time.monotonic_ns() + 100_000_000
        span = Span(begin, begin + int(seconds * 1e9))
        for connection in connections:
            connection.send(span)
        return span, [_next_message(each, seconds + START_SECONDS) for each in connections]


def once(work: Callable[[], Any]) -> Any:
    """Run one function in its own process.

    This process never opens the store, so that the others can be forked from it.
    """

    return together([work])[0]


def together(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """As ``once``, for several functions at the same time."""

    def body(work: Callable[[], Any], worker: Worker) -> None:
        worker.report.result = work()

    with _started([partial(body, work) for work in works]) as connections:
        return [_next_message(each, None).result for each in connections]


@contextmanager
def _started(work: Sequence[Work]) -> Iterator[list[Connection]]:
    """A process for each work, and the connection to it; all end with the block."""
    processes, connections = [], []
    try:
        for one in work:
            process, connection = start(one)
            processes.append(process)
            connections.append(connection)
        yield connections
    finally:
        for process in processes:
            process.kill()
            process.join()


def start(work: Work) -> tuple[BaseProcess, Connection]:
    """Start a process, which the caller has to end; over the connection comes its ``Report``."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=_main, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, mine


def _main(work: Work, connection: Connection) -> None:
    # The parent handles signals: it ends this process and then removes the data.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = Worker(connection)

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
            clear(space)


def clear(space: bytes) -> None:
    """Remove everything in a subspace; signals wait."""
    with _handled(signal.SIGINT, signal.SIG_IGN), _handled(signal.SIGTERM, signal.SIG_IGN):
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

"""The processes of a run: started with a job each, told when to begin, and killed at the end.

Each is a new interpreter, which chooses its store by the environment of its peer's server.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

from .peer import Peer, Server

WARM_UP = 0.5
PAYLOAD_BYTES = 100


class Failed(Exception):
    """Raised when a process of a run failed."""


@dataclass(frozen=True)
class Running:
    """A process with a job."""

    pid: int
    connection: Connection

    def result(self) -> Any:
        """What it has found; raises ``Failed``."""
        try:
            return self.connection.recv()
        except EOFError:
            raise Failed("a process failed, see above") from None


@contextmanager
def started(
    peer: Peer,
    server: Server,
    role: str,
    batch: int = 1,
    first: int = 0,
    count: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """A process with a job, see ``run``; killed at the end, with all that it has started."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    job = peer, server.address, role, batch, first, count
    process = context.Process(target=_main, args=(theirs, *job))
    with mock.patch.dict(os.environ, {**server.environment, **(environment or {})}):
        process.start()
    theirs.close()
    assert process.pid is not None
    running = Running(process.pid, mine)
    try:
        running.result()
        yield running
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()  # It has no group of its own yet, or is no more.
        process.join()
        mine.close()


def _main(connection: Connection, peer: Peer, address: str, role: str, *job: int) -> None:
    os.setsid()
    if role == "work":  # Workers handle signals, which only the main thread can.
        connection.send("ready")
        peer.work(address)
    # In a thread, like a service: in the main thread the bindings wait in a slower way.
    thread = threading.Thread(target=run, args=(connection, peer, address, role, *job))
    thread.start()
    thread.join()
    # Some libraries keep threads that would outlive the main one.
    os._exit(0)


def run(
    connection: Connection, peer: Peer, address: str, role: str, batch: int, first: int, count: int
) -> None:
    """Do a job, and send what was found.

    role: ``put`` and ``take`` make calls of ``batch`` messages for the time that is received, and
    find ``(began, returned, numbers)`` of each, in nanoseconds; ``send`` enqueues ``count``
    messages; ``rest`` finds what is in the queue.
    first: the number of the first message.
    """
    if role == "send":
        connection.send("ready")
        peer.send(address, [payload(first + n) for n in range(count)])
        connection.send(None)
        return
    client = peer.client(address)
    connection.send("ready")
    if role == "rest":
        connection.send([int(data) for data in client.rest()])
        return
    begin, measured, end = connection.recv()
    time.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
    calls: list[tuple[int, int, list[int]]] = []
    used: float | None = None
    while (began := time.monotonic_ns()) < end:
        if used is None and began >= measured:
            used = _cpu_seconds()
        if role == "put":
            numbers = [*range(first, first + batch)]
            first += batch
            client.put([payload(n) for n in numbers])
        else:
            numbers = [int(data) for data in client.take(batch)]
        calls.append((began, time.monotonic_ns(), numbers))
        if not numbers:
            break
    client.finish()
    connection.send((calls, 0.0 if used is None else _cpu_seconds() - used))


def payload(number: int) -> bytes:
    """A payload that holds a number, as text, which every peer takes."""
    return b"%0*d" % (PAYLOAD_BYTES, number)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def send(peer: Peer, server: Server, first: int, count: int) -> None:
    """Enqueue messages with the numbers from ``first`` on."""
    with started(peer, server, "send", 100, first, count) as process:
        process.result()


def together(
    jobs: Sequence[Callable[[], Any]], seconds: float, mark: Callable[[], object]
) -> tuple[list[int], list[Any]]:
    """Run processes that make calls at the same time; returns when they began, from when on they
    were measured and until when, in nanoseconds, and what each found.

    mark: called when the measured time begins, and at the end.
    """
    with ExitStack() as stack:
        running = [stack.enter_context(job()) for job in jobs]
        begin = time.monotonic_ns() + 50_000_000
        measured = begin + int(WARM_UP * 1e9)
        span = [begin, measured, measured + int(seconds * 1e9)]
        for process in running:
            process.connection.send(span)
        time.sleep(max(0, measured - time.monotonic_ns()) / 1e9)
        mark()
        found = [process.result() for process in running]
        mark()
    return span, found

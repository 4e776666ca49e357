"""The life of one peer: enqueue, receive and acknowledge, its own worker, and the final account."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..process_tree import cpu_seconds
from ..throughput import quantile
from . import handled
from .child import Job
from .peer import Peer, Server
from .processes import WARM_UP, Failed, run_all, started

HEADROOM = 2
"""The backlog of consumers, in messages that producers enqueued in the same time."""
LEAST_RATE = 1_500.0
"""Messages a second that consumers may take of any peer."""
QUIET_SECONDS = 10.0
"""A worker that handles nothing for so long has finished, or has lost what is left."""
KILL_EVERY = 0.5
PAUSE_SECONDS = 0.1
"""What a message takes while workers are killed, so that each has one in hand."""
PATIENCE_SECONDS = 90.0
"""When no message has been handled for so long, what is left will not come back by itself."""


@dataclass(frozen=True, order=True)
class Cell:
    """One kind of work: ``enqueue``, ``receive`` (with the acknowledgement) or ``worker``."""

    work: str
    batch: int
    processes: int

    def __str__(self) -> str:
        return f"{self.work} by {self.batch}, {self.processes}"


CELLS = (
    Cell("enqueue", 1, 1), Cell("receive", 1, 1),
    Cell("enqueue", 1, 4), Cell("receive", 1, 4), Cell("receive", 1, 16),
    Cell("enqueue", 100, 4), Cell("receive", 100, 4),
    Cell("worker", 1, 4),
)  # fmt: skip
"""In this order, so that no queue is longer than its consumers need: some slow down with length."""


@dataclass(frozen=True)
class Figures:
    """Messages a second, processor time in microseconds a message, and milliseconds a call."""

    rate: float
    client_us: float
    server_us: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True)
class Killed:
    """What became of messages while their workers were killed.

    missing: messages that nobody handled, though the workers waited for ``PATIENCE_SECONDS``.
    twice: those that were handled again. last_seconds: until the last of them was handled, since
    the last kill.
    """

    kills: int
    messages: int
    missing: int
    twice: int
    last_seconds: float


@dataclass(frozen=True)
class Life:
    """Everything measured of one peer in one round.

    lost: acknowledged enqueues that were neither received nor left at the end.
    doubled: messages received more than once, or received and left.
    """

    cells: dict[Cell, Figures]
    lost: int
    doubled: int


def live(peer: Peer, cells: Sequence[Cell], seconds: float, messages: int) -> Life:
    """Run one peer through the cells, each for some seconds, on a store or server of its own.

    messages: how many the peer's own worker handles.
    """
    figures: dict[Cell, Figures] = {}
    lost = doubled = 0
    if any(_possible(peer, cell) for cell in cells if cell.work != "worker"):
        with _served(peer) as server:
            calls = _Calls(peer, server, seconds)
            for cell in (cell for cell in cells if cell.work != "worker"):
                if _possible(peer, cell):
                    calls.measure(cell)
            figures |= calls.figures
            lost, doubled = calls.settle()
    for cell in cells:
        if cell.work == "worker" and _possible(peer, cell):
            with _served(peer) as server:
                figures[cell], missing, twice = _work(peer, server, cell, messages, 5 * seconds)
                lost, doubled = lost + missing, doubled + twice
    return Life(figures, lost, doubled)


def _possible(peer: Peer, cell: Cell) -> bool:
    return {
        "enqueue": cell.batch == 1 or peer.enqueues_batches,
        "receive": peer.takes and (cell.batch == 1 or peer.receives_batches),
        "worker": peer.works,
    }[cell.work]


@contextmanager
def _served(peer: Peer) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="fdbqueue-peer-") as directory:
        os.chmod(directory, 0o755)  # A server may run as another user.
        with peer.serve(Path(directory)) as server:
            yield server


class Account:
    """Which messages went in, and which came out."""

    def __init__(self) -> None:
        self.next = 0
        self.put: set[int] = set()
        self.taken: Counter[int] = Counter()

    def numbers(self, count: int) -> int:
        """Reserve numbers for ``count`` messages; returns the first."""
        self.next += count
        return self.next - count

    @property
    def left(self) -> int:
        return len(self.put) - len(self.taken)

    def settle(self, rest: Sequence[int]) -> tuple[int, int]:
        """How many messages were lost and doubled, given what is left in the queue."""
        seen = self.taken + Counter(rest)
        lost = sum(number not in seen for number in self.put)
        return lost, sum(count - 1 for count in seen.values())


RESERVED = 1 << 32
"""Numbers for each process that enqueues."""


class _Calls:
    """The calls of a peer's clients, cell by cell, and the account of their messages."""

    def __init__(self, peer: Peer, server: Server, seconds: float) -> None:
        self.peer = peer
        self.server = server
        self.seconds = seconds
        self.account = Account()
        self.figures: dict[Cell, Figures] = {}

    def measure(self, cell: Cell) -> None:
        peer, server = self.peer, self.server
        role = "put" if cell.work == "enqueue" else "take"
        if role == "take" and not peer.limit:
            self._fill(cell)
        jobs = [
            Job(peer.registered, server.address, role, cell.batch, self.account.numbers(RESERVED))
            for _ in range(cell.processes)
        ]
        window: list[float | None] = []
        found = run_all(jobs, server, self.seconds, lambda: window.append(_server_seconds(server)))
        calls = [call for one in found for call in one["calls"]]
        for _, _, numbers in calls:
            if role == "put":
                self.account.put.update(numbers)
            elif not peer.limit:
                self.account.taken.update(numbers)
        measured, end = found[0]["span"][1:]
        if role == "take":
            end = min([end, *(returned for _, returned, numbers in calls if not numbers)])
        count = sum(len(numbers) for _, returned, numbers in calls if measured <= returned <= end)
        if not count:
            raise Failed(f"{peer.name}: {cell}: no call returned in the measured time")
        all_measured = sum(len(numbers) for began, _, numbers in calls if began >= measured)
        waits = [
            (end - began) / 1e6 for began, end, numbers in calls if began >= measured and numbers
        ]
        server_us = _per_message(window[0], window[-1], all_measured)
        client_us = sum(one["cpu"] for one in found) / max(1, all_measured) * 1e6
        self.figures[cell] = Figures(
            count / ((end - measured) / 1e9),
            client_us,
            server_us,
            quantile(waits, 0.5),
            quantile(waits, 0.99),
        )

    def _fill(self, cell: Cell) -> None:
        """Enqueue more than consumers will take."""
        alike = [each.rate for like, each in self.figures.items() if like.batch == cell.batch]
        wanted = int(max([LEAST_RATE, *alike]) * (self.seconds + WARM_UP) * HEADROOM)
        count = wanted - self.account.left
        if count > 0:
            first = self.account.numbers(count)
            _send(self.peer, self.server, first, count)
            self.account.put.update(range(first, first + count))

    def settle(self) -> tuple[int, int]:
        """How many messages were lost and doubled; none where that cannot be known."""
        if self.peer.limit or not self.peer.takes:
            return 0, 0
        (rest,) = run_all([Job(self.peer.registered, self.server.address, "rest")], self.server)
        return self.account.settle(rest["numbers"])


def _send(peer: Peer, server: Server, first: int, count: int) -> None:
    """Enqueue messages with the numbers from ``first`` on."""
    run_all([Job(peer.registered, server.address, "send", 100, first, count)], server)


def _work(
    peer: Peer, server: Server, cell: Cell, messages: int, most_seconds: float
) -> tuple[Figures, int, int]:
    """Let the peer's workers handle messages; returns the figures, and how many were lost and
    doubled. Past ``most_seconds`` it stops, and what is not handled yet does not count as lost."""
    _send(peer, server, 0, messages)
    with tempfile.TemporaryDirectory(prefix="fdbqueue-handled-") as directory, ExitStack() as stack:
        path = Path(directory) / "handled"
        environment = {handled.FILE: str(path)}
        job = Job(peer.registered, server.address, "work")
        workers = [
            stack.enter_context(started(job, server, environment)) for _ in range(cell.processes)
        ]
        before = _server_seconds(server)
        began = changed = time.monotonic()
        count = 0
        while (now := time.monotonic()) < changed + QUIET_SECONDS and count < messages:
            time.sleep(0.05)
            found = path.stat().st_size // 16 if path.exists() else 0
            if found > count:
                count, changed = found, now
            if count and now > began + most_seconds:
                break
        stopped_early = count < messages and now <= changed + QUIET_SECONDS
        used = sum(cpu_seconds(worker.pid) or 0.0 for worker in workers)
        after = _server_seconds(server)
        rows = handled.read(path)
    times = sorted(at for _, at in rows)
    if len(times) < 20:
        raise Failed(f"{peer.name}: its worker handled {len(times)} of {messages} messages")
    low, high = len(times) // 10, len(times) * 9 // 10
    distinct = {number for number, _ in rows}
    figures = Figures(
        (high - low) / ((times[high] - times[low]) / 1e9),
        used / len(rows) * 1e6,
        _per_message(before, after, len(rows)),
    )
    return figures, 0 if stopped_early else messages - len(distinct), len(rows) - len(distinct)


def kill(peer: Peer, messages: int, kills: int, patience: float = PATIENCE_SECONDS) -> Killed:
    """Kill one of four workers of a peer twice a second (SIGKILL), and start another one for it."""
    with (
        _served(peer) as server,
        tempfile.TemporaryDirectory(prefix="fdbqueue-handled-") as directory,
        ExitStack() as stack,
    ):
        _send(peer, server, 0, messages)
        path = Path(directory) / "handled"
        environment = {handled.FILE: str(path), handled.PAUSE: str(PAUSE_SECONDS)}
        job = Job(peer.registered, server.address, "work")

        def start() -> ExitStack:
            one = stack.enter_context(ExitStack())
            one.enter_context(started(job, server, environment))
            return one

        workers = [start() for _ in range(4)]
        _wait_for(path, 1, patience)
        for n in range(kills):
            time.sleep(KILL_EVERY)
            workers[n % 4].close()  # kills its process, with all that it has started
            workers[n % 4] = start()
        killed = time.monotonic()
        _wait_for(path, messages, patience)
        rows = handled.read(path)
    numbers = Counter(number for number, _ in rows)
    return Killed(
        kills,
        messages,
        missing=messages - len(numbers),
        twice=sum(count > 1 for count in numbers.values()),
        last_seconds=max((at for _, at in rows), default=0) / 1e9 - killed,
    )


def _wait_for(path: Path, messages: int, patience: float) -> None:
    """Wait until so many different messages have been handled, or none for ``patience`` seconds."""
    count, changed = 0, time.monotonic()
    while count < messages and time.monotonic() < changed + patience:
        time.sleep(0.2)
        found = len({number for number, _ in handled.read(path)})
        if found > count:
            count, changed = found, time.monotonic()


def _per_message(before: float | None, after: float | None, messages: int) -> float | None:
    """Microseconds; None without a server."""
    if before is None or after is None:
        return None
    return max(0.0, after - before) / messages * 1e6


def _server_seconds(server: Server) -> float | None:
    return None if server.pid is None else cpu_seconds(server.pid)


def middle(lives: Sequence[Life]) -> Life:
    """The medians of several rounds; what was lost and doubled adds up."""

    def of(cell: Cell) -> Figures:
        each = [life.cells[cell] for life in lives if cell in life.cells]

        def known(name: str) -> float | None:
            values = [getattr(one, name) for one in each]
            return median(values) if None not in values else None

        return Figures(
            median(one.rate for one in each),
            median(one.client_us for one in each),
            *map(known, ("server_us", "p50_ms", "p99_ms")),
        )

    cells = {cell: of(cell) for cell in sorted({cell for life in lives for cell in life.cells})}
    return Life(cells, sum(life.lost for life in lives), sum(life.doubled for life in lives))


def to_json(life: Life) -> dict[str, Any]:
    return {
        "lost": life.lost,
        "doubled": life.doubled,
        "cells": {str(cell): asdict(figures) for cell, figures in life.cells.items()},
    }

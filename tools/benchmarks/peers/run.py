"""The life of one peer: enqueue, receive and acknowledge, its own worker, and the final account."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..process_tree import cpu_seconds
from . import handled
from .child import Job
from .peer import Peer, Server

TOOLS = Path(__file__).resolve().parents[2]
WARM_UP = 0.5
HEADROOM = 2
"""The backlog of consumers, in messages that producers enqueued in the same time."""
LEAST_RATE = 1_500.0
"""Messages a second that consumers may take of any peer."""
QUIET_SECONDS = 10.0
"""A worker that handles nothing for so long has finished, or has lost what is left."""


class Failed(Exception):
    """Raised when a process of a run failed."""


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
    """Messages per second, and processor time in microseconds per message."""

    rate: float
    client_us: float
    server_us: float | None = None


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
            account = Account()
            for cell in (cell for cell in cells if cell.work != "worker"):
                if _possible(peer, cell):
                    figures[cell] = _measure(peer, server, cell, seconds, account, figures)
            if peer.takes and not peer.limit:
                (rest,) = _run(
                    [Job(peer.name.removesuffix(peer.label), server.address, "rest")], server
                )
                lost, doubled = account.settle(rest["numbers"])
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


def _measure(
    peer: Peer,
    server: Server,
    cell: Cell,
    seconds: float,
    account: Account,
    figures: dict[Cell, Figures],
) -> Figures:
    role = "put" if cell.work == "enqueue" else "take"
    if role == "take" and not peer.limit:
        _fill(peer, server, cell, seconds, account, figures)
    jobs = [
        Job(
            peer.name.removesuffix(peer.label),
            server.address,
            role,
            cell.batch,
            account.numbers(RESERVED),
        )
        for _ in range(cell.processes)
    ]
    window: list[float | None] = []
    found = _run(jobs, server, seconds, lambda: window.append(_server_seconds(server)))
    calls = [call for one in found for call in one["calls"]]
    for _, _, numbers in calls:
        if role == "put":
            account.put.update(numbers)
        elif not peer.limit:
            account.taken.update(numbers)
    measured, end = found[0]["span"][1:]
    if role == "take":
        end = min([end, *(returned for _, returned, numbers in calls if not numbers)])
    count = sum(len(numbers) for _, returned, numbers in calls if measured <= returned <= end)
    if not count:
        raise Failed(f"{peer.name}: {cell}: no call returned in the measured time")
    all_measured = sum(len(numbers) for began, _, numbers in calls if began >= measured)
    server_us = _per_message(window[0], window[-1], all_measured)
    client_us = sum(one["cpu"] for one in found) / max(1, all_measured) * 1e6
    return Figures(count / ((end - measured) / 1e9), client_us, server_us)


def _fill(
    peer: Peer,
    server: Server,
    cell: Cell,
    seconds: float,
    account: Account,
    figures: dict[Cell, Figures],
) -> None:
    """Enqueue more than consumers will take."""
    alike = [each.rate for like, each in figures.items() if like.batch == cell.batch]
    wanted = int(max([LEAST_RATE, *alike]) * (seconds + WARM_UP) * HEADROOM)
    count = wanted - account.left
    if count > 0:
        first = account.numbers(count)
        _run(
            [Job(peer.name.removesuffix(peer.label), server.address, "send", 100, first, count)],
            server,
        )
        account.put.update(range(first, first + count))


def _work(
    peer: Peer, server: Server, cell: Cell, messages: int, most_seconds: float
) -> tuple[Figures, int, int]:
    """Let the peer's workers handle messages; returns the figures, and how many were lost and
    doubled. Past ``most_seconds`` it stops, and what is not handled yet does not count as lost."""
    _run(
        [Job(peer.name.removesuffix(peer.label), server.address, "send", 100, 0, messages)], server
    )
    with tempfile.TemporaryDirectory(prefix="fdbqueue-handled-") as directory, ExitStack() as stack:
        path = Path(directory) / "handled"
        environment = {handled.FILE: str(path)}
        jobs = [Job(peer.name.removesuffix(peer.label), server.address, "work")] * cell.processes
        workers = [stack.enter_context(_started(job, server, environment)) for job in jobs]
        before = _server_seconds(server)
        started = changed = time.monotonic()
        count = 0
        while (now := time.monotonic()) < changed + QUIET_SECONDS and count < messages:
            time.sleep(0.05)
            found = path.stat().st_size // 16 if path.exists() else 0
            if found > count:
                count, changed = found, now
            if count and now > started + most_seconds:
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


def _per_message(before: float | None, after: float | None, messages: int) -> float | None:
    """Microseconds; None without a server."""
    if before is None or after is None:
        return None
    return max(0.0, after - before) / messages * 1e6


def _server_seconds(server: Server) -> float | None:
    return None if server.pid is None else cpu_seconds(server.pid)


@contextmanager
def _started(
    job: Job, server: Server, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process with a job; killed at the end."""
    paths = [server.environment.get("PYTHONPATH", str(TOOLS.parent)), str(TOOLS)]
    process = subprocess.Popen(
        # Without the current directory, which would come before the checkout to measure.
        [sys.executable, "-P", "-W", "ignore", "-m", "benchmarks.peers.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            **server.environment,
            **(environment or {}),
            "PYTHONPATH": os.pathsep.join(paths),
        },
    )
    try:
        _tell(process, job.to_json())
        if (line := _line(process)) != "ready\n":
            raise Failed(f"{job.peer}: a process for {job.role} did not start: {line!r}")
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _run(
    jobs: Sequence[Job],
    server: Server,
    seconds: float = 0.0,
    mark: Callable[[], object] | None = None,
) -> list[dict[str, Any]]:
    """Run jobs at the same time; calls ``mark`` when the measured time begins and at the end."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_started(job, server)) for job in jobs]
        begin = time.monotonic_ns() + 50_000_000
        measured = begin + int(WARM_UP * 1e9)
        span = [begin, measured, measured + int(seconds * 1e9)]
        if mark is not None:
            for process in processes:
                _tell(process, json.dumps(span))
            time.sleep(max(0, measured - time.monotonic_ns()) / 1e9)
            mark()
        lines = [_line(process) for process in processes]
        if mark is not None:
            mark()
    if not all(lines):
        raise Failed(f"{jobs[0].peer}: a process for {jobs[0].role} failed, see above")
    return [{**json.loads(line), "span": span} for line in lines]


def middle(lives: Sequence[Life]) -> Life:
    """The medians of several rounds; what was lost and doubled adds up."""

    def of(cell: Cell) -> Figures:
        each = [life.cells[cell] for life in lives if cell in life.cells]
        servers = [one.server_us for one in each if one.server_us is not None]
        return Figures(
            median(one.rate for one in each),
            median(one.client_us for one in each),
            median(servers) if servers else None,
        )

    cells = {cell: of(cell) for cell in sorted({cell for life in lives for cell in life.cells})}
    return Life(cells, sum(life.lost for life in lives), sum(life.doubled for life in lives))


def to_json(life: Life) -> dict[str, Any]:
    return {
        "lost": life.lost,
        "doubled": life.doubled,
        "cells": {str(cell): asdict(figures) for cell, figures in life.cells.items()},
    }

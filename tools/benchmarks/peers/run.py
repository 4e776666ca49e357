"""The life of one peer: enqueue, receive and acknowledge, its own worker, and the final account."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import measure
from ..clients import Account
from ..declare import Row
from ..measure import Figures
from ..processes import BenchmarkFailed, How, Running, Work, Worker, cpu_seconds, once, run, started
from . import handled
from .peer import Peer, Server

WARM_UP = 0.5
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
RESERVED = 1 << 32
"""Numbers for each process that enqueues."""
LOST, DOUBLED = "lost", "doubled"


@dataclass(frozen=True, order=True)
class Cell:
    """One kind of work: ``enqueue``, ``receive`` (with the acknowledgement) or ``worker``."""

    work: str
    batch: int
    processes: int

    def __str__(self) -> str:
        return f"{self.work} by {self.batch}, {self.processes}"

    def suits(self, peer: Peer) -> bool:
        """Whether the peer does such work."""
        return {
            "enqueue": self.batch == 1 or peer.enqueues_batches,
            "receive": peer.takes and (self.batch == 1 or peer.receives_batches),
            "worker": peer.work is not None,
        }[self.work]


CELLS = (
    Cell("enqueue", 1, 1), Cell("receive", 1, 1),
    Cell("enqueue", 1, 4), Cell("receive", 1, 4), Cell("receive", 1, 16),
    Cell("enqueue", 100, 4), Cell("receive", 100, 4),
    Cell("worker", 1, 4),
)  # fmt: skip
"""In this order, so that no queue is longer than its consumers need: some slow down with length."""


def live(peer: Peer, cells: Sequence[Cell], seconds: float, messages: int) -> Iterator[Row]:
    """Run one peer through the cells, each for some seconds, on a store or server of its own; a row
    for each, then what was lost and doubled.

    messages: how many the peer's own worker handles.
    """
    possible = [cell for cell in cells if cell.suits(peer)]
    account = Account()
    if calls := [cell for cell in possible if cell.work != "worker"]:
        with _served(peer) as server:
            rates: dict[Cell, float] = {}
            for cell in calls:
                if cell.work == "receive" and not peer.limit:
                    alike = [rate for like, rate in rates.items() if like.batch == cell.batch]
                    wanted = max([LEAST_RATE, *alike]) * (seconds + WARM_UP) * HEADROOM
                    _fill(peer, server, int(wanted), account)
                row = _call(peer, server, cell, account, seconds)
                rates[cell] = row.figure
                yield row
            if peer.takes and not peer.limit:
                rest = partial(measure.rest, partial(peer.client, server.address))
                account.settle(once(rest, server.how))
    for cell in possible:
        if cell.work == "worker":
            yield _work(peer, cell, messages, 5 * seconds, account)
    counts = {LOST: account.lost, DOUBLED: account.doubled}
    yield Row(f"{peer.name}: lost or doubled", sum(counts.values()), "", 0, True, counts)


@contextmanager
def _served(peer: Peer) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="fdbqueue-peer-") as directory:
        os.chmod(directory, 0o755)  # A server may run as another user.
        with peer.store.served(Path(directory)) as server:
            if peer.prepare is not None:
                peer.prepare(server.address)
            yield server


def _call(peer: Peer, server: Server, cell: Cell, account: Account, seconds: float) -> Row:
    opened = partial(peer.client, server.address)
    works: list[Work] = [partial(measure.take, opened, cell.batch, None)] * cell.processes
    if cell.work == "enqueue":
        first = [account.numbers(RESERVED) for _ in range(cell.processes)]
        works = [partial(measure.put, opened, cell.batch, n, None) for n in first]
    window: list[float] = []
    span, reports = run(works, seconds, WARM_UP, server.how, lambda: window.append(_spent(server)))
    if not peer.limit and cell.work == "enqueue":
        account.put.update(*measure.moved(reports))
    elif not peer.limit:
        account.taken.update(n for numbers in measure.moved(reports) for n in numbers)
    empty = [op.returned for report in reports for op in report.ops if not op.messages]
    end = min([span.end, *empty])
    one = Figures.of(reports, span.measured, end)
    if not one.rate:
        raise BenchmarkFailed(problem=f"{peer.name}: {cell}: no call returned in time")
    more = {
        "p50 ms": one.p50_ms,
        "p99 ms": one.p99_ms,
        "client µs": one.cpu_us,
        "server µs": (window[-1] - window[0]) / one.messages * 1e6,
    }
    return Row(f"{peer.name}: {cell}", one.rate, more=more)


def _fill(peer: Peer, server: Server, messages: int, account: Account) -> None:
    """Enqueue until the queue has so many."""
    count = messages - (len(account.put) - len(account.taken))
    if count > 0:
        first = account.numbers(count)
        _send(peer, server, first, count)
        account.put.update(range(first, first + count))


def _send(peer: Peer, server: Server, first: int, count: int) -> None:
    once(partial(measure.fill, partial(peer.client, server.address), first, count), server.how)


@contextmanager
def _handled(
    peer: Peer, messages: int, pause: float = 0.0
) -> Iterator[tuple[Server, Path, Callable[[], AbstractContextManager[Running]]]]:
    """A server with messages, the file of what is handled, and what starts a worker of the peer."""
    with _served(peer) as server, tempfile.TemporaryDirectory(prefix="fdbqueue-peer-") as directory:
        _send(peer, server, 0, messages)
        path = Path(directory) / "handled"
        environment = {handled.FILE: str(path), handled.PAUSE: str(pause)}
        how = How("spawn", {**server.environment, **environment}, handles_signals=True)
        yield server, path, partial(_worker, peer, server.address, how)


@contextmanager
def _worker(peer: Peer, address: str, how: How) -> Iterator[Running]:
    with started(partial(_handle, peer, address), how) as process:
        process.told()
        yield process


def _handle(peer: Peer, address: str, worker: Worker) -> None:
    worker.ready()
    assert peer.work is not None
    peer.work(address)


def _work(peer: Peer, cell: Cell, messages: int, most_seconds: float, account: Account) -> Row:
    """Let the peer's workers handle messages. Past ``most_seconds`` it stops, and what is not
    handled yet does not count as lost."""
    with _handled(peer, messages) as (server, path, start), ExitStack() as stack:
        workers = [stack.enter_context(start()) for _ in range(cell.processes)]
        before, used = _spent(server), _used(workers)
        in_time = _wait_for(path, messages, QUIET_SECONDS, most_seconds)
        spent, used = _spent(server) - before, _used(workers) - used
        rows = handled.read(path)
    times = sorted(at for _, at in rows)
    if len(times) < 20:
        problem = f"{peer.name}: its worker handled {len(times)} of {messages} messages"
        raise BenchmarkFailed(problem=problem)
    distinct = {number for number, _ in rows}
    account.lost += messages - len(distinct) if in_time else 0
    account.doubled += len(rows) - len(distinct)
    low, high = len(times) // 10, len(times) * 9 // 10
    rate = (high - low) / ((times[high] - times[low]) / 1e9)
    more = {"client µs": used / len(rows) * 1e6, "server µs": spent / len(rows) * 1e6}
    return Row(f"{peer.name}: {cell}", rate, more=more)


def kill(peer: Peer, messages: int, kills: int) -> Row:
    """Kill one of four workers of a peer twice a second (SIGKILL), and start another one for it;
    how many messages nobody has handled, how many were handled again, and the seconds from the last
    kill to the last message."""
    with _handled(peer, messages, PAUSE_SECONDS) as (_, path, start), ExitStack() as stack:
        workers = [stack.enter_context(ExitStack()) for _ in range(4)]
        for worker in workers:
            worker.enter_context(start())
        _wait_for(path, 1, PATIENCE_SECONDS)
        for n in range(kills):
            time.sleep(KILL_EVERY)
            workers[n % 4].close()  # kills its process, with all that it has started
            workers[n % 4].enter_context(start())
        killed = time.monotonic()
        _wait_for(path, messages, PATIENCE_SECONDS)
        rows = handled.read(path)
    numbers = Counter(number for number, _ in rows)
    last = max((at for _, at in rows), default=0) / 1e9 - killed
    twice = sum(count > 1 for count in numbers.values())
    more = {"handled twice": twice, "last after s": last}
    missing = messages - len(numbers)
    return Row(f"{peer.name}: not handled, {kills} kills", missing, "", more=more)


def _wait_for(path: Path, messages: int, patience: float, seconds: float = math.inf) -> bool:
    """Wait until so many different messages have been handled, or none for ``patience`` seconds;
    returns False if it took longer than ``seconds``."""
    count, began = 0, time.monotonic()
    changed = began
    while count < messages and (now := time.monotonic()) < changed + patience:
        if count and now > began + seconds:
            return False
        time.sleep(0.1)
        found = len({number for number, _ in handled.read(path)})
        if found > count:
            count, changed = found, time.monotonic()
    return True


def _used(workers: Sequence[Running]) -> float:
    return sum(cpu_seconds(worker.pid) for worker in workers)


def _spent(server: Server) -> float:
    """Seconds of processor time of the server so far; 0 without one."""
    return 0.0 if server.pid is None else cpu_seconds(server.pid)

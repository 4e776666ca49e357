"""The speed of a store: with one process and with several, in single messages and in batches.

Each step enqueues to a new queue for a while, then receives for as long, or until it is empty. The
enqueued messages must equal those received and those left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from ...errors import LeaseLost
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.model import Delivery
from ...values.records import record
from . import processes
from .processes import BenchmarkFailed, Report, Work, Worker

BATCH_BYTES = 2_000_000
"""Maximum payload bytes of a batch, so that it fits in one transaction."""
LEASE_SECONDS = 60.0
PAUSE_SECONDS = 0.01
WAIT_SECONDS = 0.5
NUMBER_BYTES = 8
SET = bytes(100)


@record
class Step:
    """One line of the result.

    rate: messages per second; None if the step pauses on purpose. p50_ms, p99_ms: the latency of a
    call or, in the last step, of a message.
    """

    name: str
    processes: int
    batch: int
    rate: float | None
    p50_ms: float
    p99_ms: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, to the microsecond."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def run(many: int, seconds: float, size: int, batch: int) -> Iterator[Step]:
    """Run the steps and yield each result; a step takes ``seconds``.

    many: processes. size: bytes of a payload. batch: messages in a batch, or fewer if they are too
    large. Raises ``BenchmarkFailed``.
    """
    with processes.scratch() as space:
        yield _measured("commit of one key", [partial(_set, space)], 1, seconds)[0]
    batch = max(1, min(batch, BATCH_BYTES // size))
    for count, together in dict.fromkeys([(1, 1), (many, 1), (1, batch), (many, batch)]):
        yield from _put_and_take(count, together, seconds, size)
    yield _delivered(seconds, size)


def _put_and_take(count: int, batch: int, seconds: float, size: int) -> Iterator[Step]:
    with processes.scratch() as space:
        producers = [partial(_put, space, n << 40, batch, size) for n in range(count)]
        enqueue, put = _measured("enqueue", producers, batch, seconds)
        yield enqueue
        consumers = [partial(_take, space, batch)] * count
        receive, taken = _measured("receive and ack", consumers, batch, seconds)
        undone = {n for report in taken for n in report.result}
        done = [n for n in _numbers(taken) if n not in undone]
        left = processes.once(lambda: [*map(number, remaining(*_queue(space)))])
        account("the queue", _numbers(put), done, left)
        yield receive


def _measured(
    name: str, work: Sequence[Work], batch: int, seconds: float
) -> tuple[Step, list[Report]]:
    span, reports = processes.run(work, seconds)
    ops = [op for report in reports for op in report.ops if op.messages]
    took = [(op.returned - op.began) / 1e6 for op in ops]
    until = max((op.returned for op in ops), default=span.end)
    rate = sum(len(op.messages) for op in ops) / max(1, until - span.begin) * 1e9
    return Step(name, len(work), batch, rate, quantile(took, 0.5), quantile(took, 0.99)), reports


def _numbers(reports: Sequence[Report]) -> list[int]:
    return [n for report in reports for op in report.ops for n in op.messages]


def _delivered(seconds: float, size: int) -> Step:
    """Measure from the return of an enqueue until a waiting consumer has the message."""
    with processes.scratch() as space:
        put_slowly = partial(_put, space, 0, 1, size, pause=PAUSE_SECONDS)
        wait = partial(_take, space, 1, wait=WAIT_SECONDS)
        _, reports = processes.run([put_slowly, wait], seconds)
    put, taken = ({n: op.returned for op in report.ops for n in op.messages} for report in reports)
    waited = [max(0, taken[n] - put[n]) / 1e6 for n in put.keys() & taken.keys()]
    name = "enqueue to delivery"
    return Step(name, 2, 1, None, quantile(waited, 0.5), quantile(waited, 0.99))


# -- work of the processes ------------------------------------------------------------------------


def _set(space: bytes, worker: Worker) -> None:
    db, part = processes.opened(space)
    worker.start()
    worker.repeat_numbered(lambda numbers: db.set(part.pack((*numbers,)), SET))


def _queue(space: bytes) -> tuple[fdb.Database, Queue]:
    db, root = processes.opened(space)
    return db, Queue.open(db, "bench", root=root, lease=LEASE_SECONDS, max_attempts=None)


def _put(
    space: bytes, first: int, batch: int, size: int, worker: Worker, pause: float = 0.0
) -> None:
    db, queue = _queue(space)

    def put(numbers: Sequence[int]) -> None:
        time.sleep(pause)
        queue.enqueue_many(db, [payload(n, size) for n in numbers])

    worker.start()
    worker.repeat_numbered(put, batch, first)


def _take(space: bytes, batch: int, worker: Worker, wait: float = 0.0) -> None:
    consumer = Consumer(*_queue(space), batch, wait)
    worker.start()
    worker.repeat(lambda: [*map(number, consumer.take())], until_empty=not wait)
    worker.report.result = [*map(number, consumer.finish())]


class Consumer:
    """A consumer. A call of ``take`` acknowledges what the previous call returned."""

    def __init__(self, db: fdb.Database, queue: Queue, batch: int, wait: float = 0.0) -> None:
        self._db = db
        self._queue = queue
        self._batch = batch
        self._wait = wait
        self._held: list[Delivery] = []

    def take(self) -> list[bytes]:
        """The next messages, if any."""
        held, self._held = self._held, []
        self._held = self._queue.receive_many(self._db, self._batch, ack=held, wait=self._wait)
        return [delivery.payload for delivery in self._held]

    def finish(self) -> list[bytes]:
        """Acknowledge the last messages; returns those whose lease was lost."""
        with suppress(LeaseLost):
            if self._held:
                self._queue.ack_many(self._db, self._held)
            return []
        return [delivery.payload for delivery in self._held]


# -- checks and figures ---------------------------------------------------------------------------


def payload(number: int, size: int) -> bytes:
    """A payload that holds a number."""
    return number.to_bytes(NUMBER_BYTES) + bytes(size - NUMBER_BYTES)


def number(data: bytes) -> int:
    """The number in a payload."""
    return int.from_bytes(data[:NUMBER_BYTES])


def remaining(db: fdb.Database, queue: Queue) -> list[bytes]:
    """The payloads in a queue; raises ``BenchmarkFailed`` if its counters disagree."""
    found = [message.payload for message in queue.browse(db)]
    depth = queue.depth(db)
    counted = (depth.ready, depth.leased, depth.done + depth.ready)
    if counted != (len(found), 0, depth.enqueued):
        raise BenchmarkFailed(problem=f"{len(found)} messages are left, but the queue has {depth}")
    return found


def account(name: str, put: Iterable[int], done: Iterable[int], left: Iterable[int]) -> None:
    """Raise ``BenchmarkFailed`` if a message was lost or delivered twice."""
    lost, doubled = lost_and_doubled(put, done, left)
    if lost or doubled:
        raise BenchmarkFailed(problem=f"{name} lost {lost[:10]} and duplicated {doubled[:10]}")


def lost_and_doubled(
    put: Iterable[int], done: Iterable[int], left: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Messages that are neither done nor left, and those that exist more than once."""
    seen = Counter(done)
    seen.update(left)
    expected = set(put)
    lost = sorted(expected - set(seen))
    doubled = sorted(n for n, count in seen.items() if count > 1 or n not in expected)
    return lost, doubled


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile of the values; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

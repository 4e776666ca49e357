"""What the benchmarks of queues share: numbered payloads, a consumer, and the sums afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

from fdbqueue import Subscription
from fdbqueue.errors import LeaseLost
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import Delivery

from .processes import BenchmarkFailed

NUMBER_BYTES = 8


class Consumer:
    """A consumer. A call of ``take`` acknowledges what the previous call returned."""

    def __init__(
        self, db: fdb.Database, queue: Queue, batch: int, subscription: Subscription | None = None
    ) -> None:
        self._db = db
        self._queue = queue
        self._source = subscription or queue
        self._batch = batch
        self._held: list[Delivery] = []

    def take(self) -> list[bytes]:
        """The next messages, if any."""
        held, self._held = self._held, []
        self._held = self._source.receive_many(self._db, self._batch, ack=held)
        return [delivery.payload for delivery in self._held]

    def finish(self) -> list[bytes]:
        """Acknowledge the last messages; returns those whose lease was lost."""
        with suppress(LeaseLost):
            if self._held:
                self._queue.ack(self._db, self._held)
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

"""The schemes: ways to enqueue and dequeue messages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import LeaseLost
from ...messages.delivery import scan
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.model import Delivery
from . import baselines

SCAN = 5_000


class Consumer(Protocol):
    """One consumer. A call of ``take`` acknowledges what the previous call returned."""

    def take(self) -> list[bytes]:
        """The next messages, if any."""

    def finish(self) -> list[bytes]:
        """Acknowledge the last messages; returns those whose lease was lost."""


class Scheme(Protocol):
    """A way to queue messages in a subspace."""

    @property
    def name(self) -> str: ...
    def producer(
        self, db: fdb.Database, space: fdb.Subspace
    ) -> Callable[[Sequence[bytes]], None]: ...
    def consumer(self, db: fdb.Database, space: fdb.Subspace, batch: int) -> Consumer: ...
    def remaining(self, db: fdb.Database, space: fdb.Subspace) -> list[bytes]: ...


@dataclass(frozen=True)
class Layer:
    """fdbqueue in one of its contention modes: receive and acknowledge."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    lease: float = 60.0

    def queue(self, db: fdb.Database, space: fdb.Subspace) -> Queue:
        options = {"max_attempts": None, "lease": self.lease, **self.options}
        return Queue.open(db, "bench", root=space, **options)

    def producer(self, db: fdb.Database, space: fdb.Subspace) -> Callable[[Sequence[bytes]], None]:
        queue = self.queue(db, space)

        def put(payloads: Sequence[bytes]) -> None:
            queue.enqueue_many(db, payloads)

        return put

    def consumer(
        self, db: fdb.Database, space: fdb.Subspace, batch: int, wait: float = 0.0
    ) -> Consumer:
        return _LayerConsumer(db, self.queue(db, space), batch, wait)

    def remaining(self, db: fdb.Database, space: fdb.Subspace) -> list[bytes]:
        queue = self.queue(db, space)
        ready, left = queue._keys.ready_range(), list[bytes]()
        begin = ready.start
        while found := db.get_range(begin, ready.stop, limit=SCAN):
            left += [each.envelope.payload for each in scan.parse(queue._keys, found)]
            begin = found[-1].key + b"\0"
        depth = queue.depth(db)
        assert (depth.ready, depth.leased) == (len(left), 0), depth
        assert depth.done + depth.ready == depth.enqueued, depth
        return left


class _LayerConsumer:
    def __init__(self, db: fdb.Database, queue: Queue, batch: int, wait: float) -> None:
        self._db = db
        self._queue = queue
        self._batch = batch
        self._wait = wait
        self._held: list[Delivery] = []

    def take(self) -> list[bytes]:
        held, self._held = self._held, []
        self._held = self._queue.receive_many(self._db, self._batch, ack=held, wait=self._wait)
        return [delivery.payload for delivery in self._held]

    def finish(self) -> list[bytes]:
        with contextlib.suppress(LeaseLost):
            if self._held:
                self._queue.ack_many(self._db, self._held)
            return []
        return [delivery.payload for delivery in self._held]


@dataclass(frozen=True)
class Recipe:
    """A published recipe that pops messages, and loses what a crash interrupts."""

    name: str
    pop: Callable[[fdb.Database, fdb.Subspace], bytes | None]

    def producer(self, db: fdb.Database, space: fdb.Subspace) -> Callable[[Sequence[bytes]], None]:
        def put(payloads: Sequence[bytes]) -> None:
            baselines.put_all(db, space, payloads)

        return put

    def consumer(self, db: fdb.Database, space: fdb.Subspace, batch: int) -> Consumer:
        return _RecipeConsumer(db, space, self.pop)

    def remaining(self, db: fdb.Database, space: fdb.Subspace) -> list[bytes]:
        return baselines.items(db, space)


class _RecipeConsumer:
    def __init__(
        self,
        db: fdb.Database,
        space: fdb.Subspace,
        pop: Callable[[fdb.Database, fdb.Subspace], bytes | None],
    ) -> None:
        self._db = db
        self._space = space
        self._pop = pop

    def take(self) -> list[bytes]:
        found = self._pop(self._db, self._space)
        return [] if found is None else [found]

    def finish(self) -> list[bytes]:
        return []


AUTO = Layer("auto", {"contention": "auto"})
SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Layer("first", {"contention": "first"}),
        AUTO,
        Layer("staged", {"contention": "staged"}),
        Layer("relaxed", {"contention": "relaxed", "window": 128}),
        Recipe("plain recipe", baselines.pop_plain),
        Recipe("published staged", baselines.pop_staged),
    )
}

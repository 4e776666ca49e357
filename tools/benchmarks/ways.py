"""The schemes: ways to enqueue and dequeue messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fdbqueue.queue.queue import Queue
from fdbqueue.schema import scope
from fdbqueue.store.binding import fdb

from . import baselines, throughput


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
    """fdbqueue by one of its schemes: receive and acknowledge."""

    name: str
    scheme: scope.Scheme
    lease: float = 60.0

    def queue(self, db: fdb.Database, space: fdb.Subspace) -> Queue:
        queue = Queue.open(db, "bench", root=space, max_attempts=None, lease=self.lease)
        queue._entry.force(self.scheme)
        return queue

    def producer(self, db: fdb.Database, space: fdb.Subspace) -> Callable[[Sequence[bytes]], None]:
        queue = self.queue(db, space)

        def put(payloads: Sequence[bytes]) -> None:
            queue.enqueue_many(db, payloads)

        return put

    def consumer(self, db: fdb.Database, space: fdb.Subspace, batch: int) -> Consumer:
        return throughput.Consumer(db, self.queue(db, space), batch)

    def remaining(self, db: fdb.Database, space: fdb.Subspace) -> list[bytes]:
        return throughput.remaining(db, self.queue(db, space))


@dataclass(frozen=True)
class Subscribed(Layer):
    """As ``Layer``, with consumers of one subscription whose selector matches every message."""

    def consumer(self, db: fdb.Database, space: fdb.Subspace, batch: int) -> Consumer:
        queue = self.queue(db, space)
        wanted = queue.subscriptions.open(db, "wanted", selector="priority >= 0")
        return throughput.Consumer(db, queue, batch, wanted)


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


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Layer("first", "first"),
        Layer("auto", "auto"),
        Layer("staged", "staged"),
        Subscribed("subscribed first", "first"),
        Subscribed("subscribed auto", "auto"),
        Subscribed("subscribed staged", "staged"),
        Recipe("plain recipe", baselines.pop_plain),
        Recipe("published staged", baselines.pop_staged),
    )
}

"""The schemes: ways to enqueue and dequeue messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial

from fdbqueue import Subscription
from fdbqueue.errors import LeaseLost
from fdbqueue.queue.queue import Queue
from fdbqueue.schema import scope
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import Delivery

from .baselines import PlainRecipe, PublishedStaged
from .clients import NAME, Client
from .processes import BenchmarkFailed


class Layer(Client):
    """fdbqueue: receive and acknowledge. A ``take`` acknowledges what the previous one returned.

    wanted: the selector of the subscription that is the source, if it is not the queue.
    """

    def __init__(self, db: fdb.Database, queue: Queue[bytes], wanted: str | None = None) -> None:
        self._db = db
        self._queue = queue
        self._wanted = wanted
        self._held: list[Delivery] = []

    @cached_property
    def _source(self) -> Queue[bytes] | Subscription:
        if self._wanted is None:
            return self._queue
        return self._queue.subscriptions.open(self._db, "wanted", selector=self._wanted)

    def put(self, payloads: Sequence[bytes]) -> None:
        self._queue.enqueue_many(self._db, payloads)

    def enqueue(self, payload: bytes) -> None:
        self._queue.enqueue(self._db, payload)

    def take(self, most: int) -> Sequence[bytes]:
        held, self._held = self._held, []
        self._held = self._source.receive_many(self._db, most, ack=held)
        return [delivery.payload for delivery in self._held]

    def finish(self) -> Sequence[bytes]:
        with suppress(LeaseLost):
            if self._held:
                self._queue.ack(self._db, self._held)
            return ()
        return [delivery.payload for delivery in self._held]

    def rest(self) -> Sequence[bytes]:
        found = [message.payload for message in self._queue.browse(self._db)]
        depth = self._queue.depth(self._db)
        counted = (depth.ready, depth.leased, depth.done + depth.ready)
        if counted != (len(found), 0, depth.enqueued):
            raise BenchmarkFailed(problem=f"{len(found)} messages are left, but there are {depth}")
        return found


def _layer(
    scheme: scope.Scheme, wanted: str | None, db: fdb.Database, space: fdb.Subspace
) -> Layer:
    queue = Queue.open(db, NAME, root=space, max_attempts=None, lease=60.0)
    queue._entry.force(scheme)
    return Layer(db, queue, wanted)


EVERY = "priority >= 0"
"""A selector that matches every message."""
SCHEMES: Mapping[str, Callable[[fdb.Database, fdb.Subspace], Client]] = {
    "first": partial(_layer, "first", None),
    "auto": partial(_layer, "auto", None),
    "staged": partial(_layer, "staged", None),
    "subscribed first": partial(_layer, "first", EVERY),
    "subscribed auto": partial(_layer, "auto", EVERY),
    "subscribed staged": partial(_layer, "staged", EVERY),
    "plain recipe": PlainRecipe,
    "published staged": PublishedStaged,
}

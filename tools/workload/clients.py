"""The clients of a run: each does one thing after another, and writes down what came of it."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fdbqueue import Delivery, Message, Run, Subscription, Take, Worker, aio
from fdbqueue.errors import LeaseLost, NotFound, OperationTimedOut, OutcomeUnknown, QueueFull
from fdbqueue.store import world
from fdbqueue.store.binding import FAILURES, fdb
from fdbqueue.store.embedded import StoreFull

from .history import Recorder
from .place import WORKERS_LEASE, Place

EXPECTED = (LeaseLost, OperationTimedOut, OutcomeUnknown, QueueFull, NotFound, *FAILURES)
"""What an operation may raise by rights; anything else is a failure of the run."""
FULL_SECONDS = 0.1
"""How long to let be a store that has no room."""
BESIDE_SECONDS = 0.1
"""How long a transaction of a caller takes for what is not of the queue, at most."""

Body = Callable[["Client"], object]


class Interrupted(Exception):
    """Raised by the handler of a signal in the middle of an operation."""


class Client:
    """One thread of a process. expected: what its operations may raise by rights."""

    expected: tuple[type[Exception], ...] = EXPECTED

    def __init__(self, place: Place, recorder: Recorder, who: str, seed: int) -> None:
        self.place, self.recorder, self.who = place, recorder, who
        self.db = place.db
        self.random = random.Random(f"{seed}:{who}")
        self.doing = ""
        self.done = 0
        self.stops = False
        self.operating = self.interrupted = False
        self.held: list[tuple[str, list[Delivery]]] = []
        """What it took from ``MIXED`` or ``TARGET``, and has not settled."""
        self.made: list[Delivery] = []
        self.ids: deque[str] = deque(maxlen=50)
        """Of messages that it has enqueued."""
        self.subscriptions: dict[str, Subscription] = {}

    def live(self, bodies: Sequence[Body], weights: Sequence[float], think: float) -> None:
        """Go on until told to stop. think: seconds between two operations, on average."""
        while not self.stops:
            self.random.choices(bodies, weights)[0](self)
            self.doing = ""
            # Never nothing: an operation may have found nothing to do.
            world.sleep(self.random.random() * 2 * think + 0.002)

    def asks(self, rows: int, size: int) -> None:
        """Called before an operation: what its caller asks for, or hands in."""

    def interrupt(self) -> None:
        """End the operation that this thread is in by an exception; the handler of a signal."""
        if self.operating:
            self.operating, self.interrupted = False, True
            raise Interrupted

    def do(
        self,
        name: str,
        queue: str,
        body: Callable[[int], Any],
        *,
        rows: int = 0,
        size: int = 0,
        may: tuple[type[Exception], ...] = (),
        **what: Any,
    ) -> Any:
        """One operation with its record; None if it failed as it may.

        rows, size: what the caller asks for, or hands in. may: what it may raise besides
        ``EXPECTED``.
        """
        self.asks(rows, size)
        self.doing = f"{name} {queue} {what}"[:300]
        n = self.recorder.begin(self.who, name, queue, **what)
        return self.finish(n, lambda: body(n), may)

    def finish(self, n: int, body: Callable[[], Any], may: tuple[type[Exception], ...] = ()) -> Any:
        """The end of an operation, with its record; None if it failed as it may."""
        try:
            try:
                self.operating, self.interrupted = True, False
                result = body()
            finally:
                self.operating = False
        except Exception as error:
            # Whatever a library has made of an interruption on its way.
            told = Interrupted() if self.interrupted else error
            if not isinstance(told, (*self.expected, Interrupted, *may)):
                raise
            self.recorder.end(self.who, n, error=f"{type(told).__name__}: {told}")
            if isinstance(error, StoreFull):
                world.sleep(FULL_SECONDS)
            return None
        finally:
            self.done += 1
        self.recorder.end(self.who, n, result=result)
        return result

    def marked(self, n: int, body: Callable[[fdb.Transaction], Any]) -> Any:
        """Run a body in a transaction of the caller, once: a mark tells whether it did."""

        @fdb.transactional
        def both(tr: fdb.Transaction) -> Any:
            done = self.place.marked(tr, self.who, n)
            if done is not None:
                return done
            found = body(tr)
            self.place.mark(tr, self.who, n, found)
            if self.random.random() < 0.3:  # Its caller has something to do, too.
                world.sleep(BESIDE_SECONDS * self.random.random())
            return found

        return both(self.db)

    # -- workers, whose handlers fail now and then ---------------------------------------------

    def work(self, concurrency: int = 4, batch: int | None = None) -> None:
        """Run a ``Worker`` until told to stop."""
        worker = Worker(self.db, concurrency=concurrency, name=self.who, shutdown=10)

        def handle(tr: fdb.Transaction, given: Message | list[Message]) -> None:
            self._handle(tr, given if isinstance(given, list) else [given])

        worker.add(
            self.place.queues["worked"],
            handle,
            run=Run(transactional=True, batch=batch),
            take=Take(lease=WORKERS_LEASE),
        )
        self.doing = "work"
        with worker:
            while not self.stops:
                world.sleep(0.5)
            self.doing = "stop the worker"

    def work_in_tasks(self) -> None:
        """As ``work``, in asyncio, with handlers that step aside in their transactions."""
        asyncio.run(self._tasks())

    async def _tasks(self) -> None:
        worker = aio.Worker(aio.Database(self.db), concurrency=50, name=self.who, shutdown=10)
        queue = aio.Queue.of(self.place.queues["worked"])

        @worker.handler(queue, take=Take(lease=WORKERS_LEASE))
        async def handle(tr: aio.Transaction, message: Message) -> None:
            await tr.get_read_version()
            await asyncio.sleep(self.random.random() * 0.01)
            self._handle(tr.blocking, [message])

        async with worker:
            while not self.stops:
                await asyncio.sleep(0.1)

    def _handle(self, tr: fdb.Transaction, messages: Sequence[Message]) -> None:
        self.recorder.note(self.who, "handle", "worked", rows=[row(one) for one in messages])
        for message in messages:
            self.place.effect(tr, "worked", message.payload.decode())
        self.done += len(messages)
        if self.random.random() < 0.02:
            raise LookupError("on purpose")


def row(one: Delivery | Message) -> list[Any]:
    """A message as histories have it: tag, id, level, attempt, region, whether redelivered, and how
    many died of it."""
    message = one.message if isinstance(one, Delivery) else one
    return [
        message.payload.decode(),
        message.id,
        message.level,
        message.attempts + 1,
        message.headers["region"],
        message.redelivered,
        message.deaths,
    ]

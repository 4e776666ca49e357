"""The clients of a run: what a strand of a simulated process does, and where."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from chaosrun.actors import row
from chaosrun.history import Recorder
from chaosrun.place import LEASE, MAX_ATTEMPTS, Place

from fdbqueue import Bounds, Delivery, KeyLimits, Message, Queue, Run, Subscription, Take, Worker
from fdbqueue.errors import (
    LeaseLost,
    NotFound,
    OperationTimedOut,
    OutcomeUnknown,
    QueueError,
    QueueFull,
)
from fdbqueue.store import world
from fdbqueue.store.binding import fdb

from .driver import Process, Strand

MIXED, TARGET, MADE = "mixed", "target", "made"
"""The queue whose options change and whose messages have every property, where they go, and one
that is deleted and made anew."""
TARGETS: list[dict[str, Any]] = [
    {},
    {"sort": "n"},
    {"last_value": "n"},
    {"bounds": Bounds(messages=40, when_full="reject")},
    {"bounds": Bounds(bytes=100_000, when_full="block")},
    {"bounds": Bounds(messages=40, when_full="drop-oldest", dropped="dead")},
]
"""What of ``TARGET`` is fixed by the seed."""
EXPECTED = (LeaseLost, OperationTimedOut, OutcomeUnknown, QueueFull, NotFound)
"""What an operation may raise by rights; anything else is a failure of the run."""
WORKERS_LEASE = 30.0


class Memory(Recorder):
    """A history that is kept in memory."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        super().__init__("")

    def _open(self) -> int:
        return -1

    def _write(self, **line: Any) -> None:
        self.lines.append(line)


class SimulatedPlace(Place):
    """The queues of a run, and handles of a process on them."""

    def __init__(self, db: fdb.Database, root: str, fixed: dict[str, Any], largest: int) -> None:
        super().__init__(db, root)
        self.fixed, self.largest = fixed, largest
        """Options of ``TARGET``, and the bytes of the largest payload."""
        self.ordered = "sort" in fixed or "last_value" in fixed
        self.mixed = Queue(MIXED, self.root)
        self.target = Queue(TARGET, self.root)
        self.made = Queue(MADE, self.root)
        self.any = {MIXED: self.mixed, TARGET: self.target}

    def create(self) -> None:
        """Make the queues."""
        super().create()
        Queue.create(self.db, TARGET, root=self.root, levels=2, **self.fixed)
        Queue.create(
            self.db,
            MIXED,
            root=self.root,
            levels=4,
            lease=LEASE,
            max_attempts=MAX_ATTEMPTS,
            keys=KeyLimits(concurrency=2),
            dedup_window=5.0,
        )


class Client:
    """One strand of a process: does one thing after another until the run is over."""

    def __init__(self, place: SimulatedPlace, recorder: Memory, who: str, seed: str) -> None:
        self.place, self.recorder, self.who = place, recorder, who
        self.db = place.db
        self.random = random.Random(f"{seed}:{who}")
        self.doing = ""
        self.done = 0
        self.stops = False
        self.strand: Strand
        self.held: list[tuple[str, list[Delivery]]] = []
        """What it took from ``MIXED`` or ``TARGET``, and has not settled."""
        self.made: list[Delivery] = []
        self.ids: deque[str] = deque(maxlen=50)
        """Of messages that it has enqueued."""
        self.subscriptions: dict[str, Subscription] = {}

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
        # A message has side records, each of its rows is removed and written, and read before.
        self.strand.allowance = 40 * rows, 4 * size + 4_000 * rows
        self.doing = f"{name} {queue} {what}"[:300]
        n = self.recorder.begin(self.who, name, queue, **what)
        return self.finish(n, lambda: body(n), may)

    def finish(self, n: int, body: Callable[[], Any], may: tuple[type[Exception], ...] = ()) -> Any:
        """The end of an operation, with its record; None if it failed as it may."""
        expected: tuple[type[Exception], ...] = (*EXPECTED, *may)
        try:
            result = body()
        except expected as error:
            self.recorder.end(self.who, n, error=f"{type(error).__name__}: {error}")
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
            return found

        return both(self.db)


class WorkingClient(Client):
    """Runs a ``Worker`` whose handler fails now and then."""

    def work(self, concurrency: int, batch: int | None) -> None:
        """Work until the run is over."""
        worker = Worker(self.db, concurrency=concurrency, name=self.who, shutdown=10)

        def handle(tr: fdb.Transaction, given: Message | list[Message]) -> None:
            messages = given if isinstance(given, list) else [given]
            self.recorder.note(self.who, "handle", "worked", rows=[row(one) for one in messages])
            for message in messages:
                self.place.effect(tr, "worked", message.payload.decode())
            self.done += len(messages)
            if self.random.random() < 0.02:
                raise LookupError("simulated")

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


class Home:
    """A simulated process with its handles and its clients."""

    def __init__(self, process: Process, place: SimulatedPlace) -> None:
        self.process, self.place = process, place
        self.clients: list[Client] = []

    @property
    def at_rest(self) -> bool:
        """Whether everything that it runs has ended."""
        return self.process.dead or not self.process.strands


__all__ = ["EXPECTED", "Client", "Home", "Memory", "QueueError", "SimulatedPlace", "WorkingClient"]

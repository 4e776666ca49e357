"""The processes that are tortured: producers, consumers of every kind, workers, browsers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import fdbqueue
from fdbqueue import Delivery, Message, NewMessage, Queue, Take, Then, Worker, aio, fdb
from fdbqueue.errors import QueueError
from fdbqueue.store.binding import FAILURES
from fdbqueue.store.embedded import StoreFull
from fdbqueue.values.groups import ThenOn

from .history import Recorder
from .place import (
    BROWSERS,
    FILTERS,
    KEYS,
    LIMITS,
    QUEUES,
    REGIONS,
    TAKEN,
    WORKERS_LEASE,
    Job,
    Place,
)

T = TypeVar("T")
DEEP = 20
"""Batches in a queue before producers let consumers keep up: a long queue tells less."""
FULL_SECONDS = 0.1
"""How long to let be a store that has no room."""


class Interrupted(Exception):
    """Raised by the handler of a signal in the middle of an operation."""


class Actor:
    """One thread of one process: does one thing after another until it is told to stop."""

    def __init__(self, job: Job, place: Place, recorder: Recorder, thread: int) -> None:
        self.job = job
        self.who = f"{job.name}.{thread}"
        self.place = place
        self.db = place.db
        self.recorder = recorder
        self.random = random.Random(f"{job.seed}:{job.name}:{thread}")
        self.operating = self.interrupted = False

    def run(self) -> None:
        """Go on until told to stop."""
        while not self.stopped:
            self.step()
            if self.job.pace:
                time.sleep(self.random.random() * 2 * self.job.pace)

    @property
    def stopped(self) -> bool:
        """Whether it is told to stop."""
        return Path(self.job.stop).exists()

    def interrupt(self) -> None:
        """End the operation that this thread is in by an exception; the handler of a signal."""
        if self.operating:
            self.operating, self.interrupted = False, True
            raise Interrupted

    def step(self) -> None:
        """One operation, or a few that belong together."""
        raise NotImplementedError

    def do(self, name: str, queue: str, body: Callable[[int], Any], **what: Any) -> Any:
        """One operation with its record; None if it failed."""
        n = self.recorder.begin(self.who, name, queue, **what)
        try:
            try:
                self.operating, self.interrupted = True, False
                result = body(n)
            finally:
                self.operating = False
        except Exception as error:
            if not (self.interrupted or isinstance(error, (QueueError, *FAILURES))):
                raise
            if self.interrupted:
                # Whatever a library has made of it on its way.
                error = Interrupted()
            self.recorder.end(self.who, n, error=f"{type(error).__name__}: {error}")
            if isinstance(error, StoreFull):
                time.sleep(FULL_SECONDS)
            return None
        self.recorder.end(self.who, n, result=result)
        return result

    def once(self, n: int, body: Callable[[fdb.Transaction], T]) -> T:
        """One transaction, with a mark by which it is found out whether it was committed."""

        @fdb.transactional
        def marked(tr: fdb.Transaction) -> T:
            done: T | None = self.place.marked(tr, self.who, n)
            if done is None:
                done = body(tr)
                self.place.mark(tr, self.who, n, done)
            return done

        found: T = marked(self.db)
        return found

    def queue(self, name: str) -> Queue:
        """A queue by its name."""
        return self.place.queues[name]


# -- producing --------------------------------------------------------------------------------


class Producer(Actor):
    """Enqueues: one message or many, at once or later, by itself, beside a mark, or by a producer
    that the threads of the process share."""

    def step(self) -> None:
        """Enqueue once."""
        # The watched queue grows for the whole run, so it gets little.
        names = [*TAKEN, *TAKEN, "worked", "worked", "filtered", "watched"]
        name = self.random.choice(names)
        if name != "watched" and self._deep(name):
            time.sleep(0.005)
            return
        count = self.random.choice([1, 1, self.job.batch // 2, self.job.batch])
        if name == "watched":
            count = 1
        serial = time.monotonic_ns()
        messages, told = [], []
        for i in range(count):
            tag = f"{self.who}:{serial}:{i}"
            delay = self.random.choice([0.5, 1.5]) if self.random.random() < 0.05 else 0.0
            if name == "watched":
                delay = 0.0
            priority, region = self.random.randrange(10), self.random.choice(REGIONS)
            key = self.random.choice(KEYS) if self.random.random() < 0.1 else None
            if name in ("watched", "filtered"):
                key = None
            limits = None
            if name in TAKEN and self.random.random() < (0.1 if key is None else 0.5):
                limits = dict(self.random.sample(LIMITS, self.random.choice([1, 1, 2])))
            headers = {"region": region}
            messages.append(
                NewMessage(tag.encode(), priority, headers, delay=delay, key=key, limits=limits)
            )
            # Who waits for others is delivered in no order that could be told from outside.
            waits = key or ("/".join(limits) if limits else None)
            told.append([tag, QUEUE_LEVEL[name](priority), delay, waits, region])
        queue = self.queue(name)

        def alone(n: int) -> list[str]:
            return queue.enqueue_many(self.db, messages)

        def beside(n: int) -> list[str]:
            return self.once(n, lambda tr: queue.enqueue_many(tr, messages))

        def grouped(n: int) -> list[str]:
            then = Then(b"", queue=self.place.callbacks, on=get_args(ThenOn)[n % 2])
            return self.once(n, lambda tr: queue.enqueue_many(tr, messages, group=then))

        how = self.random.choice([*["alone", "beside", "sent"] * 2, "grouped"])
        if how == "sent":
            self._send(name, messages, told)
            return
        enqueue = {"alone": alone, "beside": beside, "grouped": grouped}[how]
        self.do("enqueue", name, enqueue, messages=told, marked=how != "alone")

    def _send(self, name: str, messages: list[NewMessage[bytes]], told: list[list[Any]]) -> None:
        """Each message is an operation of its own, and ends with its future."""
        sent: list[tuple[int, Future[str]]] = []
        for message, each in zip(messages, told, strict=True):
            n = self.recorder.begin(self.who, "enqueue", name, messages=[each], marked=False)
            try:
                sent.append((n, self.place.producer(name).send(message)))
            except (QueueError, *FAILURES) as error:
                self.recorder.end(self.who, n, error=f"{type(error).__name__}: {error}")
        for n, future in sent:
            try:
                self.recorder.end(self.who, n, result=[future.result()])
            except (QueueError, *FAILURES) as error:
                self.recorder.end(self.who, n, error=f"{type(error).__name__}: {error}")

    def _deep(self, name: str) -> bool:
        """Whether to let consumers keep up."""
        try:
            return self.queue(name).depth(self.db).ready >= DEEP * self.job.batch
        except (QueueError, *FAILURES):
            return False


QUEUE_LEVEL: dict[str, Callable[[int], int]] = {
    name: fdbqueue.QueueOptions.of(options).level for name, options in QUEUES.items()
}


# -- consuming --------------------------------------------------------------------------------


class Consumer(Actor):
    """Receives and settles; how, its role says."""

    def step(self) -> None:
        """Receive, and settle what was received."""
        name = self.random.choice(TAKEN)
        if self.job.role == "plain" and self.random.random() < 0.1:
            self.dequeue(name)
            return
        limit = self.job.batch if self.job.role == "batch" else self.random.choice([1, 1, 3])
        # Whoever waits is served by the line, in the order of the moment at which its leader read;
        # without it, order must hold at the very commit (see ``replay``).
        wait = 0.0 if name == "first" else self.random.choice([0.0, 0.0, 0.2])
        held: list[Delivery] = []

        def take(n: int) -> list[list[Any]]:
            held.extend(self.queue(name).receive_many(self.db, limit, wait=wait, consumer=self.who))
            return [row(one) for one in held]

        self.do("receive", name, take, wait=wait, limit=limit)
        self.settle(name, held)

    def settle(self, name: str, held: list[Delivery]) -> None:
        """Settle deliveries in one way or another, or forget about them."""
        if not held:
            return
        queue, tags = self.queue(name), [one.payload.decode() for one in held]
        luck = self.random.random()
        if luck < 0.02:
            return  # left to lapse
        if luck < 0.05:
            self.do("release", name, lambda n: queue.release(self.db, held), tags=tags)
            return
        if luck < 0.07:
            self.do(
                "fail",
                name,
                lambda n: queue.release(self.db, held, error="chaos"),
                tags=tags,
            )
            return
        if luck < 0.075:
            self.do("reject", name, lambda n: queue.reject(self.db, held, "chaos"), tags=tags)
            return
        if luck < 0.08:
            self.cancel(name, queue, held, tags)
            return
        if luck < 0.10:
            self.do("extend", name, lambda n: queue.extend(self.db, held) and None, tags=tags)
        if self.job.role in ("transactional", "batch"):
            self.effect(name, queue, held, tags)
        else:
            self.do("ack", name, lambda n: queue.ack(self.db, held), tags=tags)

    def cancel(self, name: str, queue: Queue, held: list[Delivery], tags: list[str]) -> None:
        """Cancel what is held: whatever ends the leases then, it is not delivered again."""

        def cancel(tr: fdb.Transaction) -> list[str]:
            queue.extend(tr, held)  # or it is somebody else's by now
            for each in held:
                queue.cancel(tr, each.id)
            return tags

        once = partial(self.once, body=cancel)
        if not self.do("cancel", name, once, tags=tags, marked=True):
            return
        with contextlib.suppress(QueueError, *FAILURES):
            match self.random.randrange(4):
                case 0:
                    queue.release(self.db, held)
                case 1:
                    queue.release(self.db, held, error="chaos")
                case 2:
                    queue.reject(self.db, held, "chaos")

    def effect(self, name: str, queue: Queue, held: list[Delivery], tags: list[str]) -> None:
        """The effects and the acknowledgement in one transaction."""

        def settle(tr: fdb.Transaction) -> list[str]:
            for tag in tags:
                self.place.effect(tr, name, tag)
            queue.ack(tr, held)
            return tags

        self.do("effect", name, lambda n: self.once(n, settle) and None, tags=tags, marked=True)

    def dequeue(self, name: str) -> None:
        """Take a message and write its effect, in one transaction, without a lease."""
        queue = self.queue(name)

        def take(n: int) -> list[list[Any]]:
            @fdb.transactional
            def both(tr: fdb.Transaction) -> list[list[Any]]:
                done = self.place.marked(tr, self.who, n)
                if done is not None:
                    return list(done)
                message = queue.dequeue(tr)
                if message is None:
                    return []
                self.place.effect(tr, name, message.payload.decode())
                self.place.mark(tr, self.who, n, [row(message)])
                return [row(message)]

            return list(both(self.db))

        self.do("dequeue", name, take, marked=True, wait=0.0)


class Filterer(Consumer):
    """Takes what a selector matches."""

    def step(self) -> None:
        """Receive from a subscription, and settle."""
        taker = self.random.choice(list(FILTERS))
        wait = self.random.choice([0.0, 0.0, 0.2])
        held: list[Delivery] = []

        def take(n: int) -> list[list[Any]]:
            subscription = self.place.filter(taker)
            limit = self.random.choice([1, 10])
            held.extend(subscription.receive_many(self.db, limit, wait=wait))
            return [row(one) for one in held]

        self.do("receive", "filtered", take, region=taker, wait=wait)
        self.settle("filtered", held)


class Browser(Actor):
    """Looks at every message of the watched queue once."""

    def step(self) -> None:
        """Look at the next messages."""
        name = self.random.choice(list(BROWSERS))
        queue = self.queue("watched")

        def look(n: int) -> int:
            subscription = queue.subscriptions.open(self.db, name)

            @fdb.transactional
            def both(tr: fdb.Transaction) -> int:
                if self.place.marked(tr, self.who, n) is not None:
                    return -1
                seen = [row(message) for message in subscription.browse(tr, self.job.batch)]
                if seen:
                    self.place.log(tr, name, seen)
                    self.place.mark(tr, self.who, n, len(seen))
                return len(seen)

            return int(both(self.db))

        if not self.do("browse", "watched", look, browser=name):
            time.sleep(0.02)


class Working(Actor):
    """A ``Worker`` with a transactional handler that fails now and then."""

    def run(self) -> None:
        """Work until told to stop."""
        worker = Worker(self.db, concurrency=4, name=self.who, shutdown=10)

        def handle(tr: fdb.Transaction, message: Message) -> None:
            tag = message.payload.decode()
            self.recorder.note(self.who, "handle", "worked", rows=[row(message)])
            self.place.effect(tr, "worked", tag)
            if self.random.random() < 0.02:
                raise LookupError("chaos")

        worker.add(self.queue("worked"), handle, take=Take(lease=WORKERS_LEASE))
        with worker:
            while not self.stopped:
                time.sleep(0.1)


class WorkingInTasks(Actor):
    """A worker of asyncio, whose handlers are coroutines that step aside in their transactions."""

    def run(self) -> None:
        """Work until told to stop."""
        asyncio.run(self.work())

    async def work(self) -> None:
        """As ``Working.run``."""
        worker = aio.Worker(aio.Database(self.db), concurrency=50, name=self.who, shutdown=10)

        @worker.handler(aio.Queue.of(self.queue("worked")), take=Take(lease=WORKERS_LEASE))
        async def handle(tr: aio.Transaction, message: Message) -> None:
            tag = message.payload.decode()
            self.recorder.note(self.who, "handle", "worked", rows=[row(message)])
            await tr.get_read_version()
            self.place.effect(tr.blocking, "worked", tag)
            await asyncio.sleep(self.random.random() * 0.01)
            if self.random.random() < 0.02:
                raise LookupError("chaos")

        async with worker:
            while not self.stopped:
                await asyncio.sleep(0.1)


ROLES: dict[str, type[Actor]] = {
    "producer": Producer,
    "plain": Consumer,
    "transactional": Consumer,
    "batch": Consumer,
    "filter": Filterer,
    "browser": Browser,
    "worker": Working,
    "tasks": WorkingInTasks,
}


def row(one: Delivery | Message) -> list[Any]:
    """A message as histories have it: tag, id, level, attempt, region, and whether redelivered."""
    message = one.message if isinstance(one, Delivery) else one
    return [
        message.payload.decode(),
        message.id,
        message.level,
        message.attempts + 1,
        message.headers["region"],
        message.redelivered,
    ]

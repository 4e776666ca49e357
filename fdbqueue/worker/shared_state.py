"""What the threads of a worker share, behind one lock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol

from ..queue.continuations.successors import Successors
from ..queue.internals import Internals
from ..schema.consumers import MAX_RUNNING, Running, Work
from ..store import world
from ..store.binding import fdb
from ..store.connection import Connection
from ..values.model import Delivery
from ..values.states import Outcome
from .attempt import Ended
from .channel import Channel
from .consumer import QueueConsumer
from .decisions import QueueTurn, next_turn
from .handlers import handler_name
from .health import Loop, logs
from .served import Served
from .stock import events
from .stock.actions import Action, Begin, Released
from .stock.events import Stepped
from .stock.held import Finished, Stock
from .stock.states import Supply

P = ParamSpec("P")

log = logging.getLogger("fdbqueue.worker")

WAITS_SECONDS = 10.0
"""How long a message waits for a handler at least before it is given back, or for others to end."""
AHEAD_WAITS_SECONDS = 1.0
"""The same for messages that were taken ahead because handlers were fast."""


@dataclass(eq=False)
class Assignment:
    """What one thread or task handles: a message, a batch, or the messages of one, one by one."""

    served: Served
    deliveries: list[Delivery]
    began: float = 0.0
    """When the handler was called; by ``world.monotonic``."""
    current: Sequence[Delivery] = ()
    """What it was called with."""
    overdue: bool = False
    """Whether it takes longer than it may: another thread has its place."""
    finished: bool = False
    """Whether its messages are only to be acknowledged, by another thread."""


class OwningWorker(Protocol):
    """The worker whose threads these are."""

    db: fdb.Database
    name: str
    priority: int
    concurrency: int
    connection: Connection
    metrics: Any
    tells: Callable[[Sequence[Work]], object] | None

    def over(self) -> None:
        """There is nothing left to handle, for good."""


class Beside(Protocol):
    """What hands over messages in a thread of its own."""

    changed: world.Condition

    @property
    def consumer(self) -> QueueConsumer:
        """The consumer as it is listed."""

    def keep(self) -> None:
        """Give a sign of life."""


class SharedState:
    """What is fetched and handled. Methods are called with the lock held, unless they say so."""

    def __init__(self, worker: OwningWorker, served: Iterable[Served]) -> None:
        self.worker = worker
        self.served = list(served)
        self.lock = world.Lock()
        self.work = world.Condition(self.lock)
        """There may be something for a handler to do."""
        self.ended = world.Condition(self.lock)
        """A message or a thread has ended."""
        self.stopping = False
        self.stopped = False
        """Whether no handler is waited for any more."""
        self.fetching = len(self.served)
        """Queues whose prefetched messages have not yet been given back for good."""
        self.browsers: list[Beside] = []
        """What hands over messages in threads of their own."""
        self._left = len(self.served)
        self.jobs: set[Assignment] = set()
        """What the handlers do."""
        self.stuck: set[Assignment] = set()
        """What handlers do whose place another thread has taken."""
        self.threads: list[world.Thread] = []
        self.loops: list[Loop] = []
        """What the threads do, for probes."""
        self._turn = QueueTurn()
        self._began = False
        self._waits_since: float | None = None
        """Since when a message waits to be handled beside no other; by ``world.monotonic``."""
        self._hasty = False
        """Whether it has waited for too long, until no job is left."""
        for each in self.served:
            # One lock for all: what is ready, running and stopping is always seen together.
            each.changed = world.Condition(self.lock)
            each.channel.open(each, self._resume)

    def step(
        self,
        served: Served,
        event: Callable[Concatenate[Stock, P], Stepped],
        *of: P.args,
        **named: P.kwargs,
    ) -> Sequence[Action]:
        """Let an event happen to what is held of a queue, and wake whom it concerns; returns what
        is to be done."""
        actions = served.step(event, *of, **named)
        if any(isinstance(action, Released) and action.deliveries for action in actions):
            self._credited(served.channel)
        self._wake(served)
        return actions

    def _wake(self, *changed: Served) -> None:
        """Wake each fetcher that has something to do before it would look again, and handlers for
        what waits."""
        now, free = world.monotonic(), self.is_free()
        for each in self.served:
            # One that does not sleep looks before it does.
            sleeps = each.sleeps_until > now
            if sleeps and each.stock.acts_at(*each.outside(now, free)) < each.sleeps_until:
                each.changed.notify()
        if any(each.stock.waiting for each in changed):
            self.work.notify_all()

    def _credited(self, channel: Channel) -> None:
        for each in self.served:
            if each.channel is channel and each.stock.supply is Supply.SHORT:
                each.step(events.credited)

    def _resume(self, channel: Channel) -> None:
        """There may be more credit, or a flush to come after. Needs no lock."""
        with self.lock:
            self._credited(channel)
            for each in self.served:
                if each.channel is channel:
                    self.step(each, events.rung, world.monotonic())

    def spawn(self, target: Callable[[], object], name: str) -> world.Thread:
        """Start a thread. Needs no lock."""
        # Daemons: a handler that never returns must not keep a process alive that was told to end.
        thread = world.Thread(target=target, name=f"fdbqueue-{name}", daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    def watch(self, loop: Loop) -> Loop:
        """Let probes see a loop. Needs no lock."""
        self.loops.append(loop)
        return loop

    def notify(self) -> None:
        """Wake all threads."""
        for each in self.served:
            each.changed.notify_all()
        for browser in self.browsers:
            browser.changed.notify_all()
        self.work.notify_all()
        self.ended.notify_all()

    def serve(self, browsers: Sequence[Beside]) -> None:
        """Also wait for these. Needs no lock: nothing runs yet."""
        self.browsers = [*browsers]
        self.fetching += len(browsers)
        self._left += len(browsers)

    def over(self) -> None:
        """A subscription has ended; with the last one, so does the worker. Needs no lock."""
        with self.lock:
            self._left -= 1
            left = self._left
        if not left:
            self.worker.over()

    def next_job(self) -> Assignment | None:
        """Begin what a handler is to do next; None if nothing waits, or the worker stops."""
        runs, usable = [each.policy.run for each in self.served], self.worker.connection.usable
        while len(self.jobs) < self.worker.concurrency and not self.stopping:
            turn = next_turn(self._turn, self._can_begin(usable), runs)
            if turn is None:
                break
            now = world.monotonic()
            actions = self.served[turn.queue].step(events.next_wanted, now, usable)
            for action in actions:
                assert isinstance(action, Begin)
                self._turn = turn
                return self._begin(Assignment(self.served[turn.queue], action.deliveries, now))
            self._wake()  # It has to look for something more urgent first.
        return None

    def _begin(self, job: Assignment) -> Assignment:
        served, first, self._began = job.served, not self._began, True
        self.jobs.add(job)
        if log.isEnabledFor(logging.INFO):
            for each in job.deliveries:
                logs.begun(served.queue, served.policy.handler, each)
        # It may kill this process before the next sign of life, or has killed another one before.
        if self.worker.tells is not None and (first or job.deliveries[0].message.redelivered):
            self.worker.tells(self.doing())
        return job

    def finish(self, job: Assignment, successors: Successors) -> bool:
        """Leave what a job has handled to be acknowledged by the fetcher; whether it will."""
        if self.stopping or job.overdue or not job.served.stock.settles(job.deliveries):
            return False
        now = world.monotonic()
        finished = Finished(job.deliveries, now - job.began, now, successors)
        job.served.step(events.returned, finished)
        self._credited(job.served.channel)
        # No handler: there is nothing more to begin, and this one is about to end.
        self._wake()
        job.finished = True
        return True

    def end(self, job: Assignment) -> None:
        """A job is done, and its messages are settled, or will be by the fetcher."""
        self.jobs.discard(job)
        self._hasty = self._hasty and bool(self.jobs)
        if not job.finished:
            job.served.rows.forget(job.deliveries)
            self.step(job.served, events.ended, job.deliveries)
        pace = None
        if job.deliveries:
            pace = (world.monotonic() - job.began) / len(job.deliveries)
        for each in self.served:
            if each is job.served or each.stock.supply is Supply.STALLED:
                each.step(events.freed, pace if each is job.served else None)
        self.ended.notify_all()
        self._wake(*self.served)

    def settled(self, served: Served, deliveries: Sequence[Delivery]) -> None:
        """Messages are settled, or lost: there is room for others."""
        served.rows.forget(deliveries)
        self.step(served, events.ended, deliveries)
        self.ended.notify_all()

    def is_free(self) -> bool:
        """Whether a message that came now could be begun beside no other."""
        if self._hasty:
            return self.worker.concurrency > len(self.jobs)
        if self.jobs:
            return False
        return self.worker.concurrency > 1 or not any(each.stock.waiting for each in self.served)

    def hurry_exclusive(self) -> None:
        """Let no message wait long to be handled beside no other, as handlers may take hours: then
        it is handled beside those."""
        wanted = any(each.stock.isolates or each.stock.suspect for each in self.served)
        if not wanted or not self.jobs:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = world.monotonic()
        elif world.monotonic() - self._waits_since > WAITS_SECONDS:
            self._hasty = True
            self._wake(*self.served)

    def running(self) -> list[Delivery]:
        """What is being handled."""
        return [each for served in self.served for each in served.stock.running.values()]

    def _can_begin(self, usable: bool) -> list[bool]:
        """With which queues a handler can begin. A message that may have killed its consumers is
        handled beside no other: running jobs end first, and prefetched messages wait."""
        ready = [each.stock.can_begin(usable) for each in self.served]
        if self.worker.concurrency == 1 or self._hasty:
            return ready
        suspects = [each.stock.suspect for each in self.served]
        if any(suspects):
            # Beside no other, so that if the process dies it is known of what.
            able = zip(ready, suspects, strict=True)
            return [not self.jobs and can and suspect for can, suspect in able]
        # What is handled beside no other began when nothing ran, so it is all that does.
        alone = len(self.jobs) == 1 and any(
            delivery.begun for job in self.jobs for delivery in job.deliveries
        )
        if alone or any(each.stock.isolates for each in self.served):
            return [False] * len(self.served)
        return ready

    def doing(self) -> list[Work]:
        """What is done, by queue, for those who look."""
        now, taken = world.monotonic(), len(self.jobs)
        found = []
        for served in self.served:
            jobs = [job for job in (*self.jobs, *self.stuck) if job.served is served]
            wall_ms = Internals(served.queue).clock.wall_ms()
            running = [
                Running(
                    each.id,
                    each.message.key,
                    each.attempt,
                    wall_ms - int((now - (job.began or now)) * 1000),
                )
                for job in sorted(jobs, key=lambda job: job.began)
                for each in (job.current or job.deliveries)
            ]
            terms = self.worker.concurrency, taken, *served.recent.total()
            handler = handler_name(served.policy.handler.function)
            shown, usual = tuple(running[:MAX_RUNNING]), served.recent.usual_ms
            found.append(Work(served.queue.name, self.worker.name, handler, *terms, usual, shown))
        return found

    def report(self, served: Served, ended: Ended, seconds: float) -> None:
        """Log and count what became of messages. Needs no lock.

        seconds: how long the handler took.
        """
        queue, metrics = served.queue, self.worker.metrics
        served.recent.count((outcome for _, outcome in ended), seconds)
        for delivery, outcome in ended:
            if outcome is Outcome.LOST:
                about = {"queue": queue.name, "message_id": delivery.id}
                log.warning("the lease of message %s was lost", delivery.id, extra=about)
            elif outcome is Outcome.DONE and log.isEnabledFor(logging.INFO):
                logs.done(queue, served.policy.handler, delivery, seconds)
        if metrics is not None:
            began_ms = Internals(queue).clock.wall_ms() - int(seconds * 1000)
            handler = handler_name(served.policy.handler.function)
            metrics.ended(queue.name, ended, began_ms, seconds, handler)

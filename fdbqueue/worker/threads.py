"""The threads of a worker: one for each queue that takes messages, one that keeps what is held, and
the handlers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ..errors import LeaseLost, QueueError
from ..store.binding import FAILURES, fdb
from ..store.connection import Connection, ConnectionState
from ..values import backoff
from ..values.model import Delivery
from ..values.states import Outcome
from .attempt import Ended, attempt, failed
from .consumer import Member, Taken
from .decisions import Turn, next_turn
from .lease_extender import Keeper
from .prefetch import Lane
from .subscription_consumer import Follower

log = logging.getLogger("fdbqueue.worker")

POLL_SECONDS = 5.0
"""How often a worker looks by itself: heals what a dead consumer was told."""
SOON_SECONDS = 0.02
"""How long to wait at least for what becomes ready by itself: clocks may disagree about it."""
UNWATCHED_SECONDS = 1.0
"""How long to wait before the next look where a watch has failed, as at the limit of watches."""
HURRY_SECONDS = 2.0
"""How long a worker in a hurry waits for the store to take messages back, and for its threads."""
WAITS_SECONDS = 10.0
"""How long what was taken waits for a handler at least, before it is given back."""
AFTER_FAILURE = backoff.store(
    {"wait": "wait_exponential_jitter", "multiplier": 0.1, "max": POLL_SECONDS, "jitter": 0.1}
)


@dataclass(eq=False)
class Job:
    """What one thread is handling: a message, a batch, or the messages of a batch one by one."""

    lane: Lane
    deliveries: list[Delivery]
    began: float = 0.0
    """When the handler was called; by ``time.monotonic``."""
    current: Sequence[Delivery] = ()
    """What it was called with."""
    overdue: bool = False
    """Whether it takes longer than it may: its thread has been replaced."""


class Employer(Protocol):
    """The worker whose threads these are."""

    db: fdb.Database
    name: str
    priority: int
    concurrency: int
    connection: Connection
    metrics: Any


class Crew:
    """A worker at work, from ``start`` to ``stop``."""

    def __init__(self, worker: Employer, lanes: Sequence[Lane]) -> None:
        self.worker = worker
        self.db = worker.db
        self.connection = worker.connection
        self.lanes = list(lanes)
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        """Something for a handler to do."""
        self.quiet = threading.Condition(self.lock)
        """Something has ended."""
        self.stopping = False
        self.hurried = False
        self.feeding = len(self.lanes)
        """Feeders that have not yet given back what is at hand, and left."""
        self.turn = Turn()
        self.jobs: set[Job] = set()
        """What the handlers do."""
        self.draining_since: float | None = None
        """Since when a message waits to be handled beside no other; by ``time.monotonic``."""
        self.hasty = False
        """Whether it has waited for too long, until nothing is in hand."""
        self.stuck: set[Job] = set()
        """What handlers do that have been replaced."""
        self.threads: list[threading.Thread] = []
        self.keeper = Keeper(self)
        for lane in self.lanes:
            lane.news = threading.Condition(self.lock)

    # -- from outside ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        self.connection.listen(self._connection_changed)
        self.connection.start()
        for lane in self.lanes:
            self._thread(partial(self._feed, lane), "feeder")
        self._thread(self.keeper.run, "keeper")
        for n in range(self.worker.concurrency):
            self._thread(self._handle, f"handler-{n}")

    def stop(self, seconds: float) -> None:
        """Take no more, give back what is at hand, finish what is in hand, for ``seconds``."""
        deadline = time.monotonic() + seconds
        with self.lock:
            self.stopping = True
            self._notify()
            while not self.hurried and (self.feeding or self._in_hand()):
                left = deadline - time.monotonic()
                if left <= 0:
                    log.warning("%d messages in hand are given back", len(self._in_hand()))
                    break
                # In short turns, so that the signal that makes it hurry is noticed.
                self.quiet.wait(min(left, 0.2))
            abandoned = [(lane, list(lane.in_hand.values())) for lane in self.lanes]
            for lane, deliveries in abandoned:
                lane.end(deliveries)
        self.keeper.stop()
        self._abandon(abandoned)
        with self.lock:
            # Usually long done: feeders give back what is at hand when they are told to stop.
            self.quiet.wait_for(lambda: not self.feeding, HURRY_SECONDS)
        self.connection.forget(self._connection_changed)
        self.connection.stop()
        self._join()

    def hurry(self) -> None:
        """Stop at once. Takes no lock: it may be called by a signal handler."""
        self.hurried = True

    # -- taking ------------------------------------------------------------------------------

    def _feed(self, lane: Lane) -> None:
        failures = 0
        while self._is_due(lane):
            with self.lock:
                past, exchanged = lane.waiting, lane.looking()
                begins = self._is_free()
            _disarm(past)
            try:
                self._look(lane, exchanged, begins)
                failures = 0
            except LeaseLost as error:
                with self.lock:
                    lane.lose_returned(exchanged, error.message_id)
            except (*FAILURES, QueueError) as error:
                failures += 1
                self._failed(lane, exchanged, failures, error)
            except BaseException as error:
                log.exception("the worker met an error that it does not know")
                failures += 1
                self._failed(lane, exchanged, failures, error)
        self._leave(lane)

    def _is_due(self, lane: Lane) -> bool:
        """Wait until the lane is to be looked at; False when it is time to leave."""
        with self.lock:
            while not self.stopping:
                now = time.monotonic()
                usable = self.connection.usable
                if usable and lane.due(now, self._is_free()):
                    return True
                until = min(POLL_SECONDS, max(0.0, lane.look_at - now))
                lane.news.wait(until if usable else None)
        return False

    def _look(self, lane: Lane, exchanged: list[Delivery], begins: bool) -> None:
        member = lane.member
        if member is None:
            member = self._member(lane)
            member.join()
            lane.member = member
        taken = member.take(lane.credit, lane.policy.window, exchanged, begins=begins)
        seconds = POLL_SECONDS if taken.seconds is None else taken.seconds
        seconds = min(POLL_SECONDS, max(SOON_SECONDS, seconds))
        with self.lock:
            lane.looked(taken, exchanged, time.monotonic() + seconds)
            self.work.notify_all()
        for watch in taken.signal:
            watch.on_ready(partial(self._rung, lane, taken))

    def _member(self, lane: Lane) -> Member:
        name, priority, lease = self.worker.name, self.worker.priority, lane.policy.lease
        count = self.worker.concurrency
        if lane.subscription is None:
            return Member(self.db, lane.queue, name, priority, lease, count)
        return Follower(self.db, lane.queue, lane.subscription, name, priority, lease, count)

    def _rung(self, lane: Lane, taken: Taken, watch: object) -> None:
        after = UNWATCHED_SECONDS if _has_failed(watch) else 0.0
        with self.lock:
            if lane.waiting is taken:
                lane.ring(after)
                lane.news.notify()

    def _failed(
        self, lane: Lane, exchanged: list[Delivery], failures: int, error: BaseException
    ) -> None:
        log.warning("cannot take from %s: %s", lane.queue.name, error)
        self.connection.suspect()
        with self.lock:
            lane.look_failed(exchanged, backoff.seconds(AFTER_FAILURE, min(failures, 20)))
            self.work.notify_all()

    def _leave(self, lane: Lane) -> None:
        """Give back what is at hand, and leave the consumers: others are woken for it."""
        with self.lock:
            past, deliveries = lane.waiting, lane.at_hand
            lane.at_hand, lane.waiting = [], None
            lane.gave_back(deliveries)
        _disarm(past)
        try:
            if lane.member is not None:
                give_back(lane.member, deliveries)
                lane.member.leave()
        except Exception as error:
            log.warning("%s is left to find out that a worker is gone: %s", lane.queue.name, error)
        finally:
            with self.lock:
                self.feeding -= 1
                self.quiet.notify_all()

    # -- handling ----------------------------------------------------------------------------

    def _handle(self, first: Job | None = None) -> None:
        """Handle what there is to do until it is time to go.

        first: one that another thread is stuck with.
        """
        job = first or self._next_job()
        while job is not None:
            work = self._rescue if job is first else self._work
            try:
                work(job)
            except BaseException:
                name = job.lane.queue.name
                log.exception("%s: a settlement failed; its lease will lapse", name)
                self.connection.suspect()
            with self.lock:
                if job.overdue:
                    self.stuck.discard(job)
                    return  # There is another thread in the place of this one.
                self.jobs.discard(job)
                self.hasty = self.hasty and bool(self.jobs)
                job.lane.end(job.deliveries)
                self._ended()
            job = self._next_job()

    def _work(self, job: Job) -> None:
        self._begin(job, job.deliveries)
        ended = attempt(self.db, job.lane.queue, job.lane.policy, job.deliveries)
        if ended is None:
            self._one_by_one(job, job.deliveries)
        else:
            self._tell(job, ended)

    def _one_by_one(self, job: Job, deliveries: Sequence[Delivery]) -> None:
        """Handle the messages of a batch by themselves, as far as they are still held."""
        for n, delivery in enumerate(deliveries):
            if self.stopping and job.lane.member is not None:
                with self.lock:
                    rest = [each for each in deliveries[n:] if job.lane.holds(each)]
                    job.lane.end(rest)
                give_back(job.lane.member, rest)
                return
            if self._begin(job, [delivery]):
                found = attempt(self.db, job.lane.queue, job.lane.policy, [delivery])
                self._tell(job, found or [])
                with self.lock:
                    if not job.overdue:
                        job.lane.end([delivery])
                        self._ended()

    def _rescue(self, job: Job) -> None:
        """Go on with what another thread is stuck with."""
        lane, late = job.lane, list(job.current)
        rest = [each for each in job.deliveries if each not in late]
        if len(late) > 1:
            rest = late + rest
        elif late:
            seconds = lane.policy.timeout
            error = TimeoutError(f"the handler took longer than {seconds:g} s")
            self._tell(job, failed(self.db, lane.queue, lane.policy, late, error))
        self._one_by_one(job, rest)

    def _begin(self, job: Job, deliveries: Sequence[Delivery]) -> bool:
        """Note that a handler is called; false if what it is called with is not held any more."""
        with self.lock:
            job.began, job.current = time.monotonic(), deliveries
            return not job.overdue and all(job.lane.holds(each) for each in deliveries)

    def _tell(self, job: Job, ended: Ended) -> None:
        queue, seconds = job.lane.queue, time.monotonic() - job.began
        for delivery, outcome in ended:
            if outcome is Outcome.LOST:
                about = {"queue": queue.name, "message_id": delivery.id}
                log.warning("the lease of message %s was lost", delivery.id, extra=about)
        if self.worker.metrics is not None:
            began_ms = queue._clock.wall_ms() - int(seconds * 1000)
            self.worker.metrics.ended(queue.name, ended, began_ms, seconds)

    def _next_job(self) -> Job | None:
        """What to handle next; waits until there is something. None when it is time to go."""
        with self.lock:
            while not self.stopping:
                waiting = self._can_begin()
                turn = next_turn(self.turn, waiting, [lane.policy.run for lane in self.lanes])
                if turn is not None:
                    self.turn = turn
                    lane = self.lanes[turn.queue]
                    job = Job(lane, lane.begin(), time.monotonic())
                    self.jobs.add(job)
                    return job
                self.work.wait()
        return None

    def _can_begin(self) -> list[bool]:
        """With which queues a handler can begin. A message that may be what consumers die of is
        handled beside no other: what is in hand is finished before, and what is at hand waits."""
        if self.worker.concurrency == 1:
            return [lane.can_begin for lane in self.lanes]
        suspects = [lane.suspect is not None for lane in self.lanes]
        if self.hasty:
            pass
        elif any(suspects):
            return [suspect and not self.jobs for suspect in suspects]
        elif any(lane.alone for lane in self.lanes) or any(
            delivery.begun for job in self.jobs for delivery in job.deliveries
        ):
            return [False] * len(self.lanes)
        return [lane.can_begin for lane in self.lanes]

    def lose_patience(self) -> None:
        """Let nothing wait for long for what is in hand to end, as handlers may take hours: then a
        message that asks to be handled beside no other is handled beside that."""
        with self.lock:
            wanted = any(lane.alone or lane.suspect is not None for lane in self.lanes)
            if not wanted or not self.jobs:
                self.draining_since = None
            elif self.draining_since is None:
                self.draining_since = time.monotonic()
            elif time.monotonic() - self.draining_since > WAITS_SECONDS:
                self.hasty = True
                self._ended()

    def give_back_what_waits(self) -> None:
        """Give back what no handler comes to for longer than a lease: others may be free."""
        for lane in self.lanes:
            with self.lock:
                longest = max(lane.policy.lease, WAITS_SECONDS)
                busy = len(self.jobs) >= self.worker.concurrency
                old = lane.give_up_waiting(time.monotonic() - longest) if busy else []
            if old and lane.member is not None:
                give_back(lane.member, old)

    def replace_who_is_stuck(self) -> None:
        """Put another thread in the place of each whose handler takes longer than it may."""
        late = []
        with self.lock:
            now = time.monotonic()
            for job in list(self.jobs):
                limit = job.lane.policy.timeout
                if limit is not None and now - job.began >= limit:
                    job.overdue = True
                    self.jobs.discard(job)
                    self.stuck.add(job)
                    held = [each for each in job.deliveries if job.lane.holds(each)]
                    late.append(Job(job.lane, held, job.began, job.current))
            self.jobs.update(late)
        for job in late:
            log.error("%s: a handler is stuck; it is replaced", job.lane.queue.name)
            job.began = now
            self._thread(partial(self._handle, job), "handler-again")

    # -- parts -------------------------------------------------------------------------------

    def _ended(self) -> None:
        """Something was settled: tell who waits for that. With the lock held."""
        self.quiet.notify_all()
        self.work.notify_all()
        for lane in self.lanes:
            lane.stalled = False
            if lane.due(time.monotonic(), self._is_free()):
                lane.news.notify()

    def _is_free(self) -> bool:
        """Whether a message that came now could be begun beside no other. With the lock held."""
        if self.hasty:
            return self.worker.concurrency > len(self.jobs)
        if self.jobs:
            return False
        return self.worker.concurrency > 1 or not any(lane.at_hand for lane in self.lanes)

    def _connection_changed(self, state: ConnectionState) -> None:
        with self.lock:
            if state is ConnectionState.LOST:
                for lane in self.lanes:
                    lane.lose_all()
            if self.connection.usable:
                for lane in self.lanes:
                    lane.ring()
            self._notify()

    def _in_hand(self) -> list[Delivery]:
        return [delivery for lane in self.lanes for delivery in lane.in_hand.values()]

    def _abandon(self, abandoned: Sequence[tuple[Lane, list[Delivery]]]) -> None:
        """Give back what is in hand, in a thread: a store that is away must not keep us waiting."""

        def give() -> None:
            for lane, deliveries in abandoned:
                if lane.member is not None and deliveries:
                    with contextlib.suppress(*FAILURES, QueueError):
                        give_back(lane.member, deliveries)

        if any(deliveries for _, deliveries in abandoned):
            self._thread(give, "abandoner").join(HURRY_SECONDS)

    def _notify(self) -> None:
        for lane in self.lanes:
            lane.news.notify_all()
        self.work.notify_all()
        self.quiet.notify_all()

    def _thread(self, target: Callable[[], object], name: str) -> threading.Thread:
        # Daemons: a handler that never returns must not keep a process alive that was told to end.
        thread = threading.Thread(target=target, name=f"fdbqueue-{name}", daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    def _join(self) -> None:
        """Wait for the threads, but not for handlers that go on and on."""
        with self.lock:
            busy = self.jobs or self.stuck
            deadline = time.monotonic() + (0.1 if busy else HURRY_SECONDS)
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def give_back(member: Member, deliveries: Sequence[Delivery]) -> None:
    """Give messages back, without those whose leases are gone."""
    left = list(deliveries)
    while left:
        try:
            member.give_back(left)
            return
        except LeaseLost as error:
            left = [delivery for delivery in left if delivery.id != error.message_id]


def _disarm(taken: Taken | None) -> None:
    if taken is not None:
        for watch in taken.signal:
            watch.cancel()


def _has_failed(watch: object) -> bool:
    """Whether a watch that is ready has not fired."""
    try:
        if hasattr(watch, "wait"):  # else it had fired before it was armed
            watch.wait()
    except fdb.FDBError:
        return True
    return False

"""The threads of a worker: one that takes messages, one that keeps them, and the handlers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from .. import backoff
from ..binding import FAILURES
from ..connection import ConnectionState
from ..errors import LeaseLost, QueueError
from ..model import Delivery
from .attempt import Outcome, attempt
from .decisions import Turn, next_turn
from .follower import Follower
from .keeper import Keeper
from .lane import Lane
from .member import Member, Taken

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("fdbqueue.worker")

POLL_SECONDS = 5.0
"""How often a worker looks by itself: heals what a dead consumer was told."""
SOON_SECONDS = 0.02
"""How long to wait at least for what becomes ready by itself: clocks may disagree about it."""
HURRY_SECONDS = 2.0
"""How long a worker in a hurry waits for the store to take messages back."""
AFTER_FAILURE = backoff.store(
    {"wait": "wait_exponential_jitter", "multiplier": 0.1, "max": POLL_SECONDS, "jitter": 0.1}
)


class Crew:
    """A worker at work, from ``start`` to ``stop``."""

    def __init__(self, worker: Worker, lanes: Sequence[Lane]) -> None:
        self.worker = worker
        self.db = worker.db
        self.lanes = list(lanes)
        self.lock = threading.Lock()
        self.news = threading.Condition(self.lock)
        """Something for the feeder to do."""
        self.work = threading.Condition(self.lock)
        """Something for a handler to do."""
        self.quiet = threading.Condition(self.lock)
        """Something has ended."""
        self.stopping = False
        self.hurried = False
        self.fed = False
        """Whether the feeder has given back what was at hand, and left."""
        self.turn = Turn()
        self.failures = 0
        self.keeper = Keeper(self)

    # -- from outside ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        self.worker.connection.listen(self._connection_changed)
        self.worker.connection.start()
        self._thread(self._feed, "feeder")
        self._thread(self.keeper.run, "keeper")
        for n in range(self.worker.concurrency):
            self._thread(self._handle, f"handler-{n}")

    def stop(self, seconds: float) -> None:
        """Take no more, give back what is at hand, finish what is in hand, for ``seconds``."""
        deadline = time.monotonic() + seconds
        with self.lock:
            self.stopping = True
            self._notify()
            while not self.hurried and not (self.fed and not self._in_hand()):
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
            # Usually long done: the feeder gives back what is at hand when it is told to stop.
            self.quiet.wait_for(lambda: self.fed, HURRY_SECONDS)
        self.worker.connection.stop()
        self.worker.connection.forget(self._connection_changed)

    def hurry(self) -> None:
        """Stop at once. Takes no lock: it may be called by a signal handler."""
        self.hurried = True

    # -- taking ------------------------------------------------------------------------------

    def _feed(self) -> None:
        while (lane := self._next_lane()) is not None:
            with self.lock:
                past, exchanged = lane.waiting, lane.looking()
            if past is not None:
                for watch in past.signal:
                    watch.cancel()
            try:
                self._look(lane, exchanged)
                self.failures = 0
            except LeaseLost as error:
                with self.lock:
                    lane.lose_returned(exchanged, error.message_id)
            except (*FAILURES, QueueError) as error:
                self._failed(lane, exchanged, error)
            except Exception as error:
                log.exception("the worker met an error that it does not know")
                self._failed(lane, exchanged, error)
        self._leave()

    def _next_lane(self) -> Lane | None:
        """The lane to look at next; waits until there is one. None when it is time to leave."""
        with self.lock:
            while not self.stopping:
                now = time.monotonic()
                usable = self.worker.connection.usable
                due = [lane for lane in self.lanes if usable and lane.due(now)]
                if due:
                    # The one that was looked at the longest time ago.
                    return min(due, key=lambda lane: lane.looked_at)
                until = min(lane.look_at for lane in self.lanes)
                self.news.wait(min(POLL_SECONDS, max(0.0, until - now)) if usable else None)
        return None

    def _look(self, lane: Lane, exchanged: list[Delivery]) -> None:
        member = lane.member
        if member is None:
            member = self._member(lane)
            member.join()
            lane.member = member
        taken = member.take(lane.credit, lane.policy.window, exchanged)
        seconds = POLL_SECONDS if taken.seconds is None else taken.seconds
        seconds = min(POLL_SECONDS, max(SOON_SECONDS, seconds))
        with self.lock:
            lane.looked(taken, exchanged, time.monotonic() + seconds)
            self.work.notify(max(1, len(lane.at_hand)))
        for watch in taken.signal:
            watch.on_ready(partial(self._rung, lane, taken))

    def _member(self, lane: Lane) -> Member:
        name, priority, lease = self.worker.name, self.worker.priority, lane.policy.lease
        if lane.subscription is None:
            return Member(self.db, lane.queue, name, priority, lease)
        return Follower(self.db, lane.queue, lane.subscription, name, priority, lease)

    def _rung(self, lane: Lane, taken: Taken, watch: object) -> None:
        with self.lock:
            if lane.waiting is taken:
                lane.ring()
                self.news.notify()

    def _failed(self, lane: Lane, exchanged: list[Delivery], error: Exception) -> None:
        self.failures += 1
        log.warning("cannot take from %s: %s", lane.queue.name, error)
        self.worker.connection.suspect()
        with self.lock:
            lane.look_failed(exchanged, backoff.seconds(AFTER_FAILURE, min(self.failures, 20)))
            self.work.notify_all()

    def _leave(self) -> None:
        """Give back what is at hand, and leave the consumers: others are woken for it."""
        for lane in self.lanes:
            with self.lock:
                deliveries, lane.at_hand = lane.at_hand, []
                lane.gave_back(deliveries)
            if lane.member is None:
                continue
            with contextlib.suppress(*FAILURES, QueueError):
                _give_back(lane.member, deliveries)
                lane.member.leave()
        with self.lock:
            self.fed = True
            self.quiet.notify_all()

    # -- handling ----------------------------------------------------------------------------

    def _handle(self) -> None:
        while (job := self._next_job()) is not None:
            lane, deliveries = job
            try:
                self._attempt(lane, deliveries)
            except Exception:
                log.exception("%s: a settlement failed; its lease will lapse", lane.queue.name)
                self.worker.connection.suspect()
            with self.lock:
                lane.end(deliveries)
                self.quiet.notify_all()
                if lane.due(time.monotonic()):
                    self.news.notify()

    def _attempt(self, lane: Lane, deliveries: list[Delivery]) -> None:
        started, wall_ms = time.monotonic(), lane.queue._clock.wall_ms()
        ended = attempt(self.db, lane.queue, lane.policy, deliveries)
        for delivery, outcome in ended:
            if outcome is Outcome.LOST:
                about = {"queue": lane.queue.name, "message_id": delivery.id}
                log.warning("the lease of message %s was lost", delivery.id, extra=about)
        if self.worker.metrics is not None:
            seconds = time.monotonic() - started
            self.worker.metrics.ended(lane.queue.name, ended, wall_ms, seconds)

    def _next_job(self) -> tuple[Lane, list[Delivery]] | None:
        """The next messages to handle; waits until there are any. None when it is time to go."""
        with self.lock:
            while not self.stopping:
                waiting = [lane.can_begin for lane in self.lanes]
                turn = next_turn(self.turn, waiting, [lane.policy.run for lane in self.lanes])
                if turn is not None:
                    self.turn = turn
                    lane = self.lanes[turn.queue]
                    return lane, lane.begin()
                self.work.wait()
        return None

    # -- parts -------------------------------------------------------------------------------

    def _connection_changed(self, state: ConnectionState) -> None:
        with self.lock:
            if state is ConnectionState.LOST:
                for lane in self.lanes:
                    lane.lose_all()
            if self.worker.connection.usable:
                for lane in self.lanes:
                    lane.ring()
            self._notify()

    def _in_hand(self) -> list[Delivery]:
        return [delivery for lane in self.lanes for delivery in lane.in_hand.values()]

    def _abandon(self, abandoned: list[tuple[Lane, list[Delivery]]]) -> None:
        """Give back what is in hand, and do not wait long for a store that does not answer."""

        def give_back() -> None:
            for lane, deliveries in abandoned:
                if lane.member is not None:
                    with contextlib.suppress(*FAILURES, QueueError):
                        _give_back(lane.member, deliveries)

        if any(deliveries for _, deliveries in abandoned):
            self._thread(give_back, "giving back").join(HURRY_SECONDS)

    def _notify(self) -> None:
        self.news.notify_all()
        self.work.notify_all()
        self.quiet.notify_all()

    def _thread(self, target: object, name: str) -> threading.Thread:
        # Daemons: a handler that never returns must not keep a process alive that was told to end.
        thread = threading.Thread(
            target=target,  # type: ignore[arg-type]
            name=f"fdbqueue-{name}",
            daemon=True,
        )
        thread.start()
        return thread


def _give_back(member: Member, deliveries: Sequence[Delivery]) -> None:
    """Give messages back, without those whose leases are gone."""
    left = list(deliveries)
    while left:
        try:
            member.give_back(left)
            return
        except LeaseLost as error:
            left = [delivery for delivery in left if delivery.id != error.message_id]

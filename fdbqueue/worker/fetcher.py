"""The thread that fetches the messages of one queue for a worker, and acknowledges them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial

from ..consumers import watching
from ..errors import LeaseLost, NotFound, OperationTimedOut, QueueError
from ..schema.consumers import ConsumerRef
from ..store import world
from ..store.binding import FAILURES
from ..values import backoff
from ..values.states import Outcome
from .attempt import Ended, follow
from .cancellations import Cancellations
from .consumer import Fetched, QueueConsumer, SubscriptionConsumer
from .health import Loop
from .lease_extender import extend
from .served import Served
from .shared_state import SharedState
from .stock import events
from .stock.actions import Action, Check, Fetch, Look, Settle
from .stock.held import Finished

log = logging.getLogger("fdbqueue.worker")

POLL_SECONDS, RETRY_SECONDS = 25.0, 5.0
"""How often a worker fetches by itself, which heals what a dead consumer was told; and how long it
waits at most after a failure, or while another holds its subscription."""
SOON_SECONDS = 0.02
"""How long to wait at least for what becomes ready by itself: clocks may disagree about it."""
AFTER_FAILURE = backoff.store(
    {"wait": "wait_exponential_jitter", "multiplier": 0.1, "max": RETRY_SECONDS, "jitter": 0.1}
)


class Fetcher:
    """Fetches messages of one queue, and acknowledges those that handlers have finished.

    Both are one transaction where that is possible, so handlers that finish within a few
    milliseconds of each other share a commit, and that commit brings the next messages.
    """

    def __init__(self, state: SharedState, served: Served) -> None:
        self.state = state
        self.served = served
        self._cancellations = Cancellations(state, served)
        self._failures = 0
        self._over = False
        """Whether what it serves has been removed."""
        self._loop = state.watch(Loop(f"takes from {served.queue.name}", takes=True))
        self._watches: Sequence[watching.ArmedWatch] = ()
        self._ref: ConsumerRef | None = None
        """The consumer as it was registered at the last fetch."""

    def run(self) -> None:
        """Fetch and acknowledge whenever it is due; at the end give back what is prefetched, and
        go on until no handler is waited for any more."""
        served, state = self.served, self.state
        while not self._over and (action := self._next(lambda: state.stopping)) is not None:
            self._do(action)
        self._leave()
        if self._over:
            log.info("the subscription of %s that this worker handles is over", served.queue.name)
            served.channel.leave(served)
            state.over()
        while (action := self._next(lambda: state.stopped)) is not None:
            self._do(action)
        self._cancellations.close()

    def _do(self, action: Action) -> None:
        if isinstance(action, Settle):
            self._acknowledge(action.finished)
        elif isinstance(action, Check):
            self._cancellations.check(action)
        elif isinstance(action, Look):
            self._look(action)
        elif isinstance(action, Fetch):
            self._try(action)

    def _look(self, action: Look) -> None:
        """Look for a more urgent message; if the store does not answer, go on without."""
        consumer, found = self.served.consumer, False
        name = self.served.queue.name
        try:
            found = consumer is not None and consumer.waits_behind(action.level)
        except (*FAILURES, QueueError) as error:
            log.debug("cannot look for what is more urgent in %s: %s", name, error)
            self.state.worker.connection.suspect()
        except BaseException:
            log.exception("cannot look for what is more urgent in %s", name)
        with self.state.lock:
            self.state.step(self.served, events.looked, found, world.monotonic())

    def _try(self, action: Fetch) -> None:
        # They are for what the last fetch saw; the next one arms its own, and a client may have
        # only so many.
        self._disarm()
        try:
            self._fetch(action)
            self._failures = 0
        except NotFound:
            self._over = True
            self._failed(math.inf)
        except LeaseLost as error:
            self._failed(0.0, error.lost)
        except (*FAILURES, QueueError) as error:
            self._outage(error)
        except BaseException as error:
            log.exception("the worker met an error that it does not know")
            self._outage(error)

    def _next(self, over: Callable[[], bool]) -> Action | None:
        """Wait until there is something to do; None when it is time to leave."""
        served, state = self.served, self.state
        with state.lock:
            while not over():
                self._loop.turn()
                # Without a store nothing can be fetched or acknowledged: the connection wakes it
                # when there is one.
                if not state.worker.connection.usable:
                    served.changed.wait()
                    continue
                now = world.monotonic()
                outside = served.outside(now, state.is_free())
                at = served.stock.acts_at(*outside)
                if at <= now:
                    (action,) = served.step(events.turn, *outside)
                    return action
                served.sleeps_until = min(at, now + POLL_SECONDS)
                served.changed.wait(served.sleeps_until - now)
                served.sleeps_until = -math.inf
        return None

    def _fetch(self, action: Fetch) -> None:
        served, finished = self.served, action.finished
        fetched = None
        if finished and not action.offered and not any(job.successors for job in finished):
            fetched = self._settle_and_fetch(action)
        if fetched is None:
            self._acknowledge(finished)
            self._loop.turn()
            if served.consumer is None:
                consumer = self._consumer()
                consumer.join()
                served.consumer = consumer
            fetched = served.consumer.fetch(
                action.credit, action.most, action.offered, begins=action.begins
            )
        seconds = POLL_SECONDS if fetched.seconds is None else fetched.seconds
        seconds = min(POLL_SECONDS, max(SOON_SECONDS, seconds))
        self._loop.took()
        found, now = fetched.deliveries, world.monotonic()
        with self.state.lock:
            served.rows.add(fetched.taken, found[-len(fetched.taken) :])
            self.state.step(
                served,
                events.fetched,
                found,
                fetched.returned,
                fetched.left,
                fetched.first,
                now,
                now + seconds,
            )
        self._watches = fetched.signal
        for watch in fetched.signal:
            # Armed after the commit, with the values that the fetch saw: what has changed since
            # fires at once.
            watch.on_ready(partial(self._rung, action.number))
        self._keep()

    def _keep(self) -> None:
        """After an eviction, extend at once what is still held: its leases may be about to end."""
        served = self.served
        assert served.consumer is not None
        before, self._ref = self._ref, served.consumer.ref
        if before not in (None, self._ref):
            extend(self.state, served, served.stock.held)

    def _settle_and_fetch(self, action: Fetch) -> Fetched | None:
        """Both in one transaction; None if neither was done."""
        served = self.served
        deliveries = [delivery for job in action.finished for delivery in job.deliveries]
        try:
            assert served.consumer is not None
            held = served.rows.joined(deliveries).held
            fetched = served.consumer.settle_and_fetch(
                action.credit, action.most, held, begins=action.begins
            )
        except Exception as error:
            log.debug("%s: each is done by itself: %s", served.queue.name, error)
            return None
        if fetched is not None:
            self._settled(action.finished, [(delivery, Outcome.DONE) for delivery in deliveries])
        return fetched

    def _acknowledge(self, finished: Sequence[Finished]) -> None:
        """Acknowledge what handlers have finished; if that fails, job by job."""
        if not finished:
            return
        self._loop.turn()
        deliveries = [delivery for job in finished for delivery in job.deliveries]
        ended: Ended = []
        try:
            joined = self.served.rows.joined(deliveries)
            served, db = self.served, self.state.worker.db
            following = {job.deliveries[0].token: job.successors for job in finished}
            ended = follow(db, served.queue, served.policy, joined, following)
        except BaseException as error:
            if len(finished) > 1:
                for job in finished:
                    self._acknowledge([job])
                return
            self.state.worker.connection.suspect()
            if isinstance(error, OperationTimedOut) and not self.state.stopping:
                with self.state.lock:  # Nothing was written: again, until the lease is over.
                    self.state.step(self.served, events.unsettled, finished)
                return
            name = self.served.queue.name
            log.exception("%s: a settlement failed; its lease will expire", name)
        self._settled(finished, ended)

    def _settled(self, finished: Sequence[Finished], ended: Ended) -> None:
        outcomes = {delivery.token: (delivery, outcome) for delivery, outcome in ended}
        for job in finished:
            tokens = [delivery.token for delivery in job.deliveries]
            found = [outcomes[token] for token in tokens if token in outcomes]
            self.state.report(self.served, found, job.seconds)
        settled = [delivery for job in finished for delivery in job.deliveries]
        with self.state.lock:
            self.state.settled(self.served, settled)

    def _consumer(self) -> QueueConsumer:
        worker, served = self.state.worker, self.served
        options = (worker.name, worker.priority, served.policy.lease, worker.concurrency)
        if served.subscription is None:
            return QueueConsumer(worker.db, served.queue, *options)
        return SubscriptionConsumer(worker.db, served.queue, served.subscription, *options)

    def _rung(self, number: int, watch: object) -> None:
        at = world.monotonic()
        at += watching.UNWATCHED_SECONDS if watching.has_failed(watch) else 0.0
        with self.state.lock:
            self.state.step(self.served, events.rung, at, number)

    def _outage(self, error: BaseException) -> None:
        log.warning("cannot take from %s: %s", self.served.queue.name, error)
        self.state.worker.connection.suspect()
        self._loop.failed(error)
        self._failures += 1
        self._failed(
            backoff.delay_seconds(AFTER_FAILURE, min(self._failures, 20), world.random.uniform)
        )

    def _failed(self, seconds: float, lost: Sequence[str] = ()) -> None:
        """A fetch has failed; the next one is after so many seconds."""
        now = world.monotonic()
        with self.state.lock:
            self.state.step(self.served, events.failed, now, now + seconds, lost)

    def _leave(self) -> None:
        served, state = self.served, self.state
        self._loop.end()
        with state.lock:
            actions = state.step(served, events.stopped)
        self._disarm()
        while served.stock.finished:
            with state.lock:
                (action,) = served.step(events.turn, *served.outside(world.monotonic(), False))
            self._do(action)
        try:
            if served.consumer is not None:
                served.give_back(actions)
                served.consumer.leave()
        except Exception as error:
            log.warning("%s is not told that a worker is gone: %s", served.queue.name, error)
        finally:
            with state.lock:
                state.fetching -= 1
                state.ended.notify_all()

    def _disarm(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches = ()

"""The thread that fetches the messages of one queue for a worker, and acknowledges them."""

from __future__ import annotations

import logging
from functools import partial

from ..consumers import watching
from ..consumers.credit import Credit
from ..errors import LeaseLost, NotFound, OperationTimedOut, QueueError
from ..schema.consumers import ConsumerRef
from ..store import world
from ..store.binding import FAILURES
from ..values import backoff
from ..values.model import Delivery
from ..values.states import Outcome
from .attempt import Ended, follow
from .consumer import Fetched, QueueConsumer, SubscriptionConsumer
from .health import Loop
from .leases.cancellations import Cancellations
from .leases.lease_extender import extend
from .prefetch import Buffer, Finished
from .shared_state import SharedState

log = logging.getLogger("fdbqueue.worker")

POLL_SECONDS, RETRY_SECONDS = 25.0, 5.0
"""How often a worker fetches by itself, which heals what a dead consumer was told; and how long it
waits at most after a failure, or while another holds its subscription."""
SOON_SECONDS = 0.02
"""How long to wait at least for what becomes ready by itself: clocks may disagree about it."""
TURN_SECONDS = 0.1
"""How long to wait at most before a fetcher looks whether it is its turn."""
AFTER_FAILURE = backoff.store(
    {"wait": "wait_exponential_jitter", "multiplier": 0.1, "max": RETRY_SECONDS, "jitter": 0.1}
)


class Fetcher:
    """Fetches messages of one queue, and acknowledges those that handlers have finished.

    Both are one transaction where that is possible, so handlers that finish within a few
    milliseconds of each other share a commit, and that commit brings the next messages.
    """

    def __init__(self, state: SharedState, buffer: Buffer, cancellations: Cancellations) -> None:
        self.state = state
        self.buffer = buffer
        self._cancellations = cancellations
        self._failures = 0
        self._loop = state.watch(Loop(f"takes from {buffer.queue.name}", takes=True))
        self._ref: ConsumerRef | None = None
        """The consumer as it was registered at the last fetch."""

    def run(self) -> None:
        """Fetch and acknowledge whenever it is due; at the end give back what is prefetched."""
        buffer, state = self.buffer, self.state
        over = False
        while self._wait():
            with state.lock:
                fetches = buffer.due(world.monotonic(), state.is_free())
                finished = buffer.take_finished()
                past, begins = buffer.latest, state.is_free()
                credit, most = buffer.credit, buffer.wants
                exchanged = buffer.begin_fetch() if fetches else []
            if not fetches:
                self._acknowledge(finished)
                continue
            # Its watches are for what the last fetch saw; the next one arms its own, and a client
            # may have only so many.
            _disarm(past)
            try:
                self._fetch(credit, most, finished, exchanged, begins)
                self._failures = 0
            except NotFound:
                with state.lock:
                    buffer.fetch_failed(exchanged, 0.0)
                over = True
                break
            except LeaseLost as error:
                with state.lock:
                    buffer.lose_returned(exchanged, error.message_id)
            except (*FAILURES, QueueError) as error:
                self._failed(exchanged, error)
            except BaseException as error:
                log.exception("the worker met an error that it does not know")
                self._failed(exchanged, error)
            self._cancellations.fetched(buffer)
        self._leave()
        if over:
            log.info("the subscription of %s that this worker handles is over", buffer.queue.name)
            buffer.channel.leave(buffer)
            state.over()

    def _wait(self) -> bool:
        """Wait until there is something to do; False when it is time to leave."""
        buffer, state = self.buffer, self.state
        with state.lock:
            while not state.stopping:
                self._loop.turn()
                now, usable = world.monotonic(), state.worker.connection.usable
                lingers = buffer.lingers(now)
                if usable and (lingers <= 0 or buffer.due(now, state.is_free())):
                    return True
                # Until it is its turn, if others of the channel come first.
                at = TURN_SECONDS if buffer.waits(now, state.is_free()) else buffer.fetch_at - now
                until = min(POLL_SECONDS, lingers, max(0.0, at))
                # Without a store nothing can be fetched or acknowledged: the connection wakes it
                # when there is one.
                buffer.changed.wait(until if usable else None)
        return False

    def _fetch(
        self,
        credit: Credit,
        most: int,
        finished: list[Finished],
        exchanged: list[Delivery],
        begins: bool,
    ) -> None:
        buffer = self.buffer
        fetched = None
        if finished and not exchanged and not any(job.successors for job in finished):
            fetched = self._settle_and_fetch(credit, most, finished, begins)
        if fetched is None:
            self._acknowledge(finished)
            self._loop.turn()
            if buffer.consumer is None:
                consumer = self._consumer()
                consumer.join()
                buffer.consumer = consumer
            fetched = buffer.consumer.fetch(credit, most, exchanged, begins=begins)
        seconds = POLL_SECONDS if fetched.seconds is None else fetched.seconds
        seconds = min(POLL_SECONDS, max(SOON_SECONDS, seconds))
        self._loop.took()
        with self.state.lock:
            buffer.end_fetch(fetched, exchanged, world.monotonic() + seconds)
            self.state.work.notify_all()
        for watch in fetched.signal:
            # Armed after the commit, with the values that the fetch saw: what has changed since
            # fires at once.
            watch.on_ready(partial(self._rung, fetched))
        self._keep()

    def _keep(self) -> None:
        """After an eviction, extend at once what is still held: its leases may be about to end."""
        buffer = self.buffer
        assert buffer.consumer is not None
        before, self._ref = self._ref, buffer.consumer.ref
        if before not in (None, self._ref):
            with self.state.lock:
                held = buffer.held()
            extend(self.state, buffer, held)

    def _settle_and_fetch(
        self, credit: Credit, most: int, finished: list[Finished], begins: bool
    ) -> Fetched | None:
        """Both in one transaction; None if neither was done."""
        buffer = self.buffer
        deliveries = [delivery for job in finished for delivery in job.deliveries]
        try:
            assert buffer.consumer is not None
            held = buffer.rows.joined(deliveries).held
            fetched = buffer.consumer.settle_and_fetch(credit, most, held, begins=begins)
        except Exception as error:
            log.debug("%s: each is done by itself: %s", buffer.queue.name, error)
            return None
        if fetched is not None:
            self._settled(finished, [(delivery, Outcome.DONE) for delivery in deliveries])
        return fetched

    def _acknowledge(self, finished: list[Finished]) -> None:
        """Acknowledge what handlers have finished; if that fails, job by job."""
        if not finished:
            return
        self._loop.turn()
        deliveries = [delivery for job in finished for delivery in job.deliveries]
        ended: Ended = []
        try:
            joined = self.buffer.rows.joined(deliveries)
            buffer, db = self.buffer, self.state.worker.db
            following = {job.deliveries[0].token: job.successors for job in finished}
            ended = follow(db, buffer.queue, buffer.policy, joined, following)
        except BaseException as error:
            if len(finished) > 1:
                for job in finished:
                    self._acknowledge([job])
                return
            self.state.worker.connection.suspect()
            if isinstance(error, OperationTimedOut) and not self.state.stopping:
                with self.state.lock:  # Nothing was written: again, until the lease is over.
                    self.buffer.finished += finished
                return
            name = self.buffer.queue.name
            log.exception("%s: a settlement failed; its lease will expire", name)
        self._settled(finished, ended)

    def _settled(self, finished: list[Finished], ended: Ended) -> None:
        outcomes = {delivery.token: (delivery, outcome) for delivery, outcome in ended}
        for job in finished:
            tokens = [delivery.token for delivery in job.deliveries]
            found = [outcomes[token] for token in tokens if token in outcomes]
            self.state.report(self.buffer, found, job.seconds)
        with self.state.lock:
            settled = [delivery for job in finished for delivery in job.deliveries]
            self.state.settled(self.buffer, settled)

    def _consumer(self) -> QueueConsumer:
        worker, buffer = self.state.worker, self.buffer
        options = (worker.name, worker.priority, buffer.policy.lease, worker.concurrency)
        if buffer.subscription is None:
            return QueueConsumer(worker.db, buffer.queue, *options)
        return SubscriptionConsumer(worker.db, buffer.queue, buffer.subscription, *options)

    def _rung(self, fetched: Fetched, watch: object) -> None:
        after = watching.UNWATCHED_SECONDS if watching.has_failed(watch) else 0.0
        with self.state.lock:
            # A watch of an earlier fetch may fire late: it says nothing about what this one has
            # left.
            if self.buffer.latest is fetched:
                self.buffer.ring(after)
                self.buffer.changed.notify()

    def _failed(self, exchanged: list[Delivery], error: BaseException) -> None:
        log.warning("cannot take from %s: %s", self.buffer.queue.name, error)
        self.state.worker.connection.suspect()
        self._loop.failed(error)
        self._failures += 1
        with self.state.lock:
            seconds = backoff.delay_seconds(
                AFTER_FAILURE, min(self._failures, 20), world.random.uniform
            )
            self.buffer.fetch_failed(exchanged, seconds)
            self.state.work.notify_all()

    def _leave(self) -> None:
        buffer, state = self.buffer, self.state
        self._loop.end()
        with state.lock:
            buffer.settles = False
            past, deliveries = buffer.latest, buffer.prefetched
            buffer.prefetched, buffer.latest = [], None
            buffer.gave_back(deliveries)
        _disarm(past)
        while finished := buffer.take_finished():
            self._acknowledge(finished)
        try:
            if buffer.consumer is not None:
                buffer.consumer.give_back(deliveries)
                buffer.consumer.leave()
        except Exception as error:
            log.warning("%s is not told that a worker is gone: %s", buffer.queue.name, error)
        finally:
            with state.lock:
                state.fetching -= 1
                state.ended.notify_all()


def _disarm(fetched: Fetched | None) -> None:
    if fetched is not None:
        for watch in fetched.signal:
            watch.cancel()

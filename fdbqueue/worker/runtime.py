"""A worker at work, from start to stop: its threads, and what they do when the store is away."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from ..errors import QueueError
from ..store import world
from ..store.binding import FAILURES
from ..store.connection import ConnectionState
from ..values.model import Delivery
from .browser import Browsed, Browser
from .fetcher import Fetcher
from .handler_threads import HandlerThreads
from .leases.cancellations import Cancellations
from .leases.lease_extender import LeaseExtender
from .prefetch import Buffer
from .shared_state import OwningWorker, SharedState

log = logging.getLogger("fdbqueue.worker")

HURRY_SECONDS = 2.0
"""How long a worker that must end waits for the store, and for its threads."""


class Runtime:
    """The threads of a worker: a fetcher for each queue, a browser for each browsing subscription,
    handlers, the lease extender, and what learns of cancellations."""

    def __init__(
        self,
        worker: OwningWorker,
        buffers: Sequence[Buffer],
        browsed: Sequence[Browsed],
        handlers: Callable[[SharedState], HandlerThreads],
    ) -> None:
        self.connection = worker.connection
        self.state = SharedState(worker, buffers)
        self.browsers = [Browser(self.state, each) for each in browsed]
        self.state.serve(self.browsers)
        self.handlers = handlers(self.state)
        self.lease_extender = LeaseExtender(self.state, self.handlers)
        self.cancellations = Cancellations(self.state)
        self._at_once = False

    def start(self) -> None:
        """Start the threads."""
        self.connection.listen(self._connection_changed)
        self.connection.start()
        for buffer in self.state.buffers:
            self.state.spawn(Fetcher(self.state, buffer, self.cancellations).run, "fetcher")
        for browser in self.browsers:
            self.state.spawn(browser.run, "browser")
        self.state.spawn(self.lease_extender.run, "lease-extender")
        self.state.spawn(self.cancellations.run, "cancellations")
        self.handlers.start()

    def stop(self, seconds: float) -> None:
        """Fetch no more, give back what is prefetched, and finish what runs, for ``seconds``."""
        deadline, state = world.monotonic() + seconds, self.state
        with state.lock:
            state.stopping = True
            state.notify()
            while not self._at_once and (state.fetching or state.running()):
                left = deadline - world.monotonic()
                if left <= 0:
                    log.warning("%d running messages are given back", len(state.running()))
                    break
                # In short turns, so that the signal to stop at once is noticed.
                state.ended.wait(min(left, 0.2))
            abandoned = [(buffer, buffer.unfinished()) for buffer in state.buffers]
            for buffer in state.buffers:
                # From here on a handler that returns finds its message not held, and settles
                # nothing.
                buffer.end(list(buffer.running.values()))
        # Only now: leases are extended as long as handlers may still end in time.
        self.lease_extender.stop()
        self.cancellations.stop()
        self.handlers.abandon()
        self._abandon(abandoned)
        with state.lock:
            # Usually long done: fetchers give back what is prefetched when they are told to stop.
            state.ended.wait_for(lambda: not state.fetching, HURRY_SECONDS)
            for buffer in state.buffers:
                buffer.gave_back(buffer.prefetched)
            for buffer in state.buffers:
                buffer.channel.close()
        self.connection.forget(self._connection_changed)
        self.connection.stop()
        self._join()

    def stop_at_once(self) -> None:
        """Let ``stop`` wait no longer. Takes no lock: a signal handler may call it."""
        self._at_once = True

    def _connection_changed(self, state: ConnectionState) -> None:
        with self.state.lock:
            for buffer in self.state.buffers:
                if state is ConnectionState.LOST:
                    # The store has been away for longer than any lease: others may have the
                    # messages already.
                    buffer.lose_all()
                if self.connection.usable:
                    buffer.ring()
            self.state.notify()
            self.cancellations.wake()

    def _abandon(self, abandoned: Sequence[tuple[Buffer, list[Delivery]]]) -> None:
        """Give running messages back, in a thread: a store that is away must not delay the stop."""

        def give() -> None:
            for buffer, deliveries in abandoned:
                if buffer.consumer is not None and deliveries:
                    with contextlib.suppress(*FAILURES, QueueError):
                        buffer.consumer.give_back(deliveries)

        if any(deliveries for _, deliveries in abandoned):
            self.state.spawn(give, "abandoner").join(HURRY_SECONDS)

    def _join(self) -> None:
        """Wait for the threads, but not for handlers that never return."""
        with self.state.lock:
            busy = self.state.jobs or self.state.stuck
            deadline = world.monotonic() + (0.1 if busy else HURRY_SECONDS)
        self.handlers.ended(HURRY_SECONDS)
        for thread in self.state.threads:
            # A handler may stop its own worker, and cannot wait for itself.
            if thread.ident != world.get_ident():
                thread.join(max(0.0, deadline - world.monotonic()))

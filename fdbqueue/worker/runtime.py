"""A worker at work, from start to stop: its threads, and what they do when the store is away."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from ..errors import QueueError
from ..store import world
from ..store.binding import FAILURES
from ..store.connection import ConnectionState
from .browser import Browsed, Browser
from .fetcher import Fetcher
from .handler_threads import HandlerThreads
from .lease_extender import LeaseExtender
from .served import Served
from .shared_state import OwningWorker, SharedState
from .stock import events
from .stock.actions import Action, GiveBack

log = logging.getLogger("fdbqueue.worker")

HURRY_SECONDS = 2.0
"""How long a worker that must end waits for the store, and for its threads."""


class Runtime:
    """The threads of a worker: a fetcher for each queue, a browser for each browsing subscription,
    handlers, and the lease extender."""

    def __init__(
        self,
        worker: OwningWorker,
        served: Sequence[Served],
        browsed: Sequence[Browsed],
        handlers: Callable[[SharedState], HandlerThreads],
    ) -> None:
        self.connection = worker.connection
        self.state = SharedState(worker, served)
        self.browsers = [Browser(self.state, each) for each in browsed]
        self.state.serve(self.browsers)
        self.handlers = handlers(self.state)
        self.lease_extender = LeaseExtender(self.state, self.handlers)
        self._at_once = False

    def start(self) -> None:
        """Start the threads."""
        self.connection.listen(self._connection_changed)
        self.connection.start()
        for served in self.state.served:
            self.state.spawn(Fetcher(self.state, served).run, "fetcher")
        for browser in self.browsers:
            self.state.spawn(browser.run, "browser")
        self.state.spawn(self.lease_extender.run, "lease-extender")
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
            # From here on a handler that returns finds its message not held, and settles nothing.
            state.stopped = True
            state.notify()
            abandoned = [(each, state.step(each, events.abandoned)) for each in state.served]
        # Only now: leases are extended as long as handlers may still end in time.
        self.lease_extender.stop()
        self.handlers.abandon()
        self._abandon(abandoned)
        with state.lock:
            # Usually long done: fetchers give back what is prefetched when they are told to stop.
            state.ended.wait_for(lambda: not state.fetching, HURRY_SECONDS)
            for each in state.served:
                each.step(events.stopped)
            for each in state.served:
                each.channel.close()
        self.connection.forget(self._connection_changed)
        self.connection.stop()
        self._join()

    def stop_at_once(self) -> None:
        """Let ``stop`` wait no longer. Takes no lock: a signal handler may call it."""
        self._at_once = True

    def _connection_changed(self, state: ConnectionState) -> None:
        with self.state.lock:
            for served in self.state.served:
                if state is ConnectionState.LOST:
                    # The store has been away for longer than any lease: others may have the
                    # messages already.
                    self.state.step(served, events.lost, served.stock.tokens)
                if self.connection.usable:
                    self.state.step(served, events.rung, world.monotonic())
            self.state.notify()

    def _abandon(self, abandoned: Sequence[tuple[Served, Sequence[Action]]]) -> None:
        """Give running messages back, in a thread: a store that is away must not delay the stop."""

        def give() -> None:
            for served, actions in abandoned:
                with contextlib.suppress(*FAILURES, QueueError):
                    served.give_back(actions)

        if any(isinstance(each, GiveBack) for _, actions in abandoned for each in actions):
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

"""How a worker learns of cancellations: it watches one key of the queue.

Each cancellation of a leased message adds to that key, and so fires the watch. Then the worker
looks which of the messages that it holds were cancelled, and watches again.

What it takes later has a lease that is younger than the watch, so the watch fires for it too. Only
what comes from a fetch that began before the watch was armed may have been cancelled unseen: for
that, the worker looks once more. While it holds nothing, it neither looks nor watches anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..consumers import watching
from ..errors import QueueError
from ..messages.delivery import cancellation
from ..queue.internals import Internals
from ..schema import once
from ..store import world
from ..store.binding import FAILURES
from ..values.model import Delivery
from .served import Served
from .shared_state import SharedState
from .stock import events
from .stock.actions import Check

log = logging.getLogger("fdbqueue.worker")

RETRY_SECONDS = 1.0
"""How long it waits after a look or a watch has failed."""
LOOK_SECONDS = 1.0
"""How long one transaction may take."""
MAX_LOOKED = 100
"""Leases that one transaction looks at."""


class Cancellations:
    """Those of what a worker holds of one queue. For the thread that fetches."""

    def __init__(self, state: SharedState, served: Served) -> None:
        self.state = state
        self.served = served
        self._watch: watching.ArmedWatch | None = None

    def check(self, action: Check) -> None:
        """Look, or try again later. Nothing is lost by that: who extends the leases is told."""
        name = self.served.queue.name
        try:
            # Armed before the look: what is cancelled between the two fires the watch, instead of
            # being missed.
            if action.watches:
                self._arm()
            for start in range(0, len(action.deliveries), MAX_LOOKED):
                self._look(action.deliveries[start : start + MAX_LOOKED])
            return
        except (*FAILURES, QueueError) as error:
            log.debug("cannot look what is cancelled of %s: %s", name, error)
        except Exception:
            log.exception("cannot look what is cancelled of %s", name)
        with self.state.lock:
            self.state.step(self.served, events.unchecked, world.monotonic() + RETRY_SECONDS)

    def close(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.cancel()

    def _arm(self) -> None:
        db, key = self.state.worker.db, Internals(self.served.queue).keys.cancels
        watch = self._watch = watching.watch(db, key, LOOK_SECONDS)
        with self.state.lock:
            self.state.step(self.served, events.watched, world.monotonic())
        watch.on_ready(self._fired)

    def _fired(self, watch: watching.ArmedWatch) -> None:
        at = world.monotonic()
        at += watching.UNWATCHED_SECONDS if watching.has_failed(watch) else 0.0
        with self.state.lock:
            self.state.step(self.served, events.unwatched, at)

    def _look(self, held: Sequence[Delivery]) -> None:
        tr = once.transaction(self.state.worker.db, LOOK_SECONDS)
        found = cancellation.requested(tr, Internals(self.served.queue).scope(tr), held)
        if found:
            with self.state.lock:
                actions = self.state.step(self.served, events.cancelled, found)
            self.served.give_back(actions)

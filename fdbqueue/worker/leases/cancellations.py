"""How a worker learns within moments that messages which it holds were cancelled.

Each cancellation of a leased message adds to one key of its queue (see ``delivery.cancellation``).
From the first message that it takes of a queue, a worker watches that key. When it changes, the
worker looks which of the messages that it holds were cancelled, and watches again.

What it takes later has a lease that is younger than the watch, so the watch fires for it too. Only
what comes from a fetch that began before the watch was armed may have been cancelled unseen: for
that, the worker looks once more. While it holds nothing, it neither looks nor watches anew.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...consumers import watching
from ...errors import QueueError
from ...messages.delivery import cancellation
from ...queue.internals import Internals
from ...schema import once
from ...store import world
from ...store.binding import FAILURES
from ...values.model import Delivery
from ..health import Loop
from ..served import Served
from ..shared_state import SharedState
from ..stock import events

log = logging.getLogger("fdbqueue.worker")

PACE_SECONDS = 0.1
"""How long a worker waits between two looks, however many messages are cancelled."""
RETRY_SECONDS = 1.0
"""How long it waits after a look or a watch has failed."""
LOOK_SECONDS = 1.0
"""How long one transaction may take: whoever stops the worker waits for it."""
MAX_LOOKED = 100
"""Leases that one transaction looks at."""


@dataclass(eq=False)
class _Watched:
    """What a worker holds of a queue, or a subscription, and its watch.

    since: when the watch was armed, by ``world.monotonic``; inf while it is not. look_at: when to
    look at what is held; inf if there is no need.
    """

    served: Served
    watch: watching.ArmedWatch | None = None
    since: float = math.inf
    look_at: float = math.inf

    @property
    def holds(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.served.stock.held)


class Cancellations:
    """Notes what was cancelled of all that a worker holds, in a thread of its own."""

    def __init__(self, state: SharedState) -> None:
        self.state = state
        self._watched = {served: _Watched(served) for served in state.served}
        self._changed = world.Condition(state.lock)
        self._stopped = False
        self._loop = state.watch(Loop("learns of cancellations"))

    def fetched(self, served: Served) -> None:
        """A fetch has ended. Needs no lock."""
        watched = self._watched[served]
        with self.state.lock:
            # Taken since the watch was armed: what is cancelled of it fires that.
            if not watched.holds or served.stock.began_at >= watched.since:
                return
            if watched.look_at == math.inf:  # else it is due, or waits after a failure
                watched.look_at = world.monotonic()
            self._changed.notify()

    def wake(self) -> None:
        """The store may answer again: with the lock held."""
        self._changed.notify()

    def stop(self) -> None:
        """Look no more. Needs no lock."""
        with self.state.lock:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Look whenever it is due, until stopped."""
        while due := self._wait():
            self._loop.turn()
            for watched in due:
                self._try(watched)
            with self.state.lock:
                # A producer that cancels thousands changes the key as often; each look answers for
                # all until then.
                self._changed.wait_for(lambda: self._stopped, PACE_SECONDS)
        self._loop.end()
        for watched in self._watched.values():
            with self.state.lock:
                watch = watched.watch
            if watch is not None:
                watch.cancel()

    def _wait(self) -> Sequence[_Watched]:
        """Wait until something is to be looked at; nothing when it is time to leave."""
        self._loop.turn(math.inf)
        with self.state.lock:
            while not self._stopped:
                now, usable = world.monotonic(), self.state.worker.connection.usable
                held = [each for each in self._watched.values() if usable and each.holds]
                due = [each for each in held if each.look_at <= now]
                if due:
                    return due
                at = min((each.look_at for each in held), default=math.inf)
                self._changed.wait(None if at == math.inf else at - now)
        return ()

    def _try(self, watched: _Watched) -> None:
        """Look, or try again later. Nothing is lost by that: who extends the leases is told."""
        name = watched.served.queue.name
        try:
            self._look(watched)
            return
        except (*FAILURES, QueueError) as error:
            log.debug("cannot look what is cancelled of %s: %s", name, error)
        except Exception:
            log.exception("cannot look what is cancelled of %s", name)
        with self.state.lock:
            watched.look_at = world.monotonic() + RETRY_SECONDS

    def _look(self, watched: _Watched) -> None:
        served = watched.served
        with self.state.lock:
            watched.look_at, armed = math.inf, watched.since < math.inf
        # Armed before the look: what is cancelled between the two fires the watch, instead of being
        # missed.
        if not armed:
            self._arm(watched)
        held = served.stock.held
        for start in range(0, len(held), MAX_LOOKED):
            if self._stopped:
                return
            found = self._cancelled(served, held[start : start + MAX_LOOKED])
            with self.state.lock:
                actions = self.state.step(served, events.cancelled, found) if found else ()
            served.give_back(actions)

    def _arm(self, watched: _Watched) -> None:
        key = Internals(watched.served.queue).keys.cancels
        watch = watching.watch(self.state.worker.db, key, LOOK_SECONDS)
        with self.state.lock:
            watched.watch, watched.since = watch, world.monotonic()
        watch.on_ready(partial(self._fired, watched))

    def _fired(self, watched: _Watched, watch: watching.ArmedWatch) -> None:
        pause = watching.UNWATCHED_SECONDS if watching.has_failed(watch) else 0.0
        with self.state.lock:
            # Unarmed before the look: a cancellation that comes during it finds a new watch, or is
            # seen.
            watched.watch, watched.since = None, math.inf
            watched.look_at = world.monotonic() + pause
            self._changed.notify()

    def _cancelled(self, served: Served, held: Sequence[Delivery]) -> frozenset[bytes]:
        """The tokens of those that were cancelled."""
        tr = once.transaction(self.state.worker.db, LOOK_SECONDS)
        return cancellation.requested(tr, Internals(served.queue).scope(tr), held)

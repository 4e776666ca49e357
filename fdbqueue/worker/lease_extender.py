"""The thread that extends the leases a worker holds, and gives signs of life."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..consumers.sessions import BEAT_SECONDS
from ..errors import LeaseLost, QueueError
from ..store import world
from ..store.binding import FAILURES
from ..values.model import Delivery
from . import shared_state as shared
from .decisions import expires_soon, extend_every
from .handler_threads import HandlerThreads
from .health import Loop
from .served import Served
from .shared_state import SharedState
from .stock import events

log = logging.getLogger("fdbqueue.worker")

MAX_EXTENDED = 100
"""Leases that one transaction extends."""


def extend(state: SharedState, served: Served, held: Sequence[Delivery]) -> list[Delivery]:
    """Extend what is held of a queue, and drop what is lost; returns what was extended."""
    every: list[Delivery] = []
    for start in range(0, len(held), MAX_EXTENDED):
        extended = _extended(state, served, held[start : start + MAX_EXTENDED])
        if extended:
            served.rows.forget(extended)
            with state.lock:
                actions = state.step(served, events.renewed, extended)
            served.give_back(actions)
        every += extended
    return every


def _extended(state: SharedState, served: Served, held: Sequence[Delivery]) -> Sequence[Delivery]:
    """Extend all whose lease still holds."""
    while held:
        try:
            return served.queue.extend(state.worker.db, held, served.policy.lease)
        except LeaseLost as error:
            gone = [delivery for delivery in held if delivery.id in error.lost]
            held = [delivery for delivery in held if delivery.id not in error.lost]
            with state.lock:
                # One that was settled meanwhile is not held any more.
                known = {each.token for each in served.stock.held}
                lost = [delivery for delivery in gone if delivery.token in known]
                state.step(served, events.lost, {each.token for each in lost})
            for delivery in lost:
                about = {"queue": served.queue.name, "message_id": delivery.id}
                log.warning("the lease of message %s was lost", delivery.id, extra=about)
    return []


class LeaseExtender:
    """Keeps what a worker holds, gives back what waits too long, and replaces stuck threads."""

    def __init__(self, state: SharedState, handlers: HandlerThreads) -> None:
        self.state = state
        self.handlers = handlers
        self._loop = state.watch(Loop("extends leases"))
        self._stopped = world.Event()
        self._checked_at = world.monotonic()
        self._renewed: dict[bytes, float] = {}

    def stop(self) -> None:
        """Extend nothing any more."""
        self._stopped.set()
        for served in self.state.served:
            if served.consumer is not None:
                served.consumer.session.tell(self, ())

    def run(self) -> None:
        """Extend and beat until stopped."""
        state = self.state
        policies = [served.policy for served in state.served]
        # A stuck handler is replaced at most a quarter of its timeout late.
        timeouts = [policy.timeout / 4 for policy in policies if policy.timeout is not None]
        if any(policy.adapts for policy in policies):
            timeouts.append(shared.AHEAD_WAITS_SECONDS)
        if policies:
            timeouts.append(extend_every([policy.lease for policy in policies]))
        every = min([BEAT_SECONDS, *timeouts])
        while not self._stopped.wait(max(0.01, min(every, self._next_beat()))):
            self._loop.turn()
            self.handlers.replace_stuck()
            with state.lock:
                state.hurry_exclusive()
            # Neither leases nor signs of life reach a store that is away, and each attempt would
            # block for its timeout.
            if not state.worker.connection.usable:
                continue
            try:
                self._beat()
            except (*FAILURES, QueueError) as error:
                log.warning("cannot give a sign of life: %s", error)
                state.worker.connection.suspect()
            except Exception:
                log.exception("cannot give a sign of life")
            now = world.monotonic()
            held = {each.token for served in state.served for each in served.stock.held}
            # What was not held a round ago was leased since then.
            self._renewed = {token: self._renewed.get(token, self._checked_at) for token in held}
            self._checked_at = now
            for served in state.served:
                self._loop.turn()
                self._keep(served, now)

    def _keep(self, served: Served, now: float) -> None:
        name = served.queue.name
        try:
            self._give_back(served)
        except Exception as error:
            log.warning("cannot give back what waits for a handler of %s: %s", name, error)
        try:
            self._extend(served, now)
        except (*FAILURES, QueueError) as error:
            log.warning("cannot keep what is held of %s: %s", name, error)
            self.state.worker.connection.suspect()
        except Exception:
            log.exception("cannot keep what is held of %s", name)

    def _give_back(self, served: Served) -> None:
        """Give back what no handler comes to for longer than a lease, or for a second if it was
        taken ahead of fast handlers: others may be free."""
        with self.state.lock:
            now, longest = world.monotonic(), max(served.policy.lease, shared.WAITS_SECONDS)
            # With a free handler it is about to be begun: to give it back would only delay it.
            busy = len(self.state.jobs) >= self.state.worker.concurrency
            times = now - longest, now - shared.AHEAD_WAITS_SECONDS
            actions = self.state.step(served, events.waited, *times) if busy else ()
        served.give_back(actions)

    def _extend(self, served: Served, now: float) -> None:
        def due(delivery: Delivery) -> bool:
            renewed = self._renewed.get(delivery.token, now)
            return expires_soon(now - renewed, served.policy.lease)

        held = [delivery for delivery in served.stock.held if due(delivery)]
        extended = extend(self.state, served, held)
        # By the time before the extension: a lease is never believed to last longer than it does.
        self._renewed.update((delivery.token, now) for delivery in extended)

    def _next_beat(self) -> float:
        """Seconds until the next sign of life."""
        consumers = [each.consumer for each in self.state.served]
        consumers += [each.consumer for each in self.state.browsers]
        due = [one.session.due_in for one in consumers if one is not None]
        return min(due, default=BEAT_SECONDS)

    def _beat(self) -> None:
        """Give a sign of life of this process; consumers that were evicted fetch, and so return."""
        served = [(each, each.consumer) for each in self.state.served if each.consumer is not None]
        browsing = [browser.consumer for browser in self.state.browsers]
        consumers = (*(consumer for _, consumer in served), *browsing)
        with self.state.lock:
            work = self.state.doing()
        if self.state.worker.tells is not None:
            self.state.worker.tells(work)
        for session in dict.fromkeys(one.session for one in consumers):
            session.tell(self, work)
            session.beat()
        for browser in self.state.browsers:
            browser.keep()
        for each, consumer in served:
            if consumer.evicted:
                with self.state.lock:
                    self.state.step(each, events.rung, world.monotonic())

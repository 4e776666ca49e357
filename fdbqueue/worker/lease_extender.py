"""One thread that extends all leases of a worker, and gives its signs of life."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from ..consumers.sessions import BEAT_SECONDS
from ..errors import LeaseLost, QueueError
from ..store.binding import FAILURES, fdb
from ..store.connection import Connection
from ..values.model import Delivery
from .decisions import expires_soon, extend_every
from .prefetch import Lane

log = logging.getLogger("fdbqueue.worker")

MAX_EXTENDED = 100
"""Leases that one transaction extends."""


class Kept(Protocol):
    """The threads whose leases are extended."""

    db: fdb.Database
    connection: Connection
    lock: threading.Lock
    lanes: list[Lane]
    stopping: bool

    def replace_who_is_stuck(self) -> None:
        """Start threads in the place of those whose handlers take too long."""

    def lose_patience(self) -> None:
        """Let nothing wait long for a message that is handled alone."""

    def give_back_what_waits(self) -> None:
        """Give back what no handler comes to."""


class Keeper:
    """Keeps what a crew holds."""

    def __init__(self, crew: Kept) -> None:
        self.crew = crew
        self._stopped = threading.Event()
        self._looked_at = time.monotonic()
        self._renewed: dict[bytes, float] = {}

    def stop(self) -> None:
        """Extend nothing any more."""
        self._stopped.set()

    def run(self) -> None:
        """Extend and beat until stopped."""
        policies = [lane.policy for lane in self.crew.lanes]
        timeouts = [policy.timeout / 4 for policy in policies if policy.timeout is not None]
        every = min(BEAT_SECONDS, extend_every([policy.lease for policy in policies]), *timeouts)
        while not self._stopped.wait(max(0.01, every)):
            self.crew.replace_who_is_stuck()
            self.crew.lose_patience()
            if not self.crew.connection.usable:
                continue
            now = time.monotonic()
            with self.crew.lock:
                held = {each.token for lane in self.crew.lanes for each in lane.held()}
            # What was not held a round ago was leased since then.
            self._renewed = {token: self._renewed.get(token, self._looked_at) for token in held}
            self._looked_at = now
            try:
                self.crew.give_back_what_waits()
            except Exception as error:
                log.warning("cannot give back what waits for a handler: %s", error)
            for lane in self.crew.lanes:
                try:
                    self._extend(lane, now)
                except (*FAILURES, QueueError) as error:
                    log.warning("cannot keep what is held of %s: %s", lane.queue.name, error)
                    self.crew.connection.suspect()
                except Exception:
                    log.exception("cannot keep what is held of %s", lane.queue.name)
            try:
                self._beat()
            except (*FAILURES, QueueError) as error:
                log.warning("cannot give a sign of life: %s", error)
                self.crew.connection.suspect()
            except Exception:
                log.exception("cannot give a sign of life")

    def _extend(self, lane: Lane, now: float) -> None:
        def due(delivery: Delivery) -> bool:
            renewed = self._renewed.get(delivery.token, now)
            return expires_soon(now - renewed, lane.policy.lease)

        with self.crew.lock:
            held = [delivery for delivery in lane.held() if due(delivery)]
        for start in range(0, len(held), MAX_EXTENDED):
            extended = self._extended(lane, held[start : start + MAX_EXTENDED])
            self._renewed.update((delivery.token, now) for delivery in extended)
            with self.crew.lock:
                lane.extended(extended)

    def _extended(self, lane: Lane, held: Sequence[Delivery]) -> Sequence[Delivery]:
        """Extend all whose lease still holds."""
        while held:
            try:
                return lane.queue.extend_many(self.crew.db, held, lane.policy.lease)
            except LeaseLost as error:
                gone = [delivery for delivery in held if delivery.id == error.message_id]
                held = [delivery for delivery in held if delivery.id != error.message_id]
                with self.crew.lock:
                    # One that was settled meanwhile is not held any more.
                    lost = [delivery for delivery in gone if lane.lose(delivery.token)]
                for delivery in lost:
                    log.warning(
                        "the lease of message %s was lost",
                        delivery.id,
                        extra={"queue": lane.queue.name, "message_id": delivery.id},
                    )
        return []

    def _beat(self) -> None:
        """Give a sign of life of this process; consumers that were evicted look, and so return."""
        members = [(lane, lane.member) for lane in self.crew.lanes if lane.member is not None]
        if self.crew.stopping:
            return
        for session in {member.session for _, member in members}:
            session.beat()
        for lane, member in members:
            if member.evicted:
                with self.crew.lock:
                    lane.ring()
                    lane.news.notify()

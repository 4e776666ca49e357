"""The session of this process, which all consumers of its workers share: below one root, and by
one clock."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from ..consumers import eviction, registry, sessions
from ..consumers.sessions import BEAT_SECONDS
from ..errors import QueueError
from ..schema import once
from ..schema.consumers import ConsumerRef, Work
from ..schema.keys import QueueKeys, RootKeys
from ..store import world
from ..store.binding import FAILURES, fdb
from ..store.clocks import Clock

R = TypeVar("R")

log = logging.getLogger("fdbqueue.worker")

EVICTING_SECONDS = 1.0
"""How long one beat goes on removing consumers of dead processes; the next beat continues."""


class ProcessSession:
    """The session of this process. Any thread may beat; one beat is given for all."""

    def __init__(self, db: fdb.Database, root: RootKeys, clock: Clock) -> None:
        self.db = db
        self._root = root
        self._clock = clock
        self._lock = world.Lock()
        self._name: bytes | None = None
        self._consumers: set[ConsumerRef] = set()
        self._registering = 0
        self._work: dict[object, Sequence[Work]] = {}
        """What each worker does, as it last told."""
        self._left_behind: dict[ConsumerRef, QueueKeys] = {}
        """Consumers that could not be unregistered when they left."""
        self._beat_at = 0.0
        self._leaving: eviction.LeavingConsumers | None = None
        """Dead consumers whose leases have not all been found."""

    @staticmethod
    def of(db: fdb.Database, root: RootKeys, clock: Clock) -> ProcessSession:
        """The session of this process for the queues below a root."""
        # The session holds both objects, so their ids are unique as long as it lives.
        place = id(db), root.once.prefix, 0 if type(clock) is Clock else id(clock)
        sessions = world.remembered(_Sessions)
        with sessions.finding:
            found = sessions.known.get(place)
            if found is None:
                found = sessions.known[place] = ProcessSession(db, root, clock)
            return found

    def register(self, join: Callable[[fdb.Transaction, bytes], ConsumerRef]) -> ConsumerRef:
        """Register a consumer by ``join``, which is given the session."""
        while True:
            name, consumer = self._begin(), None
            try:
                consumer = self._run(lambda tr: join(tr, name))  # noqa: B023
            except sessions.SessionExpired:
                self._expire(name)
            finally:
                with self._lock:
                    self._registering -= 1
                    if consumer is not None and name == self._name:
                        self._consumers.add(consumer)
            if consumer is not None:
                return consumer

    def _begin(self) -> bytes:
        """The name of the session, which is started if there is none; a consumer is about to
        register. Of several threads that start one at once, one session stays."""
        started = None
        while True:
            with self._lock:
                if self._name is None and started is not None:
                    self._name, self._beat_at = started, world.monotonic() + BEAT_SECONDS
                name = self._name
                if name is not None:
                    self._registering += 1
                    break
            started = self._run(lambda tr: sessions.start(tr, self._root, self._clock))
        if started is not None and started != name:
            self._end(started)
        return name

    def _end(self, name: bytes) -> None:
        with contextlib.suppress(*FAILURES, QueueError):
            self._run(lambda tr: sessions.end(tr, self._root, name), writes=False)

    def unregister(self, keys: QueueKeys, consumer: ConsumerRef) -> None:
        """Unregister a consumer; the last one ends the session."""
        gone = False
        try:
            self._run(lambda tr: registry.unregister(tr, keys, consumer), writes=False)
            gone = True
        finally:
            with self._lock:
                self._consumers.discard(consumer)
                if gone:
                    self._left_behind.pop(consumer, None)
                else:
                    # The store was away: the next sign of life tries again, for as long as the
                    # session lives.
                    self._left_behind[consumer] = keys
                name = self._name
                left = self._consumers or self._registering or self._left_behind
                last = consumer.session == name and not left
                if last:
                    self._name = None
            if last and name is not None:
                self._end(name)

    def tell(self, worker: object, work: Sequence[Work]) -> None:
        """Let the next sign of life tell what a worker does; nothing forgets it."""
        with self._lock:
            self._work[worker] = work
            if not work:
                del self._work[worker]

    def lost(self, consumer: ConsumerRef) -> None:
        """Forget a consumer that was evicted."""
        with self._lock:
            self._consumers.discard(consumer)

    def has(self, consumer: ConsumerRef) -> bool:
        """Whether a consumer belongs to the session, as far as the last beat tells."""
        return consumer.session == self._name

    @property
    def due_in(self) -> float:
        """In how many seconds the next sign of life is due."""
        return BEAT_SECONDS if self._name is None else self._beat_at - world.monotonic()

    def beat(self, *, always: bool = False) -> None:
        """Give a sign of life if one is due, and remove consumers of dead processes."""
        with self._lock:
            now, name = world.monotonic(), self._name
            if name is None or not (always or now >= self._beat_at):
                return
            self._beat_at = now + BEAT_SECONDS
            left_behind = dict(self._left_behind)
            work = [each for some in self._work.values() for each in some]
        alive, overdue = self._run(
            lambda tr: sessions.beat(tr, self._root, self._clock, name, work), writes=False
        )
        if not alive:
            log.warning("this process was taken for dead: its consumers register anew")
            self._expire(name)
        for consumer, keys in left_behind.items() if alive else ():
            with contextlib.suppress(*FAILURES, QueueError):
                self.unregister(keys, consumer)
        if overdue:
            self._evict(now + EVICTING_SECONDS)

    def _evict(self, deadline: float) -> None:
        evicted = eviction.Evicted([], True, self._leaving)
        while evicted.more and world.monotonic() < deadline:
            evicted = self._run(self._evict_some, writes=False)
            self._leaving = evicted.leaving
            if evicted.consumers:
                log.info("removed %d consumers of dead processes", len(evicted.consumers))
        # Due at once: the next beat goes on, while this process's own sign of life is never delayed
        # for more than a second.
        if evicted.more:
            self._beat_at = 0.0

    def _evict_some(self, tr: fdb.Transaction) -> eviction.Evicted:
        return eviction.evict_expired(tr, self._root, self._clock, None, self._leaving)

    def _expire(self, name: bytes) -> None:
        with self._lock:
            if self._name == name:
                self._name = None
                # They are removed with the session; each registers anew when it next fetches.
                self._consumers.clear()
                self._left_behind.clear()

    def _run(self, body: Callable[[fdb.Transaction], R], *, writes: bool = True) -> R:
        return once.run(self.db, self._root.once, body, wrote=lambda _: writes)


class _Sessions:
    """Those of this process; a forked one gives signs of life of its own."""

    def __init__(self) -> None:
        self.finding = world.Lock()
        self.known: WeakValueDictionary[tuple[int, bytes, int], ProcessSession] = (
            WeakValueDictionary()
        )

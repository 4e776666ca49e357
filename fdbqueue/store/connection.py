"""Connection states: whether the store answers. After Curator's ConnectionState.

FoundationDB has no sessions: a client that is cut off waits, and continues when it can. So a cheap
transaction with a time limit, repeated, finds out the state.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Self

from ..values.durations import Seconds, patience
from . import client, tasks, world
from .binding import FAILURES, fdb
from .clocks import METADATA_VERSION

log = logging.getLogger("fdbqueue.store.connection")

INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 3.0
LOST_SECONDS = 30.0
STOP_SECONDS = 1.0


class ConnectionState(Enum):
    """What is known of the connection."""

    CONNECTED = "connected"
    """The store has always answered."""
    SUSPENDED = "suspended"
    """The store does not answer; what is leased may still be held."""
    RECONNECTED = "reconnected"
    """The store answers again."""
    LOST = "lost"
    """The store has not answered for as long as a lease lasts: what was leased is not held."""


Listener = Callable[[ConnectionState], object]


def next_state(
    state: ConnectionState, answered: bool, silent: float, lost_after: float
) -> ConnectionState:
    """The next state after a request; call it until the state stays, since LOST follows SUSPENDED.

    answered: whether the store has answered. silent: seconds since it last did.
    lost_after: seconds of silence after which the connection is lost.
    """
    if answered:
        cut = state in (ConnectionState.SUSPENDED, ConnectionState.LOST)
        return ConnectionState.RECONNECTED if cut else state
    usable = state in (ConnectionState.CONNECTED, ConnectionState.RECONNECTED)
    return ConnectionState.SUSPENDED if usable or silent < lost_after else ConnectionState.LOST


def monotonic() -> float:
    """Seconds of the world's clock, whichever world it is."""
    return world.monotonic()


class Connection:
    """Asks the store every ``interval`` seconds, between ``start`` and ``stop``; every second while
    it does not answer.

    A context manager does both. A worker has one of its own; producers and services may have one::

        with Connection(db) as connection:
            connection.listen(lambda state: log.warning("the store is %s", state.value))

    timeout: seconds that the store has to answer. lost_after: seconds of silence until LOST; for
    who holds leases, as long as the shortest of these lasts.
    Listeners are called with every new state, one after another: in the asking thread, or in the
    one that calls ``check``. What they raise is logged. Raises ``InvalidArgument``.
    """

    def __init__(
        self,
        db: fdb.Database,
        *,
        interval: Seconds = INTERVAL_SECONDS,
        timeout: Seconds = TIMEOUT_SECONDS,
        lost_after: Seconds = LOST_SECONDS,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.db = db
        self.interval = patience("interval", interval)
        self.timeout = patience("timeout", timeout)
        self.lost_after = patience("lost_after", lost_after)
        self.state = ConnectionState.CONNECTED
        self._now = now
        self._answered_at = self.since = self.asked_at = now()
        self._listeners: list[Listener] = []
        self._news: deque[tuple[Listener, ConnectionState]] = deque()
        """Whom to tell what, in this order."""
        self._changing, self._telling = world.Lock(), world.Lock()
        self._ask = tasks.Event()
        self._asking: _Asking | None = None

    @property
    def usable(self) -> bool:
        """Whether requests for work make sense now."""
        return self.state in (ConnectionState.CONNECTED, ConnectionState.RECONNECTED)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with every new state."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self._listeners.remove(listener)

    def suspect(self) -> None:
        """Ask at once, after an error."""
        self._ask.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start asking, if no thread does; also in a forked process."""
        former = self._asking
        if former is not None and former.goes_on:
            return
        if former is not None and former.forked:
            # Threads that are not in this process may have held them.
            self._changing, self._telling = world.Lock(), world.Lock()
        self._answered_at = self.since = self.asked_at = self._now()
        asking = self._asking = _Asking()
        run, mine = partial(self._run, asking), tasks.current.get()
        if mine is None:
            world.Thread(target=run, name="fdbqueue-connection", daemon=True).start()
        else:
            asking.cancel = mine.spawn(run)

    def stop(self) -> None:
        """Stop asking. Waits for a request in flight, and for a listener that runs, for a second
        at most; the thread ends after them. Called by a listener, it waits for nothing."""
        asking = self._asking
        if asking is None:
            return
        asking.stopped = True
        self._ask.set()
        if _teller.get() is self:
            return
        try:
            asking.ended.wait(STOP_SECONDS)
        finally:
            if asking.cancel is not None:
                asking.cancel()
        # The cancelled task still runs its `finally`; until then the loop must not be closed.
        if asking.cancel is not None:
            asking.ended.wait(self.timeout)

    def check(self) -> ConnectionState:
        """Ask once; returns the state that follows."""
        answered = self._answers()
        with self._changing:
            now = self._now()
            if answered:
                self._answered_at = now
            silent = now - self._answered_at
            before, state = None, self.state
            # Twice after a long silence, so that listeners hear SUSPENDED before LOST.
            while state is not before:
                before, state = state, next_state(state, answered, silent, self.lost_after)
                if state is not before:
                    self.state, self.since = state, now
                    log.warning("the connection to the store is %s", state.value)
                    # Only noted here: a listener that calls back, or is slow, must not hold the
                    # lock.
                    self._news.extend((listener, state) for listener in self._listeners)
        self._tell()
        return state

    def _run(self, asking: _Asking) -> None:
        try:
            while not asking.stopped:
                self.asked_at = self._now()
                self.check()
                # Where it may be cut off, it asks more often.
                most = math.inf if self.usable else INTERVAL_SECONDS
                # Two thirds: a request takes at most another third, so LOST is told in time at any
                # interval.
                self._ask.wait(min(self.interval, self.lost_after * 2 / 3, most))
                # A `suspect` that still sets the old one is answered all the same: the next request
                # follows at once.
                self._ask = tasks.Event()
        finally:
            asking.ended.set()

    def _answers(self) -> bool:
        try:
            tr = client.begin(self.db)
            # Three unanswered requests fit into the time until LOST, so that one slow answer is not
            # the end.
            seconds = min(self.timeout, self.lost_after / 3)
            tr.options.set_timeout(max(1, int(seconds * 1000)))
            # The cheapest read there is: the cluster sends this key along with the read version.
            tr.get(METADATA_VERSION).wait()
        except FAILURES as error:
            log.debug("the store does not answer: %s", error)
            return False
        return True

    def _tell(self) -> None:
        """Tell the news, unless another thread or task does: it tells what comes meanwhile, too."""
        # Nobody waits here: a listener may call `check` itself. The loop looks again after the
        # release, so no news is left by one who comes while another is leaving.
        while self._news and self._telling.acquire(blocking=False):
            told = _teller.set(self)
            try:
                # Another thread may have told the last of them before the lock was taken.
                listener, state = self._news.popleft() if self._news else (None, self.state)
                if listener is not None and listener in self._listeners:
                    listener(state)
            except Exception:
                log.exception("a listener of the connection failed")
            finally:
                _teller.reset(told)
                self._telling.release()


class _Asking:
    """What asks, from ``start`` to ``stop``: a thread, or a task that ``cancel`` ends."""

    def __init__(self) -> None:
        self.stopped = False
        self.ended = tasks.Event()
        self.cancel: Callable[[], object] | None = None
        self._process = os.getpid()

    @property
    def goes_on(self) -> bool:
        """Whether it asks, and was not told to stop."""
        return not (self.stopped or self.ended.is_set() or self.forked)

    @property
    def forked(self) -> bool:
        """Whether this is another process, which was forked from that of the thread."""
        return self._process != os.getpid()


_teller: ContextVar[Connection | None] = ContextVar("fdbqueue.connection.teller", default=None)
"""The connection whose listener runs."""

"""Connection states: whether the store answers. After Curator's ConnectionState.

FoundationDB has no sessions: a client that is cut off waits, and continues when it can. So a cheap
transaction with a time limit, repeated, finds out the state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Self

from ..values.durations import Seconds, patience
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


class Connection:
    """Asks the store every ``interval`` seconds, between ``start`` and ``stop``.

    A context manager does both. A worker has one of its own; producers and services may have one::

        with Connection(db) as connection:
            connection.listen(lambda state: log.warning("the store is %s", state.value))

    timeout: seconds that the store has to answer. lost_after: seconds of silence until LOST; for
    who holds leases, as long as the shortest of these lasts.
    Listeners are called in the asking thread, one after another, with the new state; what they
    raise is logged. Raises ``InvalidArgument``.
    """

    def __init__(
        self,
        db: fdb.Database,
        *,
        interval: Seconds = INTERVAL_SECONDS,
        timeout: Seconds = TIMEOUT_SECONDS,
        lost_after: Seconds = LOST_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.db = db
        self.interval = patience("interval", interval)
        self.timeout = patience("timeout", timeout)
        self.lost_after = patience("lost_after", lost_after)
        self.state = ConnectionState.CONNECTED
        self._now = now
        self._answered_at = self.since = self.asked_at = now()
        self._listeners: list[Listener] = []
        self._ask = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

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
        if self._thread is not None and self._thread.is_alive() and not self._stopped.is_set():
            return
        self._stopped.clear()
        self._answered_at = self.since = self.asked_at = self._now()
        self._thread = threading.Thread(target=self._run, name="fdbqueue-connection", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop asking. The thread ends after the request in flight."""
        self._stopped.set()
        self._ask.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def check(self) -> ConnectionState:
        """Ask once; returns the state that follows."""
        answered = self._answers()
        if answered:
            self._answered_at = self._now()
        silent = self._now() - self._answered_at
        while True:
            state = next_state(self.state, answered, silent, self.lost_after)
            if state is self.state:
                return state
            self.state, self.since = state, self._now()
            log.warning("the connection to the store is %s", state.value)
            for listener in list(self._listeners):
                self._tell(listener, state)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.asked_at = self._now()
            self.check()
            self._ask.wait(min(self.interval, self.lost_after / 3))
            self._ask.clear()

    def _answers(self) -> bool:
        try:
            tr = self.db.create_transaction()
            seconds = min(self.timeout, self.lost_after / 3)
            tr.options.set_timeout(max(1, int(seconds * 1000)))
            tr.get(METADATA_VERSION).wait()
        except FAILURES as error:
            log.debug("the store does not answer: %s", error)
            return False
        return True

    def _tell(self, listener: Listener, state: ConnectionState) -> None:
        try:
            listener(state)
        except Exception:
            log.exception("a listener of the connection failed")

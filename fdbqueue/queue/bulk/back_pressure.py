"""Producing into a queue that may be full: waiting for room."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ...consumers import sessions
from ...errors import QueueError, QueueFull
from ...messages.enqueue.bounds import Room
from ...schema import once
from ...schema.consumers import WaitingCalls
from ...schema.keys import OnceKeys
from ...store import tasks, world
from ...store.binding import FAILURES, fdb
from ...store.enclosing import check_apart
from ...values.durations import Seconds, patience
from ..queue_base import Handle

R = TypeVar("R")

log = logging.getLogger("fdbqueue.producer")

ROOM_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two attempts, at most. Pauses double, and are random, so that many producers
that wait are no load."""

SILENT_SECONDS = 60.0
"""Seconds in which a process logs at most once that it waits for room in a queue."""
SIGN_SECONDS = 2.0
"""After so long, a process that waits tells others, with a sign of life as consumers give it."""
_SIGNING_SECONDS = 2.0
"""How long giving a sign may take: it must not hold up the producer."""


class LastLogged(dict[str, float]):
    """When this process last logged that it waits for room in a queue, by the queue's name."""


class Calls(dict[bytes, "list[_Sign]"]):
    """The calls of this process that wait for room, by the prefix of the queue."""


def patiently(queue: Handle, db: fdb.Database, attempt: Callable[[Room], R], room: Seconds) -> R:
    """What ``attempt`` returns; tries again for up to ``room`` seconds while the queue is full.

    attempt: is told whether there was none before. Raises ``QueueFull``, and ``InvalidArgument``,
        also for the database of a transaction that the caller is in.
    """
    check_apart(db)
    deadline = patience("room", room) + world.monotonic()
    try:
        return attempt(Room.UNKNOWN)
    except QueueFull as error:
        left = deadline - world.monotonic()
        if not error.__dict__["waits"] or left <= 0:
            raise
        _tell(error, left)
    with _Sign(queue, db) as sign:
        longest = FIRST_PAUSE
        while True:
            # The last attempt is at the end of the time, not before.
            tasks.sleep(min(world.random.uniform(0.0, longest), left))
            longest = min(2 * longest, LONGEST_PAUSE)
            try:
                return attempt(Room.REFUSED)
            except QueueFull as error:
                left = deadline - world.monotonic()
                if not error.__dict__["waits"] or left <= 0:
                    raise
            sign.give()


def _tell(error: QueueFull, left: float) -> None:
    told, now = world.remembered(LastLogged), world.monotonic()
    queue = error.__dict__["queue"]
    if queue not in told or told[queue] + SILENT_SECONDS <= now:
        told[queue] = now
        log.warning("waiting for room for up to %.3g s: %s", left, error)


class _Sign:
    """The sign of life of a call that waits for room. Of the calls of a process that wait for one
    queue, the first that is left gives it for all. A process that dies stops giving it."""

    def __init__(self, queue: Handle, db: fdb.Database) -> None:
        self._queue, self._db = queue, db
        self._calls = world.remembered(Calls).setdefault(queue._keys.prefix, [])
        self._since_ms = queue._clock.wall_ms()
        self._due = world.monotonic() + SIGN_SECONDS
        self._session = b""

    def __enter__(self) -> _Sign:
        self._calls.append(self)
        return self

    def give(self) -> None:
        """Give it if it is due."""
        now = world.monotonic()
        if now < self._due or self._calls[0] is not self:
            return
        self._due = now + sessions.BEAT_SECONDS
        root, clock = self._queue._root_keys, self._queue._clock
        waits = WaitingCalls(self._queue.name, len(self._calls), self._since_ms)

        def sign(tr: fdb.Transaction) -> bytes:
            told = self._session or sessions.start(tr, root, clock)
            lives, _ = sessions.beat(tr, root, clock, told, waits=waits)
            return told if lives else b""

        self._session = self._run(sign, self._session)

    def __exit__(self, *_: object) -> None:
        self._calls.remove(self)
        if self._session:
            end = partial(sessions.end, root=self._queue._root_keys, session=self._session)
            self._run(end, None)

    def _run(self, body: Callable[[fdb.Transaction], R], otherwise: R) -> R:
        """What a transaction returns; one that fails is of no consequence."""
        keys = OnceKeys.unrecorded(_SIGNING_SECONDS)
        with suppress(*FAILURES, QueueError):
            return once.run(self._db, keys, body, wrote=lambda _: False)
        return otherwise

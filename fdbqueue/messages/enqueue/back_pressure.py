"""Producing into a queue that may be full: waiting for room."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ...errors import QueueFull
from ...store import tasks, world
from ...values.durations import Seconds, patience

R = TypeVar("R")

log = logging.getLogger("fdbqueue.producer")

ROOM_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two attempts, at most. Pauses double, and are random, so that many producers
that wait are no load."""

SILENT_SECONDS = 60.0
"""Seconds in which a process logs at most once that it waits for room in a queue."""


class Told(dict[str, float]):
    """When this process last logged that it waits for room in a queue, by the queue's name."""


def patiently(attempt: Callable[[bool], R], room: Seconds) -> R:
    """What ``attempt`` returns; tries again for up to ``room`` seconds while the queue is full.

    attempt: is told whether it was refused before. Raises ``QueueFull``, ``InvalidArgument``.
    """
    deadline = patience("room", room) + world.monotonic()
    refused, longest = False, FIRST_PAUSE
    while True:
        try:
            return attempt(refused)
        except QueueFull as error:
            left = deadline - world.monotonic()
            if not error.__dict__["waits"] or left <= 0:
                raise
            if not refused:
                _tell(error, left)
        # The last attempt is at the end of the time, not before.
        tasks.sleep(min(world.random.uniform(0.0, longest), left))
        refused, longest = True, min(2 * longest, LONGEST_PAUSE)


def _tell(error: QueueFull, left: float) -> None:
    told, now = world.remembered(Told), world.monotonic()
    queue = error.__dict__["queue"]
    if queue not in told or told[queue] + SILENT_SECONDS <= now:
        told[queue] = now
        log.warning("waiting for room for up to %.3g s: %s", left, error)

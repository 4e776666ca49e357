"""Producing into a queue that may be full: waiting for room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...errors import QueueFull
from ...store import tasks, world
from ...values.durations import Seconds, patience

R = TypeVar("R")

ROOM_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two attempts, at most. Pauses double, and are random, so that many producers
that wait are no load."""


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
        # The last attempt is at the end of the time, not before.
        tasks.sleep(min(world.random.uniform(0.0, longest), left))
        refused, longest = True, min(2 * longest, LONGEST_PAUSE)

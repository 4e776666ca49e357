"""Producing into a queue that may be full: waiting for room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

from ...errors import QueueFull
from ...values.durations import Seconds, patience

R = TypeVar("R")

TIMEOUT_SECONDS = 30.0
_LOOKS = tenacity.wait_random_exponential(multiplier=0.01, max=0.5)
"""How long a producer that waits leaves the counters alone: longer and longer, and each for
another time, so that many of them are no load."""


def patiently(attempt: Callable[[bool], R], timeout: Seconds) -> R:
    """What ``attempt`` returns; again and again for up to ``timeout`` seconds while it is full.

    attempt: is told whether it was refused before. Raises ``QueueFull``, ``InvalidArgument``.
    """
    limit = patience("timeout", timeout)

    def pause(state: tenacity.RetryCallState) -> float:
        # The last look is at the end of the time, not before.
        return min(_LOOKS(state), max(0.0, limit - (state.seconds_since_start or 0.0)))

    for trial in tenacity.Retrying(
        retry=tenacity.retry_if_exception(_waits),
        wait=pause,
        stop=tenacity.stop_after_delay(limit),
        reraise=True,
    ):
        with trial:
            return attempt(trial.retry_state.attempt_number > 1)
    raise AssertionError("tenacity returns or raises")


def _waits(error: BaseException) -> bool:
    return isinstance(error, QueueFull) and bool(error.__dict__["waits"])

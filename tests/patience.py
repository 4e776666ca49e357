"""How long tests wait for what they expect: longer than the busiest machine needs.

Nothing waits until its deadline but a test that fails. So there is one, and it is generous.
"""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE = 600


def eventually(true: Callable[[], object]) -> None:
    """Wait until something is true, for the deadline at most."""
    until = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < until, "it never became true"
        time.sleep(0.005)

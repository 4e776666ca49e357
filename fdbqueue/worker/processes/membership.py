"""What a process of several shares with the supervisor that started it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...schema.consumers import Work
from ...store import world
from ..health import Systemd
from ..health.systemd import READY, WATCHDOG

TEXT_BYTES = 2_000
"""How much text says what a process handles."""


@dataclass(frozen=True)
class Membership:
    """The place of a process among several.

    number: how many others come before it. heard_at: when it last told that it is ready or lives,
        by ``world.monotonic``; 0 before it is ready. watchdog: how often it must, at least, in
        seconds; None if nobody asks. doing: what it handled when it last told, as text.
    """

    number: int
    heard_at: Any
    watchdog: float | None = None
    doing: Any = None

    def tell(self, work: Sequence[Work]) -> None:
        """Tell the supervisor what the process handles, for the case that it dies."""
        running = [(each.queue, one) for each in work for one in each.running]
        texts = [
            f"{queue} {one.id}{f' key {one.key}' if one.key else ''} (attempt {one.attempt})"
            for queue, one in running
        ]
        if self.doing is not None:
            # In shared memory, which outlives the process: the supervisor reads it once that has
            # died.
            self.doing.value = ", ".join(texts).encode()[:TEXT_BYTES]

    def systemd(self) -> Systemd:
        """Tells the supervisor, which tells systemd of all its processes as of one service."""

        def notify(notices: str) -> None:
            if READY in notices or WATCHDOG in notices:
                self.heard_at.value = world.monotonic()

        return Systemd(notify, self.watchdog)


def stop_with_parent(stop: Callable[[], object]) -> None:
    """Call ``stop`` when the process that started this one is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        stop()

    world.Thread(target=watch, name="fdbqueue-parent", daemon=True).start()

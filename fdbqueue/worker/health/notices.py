"""What systemd is told of a worker while it runs, by the same checks as it answers probes."""

from __future__ import annotations

from typing import Protocol

from ...store import world
from .systemd import READY, STOPPING, WATCHDOG, Systemd

LOOK_SECONDS = 0.2
"""How often it looks whether it is ready, until it is."""
STATUS_SECONDS = 10.0
"""How often its status is looked at, if systemd does not ask for signs of life."""


class ProbeSource(Protocol):
    """What knows how a worker, or several processes of one, are: see ``Probes``."""

    def dead(self, now: float) -> str | None:
        """Why it must be started anew."""

    def unready(self, now: float) -> str | None:
        """Why it takes no messages."""


class Notices:
    """Tells that a worker is ready, lives, and stops, in a thread from ``start`` to ``close``."""

    def __init__(self, systemd: Systemd, probes: ProbeSource) -> None:
        self._systemd = systemd
        self._probes = probes
        self._ready = False
        self._status = ""
        self._lock = world.Lock()
        """Held while it looks and tells, so that nothing older follows that it stops."""
        self._over = world.Event()
        self._thread = world.Thread(target=self._run, name="fdbqueue-systemd", daemon=True)

    def start(self) -> None:
        """Tell from now on."""
        self._thread.start()

    def stopping(self) -> None:
        """Tell that it has begun to stop. Until ``close``, it goes on to tell that it lives."""
        with self._lock:
            self._systemd.tell(STOPPING, status="stopping")

    def close(self) -> None:
        """Tell nothing more."""
        self._over.set()
        self._thread.join()

    def look(self) -> float:
        """Tell what is to be told now; returns after how many seconds to look again."""
        with self._lock:
            now, notices = world.monotonic(), list[str]()
            problem = self._probes.unready(now)
            if problem is None and not self._ready:
                notices.append(READY)
            asked = self._systemd.watchdog
            # Not before it is ready: systemd bounds the start by another timeout.
            if asked and (self._ready or notices) and self._probes.dead(now) is None:
                notices.append(WATCHDOG)
            status = "takes messages" if problem is None else f"not ready: {problem}"
            if notices or status != self._status:
                self._systemd.tell(*notices, status=status)
                self._status = status
                self._ready = self._ready or problem is None
        if not self._ready:
            return LOOK_SECONDS
        return asked / 2 if asked else STATUS_SECONDS

    def _run(self) -> None:
        while not self._over.wait(self.look()):
            pass

"""Telling systemd how a service is, see sd_notify(3) and sd_watchdog_enabled(3)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Self

READY, STOPPING, WATCHDOG = "READY=1", "STOPPING=1", "WATCHDOG=1"
SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
STATUS_CHARACTERS = 200


class Systemd:
    """Who wants to be told how this process is: systemd, or a supervisor that tells it.

    notify: takes lines of notices. watchdog: within how many seconds it must hear that the process
        lives; None if it does not ask.
    """

    def __init__(self, notify: Callable[[str], object], watchdog: float | None = None) -> None:
        self._notify = notify
        self.watchdog = watchdog

    @classmethod
    def from_environment(cls) -> Self | None:
        """Whom the environment names; None if nobody wants to be told. Takes the variables out of
        it: they are not for commands that this process starts."""
        micros, pid = os.environ.pop(WATCHDOG_USEC, ""), os.environ.pop(WATCHDOG_PID, "")
        if not os.environ.get(SOCKET):
            os.environ.pop(SOCKET, None)
            return None
        import sdnotify  # needed only under systemd

        notify = sdnotify.SystemdNotifier().notify
        del os.environ[SOCKET]
        # The variables may be left over from a parent: they are meant for the process with that id.
        asks = micros.isdecimal() and int(micros) > 0 and pid in ("", str(os.getpid()))
        return cls(notify, int(micros) / 1e6 if asks else None)

    def tell(self, *notices: str, status: str = "") -> None:
        """Send notices, and a line that people see. A service works as well if nobody listens."""
        if status:
            line = " ".join(status.split())[:STATUS_CHARACTERS]
            notices = *notices, f"STATUS={line.encode('ascii', 'backslashreplace').decode()}"
        self._notify("\n".join(notices))

"""Telling systemd how a service is: its protocol sd_notify, datagrams to a socket.

After the manual pages sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Self

log = logging.getLogger("fdbqueue.worker")

READY, STOPPING, WATCHDOG = "READY=1", "STOPPING=1", "WATCHDOG=1"
SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
STATUS_CHARACTERS = 200


class Systemd:
    """The systemd that started this process, and that wants to be told how it is.

    address: the path of its socket, or the name of an abstract one after "@". watchdog: within how
        many seconds it must hear that the process lives; None if it does not ask.
    """

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        self.address = address
        self.watchdog = watchdog
        self._failed = False

    @classmethod
    def from_environment(cls) -> Self | None:
        """As the environment says; None if nobody wants to be told. Takes the variables out of it:
        they are not for commands that this process starts."""
        address = os.environ.pop(SOCKET, "")
        micros, pid = os.environ.pop(WATCHDOG_USEC, ""), os.environ.pop(WATCHDOG_PID, "")
        if not address.startswith(("/", "@")):
            if address:
                log.warning("%s=%s is neither a path nor an abstract name", SOCKET, address)
            return None
        asks = micros.isdecimal() and int(micros) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(micros) / 1e6 if asks else None)

    def tell(self, *notices: str, status: str = "") -> bool:
        """Send notices, and a line that people see; returns whether they are on their way.

        Neither waits nor raises: a service works as well when nobody listens.
        """
        if status:
            notices = *notices, f"STATUS={' '.join(status.split())[:STATUS_CHARACTERS]}"
        at = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(notices).encode(errors="replace"), at)
        except OSError as error:
            if not self._failed:
                log.warning("cannot tell systemd at %s how it is: %s", self.address, error)
            self._failed = True
            return False
        self._failed = False
        return True

"""Telling systemd of several processes as of one service."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from ..health.systemd import READY, SOCKET, STOPPING, WATCHDOG, WATCHDOG_USEC, Systemd

NOTICE_BYTES = 4_096


class Relay:
    """Hears the processes of a supervisor, each at a socket of its own, and tells systemd.

    The service is ready once all are. It lives while each of them does that has become ready: the
    supervisor itself replaces those that end.
    """

    def __init__(self, systemd: Systemd, count: int) -> None:
        self._systemd = systemd
        self._directory = TemporaryDirectory(prefix="fdbq-")
        self._paths = [str(Path(self._directory.name) / str(number)) for number in range(count)]
        self._sockets = [_bound(path) for path in self._paths]
        self._heard: list[float | None] = [None] * count
        """When each was last heard of, by ``time.monotonic``; None before it is ready."""
        self._ready = self._stopping = False
        self._status = ""
        self._told_at = time.monotonic()

    def environment(self, number: int) -> dict[str, str]:
        """What a process needs to be heard, which starts now."""
        for _ in self._received(number):
            pass  # Of the one before.
        self._heard[number] = None
        found = {SOCKET: self._paths[number]}
        if self._systemd.watchdog:
            found[WATCHDOG_USEC] = str(int(self._systemd.watchdog * 1e6))
        return found

    def turn(self, wanted: Collection[int], running: Collection[int]) -> None:
        """Hear all, and tell what is to be told now.

        wanted: the processes that have not ended for good. running: those that run.
        """
        now, notices = time.monotonic(), list[str]()
        for number in range(len(self._sockets)):
            for lines in self._received(number):
                if READY in lines or (WATCHDOG in lines and self._heard[number] is not None):
                    self._heard[number] = now
        ready = [number for number in running if self._heard[number] is not None]
        if not self._ready and not self._stopping and {*wanted} == {*ready}:
            notices.append(READY)
        asked = self._systemd.watchdog
        if asked and now - self._told_at >= asked / 2 and self._live(running, now - asked):
            notices.append(WATCHDOG)
        status = f"{len(ready)} of {len(self._sockets)} processes are ready"
        if self._stopping:
            status = f"stopping; {len(running)} processes run"
        if (notices or status != self._status) and self._systemd.tell(*notices, status=status):
            self._status = status
            self._ready = self._ready or READY in notices
            self._told_at = now if WATCHDOG in notices else self._told_at

    def stopping(self) -> None:
        """Tell once that they have begun to stop. Turns go on to tell that they live."""
        if not self._stopping:
            self._stopping = True
            self._systemd.tell(STOPPING)

    def close(self) -> None:
        """Hear and tell nothing more."""
        for each in self._sockets:
            each.close()
        self._directory.cleanup()

    def _live(self, running: Collection[int], since: float) -> bool:
        heard = (self._heard[number] for number in running)
        return self._ready and all(at is None or at >= since for at in heard)

    def _received(self, number: int) -> Iterator[list[str]]:
        while True:
            try:
                yield self._sockets[number].recv(NOTICE_BYTES).decode(errors="replace").split("\n")
            except BlockingIOError:
                return


def _bound(path: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.setblocking(False)
    found.bind(path)
    return found

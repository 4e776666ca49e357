"""What systemd is told, at a socket as it listens at."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from fdbqueue.store.connection import Connection
from fdbqueue.worker.health import Loop, Notices, Probes, Systemd
from fdbqueue.worker.health.loops import TURN_SECONDS

# sdnotify never closes its socket.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_notices_come_as_lines_of_one_datagram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(address)
        systemd = Systemd.from_environment()
        assert systemd is not None
        systemd.tell("READY=1", "WATCHDOG=1", status="two\nlines of ü and 幅")
        systemd.tell("STOPPING=1")
        heard = [end.recv(4_096).decode() for _ in range(2)]
    assert heard == ["READY=1\nWATCHDOG=1\nSTATUS=two lines of \\xfc and \\u5e45", "STOPPING=1"]


VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@pytest.mark.parametrize(
    ("values", "watchdog"),
    [
        (("/run/notify", "", ""), None),
        (("@notify", "30000000", ""), 30.0),
        (("/run/notify", "500000", str(os.getpid())), 0.5),
        (("/run/notify", "500000", "1"), None),
        (("/run/notify", "0", ""), None),
        (("/run/notify", "-5", ""), None),
        (("", "500000", ""), None),
    ],
)
def test_the_environment_names_the_socket_and_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], watchdog: float | None
) -> None:
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    systemd = Systemd.from_environment()
    assert (systemd is None) == (not values[0])
    assert (systemd and systemd.watchdog) == watchdog
    assert not os.environ.keys() & {*VARIABLES}


class Life:
    """A worker as systemd is told of it, which asks for signs of life."""

    def __init__(self, watchdog: float | None = 30.0) -> None:
        self.loop = Loop("takes from orders", takes=True)
        self.stopping = False
        no_database: Any = None
        self.connection = Connection(no_database)
        probes = Probes([self.loop], self.connection, lambda: self.stopping)
        self._told: list[str] = []
        self.notices = Notices(Systemd(self._told.append, watchdog), probes)

    def told(self) -> list[list[str]]:
        """What systemd has been told since the last call."""
        told = [each.split("\n") for each in self._told]
        self._told.clear()
        return told


def test_a_worker_that_does_not_live_gives_no_sign_of_life() -> None:
    life = Life()
    life.loop.took()
    life.notices.look()
    life.connection.since -= TURN_SECONDS + 1
    life.loop.turned_at -= TURN_SECONDS + 1
    life.told()
    life.notices.look()
    why = "the thread that takes from orders has not come round for 121 s"
    assert life.told() == [[f"STATUS=not ready: {why}"]]
    life.loop.turn()
    life.notices.look()
    assert life.told() == [["WATCHDOG=1", "STATUS=takes messages"]]

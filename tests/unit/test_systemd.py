"""What systemd is told, at a socket as it listens at."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fdbqueue.store.connection import Connection
from fdbqueue.worker.health import Loop, Notices, Probes, Systemd
from fdbqueue.worker.health.loops import TURN_SECONDS
from fdbqueue.worker.processes.notices import Relay


class Listener:
    """The end at which systemd listens."""

    def __init__(self, socket: socket.socket) -> None:
        self._socket = socket

    def heard(self) -> list[list[str]]:
        """What has been told since the last call."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4_096).decode().split("\n"))
            except BlockingIOError:
                return found


@contextmanager
def listening(address: str) -> Iterator[Listener]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.setblocking(False)
        end.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        yield Listener(end)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "notify")


@pytest.fixture
def listener(address: str) -> Iterator[Listener]:
    with listening(address) as found:
        yield found


def test_notices_come_as_lines_of_one_datagram(address: str, listener: Listener) -> None:
    assert Systemd(address).tell("READY=1", "WATCHDOG=1", status="two\nlines")
    assert Systemd(address).tell("STOPPING=1")
    assert listener.heard() == [["READY=1", "WATCHDOG=1", "STATUS=two lines"], ["STOPPING=1"]]


def test_an_abstract_socket_is_told() -> None:
    name = f"@fdbqueue-{os.getpid()}-{time.monotonic_ns()}"
    with listening(name) as listener:
        assert Systemd(name).tell("READY=1")
        assert listener.heard() == [["READY=1"]]


def test_a_socket_that_is_gone_is_logged_once_and_fails_nothing(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    systemd = Systemd(address)
    assert not systemd.tell("READY=1")
    assert not systemd.tell("WATCHDOG=1")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with listening(address) as listener:
        assert systemd.tell("READY=1")
        assert listener.heard() == [["READY=1"]]


def test_a_socket_that_nobody_reads_keeps_nobody_waiting(address: str, listener: Listener) -> None:
    systemd = Systemd(address)
    sent = 0
    while systemd.tell("WATCHDOG=1"):
        sent += 1
    assert len(listener.heard()) == sent
    assert systemd.tell("WATCHDOG=1")


@pytest.mark.parametrize("address", ["/" + "x" * 200, "/\0x", "@" + "x" * 200])
def test_an_address_that_cannot_be_one_fails_nothing(address: str) -> None:
    assert not Systemd(address).tell("READY=1")


VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (("/run/notify", "", ""), ("/run/notify", None)),
        (("@notify", "30000000", ""), ("@notify", 30.0)),
        (("/run/notify", "500000", str(os.getpid())), ("/run/notify", 0.5)),
        (("/run/notify", "500000", "1"), ("/run/notify", None)),
        (("/run/notify", "0", ""), ("/run/notify", None)),
        (("/run/notify", "-5", ""), ("/run/notify", None)),
        (("vsock:2:1", "500000", ""), None),
        (("", "500000", ""), None),
    ],
)
def test_the_environment_names_the_socket_and_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], found: tuple[str, float] | None
) -> None:
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    systemd = Systemd.from_environment()
    assert (systemd and (systemd.address, systemd.watchdog)) == found
    assert not os.environ.keys() & {*VARIABLES}


class Life:
    """A worker as systemd is told of it, which asks for signs of life."""

    def __init__(self, address: str, watchdog: float | None = 30.0) -> None:
        self.loop = Loop("takes from orders", takes=True)
        self.stopping = False
        no_database: Any = None
        self.connection = Connection(no_database)
        probes = Probes([self.loop], self.connection, lambda: self.stopping)
        self.notices = Notices(Systemd(address, watchdog), probes)


def test_a_worker_is_ready_once_it_takes_and_lives_until_it_stops(
    address: str, listener: Listener
) -> None:
    life = Life(address)
    life.notices.look()
    wait = "STATUS=not ready: the thread that takes from orders has not done so yet"
    assert listener.heard() == [[wait]]
    assert life.notices.look() < 1
    assert listener.heard() == []
    life.loop.took()
    assert life.notices.look() == 15
    assert listener.heard() == [["READY=1", "WATCHDOG=1", "STATUS=takes messages"]]
    life.notices.look()
    assert listener.heard() == [["WATCHDOG=1", "STATUS=takes messages"]]
    life.stopping = True
    life.notices.stopping()
    life.notices.look()
    assert listener.heard() == [
        ["STOPPING=1", "STATUS=stopping"],
        ["WATCHDOG=1", "STATUS=not ready: the worker is stopping"],
    ]


def test_a_worker_that_does_not_live_gives_no_sign_of_life(
    address: str, listener: Listener
) -> None:
    life = Life(address)
    life.loop.took()
    life.notices.look()
    life.connection.since -= TURN_SECONDS + 1
    life.loop.turned_at -= TURN_SECONDS + 1
    listener.heard()
    life.notices.look()
    why = "the thread that takes from orders has not come round for 121 s"
    assert listener.heard() == [[f"STATUS=not ready: {why}"]]
    life.loop.turn()
    life.notices.look()
    assert listener.heard() == [["WATCHDOG=1", "STATUS=takes messages"]]


def test_who_is_not_asked_gives_no_sign_of_life(address: str, listener: Listener) -> None:
    life = Life(address, None)
    life.loop.took()
    for _ in range(2):
        life.notices.look()
    assert listener.heard() == [["READY=1", "STATUS=takes messages"]]


def test_that_it_is_ready_is_told_until_it_is_heard(address: str) -> None:
    life = Life(address)
    life.loop.took()
    assert life.notices.look() < 1
    with listening(address) as listener:
        life.notices.look()
        assert "READY=1" in listener.heard()[0]


def test_a_worker_that_stops_before_it_was_ready_is_never_ready(
    address: str, listener: Listener
) -> None:
    life = Life(address)
    life.loop.took()
    life.stopping = True
    life.notices.look()
    assert listener.heard() == [["STATUS=not ready: the worker is stopping"]]


# -- several processes ------------------------------------------------------------------------


class Service:
    """Two processes, as systemd is told of them, which asks for signs of life."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = float(int(time.monotonic()))  # Sums of whole seconds are exact.
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.relay = Relay(Systemd(address, 30.0), 2)
        self.processes = [self.start(number) for number in range(2)]
        self.running = {0, 1}

    def start(self, number: int) -> Systemd:
        environment = self.relay.environment(number)
        assert environment["WATCHDOG_USEC"] == "30000000"
        return Systemd(environment["NOTIFY_SOCKET"], 30.0)

    def turn(self, seconds: float = 0.0, *living: int) -> None:
        """Time has passed, and these processes live."""
        self.now += seconds
        for number in living:
            assert self.processes[number].tell("WATCHDOG=1")
        self.relay.turn(self.running, self.running)


@pytest.fixture
def service(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service(address, monkeypatch)
    yield service
    service.relay.close()


def told(listener: Listener) -> list[str]:
    """The notices that were heard, without the status."""
    return [line for lines in listener.heard() for line in lines if not line.startswith("STATUS=")]


def test_a_service_is_ready_once_all_processes_are(listener: Listener, service: Service) -> None:
    service.turn()
    assert listener.heard() == [["STATUS=0 of 2 processes are ready"]]
    service.processes[1].tell("READY=1")
    service.turn(20)
    assert listener.heard() == [["STATUS=1 of 2 processes are ready"]]
    service.processes[0].tell("READY=1", "WATCHDOG=1")
    service.turn()
    assert listener.heard() == [["READY=1", "STATUS=2 of 2 processes are ready"]]
    service.turn()
    assert told(listener) == ["WATCHDOG=1"], "the first one was due before it was ready"
    service.relay.stopping()
    service.relay.stopping()
    assert told(listener) == ["STOPPING=1"]


def test_a_service_lives_while_each_process_that_is_ready_does(
    listener: Listener, service: Service
) -> None:
    for each in service.processes:
        each.tell("READY=1")
    service.turn()
    told(listener)
    service.turn(15, 0, 1)
    assert told(listener) == ["WATCHDOG=1"]
    service.turn(14, 0, 1)
    assert told(listener) == [], "it is not time yet"
    service.turn(17, 0)
    assert told(listener) == ["WATCHDOG=1"], "the other has time until the end of its watchdog"
    service.turn(17, 0)
    assert told(listener) == [], "one lives, and the other does not"
    service.turn(0, 1)
    assert told(listener) == ["WATCHDOG=1"]


def test_a_process_that_is_replaced_is_not_missed(listener: Listener, service: Service) -> None:
    for each in service.processes:
        each.tell("READY=1")
    service.turn()
    told(listener)
    service.running = {0}
    service.turn(40, 0)
    assert told(listener) == ["WATCHDOG=1"], "it is between two processes"
    service.processes[1].tell("WATCHDOG=1")
    service.processes[1] = service.start(1)
    service.running = {0, 1}
    service.turn(40, 0)
    assert told(listener) == ["WATCHDOG=1"], "what the one before has told does not count"
    service.processes[1].tell("READY=1")
    service.turn(15, 0)
    service.turn(40, 0)
    assert told(listener) == ["WATCHDOG=1"], "the new one has ceased to live"


def test_a_service_that_stops_is_not_ready_any_more(listener: Listener, service: Service) -> None:
    service.relay.stopping()
    for each in service.processes:
        each.tell("READY=1")
    service.turn(20)
    assert told(listener) == ["STOPPING=1"]

"""Commands as services of systemd, which listens at a socket."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import start, told
from tests.forking import Forked
from tests.patience import DEADLINE, eventually

APP = """
import os, subprocess
import fdbqueue

db = fdbqueue.open()
queue = fdbqueue.Queue.open(db, os.environ["QUEUE"])
if os.environ["WORKER"] == "coroutine":
    import fdbqueue.aio
    worker = fdbqueue.aio.Worker(fdbqueue.aio.Database(db)).blocking
else:
    worker = fdbqueue.Worker(db)


@worker.handler(queue)
def handle(message):
    told = [name for name in os.environ if name.startswith(("NOTIFY_", "WATCHDOG_"))]
    print(told, flush=True)
"""


class Notified:
    """The end at which systemd listens."""

    def __init__(self, end: socket.socket, address: str) -> None:
        self._end = end
        self.address = address

    def next(self) -> list[str]:
        """The notices of the next datagram that has any, without the status."""
        while True:
            lines = self._end.recv(4_096).decode().split("\n")
            assert lines[-1].startswith("STATUS=") or lines == ["STOPPING=1"], lines
            notices = [line for line in lines if not line.startswith("STATUS=")]
            if notices:
                return notices

    def rest(self) -> list[str]:
        """What else has come."""
        self._end.setblocking(False)
        found = []
        while True:
            try:
                found += self._end.recv(4_096).decode().split("\n")
            except BlockingIOError:
                return [line for line in found if not line.startswith("STATUS=")]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Notified]:
    """A path or an abstract address."""
    address = random.choice([str(tmp_path / "notify"), f"@fdbqueue-{uuid.uuid4().hex}"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.settimeout(DEADLINE)
        end.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        yield Notified(end, address)


@contextmanager
def service(
    environment: dict[str, str], directory: Path, address: str, *command: str, **more: str
) -> Iterator[Forked | subprocess.Popen[str]]:
    """A service of systemd, which asks for a sign of life every tenth of a second."""
    asked = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000", "PYTHONUNBUFFERED": "1"}
    process = start(command, {**environment, **asked, **more}, directory)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one", "several"])
def test_systemd_hears_that_a_worker_is_ready_lives_and_stops(
    db: fdb.Database,
    environment: dict[str, str],
    name: str,
    tmp_path: Path,
    systemd: Notified,
    options: tuple[str, ...],
) -> None:
    (tmp_path / "app.py").write_text(APP)
    queue = Queue.open(db, name)
    command = "worker", "app:worker", *options
    about = {"QUEUE": name, "WORKER": "thread"}
    with service(environment, tmp_path, systemd.address, *command, **about) as worker:
        assert systemd.next()[0] == "READY=1"
        assert systemd.next() == ["WATCHDOG=1"]
        assert systemd.next() == ["WATCHDOG=1"]
        queue.enqueue(db, b"1")
        assert told(worker) == "[]", "nothing of it is for commands of handlers"
        worker.send_signal(signal.SIGTERM)
        while (notices := systemd.next()) == ["WATCHDOG=1"]:
            pass
        assert notices == ["STOPPING=1"]
        assert worker.wait(DEADLINE) == 0
        assert {*systemd.rest()} <= {"WATCHDOG=1"}
    assert queue.depth(db).done == 1


def test_a_worker_in_an_event_loop_tells_the_same(
    db: fdb.Database, environment: dict[str, str], name: str, tmp_path: Path, systemd: Notified
) -> None:
    (tmp_path / "app.py").write_text(APP)
    Queue.open(db, name)
    about = {"QUEUE": name, "WORKER": "coroutine"}
    command = "worker", "app:worker"
    with service(environment, tmp_path, systemd.address, *command, **about) as worker:
        assert systemd.next() == ["READY=1", "WATCHDOG=1"]
        worker.send_signal(signal.SIGTERM)
        while (notices := systemd.next()) == ["WATCHDOG=1"]:
            pass
        assert notices == ["STOPPING=1"]
        assert worker.wait(DEADLINE) == 0


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one", "several"])
def test_a_worker_works_as_well_when_systemd_does_not_listen(
    db: fdb.Database,
    environment: dict[str, str],
    name: str,
    tmp_path: Path,
    options: tuple[str, ...],
) -> None:
    (tmp_path / "app.py").write_text(APP)
    queue = Queue.open(db, name)
    queue.enqueue(db, b"1")
    command = "worker", "app:worker", *options
    gone, about = str(tmp_path / "gone"), {"QUEUE": name, "WORKER": "thread"}
    with service(environment, tmp_path, gone, *command, **about) as worker:
        assert told(worker) == "[]"
        eventually(lambda: queue.depth(db).done == 1)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE) == 0
    assert os.listdir(tmp_path).count("gone") == 0


def test_systemd_hears_that_the_web_pages_are_served_and_end(
    db: fdb.Database, environment: dict[str, str], tmp_path: Path, systemd: Notified
) -> None:
    with service(environment, tmp_path, systemd.address, "web", "--port", "0") as process:
        place = told(process).removeprefix("serving ")
        assert place
        assert systemd.next() == ["READY=1"]
        with urlopen(place, timeout=DEADLINE) as answer:
            assert answer.status == 200
        assert systemd.next() == ["WATCHDOG=1"]
        process.send_signal(signal.SIGINT)
        while (notices := systemd.next()) == ["WATCHDOG=1"]:
            pass
        assert notices == ["STOPPING=1"]
        assert process.wait(DEADLINE) == 0

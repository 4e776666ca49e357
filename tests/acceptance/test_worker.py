"""Workers as processes: signals, and death."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fdbqueue import Depth, Queue, fdb
from tests.acceptance.running import FDBQ, Fdbq, Workers, first_line, told
from tests.forking import Forked
from tests.patience import DEADLINE, eventually

APP = """
import os, time
import fdbqueue
from fdbqueue import Fail, Take

db = fdbqueue.open()
queue = fdbqueue.Queue.open(db, os.environ["QUEUE"])
worker = fdbqueue.Worker(db, concurrency=1, prefetch=3)


@worker.handler(queue, take=Take(lease=float(os.environ.get("LEASE", "30"))))
def handle(payload):
    print(payload.decode(), flush=True)
    while os.path.exists("gate"):
        time.sleep(0.01)


quoting = fdbqueue.Worker(db, concurrency=1)


@quoting.handler(queue, fail=Fail(max_attempts=1))
def quote(payload):
    raise ValueError(payload.decode())


fast = fdbqueue.Worker(db, concurrency=2)


@fast.handler(queue, take=Take(lease=1))
def note(payload):
    with open("handled", "a") as file:
        file.write(f"{payload.decode()}\\n")


probed = fdbqueue.Worker(db, health=("127.0.0.1", int(os.environ.get("PORT", "0"))))
probed.add(queue, note)

effects = fdbqueue.Worker(db, concurrency=2)


@effects.handler(queue, take=Take(lease=1))
def count(tr, message):
    tr.add(os.environ["QUEUE"].encode(), (1).to_bytes(8, "little"))
"""


@pytest.fixture
def workers(tmp_path: Path, environment: dict[str, str], name: str) -> Iterator[Workers]:
    workers = Workers(tmp_path, {**environment, "QUEUE": name}, APP)
    yield workers
    workers.end()


def answer(place: str, path: str) -> tuple[int, str]:
    try:
        with urlopen(place + path, timeout=DEADLINE) as found:
            return found.status, found.read().decode().strip()
    except HTTPError as error:
        return error.code, error.read().decode().strip()


def health(worker: Forked | subprocess.Popen[str]) -> str:
    """Where a worker says that it answers probes."""
    assert worker.stderr is not None
    while not (line := worker.stderr.readline()).startswith("health at "):
        assert line, "the worker has ended"
    return line.removeprefix("health at ").strip()


def test_an_orchestrator_sees_a_worker_become_ready_and_stop(
    db: fdb.Database, name: str, workers: Workers
) -> None:
    queue = Queue.open(db, name)
    queue.enqueue(db, b"1")
    workers.gate.touch()
    worker = workers.start("worker", "--health", "127.0.0.1:0", stderr=True)
    place = health(worker)
    assert told(worker) == "1"
    eventually(lambda: answer(place, "/readyz") == (200, "ready"))
    taken = workers.start("worker", "--health", place.removeprefix("http://"), stderr=True)
    assert "cannot listen there: Address already in use" in taken.communicate(timeout=DEADLINE)[1]
    assert taken.returncode == 2
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: answer(place, "/readyz") == (503, "not ready: the worker is stopping"))
    assert answer(place, "/livez") == (200, "live")
    assert "fdbqueue_handled" in answer(place, "/metrics")[1]
    workers.gate.unlink()
    assert worker.wait(DEADLINE) == 0
    assert queue.depth(db) == Depth(enqueued=1, done=1)


def test_a_worker_that_is_told_to_stop_while_its_module_is_imported_does_not_begin(
    db: fdb.Database, name: str, workers: Workers, tmp_path: Path
) -> None:
    Queue.open(db, name).enqueue(db, b"1")
    slow = "print('importing', flush=True)\nimport time\ntime.sleep(600)\n"
    (tmp_path / "app.py").write_text(slow + APP)
    worker = workers.start()
    assert told(worker) == "importing"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DEADLINE) == 0
    assert Queue(name).depth(db).ready == 1


def free_ports(count: int) -> int:
    """The first of several free ports, from below those that systems give away."""
    for first in range(10_000 + os.getpid() % 10_000, 30_000, count):
        with contextlib.ExitStack() as taken, contextlib.suppress(OSError):
            for n in range(count):
                taken.enter_context(socket.create_server(("127.0.0.1", first + n)))
            return first
    raise AssertionError("there are none")


@pytest.mark.parametrize("given", ["option", "code"])
def test_several_processes_answer_probes_each_at_a_port_of_its_own(
    db: fdb.Database, name: str, workers: Workers, given: str
) -> None:
    Queue.open(db, name)
    port = free_ports(2)
    if given == "option":
        option = "--health", f"127.0.0.1:{port}"
        worker = workers.start("fast", *option, "--processes", "2", stderr=True)
    else:
        worker = workers.start("probed", "--processes", "2", stderr=True, PORT=str(port))
    places = {health(worker), health(worker)}
    assert places == {f"http://127.0.0.1:{port + n}" for n in range(2)}
    eventually(lambda: all(answer(place, "/readyz")[0] == 200 for place in places))
    worker.terminate()
    assert worker.wait(DEADLINE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_finishes_and_gives_back_the_rest(
    db: fdb.Database, name: str, workers: Workers, number: signal.Signals
) -> None:
    queue = Queue.open(db, name)
    queue.enqueue_many(db, [b"1", b"2", b"3"])
    workers.gate.touch()
    worker = workers.start()
    assert told(worker) == "1"
    eventually(lambda: queue.depth(db).leased == 3)
    worker.send_signal(number)
    eventually(lambda: queue.depth(db).ready == 2)
    assert worker.poll() is None, "it still handles the first"
    workers.gate.unlink()
    assert worker.wait(DEADLINE) == 0
    assert queue.depth(db) == Depth(enqueued=3, ready=2, done=1, ready_bytes=2)


def test_the_second_signal_stops_a_worker_at_once(
    db: fdb.Database, name: str, workers: Workers
) -> None:
    queue = Queue.open(db, name)
    queue.enqueue(db, b"1")
    workers.gate.touch()
    worker = workers.start()
    assert told(worker) == "1"
    worker.terminate()
    while worker.poll() is None:
        worker.terminate()
        time.sleep(0.05)
    assert queue.depth(db) == Depth(enqueued=1, ready=1, ready_bytes=1)
    assert queue.peek(db)[0].attempts == 0


def test_an_error_that_quotes_a_hostile_message_does_nothing_on_a_terminal(
    db: fdb.Database, name: str, workers: Workers
) -> None:
    # Given a worker whose handler fails with the text of the message
    queue = Queue(name)
    forged = "\n2030-01-01 00:00:00,000 ERROR fdbqueue.worker: all is lost"
    queue.enqueue(db, b"\x1b]0;owned\x07\x1b[2J" + forged.encode())
    process = workers.start("quoting", stderr=True)
    eventually(lambda: queue.depth(db).dead == 1)
    process.terminate()
    _, logged = process.communicate(timeout=DEADLINE)
    # Then it is logged, without a control character, and as no line of its own
    assert "ValueError: \\x1b]0;owned\\x07\\x1b[2J" in logged
    assert all(line.isprintable() for line in logged.split("\n"))
    assert not any(line.startswith("2030") for line in logged.split("\n"))


def test_fdbq_worker_says_what_is_wrong_with_its_argument(fdbq: Fdbq) -> None:
    assert "no module 'app'" in fdbq.refused("worker", "app", code=2)
    assert "no module" in fdbq.refused("worker", "nothing_like_it:app", code=2)
    assert "'nothing'" in fdbq.refused("worker", "os:nothing", code=2)


FIRST = """
import fdbqueue
teas = fdbqueue.Queue.open(db := fdbqueue.open(), "NAME")
@teas.job
def brew(tea):
    print("brewing", tea, flush=True)
if __name__ == "__main__":
    brew.enqueue(db, "assam", priority=9)
"""


@pytest.mark.parametrize("target", ["first", "first:teas"])
def test_a_first_program_is_seven_lines_and_one_command(
    fdbq: Fdbq, tmp_path: Path, name: str, target: str
) -> None:
    program = FIRST.replace("NAME", name).strip()
    assert len(program.splitlines()) <= 7
    (tmp_path / "first.py").write_text(program)
    subprocess.run(
        [sys.executable, "first.py"],
        cwd=tmp_path,
        env=fdbq.environment,
        check=True,
        timeout=DEADLINE,
    )
    assert first_line([FDBQ, "worker", target], tmp_path, fdbq.environment) == "brewing assam\n"

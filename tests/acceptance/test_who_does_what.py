"""What workers say of themselves: in listings, at their port, and in their logs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import Fdbq, start
from tests.forking import Forked
from tests.patience import DEADLINE, eventually

APP = """
import os, time
import fdbqueue

db = fdbqueue.open()
queue = fdbqueue.Queue.open(db, os.environ["QUEUE"])
worker = fdbqueue.Worker(db, concurrency=2)


def ship(order):
    raise ValueError("no stock")


@worker.handler(queue)
def pack(payload):
    if payload == b"fails":
        ship(payload)
    while payload == b"stays" and os.path.exists("gate"):
        time.sleep(0.01)
    if payload == b"kills":
        while not os.path.exists("told"):
            time.sleep(0.01)
        os._exit(7)
"""


class Workers:
    """Starts ``fdbq worker`` in a directory of its own."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        (directory / "app.py").write_text(APP)
        self.gate, self.told = directory / "gate", directory / "told"
        self._directory, self._environment = directory, environment
        self._started: list[Forked | subprocess.Popen[str]] = []

    def start(self, *options: str) -> Forked | subprocess.Popen[str]:
        process = start(
            ["worker", "app:worker", *options], self._environment, self._directory, True
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def workers(tmp_path: Path, environment: dict[str, str], name: str) -> Iterator[Workers]:
    workers = Workers(tmp_path, {**environment, "QUEUE": name})
    yield workers
    workers.end()


def logged(process: Forked | subprocess.Popen[str], part: str) -> list[str]:
    """What a process logs, up to the line that has a part."""
    assert process.stderr is not None
    found: list[str] = []
    while not found or part not in found[-1]:
        line = process.stderr.readline()
        assert line, found
        found.append(line.rstrip("\n"))
    return found


def test_a_worker_is_listed_with_what_it_handles(
    db: fdb.Database, fdbq: Fdbq, name: str, workers: Workers
) -> None:
    # Given a worker whose two places are taken
    queue = Queue.open(db, name)
    workers.gate.touch()
    ids = [queue.enqueue(db, b"stays", key=f"k{n}") for n in range(2)]
    process = workers.start("--health", "127.0.0.1:0")
    address = logged(process, "health at ")[-1].removeprefix("health at ")

    def works() -> list[dict[str, Any]]:
        every = fdbq.ok("worker", "list", "--json").json
        return [work for each in every for work in each["work"] if work["queue"] == name]

    # Then the next sign of life tells all of it
    eventually(lambda: [len(each["running"]) for each in works()] == [2])
    (work,) = works()
    assert (work["places"], work["taken"], work["handler"]) == (2, 2, "app.pack")
    assert {(each["id"], each["key"], each["attempt"]) for each in work["running"]} == {
        (ids[0], "k0", 1),
        (ids[1], "k1", 1),
    }
    for arguments in (("worker", "list"), ("worker", "list", name)):
        assert all(each in fdbq.ok(*arguments).out for each in ids)
    held = fdbq.ok("message", "find", name, "--state", "leased", "--json").json
    assert all(each["leased_at"] < each["expires_at"] for each in held)
    with urlopen(f"{address}/status", timeout=DEADLINE) as found:
        (status,) = json.load(found)
    assert {each["id"] for each in status["running"]} == {*ids}

    # And a message is released by its id
    fdbq.ok("message", "release", name, ids[0], "--delay", "60", "--yes")
    assert (queue.depth(db).leased, queue.depth(db).scheduled) == (1, 1)


def test_a_failure_is_one_line_with_a_traceback_from_the_handler_on(
    db: fdb.Database, name: str, workers: Workers
) -> None:
    queue = Queue.open(db, name)
    queue.set_options(db, max_attempts=3, backoff={"wait": "wait_fixed", "seconds": 0.01})
    message_id = queue.enqueue(db, b"fails", key="k")
    process = workers.start()

    first = logged(process, "ValueError: no stock")
    assert f"{name} {message_id} (key k): app.pack, attempt 1 of 3, failed" in first[-1]
    assert first[-1].endswith("again in about 10 ms")
    traced = logged(process, "  ValueError: no stock")
    assert [line.rpartition(" in ")[2] for line in traced if "File" in line] == ["pack", "ship"]
    # It is not repeated at each attempt, and the last one is told
    assert logged(process, "attempt 3 of 3")[-1].endswith("that was the last attempt")
    assert logged(process, "same traceback")[-1].startswith("  ")


def test_a_log_for_programs_has_an_object_in_each_line(
    db: fdb.Database, name: str, workers: Workers
) -> None:
    message_id = Queue.open(db, name).enqueue(db, b"fails")
    process = workers.start("--log-format", "json", "--verbose")

    begun = json.loads(logged(process, "begins")[-1])
    assert (begun["queue"], begun["message_id"], begun["level"]) == (name, message_id, "info")
    failed = json.loads(logged(process, "no stock")[-1])
    assert (failed["attempt"], failed["handler"]) == (1, "app.pack")
    assert failed["traceback"].endswith("ValueError: no stock")


def test_the_supervisor_says_what_a_process_handled_that_is_gone(
    db: fdb.Database, fdbq: Fdbq, name: str, workers: Workers
) -> None:
    message_id = Queue.open(db, name).enqueue(db, b"kills")
    process = workers.start("--processes", "2")

    def told() -> bool:
        every = fdbq.ok("worker", "list", "--json").json
        return any(
            each["running"] for one in every for each in one["work"] if each["queue"] == name
        )

    eventually(told)
    workers.told.touch()
    line = logged(process, "worker process")[-1]
    assert f"ended with 7 as it handled {name} {message_id} (attempt 1)" in line

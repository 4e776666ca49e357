"""What workers say of themselves: in listings, at their port, and in their logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.on_call import APP, logged
from tests.acceptance.running import Fdbq, Workers
from tests.patience import DEADLINE, eventually


@pytest.fixture
def workers(tmp_path: Path, environment: dict[str, str], name: str) -> Iterator[Workers]:
    workers = Workers(tmp_path, {**environment, "QUEUE": name}, APP)
    yield workers
    workers.end()


def test_a_worker_is_listed_with_what_it_handles(
    db: fdb.Database, fdbq: Fdbq, name: str, workers: Workers
) -> None:
    # Given a worker whose two places are taken
    queue = Queue.open(db, name)
    workers.gate.touch()
    ids = [queue.enqueue(db, b"stays", key=f"k{n}") for n in range(2)]
    process = workers.start("worker", "--health", "127.0.0.1:0", stderr=True)
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
    process = workers.start("worker", stderr=True)

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
    process = workers.start("worker", "--log-format", "json", "--verbose", stderr=True)

    begun = json.loads(logged(process, "begins")[-1])
    assert (begun["queue"], begun["message_id"], begun["level"]) == (name, message_id, "info")
    failed = json.loads(logged(process, "no stock")[-1])
    assert (failed["attempt"], failed["handler"]) == (1, "app.pack")
    assert failed["traceback"].endswith("ValueError: no stock")


def test_the_supervisor_says_what_a_process_handled_that_is_gone(
    db: fdb.Database, fdbq: Fdbq, name: str, workers: Workers
) -> None:
    message_id = Queue.open(db, name).enqueue(db, b"kills")
    process = workers.start("worker", "--processes", "2", stderr=True)

    def told() -> bool:
        every = fdbq.ok("worker", "list", "--json").json
        return any(
            each["running"] for one in every for each in one["work"] if each["queue"] == name
        )

    eventually(told)
    workers.told.touch()
    line = logged(process, "worker process")[-1]
    assert f"ended with 7 as it handled {name} {message_id} (attempt 1)" in line

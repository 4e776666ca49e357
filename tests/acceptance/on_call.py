"""A worker in processes of its own, that does what tests of incidents need."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.acceptance.running import start
from tests.forking import Forked

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


def logged(process: Forked | subprocess.Popen[str], part: str) -> list[str]:
    """What a process logs, up to the line that has a part."""
    assert process.stderr is not None
    found: list[str] = []
    while not found or part not in found[-1]:
        line = process.stderr.readline()
        assert line, found
        found.append(line.rstrip("\n"))
    return found

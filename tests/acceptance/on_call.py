"""A worker in processes of its own, that does what tests of incidents need."""

from __future__ import annotations

import subprocess

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


def logged(process: Forked | subprocess.Popen[str], part: str) -> list[str]:
    """What a process logs, up to the line that has a part."""
    assert process.stderr is not None
    found: list[str] = []
    while not found or part not in found[-1]:
        line = process.stderr.readline()
        assert line, found
        found.append(line.rstrip("\n"))
    return found

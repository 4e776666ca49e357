"""Processes that are forked from one that has a store open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fdbqueue import Queue
from fdbqueue.errors import StoreForked
from fdbqueue.store import binding
from fdbqueue.store.binding import fdb
from tests.patience import DEADLINE

CHILD = """
import os, sys
import fdbqueue

db = fdbqueue.open()
queue = fdbqueue.Queue("orders", fdbqueue.fdb.Subspace(rawPrefix=bytes.fromhex(sys.argv[1])))
queue.enqueue(db, b"parent")
for n in range(2):
    if not os.fork():
        try:
            queue.enqueue(db, b"child")
            print("enqueued", flush=True)
        except fdbqueue.errors.StoreForked as error:
            print("refused", error, flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_fork_after_open_works_or_is_a_clear_error(
    db: fdb.Database, queue: Queue, environment: dict[str, str], embedded: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, queue._root.key().hex()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    outcomes = done.stdout.splitlines()
    assert len(outcomes) == 2
    assert all(line.startswith("enqueued" if embedded else "refused") for line in outcomes)
    assert queue.depth(db).enqueued == (3 if embedded else 1)


def test_every_operation_says_so_after_such_a_fork(
    db: fdb.Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "forked", True)
    for operation in (
        lambda: queue.enqueue(db, b"x"),
        lambda: queue.receive(db, wait=5),
        lambda: queue.enqueue(db.create_transaction(), b"x"),
        binding.open,
    ):
        with pytest.raises(StoreForked, match="open the store after the fork"):
            operation()

"""What the benchmarks count of a process's requests to the database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.client_counters import Counts

from tests.patience import DEADLINE

TOOLS = Path(__file__).parents[2] / "tools"
PROGRAM = """
import json
import fdbqueue
from benchmarks.client_counters import Counts, Meter

db = fdbqueue.open()
space = fdbqueue.fdb.Subspace(("counted",))
queue = fdbqueue.Queue.create(db, "q", root=space)
queue.enqueue(db, b"before")
queue.ack(db, queue.receive(db))
queue.enqueue_many(db, [b"x"] * 3)
meter = Meter()
meter.install()


def counted(operation):
    before = Counts(*meter.counts.values())
    operation()
    return (meter.counts - before).values()


held = queue.receive(db)


def conflict():
    one, other = db.create_transaction(), db.create_transaction()
    one[b"read"].value
    one.set(b"mine", b"")
    other.set(b"read", b"")
    other.commit().wait()
    try:
        one.commit().wait()
    except fdbqueue.fdb.FDBError as error:
        assert error.code == 1020


found = {
    "enqueue": counted(lambda: queue.enqueue(db, b"x")),
    "receive": counted(lambda: queue.receive(db)),
    "ack": counted(lambda: queue.ack(db, held)),
    "rows": counted(lambda: list(db.get_range_startswith(space.key(), limit=3))),
    "conflict": counted(conflict),
}
queue.delete(db)
del db[b"read"]
print(json.dumps(found))
"""


def test_requests_commits_and_conflicts_are_counted(environment: dict[str, str]) -> None:
    # When a program counts what operations of a warm queue ask of the database
    path = os.pathsep.join([str(TOOLS), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**environment, "PYTHONPATH": path},
    )
    found = {name: Counts(*each) for name, each in json.loads(done.stdout).items()}
    # Then each operation commits once; an enqueue and an acknowledgement wait for one read before
    for name in ("enqueue", "receive", "ack"):
        one = found[name]
        assert (one.attempts, one.commits, one.conflicts) == (1, 1, 0)
        assert one.rows > 0
        assert one.written > 0
    assert (found["enqueue"].round_trips, found["ack"].round_trips) == (2, 2)
    # And what reads, and what conflicts, is told apart
    rows, conflict = found["rows"], found["conflict"]
    assert (rows.attempts, rows.rows, rows.written) == (0, 3, 0)
    assert (conflict.attempts, conflict.commits, conflict.conflicts) == (2, 1, 1)

"""The example worker of the documentation, as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

from docs.examples import worker as example
from fdbqueue import Queue, fdb
from tests.patience import DEADLINE


def test_the_example_worker_counts_each_order_and_ends_at_sigterm(
    db: fdb.Database, name: str, environment: dict[str, str]
) -> None:
    # Given a queue with two orders
    orders = Queue.open(db, name)
    for region in ("eu", "us"):
        orders.enqueue(db, b"tea", headers={"region": region})

    # When the worker runs until it has told of both
    running = subprocess.Popen(
        [sys.executable, example.__file__, name],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    with running:
        told = [running.stdout.readline() for _ in range(3)]
        running.send_signal(signal.SIGTERM)
        code = running.wait(DEADLINE)

    # Then each counts once, and the worker has ended as it was told
    assert f"waiting for messages of queue {name}" in told[0]
    assert code == 0
    counted = {region: db[example.totals.pack((region,))] for region in ("eu", "us")}
    assert counted == dict.fromkeys(counted, (1).to_bytes(8, "little"))
    assert orders.depth(db).done == 2
    db.clear_range_startswith(example.totals.key())

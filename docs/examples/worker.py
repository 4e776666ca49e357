"""An example worker: counts orders by region, each exactly once.

Usage: worker.py QUEUE. Runs until it is interrupted or terminated.
"""

from __future__ import annotations

import signal
import sys

import fdbqueue
from fdbqueue import Delivery, Queue, fdb, transactional
from fdbqueue.errors import LeaseLost

totals = fdb.Subspace(("orders by region",))


@transactional
def settle(tr: fdb.Transaction, queue: Queue, delivery: Delivery) -> None:
    """The effect of a message and its acknowledgement: one commit, or none."""
    region = str(delivery.message.headers.get("region", "unknown"))
    tr.add(totals.pack((region,)), (1).to_bytes(8, "little"))
    queue.ack(tr, delivery)


def main(name: str) -> None:
    """Take messages as they come."""
    db = fdbqueue.open()
    queue = Queue.open(db, name)
    print(f"waiting for messages of queue {name} in the {fdbqueue.describe(db)}", flush=True)
    while True:
        delivery = queue.receive(db, lease=30, wait=60)
        if delivery is None:
            continue
        try:
            settle(db, queue, delivery)
        except LeaseLost:
            # It took longer than its lease, or the commit's outcome was unknown and it had
            # happened: either way there is nothing left to do.
            continue
        print(f"{delivery.id}: {queue.value(delivery)!r}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(sys.argv[1])

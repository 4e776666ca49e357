"""Counts an effect for each message, in the transaction that acknowledges it.

Usage: worker.py ROOT QUEUE TOTAL [held|written]. Works until TOTAL messages are done and prints
how many deliveries were not the first of their message. With ``held`` or ``written`` it takes one
batch, says how many it holds (``written``: when their effects are written, but not committed), and
waits to be killed.
"""

from __future__ import annotations

import signal
import sys

import fdbqueue
from fdbqueue import Delivery, Queue, fdb
from fdbqueue.errors import LeaseLost

BATCH = 10
LEASE = 1.0


def main(root: str, name: str, total: int, stop: str | None) -> None:
    db = fdbqueue.open()
    space = fdb.Subspace(rawPrefix=bytes.fromhex(root))
    queue = Queue.open(db, name, create=False, root=space)
    effects = space.subspace(("effects",))

    @fdb.transactional
    def settle(tr: fdb.Transaction, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            tr.add(effects.pack((delivery.id,)), (1).to_bytes(8, "little"))
        queue.ack(tr, deliveries)

    again = 0
    while True:
        deliveries = queue.receive_many(db, BATCH, lease=LEASE, wait=0.5)
        if stop and deliveries:
            if stop == "written":
                settle(db.create_transaction(), deliveries)
            print(len(deliveries), flush=True)
            signal.pause()
        try:
            if deliveries:
                settle(db, deliveries)
                again += sum(delivery.message.redelivered for delivery in deliveries)
        except LeaseLost:
            continue
        if not deliveries and queue.depth(db).done >= total:
            break
    print(again)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] if sys.argv[4:] else None)

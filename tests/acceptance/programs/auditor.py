"""A worker on a browsing subscription, which says what it is given and may be killed at any time.

Usage: auditor.py ROOT QUEUE SUBSCRIPTION. Prints each payload when its handler is called, and goes
on with the next one. It holds the subscription for a second, not for thirty.
"""

from __future__ import annotations

import sys

import fdbqueue
from fdbqueue import Message, Queue, Take, Worker, fdb
from fdbqueue.subscriptions import exclusive

exclusive.HOLD_SECONDS = 1.0
exclusive._RENEW_MS = 500.0


def handle(message: Message) -> None:
    print(message.payload.decode(), flush=True)


if __name__ == "__main__":
    root, name, subscription = sys.argv[1:]
    db = fdbqueue.open()
    queue = Queue.open(db, name, root=fdb.Subspace(rawPrefix=bytes.fromhex(root)))
    worker = Worker(db).add(
        queue, handle, take=Take(subscription=queue.subscriptions.open(db, subscription))
    )
    worker.run()

"""One of many that work on a queue through subscriptions at the same time.

Usage: subscriber.py ROOT QUEUE ROLE SEED COUNT. Roles: ``produce`` enqueues COUNT messages, each in
a transaction; ``acquire:REGION`` takes what is of a region, gives every fourth message
back, and ends when COUNT messages of the queue are done; ``browse:REGION`` looks until it has seen
COUNT. Prints what it enqueued, acknowledged or saw: the ids, in that order. Gives up when it makes
no progress for long.
"""

from __future__ import annotations

import json
import random
import sys
import time

import fdbqueue
from fdbqueue import Queue, fdb

REGIONS = ("eu", "us", "as")
PATIENCE = 600.0
OPEN = 10


def produce(db: fdb.Database, queue: Queue, seed: int, count: int) -> list[str]:
    """Several transactions are open at a time, and commit late, in another order."""
    chance = random.Random(seed)
    ids: list[str] = []
    while len(ids) < count:
        begun: list[tuple[int, fdb.Transaction, str]] = []
        for n in range(len(ids), min(len(ids) + OPEN, count)):
            tr = db.create_transaction()
            begun.append((n, tr, put(tr, queue, n)))
        ids += [message_id for _, _, message_id in begun]
        chance.shuffle(begun)
        for n, tr, _ in begun:
            queue.depth(db)
            while True:
                try:
                    tr.commit().wait()
                    break
                except fdb.FDBError as error:
                    tr.on_error(error).wait()
                    ids[n] = put(tr, queue, n)
    return ids


def put(tr: fdb.Transaction, queue: Queue, n: int) -> str:
    headers = {"region": REGIONS[n % len(REGIONS)]}
    return queue.enqueue(tr, b"", priority=n // len(REGIONS) % 2, headers=headers)


def acquire(db: fdb.Database, queue: Queue, region: str, seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    subscription = queue.subscriptions.open(db, region, selector=f"region = '{region}'")
    done: list[str] = []
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        deliveries = subscription.receive_many(db, 3, wait=0.2)
        for delivery in deliveries:
            if chance.random() < 0.25:
                queue.release(db, delivery)
            else:
                queue.ack(db, delivery)
                done.append(delivery.id)
        if not deliveries and queue.depth(db).done >= count:
            break
    return done


def browse(db: fdb.Database, queue: Queue, region: str, seed: int, count: int) -> list[str]:
    """Something else is done between a look and its commit."""
    name = f"browse-{region}-{seed}"
    subscription = queue.subscriptions.open(
        db, name, mode="browse", selector=f"region = '{region}'"
    )

    @fdb.transactional
    def look(tr: fdb.Transaction) -> list[str]:
        found = [message.id for message in subscription.browse(tr, 7)]
        queue.depth(db)
        return found

    seen: list[str] = []
    deadline = time.monotonic() + PATIENCE
    while len(seen) < count and time.monotonic() < deadline:
        seen += look(db) or [message.id for message in subscription.browse(db, 7, wait=0.2)]
    return seen + look(db)


def run(db: fdb.Database, queue: Queue, role: str, seed: int, count: int) -> list[str]:
    name, _, region = role.partition(":")
    if name == "produce":
        return produce(db, queue, seed, count)
    return (acquire if name == "acquire" else browse)(db, queue, region, seed, count)


def main(root: str, queue_name: str, role: str, seed: int, count: int) -> None:
    db = fdbqueue.open()
    space = fdb.Subspace(rawPrefix=bytes.fromhex(root))
    queue = Queue.open(db, queue_name, create=False, root=space)
    print(json.dumps(run(db, queue, role, seed, count)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))

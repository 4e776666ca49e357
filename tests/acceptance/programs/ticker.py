"""Notes each tick that it handles, in the transaction that acknowledges its message.

Usage: ticker.py ROOT QUEUE SINCE SPEED. Its time passes SPEED times as fast since the time SINCE.
Works until it is killed.
"""

from __future__ import annotations

import sys
import time

import fdbqueue
from fdbqueue import Delivery, Queue, fdb
from fdbqueue.errors import LeaseLost
from fdbqueue.store.clocks import VERSIONS_PER_SECOND, Clock

LEASE = 60.0


class FastClock(Clock):
    """A clock that runs fast since a time."""

    def __init__(self, since: float, speed: float) -> None:
        self.since, self.speed = since, speed

    @property
    def ahead(self) -> float:
        return (time.time() - self.since) * (self.speed - 1)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    def wall_ms(self) -> int:
        return super().wall_ms() + int(self.ahead * 1000)

    def versions_ahead(self) -> int:
        return int(self.ahead * VERSIONS_PER_SECOND)


def main(root: str, name: str, since: float, speed: float) -> None:
    db = fdbqueue.open()
    space = fdb.Subspace(rawPrefix=bytes.fromhex(root))
    queue = Queue.open(db, name, create=False, root=space, clock=FastClock(since, speed))
    handled = space.subspace(("handled",))

    @fdb.transactional
    def handle(tr: fdb.Transaction, delivery: Delivery) -> None:
        tr.add(handled.pack((str(delivery.message.headers["tick"]),)), (1).to_bytes(8, "little"))
        queue.ack(tr, delivery)

    print("ready", flush=True)
    while True:
        delivery = queue.receive(db, lease=LEASE, wait=0.1)
        try:
            if delivery is not None:
                handle(db, delivery)
        except LeaseLost:
            continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))

"""One consumer of many that stand in line.

Usage: stander.py ROOT QUEUE lead | COUNT. ``lead`` takes the lead of the line, prints ``leads``,
and serves nobody. Else it takes messages until COUNT of the queue are done, and prints the id of
each that it acknowledged; ``began`` when it has the first one in its hands.
"""

from __future__ import annotations

import signal
import sys

import fdbqueue
from fdbqueue import Delivery, Queue, fdb

WAIT_SECONDS = 0.5


def main(root: str, name: str, role: str) -> None:
    db = fdbqueue.open()
    queue = Queue.open(db, name, create=False, root=fdb.Subspace(rawPrefix=bytes.fromhex(root)))
    if role == "lead":
        assert queue.line.request(db).leads
        print("leads", flush=True)
        signal.pause()
    held: list[Delivery] = []
    while held or queue.depth(db).done < int(role):
        done = [delivery.id for delivery in held]
        held = queue.receive_many(db, 1, wait=WAIT_SECONDS, ack=held)
        print(*done, "began" if held else "", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

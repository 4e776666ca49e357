"""Enqueues one message to a transaction and prints the codes of all errors that it met.

Usage: producer.py ROOT QUEUE NAME COUNT. Says when it is ready, and begins when it is told.
"""

from __future__ import annotations

import json
import sys

import fdbqueue
from fdbqueue import Queue, fdb


def main(root: str, queue_name: str, name: str, count: int) -> None:
    db = fdbqueue.open()
    queue = Queue.open(
        db, queue_name, create=False, root=fdb.Subspace(rawPrefix=bytes.fromhex(root))
    )
    print("ready", flush=True)
    sys.stdin.readline()
    codes = []
    for n in range(count):
        tr = db.create_transaction()
        while True:
            try:
                queue.enqueue(tr, f"{name} {n}".encode())
                tr.commit().wait()
                break
            except fdb.FDBError as error:
                codes.append(error.code)
                tr.on_error(error).wait()
    print(json.dumps(codes))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

"""Sends messages through one producer from many threads, and prints those that are stored."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future

import fdbqueue
from fdbqueue import NewMessage, Producer, Queue, fdb

THREADS = 8
AHEAD = 20
"""How many messages a thread sends before it waits for the first of them."""


def told(payload: bytes, future: Future[str]) -> None:
    # One write, so that lines of threads do not mix.
    sys.stdout.write(f"{payload.decode()} {future.result()}\n")


def send(producer: Producer, run: str, thread: int) -> None:
    under_way: list[tuple[bytes, Future[str]]] = []
    n = 0
    while True:
        payload = f"{run}:{thread}:{n}".encode()
        # Some messages of each thread have a row of their own, and some another level.
        message = NewMessage(payload, headers={"n": n}, ttl=3600 if n % 7 == 0 else None)
        under_way.append((payload, producer.send(message)))
        if len(under_way) == AHEAD:
            told(*under_way.pop(0))
        n += 1


def main() -> None:
    root, run = sys.argv[1:]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    queue = Queue("orders", fdb.Subspace(rawPrefix=bytes.fromhex(root)))
    producer = queue.producer(fdbqueue.open(), max_batch=50)
    for thread in range(1, THREADS):
        threading.Thread(target=send, args=(producer, run, thread)).start()
    send(producer, run, 0)


if __name__ == "__main__":
    main()

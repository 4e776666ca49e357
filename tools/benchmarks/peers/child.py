"""One process of a run: ``python -m benchmarks.peers.child``, told what to do on standard input.

It is a new interpreter that imports only what its peer needs.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from typing import Any

from .registry import PEERS

PAYLOAD_BYTES = 100


def payload(number: int) -> bytes:
    return b"%0*d" % (PAYLOAD_BYTES, number)


def run(peer_name: str, address: str, role: str, batch: int, first: int, count: int) -> Any:
    """Do a job.

    role: ``put`` and ``take`` make calls of ``batch`` messages for the time that standard input
    tells, and return ``[began, returned, numbers]`` of each, in nanoseconds; ``send`` enqueues
    ``count`` messages; ``rest`` returns what is in the queue; ``work`` runs the peer's own worker.
    first: the number of the first message.
    """
    peer = PEERS[peer_name]
    client = peer.client(address) if role in ("put", "take", "rest") else None
    print("ready", flush=True)
    if role == "work":
        peer.work(address)
    if role == "send":
        peer.send(address, [payload(first + n) for n in range(count)])
    if client is None:
        return {}
    if role == "rest":
        return {"numbers": [int(data) for data in client.rest()]}
    begin, measured, end = json.loads(sys.stdin.readline())
    time.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
    calls: list[tuple[int, int, list[int]]] = []
    used: float | None = None
    while (began := time.monotonic_ns()) < end:
        if used is None and began >= measured:
            used = _cpu_seconds()
        if role == "put":
            numbers = [*range(first, first + batch)]
            first += batch
            client.put([payload(n) for n in numbers])
        else:
            numbers = [int(data) for data in client.take(batch)]
        calls.append((began, time.monotonic_ns(), numbers))
        if not numbers:
            break
    client.finish()
    return {"calls": calls, "cpu": 0.0 if used is None else _cpu_seconds() - used}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    job = json.loads(sys.stdin.readline())
    failed = True

    def body() -> None:
        nonlocal failed
        print(json.dumps(run(*job)), flush=True)
        failed = False

    if job[2] == "work":  # Workers handle signals, which only the main thread can.
        body()
    # In a thread, like a service: in the main thread the bindings wait in a slower way.
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    # Some libraries keep threads that would outlive the main one.
    sys.stderr.flush()
    os._exit(failed)


if __name__ == "__main__":
    main()

"""One process of a run: ``python -m benchmarks.peers.child``, told what to do on standard input.

It is a new interpreter, so that it can run an older fdbqueue, and imports only what its peer needs.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from .registry import PEERS

PAYLOAD_BYTES = 100


@dataclass(frozen=True)
class Job:
    """What a process does: ``put``, ``take``, ``send``, ``rest`` or ``work``.

    first: the number of the first message that it enqueues.
    count: how many messages ``send`` enqueues.
    """

    peer: str
    address: str
    role: str
    batch: int = 1
    first: int = 0
    count: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def payload(number: int) -> bytes:
    return b"%0*d" % (PAYLOAD_BYTES, number)


def run(job: Job) -> dict[str, Any]:
    """Do the job; the calls are ``[began, returned, numbers]`` in nanoseconds."""
    peer = PEERS[job.peer]
    if job.role == "work":
        _ready()
        peer.work(job.address)
    if job.role == "send":
        _ready()
        peer.send(job.address, [payload(job.first + n) for n in range(job.count)])
        return {}
    client = peer.client(job.address)
    if job.role == "rest":
        _ready()
        return {"numbers": [int(data) for data in client.rest()]}
    _ready()
    begin, measured, end = json.loads(sys.stdin.readline())
    time.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
    calls: list[tuple[int, int, list[int]]] = []
    used: float | None = None
    number = job.first
    while (began := time.monotonic_ns()) < end:
        if used is None and began >= measured:
            used = _cpu_seconds()
        if job.role == "put":
            numbers = [*range(number, number + job.batch)]
            number += job.batch
            client.put([payload(n) for n in numbers])
        else:
            numbers = [int(data) for data in client.take(job.batch)]
        calls.append((began, time.monotonic_ns(), numbers))
        if not numbers:
            break
    client.finish()
    return {"calls": calls, "cpu": 0.0 if used is None else _cpu_seconds() - used}


def _ready() -> None:
    print("ready", flush=True)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    job = Job(**json.loads(sys.stdin.readline()))
    failed = True

    def body() -> None:
        nonlocal failed
        print(json.dumps(run(job)), flush=True)
        failed = False

    if job.role == "work":  # Workers handle signals, which only the main thread can.
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

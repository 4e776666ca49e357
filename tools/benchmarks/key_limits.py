"""Keys with limits under workers that are killed: how many of their messages are out at once.

Two witnesses are heard. One reads the store, all slots in one transaction at a time. The other are
the workers: each writes down when it has what in hand, until its lease ends or it is killed.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fdbqueue import verify
from fdbqueue.errors import LeaseLost
from fdbqueue.queue.queue import Queue
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import Depth, NewMessage

from . import processes
from .declare import Row, at_least, at_most
from .measure import payload

USED_BAR = 0.95
NAME = "limits"
AT_ONCE = 500
LEAST_MESSAGES = 600
"""So that the work takes a while also with few keys."""
IN_HAND, TOGETHER = 100, 20
"""How many messages a worker receives, and how many of these it handles together."""
HANDLING_SECONDS = 0.0025
"""For each message."""
LEASE_SECONDS = 2.0
SAMPLE_SECONDS = 0.2
KILL_SECONDS = 0.5
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Plan:
    """Workers that handle messages of some keys, each with a concurrency and a backlog.

    kills: whether as many workers are killed meanwhile, by SIGKILL, and others take their places.
    """

    workers: int
    keys: int
    kills: bool
    concurrency: int = 10

    @property
    def messages(self) -> int:
        """How many there are."""
        return max(3 * self.concurrency * self.keys, LEAST_MESSAGES)


def run(space: bytes, plan: Plan) -> Iterator[Row]:
    """Let workers handle all messages; raises ``BenchmarkFailed`` if one is lost or doubled."""
    processes.once(partial(_fill, space, plan))
    began, killed = time.monotonic(), dict[str, float]()
    with TemporaryDirectory() as folder:
        used, out, depth, deviations = _work(space, plan, Path(folder), killed)
        seconds = time.monotonic() - began
        spans = [span for file in Path(folder).iterdir() for span in _spans(file, killed)]
    total, most = plan.messages, plan.concurrency
    if depth != Depth(enqueued=total, done=total) or deviations:
        raise processes.BenchmarkFailed(problem=f"{depth} of {total:,}; {deviations}")
    of = f"{plan.workers} workers, {plan.keys:,} keys{', kills' if plan.kills else ''}"
    yield Row(f"{of}: handled", total / seconds, more={"killed": len(killed)})
    yield at_least(f"{of}: share of slots in use while there is work", used, USED_BAR)
    yield at_most(f"{of}: most messages of a key that were out", out, most)
    held = _most_at_once(spans)
    yield at_most(f"{of}: most of a key in the hands of workers", held, most)


def _fill(space: bytes, plan: Plan) -> None:
    db, root = processes.opened(space)
    queue = Queue.create(
        *(db, NAME), root=root, key_concurrency=plan.concurrency, lease=LEASE_SECONDS, backoff=None
    )
    keys = [f"tenant {n % plan.keys}" for n in range(plan.messages)]
    for begin in range(0, len(keys), AT_ONCE):
        some = enumerate(keys[begin : begin + AT_ONCE], begin)
        queue.enqueue_many(db, [NewMessage(payload(n), key=key) for n, key in some])


def _work(space: bytes, plan: Plan, folder: Path, killed: dict[str, float]) -> Any:
    """Run the workers until all is done; returns what the store has shown.

    killed: when each worker was killed, by name; adds to it.
    """
    workers: dict[str, Any] = {}

    def start() -> None:
        name = f"worker {len(workers) + len(killed)}"
        workers[name], _ = processes.start(partial(_handle, space, folder / name))

    watcher, connection = processes.start(partial(_watch, space, plan))
    try:
        for _ in range(plan.workers):
            start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wait([connection], KILL_SECONDS):
            if time.monotonic() > deadline:
                raise processes.BenchmarkFailed(problem="the messages were not handled in time")
            if plan.kills and len(killed) < plan.workers:
                name = random.choice(list(workers))
                workers[name].kill()
                workers[name].join()
                killed[name] = time.monotonic()
                del workers[name]
                start()
        return processes.result(connection)
    finally:
        for process in (watcher, *workers.values()):
            process.kill()
            process.join()


def _handle(space: bytes, file: Path, worker: processes.Worker) -> None:
    """Handle messages until this process is killed, and write down what is in hand: each line has
    the time, a change, until when the leases last at most, and the keys."""
    db, root = processes.opened(space)
    queue = Queue.open(db, NAME, root=root)
    with file.open("w", buffering=1) as lines:
        while True:
            batch = queue.receive_batch(db, IN_HAND, wait=1)
            for begin in range(0, len(batch), TOGETHER):
                # From the clock that leases end by to the one that all processes share.
                ends = time.monotonic() + (batch.expires_at_ms or 0) / 1000 - time.time()
                keys = "\t".join(each.message.key or "" for each in batch[begin:][:TOGETHER])
                lines.write(f"{time.monotonic()}\t{ends}\t{keys}\n")
            for begin in range(0, len(batch), TOGETHER):
                some = batch[begin : begin + TOGETHER]
                time.sleep(HANDLING_SECONDS * len(some))
                lines.write(f"{time.monotonic()}\n")
                try:
                    some.ack(db)
                except LeaseLost:
                    continue  # They are others' by now.


def _spans(file: Path, killed: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """What a worker had in hand: the key, from when and until when."""
    last = killed.get(file.name, math.inf)
    lines = [line.split("\t") for line in file.read_text().split("\n") if line]
    ended = chain((float(line[0]) for line in lines if len(line) == 1), repeat(math.inf))
    for began, ends, *keys in (line for line in lines if len(line) > 1):
        end = min(next(ended), last, float(ends))
        for key in keys:
            yield key, float(began), end


def _most_at_once(spans: Iterable[tuple[str, float, float]]) -> int:
    """The most messages of one key that were in hand at the same time."""
    changes: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for key, began, ended in spans:
        changes[key] += [(began, 1), (max(began, ended), -1)]
    most = 0
    for each in changes.values():
        held = 0
        for _, change in sorted(each, key=lambda one: (one[0], one[1])):
            held += change
            most = max(most, held)
    return most


def _watch(space: bytes, plan: Plan, worker: processes.Worker) -> None:
    """Read all slots again and again until all messages are done."""
    db, root = processes.opened(space)
    queue = Queue.open(db, NAME, root=root)
    taken = allowed = most = 0
    while True:
        out, waiting = _slots(db, queue)
        most = max(most, *out.values(), 0)
        taken += sum(out[key] for key in waiting)
        allowed += plan.concurrency * len(waiting)
        depth = queue.depth(db)
        if depth.done >= plan.messages:
            break
        time.sleep(SAMPLE_SECONDS)
    found = verify(db, queue).deviations
    deviations = [str(each) for each in found if each.kind != "consumer dead"]
    worker.report.result = taken / max(1, allowed), most, depth, deviations


def _slots(db: fdb.Database, queue: Queue[bytes]) -> tuple[dict[str, int], list[str]]:
    """How many messages of each key are out, and the keys of which others wait; at one version."""
    keys, tr = queue._keys, db.create_transaction()
    slots, backlogs = keys.kind(Kind.SLOT), keys.kind(Kind.BACKLOG)
    mode = fdb.StreamingMode.want_all
    rows = tr.snapshot.get_range(slots.start, slots.stop, streaming_mode=mode)
    waits = tr.snapshot.get_range(backlogs.start, backlogs.stop, streaming_mode=mode)
    out: defaultdict[str, int] = defaultdict(int)
    for kv in rows:
        out[str(keys.slot.parse(kv.key)[0])] += 1
    parsed = (keys.backlog_count.parse(kv.key) for kv in waits)
    return out, [str(key) for key, *count in parsed if not count]

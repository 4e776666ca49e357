"""The processes: producers that enqueue flights, and workers that take them."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import fdbqueue
from fdbqueue import Delivery, NewMessage, Queue, fdb
from fdbqueue.errors import LeaseLost
from fdbqueue.store.clocks import Clock

from .ledger import Ledger
from .table import Flight, totals

ENQUEUED_AT_ONCE = 500
TAKEN_AT_ONCE = 200
LEASE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Job:
    """Where everything is; the same for every process, each of which opens it by itself."""

    store: str | None
    root: bytes
    queue: str
    messages: int

    def open(self) -> tuple[fdb.Database, Queue, Ledger]:
        """The database, the queue, and the demo's own keys."""
        space = fdb.Subspace(rawPrefix=self.root)
        queue = Queue(self.queue, self.queues)
        return fdbqueue.open(self.store), queue, Ledger(space.subspace(("ledger",)))

    @property
    def queues(self) -> fdb.Subspace:
        """Where the queues of the demo are."""
        return fdb.Subspace(rawPrefix=self.root).subspace(("queues",))


# -- producers --------------------------------------------------------------------------------


def produce(job: Job, producer: int, flights: list[Flight]) -> None:
    """Enqueue flights in batches."""
    db, queue, ledger = job.open()

    @fdb.transactional
    def place(tr: fdb.Transaction, batch: int, messages: list[NewMessage]) -> None:
        # A transaction whose outcome is unknown runs again: the record of the batch, which
        # commits together with its messages, tells whether it had happened.
        if not ledger.is_listed(tr, producer, batch):
            ids = queue.enqueue_many(tr, messages)
            ledger.list_batch(tr, producer, batch, ids)

    for start in range(0, len(flights), ENQUEUED_AT_ONCE):
        batch = flights[start : start + ENQUEUED_AT_ONCE]
        messages = [NewMessage(flight.to_bytes(), flight.priority) for flight in batch]
        place(db, start, messages)


# -- workers ----------------------------------------------------------------------------------


def work(job: Job, worker: int, victim: bool = False) -> None:
    """Take messages until all are done.

    victim: the worker is to be killed. Once a third is done, it says on standard output that it
        holds messages and has written their effects, does not commit, and waits for its end.
    """
    db, queue, ledger = job.open()

    @fdb.transactional
    def settle(tr: fdb.Transaction, deliveries: list[Delivery]) -> None:
        """The effects and the acknowledgement of messages: one commit."""
        flights = [Flight.from_bytes(delivery.payload) for delivery in deliveries]
        for carrier, sums in totals(flights).items():
            ledger.add(tr, carrier, sums)
        for delivery in deliveries:
            ledger.effect(tr, delivery.id)
        _count(tr, ledger, worker, deliveries)
        queue.ack(tr, deliveries)

    while True:
        deliveries = queue.receive_many(
            db, TAKEN_AT_ONCE, lease=LEASE_SECONDS, wait=1, consumer=f"worker {worker}"
        )
        if not deliveries:
            depth = queue.depth(db)
            if depth.done + depth.dead >= job.messages:
                return
            continue
        if victim and queue.depth(db).done > job.messages // 3:
            settle(db.create_transaction(), deliveries)
            print(len(deliveries), flush=True)
            signal.pause()
        try:
            settle(db, deliveries)
        except LeaseLost:
            # Another worker has them, or has settled them: their effects are not ours to write.
            continue


def _count(tr: fdb.Transaction, ledger: Ledger, worker: int, deliveries: list[Delivery]) -> None:
    """Count for the report, in the same transaction: what is counted has happened."""
    now = Clock().wall_ms()
    waits: Counter[int] = Counter()
    for delivery in deliveries:
        waits[delivery.message.priority] += now - delivery.message.enqueued_at_ms
    for priority, waited in waits.items():
        ledger.count(tr, "waited ms", priority, waited)
    ledger.count(tr, "settled", worker, len(deliveries))
    again = sum(delivery.attempt > 1 for delivery in deliveries)
    if again:
        ledger.count(tr, "delivered again", worker, again)


# -- starting them ----------------------------------------------------------------------------


def start(function: Callable[..., None], *arguments: object) -> subprocess.Popen[bytes]:
    """Run one of the functions above in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "flights.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # so that Ctrl-C reaches only the demo, which ends its processes
    )
    assert process.stdin is not None
    pickle.dump((function, arguments), process.stdin)
    process.stdin.close()
    return process

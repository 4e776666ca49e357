"""The processes: producers that enqueue flights, and workers that sum them up."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

import fdbqueue
from fdbqueue import Message, NewMessage, Queue, Run, Take, Worker, fdb

from .table import Flight, Totals, totals

ENQUEUED_AT_ONCE = 500
TAKEN_AT_ONCE = 200
LEASE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is; the same for every process, each of which opens it by itself."""

    store: str | None
    root: bytes

    @property
    def space(self) -> fdb.Subspace:
        """All that the demo writes."""
        return fdb.Subspace(rawPrefix=self.root)

    def open(self) -> tuple[fdb.Database, Queue[bytes]]:
        """The database and the queue, which the first process makes."""
        db = fdbqueue.open(self.store)
        return db, Queue.open(db, "flights", root=self.space, history_seconds=86_400)

    @property
    def effects(self) -> fdb.Subspace:
        """By message: how often it took effect."""
        return self.space.subspace(("effects",))

    @property
    def sums(self) -> fdb.Subspace:
        """By carrier and the name of a sum."""
        return self.space.subspace(("sums",))


def produce(place: Place, flights: Sequence[Flight]) -> None:
    """Enqueue flights in batches."""
    db, queue = place.open()
    rest = iter(flights)
    while batch := list(islice(rest, ENQUEUED_AT_ONCE)):
        queue.enqueue_many(db, [NewMessage(each.to_bytes(), each.priority) for each in batch])


def work(place: Place, victim: Connection | None, dies_after: int) -> None:
    """Sum up flights until the end of the process.

    victim: the process is to be killed, and tells here when. Once so many messages are done, it
        holds some, has written their effects, does not commit, and waits for its end.
    """
    db, queue = place.open()

    def handle(tr: fdb.Transaction, messages: list[Message]) -> None:
        """The effects of messages: one commit with their acknowledgement."""
        flights = [Flight(**json.loads(message.payload)) for message in messages]
        for carrier, sums in totals(flights).items():
            for name, number in asdict(sums).items():
                tr.add(place.sums.pack((carrier, name)), number.to_bytes(8, "little"))
        for message in messages:
            tr.add(place.effects.pack((message.id,)), (1).to_bytes(8, "little"))
        if victim is not None and queue.depth(db).done >= dies_after:
            victim.send(len(messages))
            time.sleep(3_600)

    # One batch at a time, so that the one that is killed holds no more.
    worker = Worker(db, concurrency=1, prefetch=0)
    worker.add(queue, handle, run=Run(batch=TAKEN_AT_ONCE), take=Take(lease=LEASE_SECONDS))
    worker.run()


def effects(place: Place, db: fdb.Database) -> list[int]:
    """How often each message took effect."""
    return [number for _, number in _numbers(db, place.effects)]


def sums(place: Place, db: fdb.Database) -> dict[str, Totals]:
    """The sums that the workers have kept in the store."""
    found: dict[str, Totals] = {}
    for (carrier, name), number in _numbers(db, place.sums):
        setattr(found.setdefault(carrier, Totals()), name, number)
    return found


def _numbers(db: fdb.Database, space: fdb.Subspace) -> list[tuple[tuple[Any, ...], int]]:
    """Every number in a subspace, a page to a transaction, for all may take longer than 5 s."""
    found: list[tuple[tuple[Any, ...], int]] = []
    begin, end = space.range().start, space.range().stop
    while page := db.get_range(begin, end, limit=10_000):
        found += [(space.unpack(kv.key), int.from_bytes(kv.value, "little")) for kv in page]
        begin = fdb.KeySelector.first_greater_than(page[-1].key)
    return found

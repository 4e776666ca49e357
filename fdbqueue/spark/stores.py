"""Queues that a Spark driver found, and that every process of the query opens.

Readers and writers are pickled to other processes, maybe on other machines. They carry names, and
what identifies the driver's queue: each process verifies that its own store has the same queue. No
process ever creates a store.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from ..errors import QueueNotFound, StoreError, StoreNotFound, StoreNotShared
from ..queue.internals import Internals
from ..queue.queue import Queue
from ..schema.keys import DEFAULT_ROOT
from ..schema.scope import Scope
from ..store import binding
from ..store.binding import Engine, Store, fdb, transactional
from ..values.serializers import Declared
from .source.settings import Location

R = TypeVar("R")


class SharedQueue(Struct, frozen=True):
    """A queue as the driver found it, with what identifies it and its store."""

    location: Location
    engine: str
    host: str
    version: int
    identity: str
    levels: int
    serializer: Declared | None

    @classmethod
    def find(cls, location: Location) -> SharedQueue:
        """Find a queue, on the driver.

        Raises ``QueueNotFound``, ``InvalidArgument``, and a ``StoreError`` if there is no store.
        """
        db = open_store(location.store)
        engine, host = _store(location.store).engine.name, socket.gethostname()
        return cls(location, engine, host, *_identify(db, _handle(location)))

    def open(self) -> tuple[fdb.Database, Queue]:
        """Open the same queue in this process. Raises ``StoreNotShared`` if it is not there.

        The handle raises ``QueueReplaced`` once another queue has its name. Runs one transaction
        of its own, once per process.
        """
        _verify(self)
        return open_store(self.location.store), _handle(self.location)._only(self.identity)

    def read(self, body: Callable[[fdb.Transaction, Scope], R]) -> R:
        """What ``body`` reads of the queue, in a transaction of its own."""
        db, queue = self.open()
        inside = Internals(queue)
        return inside.read(db, lambda tr: body(tr, inside.scope(tr)))


@lru_cache(maxsize=64)
def open_store(store: str | None) -> fdb.Database:
    """Open an existing store. Raises ``StoreNotFound`` and what ``fdbqueue.open`` raises."""
    found = _store(store)
    if found.engine is Engine.EMBEDDED and not os.path.exists(str(found.path)):
        raise StoreNotFound(
            store=found.path,
            problem="an embedded store must exist before Spark uses it; name it with the option "
            "store, or in the environment variable FDBQUEUE_STORE",
        )
    return binding.open(store)


def options(db: fdb.Database, queue: Queue) -> dict[str, str]:
    """The options of the data source that name a queue in any store and subspace.

    Use ``spark.read.format("fdbqueue").options(**options(db, queue))`` if ``queue`` alone is not
    enough: for another store than this process's default, or another subspace of queues.
    """
    path = binding.describe(db).path
    store = {} if path is None else {"store": path}
    return {"queue": queue.name, "root": Internals(queue).root.key().hex(), **store}


def _handle(location: Location) -> Queue:
    root = DEFAULT_ROOT if location.root is None else fdb.Subspace(rawPrefix=location.root)
    return Queue(location.queue, root)


def _store(store: str | None) -> Store:
    return binding.DEFAULT if store is None else binding.locate(store)


@transactional
def _identify(tr: fdb.Transaction, handle: Queue) -> tuple[int, str, int, Declared | None]:
    scope = Internals(handle).scope(tr)
    version: int = tr.get_read_version().wait()
    return version, scope.identity, scope.options.levels, scope.serializer


@lru_cache(maxsize=64)
def _verify(queue: SharedQueue) -> None:
    location, host = queue.location, socket.gethostname()
    try:
        engine = _store(location.store).engine
        if engine.name != queue.engine:
            raise StoreNotShared(
                host=host,
                problem=f"it would use {engine.value}, but the driver uses "
                f"{Engine[queue.engine].value}: set FDBQUEUE_STORE or FDB_CLUSTER_FILE there too",
            )
        if engine is Engine.EMBEDDED and host != queue.host:
            raise StoreNotShared(
                host=host,
                problem=f"an embedded store is a file of one machine, {queue.host}: on a cluster "
                "use FoundationDB, and give every executor its cluster file",
            )
        version, identity, *_ = _identify(open_store(location.store), _handle(location))
    except StoreNotShared:
        raise
    except (StoreError, QueueNotFound) as error:
        raise StoreNotShared(host=host, problem=str(error)) from None
    # Versions of one cluster never go back: a lower one is another cluster's.
    if version < queue.version or identity != queue.identity:
        raise StoreNotShared(
            host=host,
            problem=f"{_store(location.store)} has another queue {location.queue!r}: it is "
            "another store, or the queue was created anew meanwhile",
        )

"""The store under the data source: opened when it is first needed, once per process.

Readers and writers are pickled to other processes, maybe on other machines, so they carry only
names, and what the driver saw of the store, by which every process makes sure that its store is
the same one. A process that cannot see it says so; it never makes an empty store instead.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache

from ..errors import QueueNotFound, StoreError, StoreNotFound, StoreNotShared
from ..queue.queue import Queue
from ..schema.keys import DEFAULT_ROOT
from ..store import binding
from ..store.binding import Engine, Store, fdb, transactional
from ..values.records import record
from .source.settings import Place


@record
class Seen:
    """A queue as the driver saw it: what identifies it and its store, and what is needed of it."""

    place: Place
    engine: str
    host: str
    version: int
    identity: str
    levels: int

    def open(self) -> tuple[fdb.Database, Queue]:
        """The same queue in this process; raises ``StoreNotShared`` where it is not to be seen.

        What is done with it raises ``QueueReplaced`` once another one has its name. One
        transaction of its own, once per process.
        """
        _compare(self)
        return open_store(self.place.store), queue(self.place)._only(self.identity)


def look(place: Place) -> Seen:
    """Look for the queue, on the driver.

    Raises ``QueueNotFound``, ``InvalidName``, and a ``StoreError`` where the store is not there.
    """
    db = open_store(place.store)
    engine, host = _store(place.store).engine.name, socket.gethostname()
    return Seen(place, engine, host, *_look(db, queue(place)))


def queue(place: Place) -> Queue:
    """The handle of a queue; touches no store."""
    root = DEFAULT_ROOT if place.root is None else fdb.Subspace(rawPrefix=place.root)
    return Queue(place.queue, root)


@lru_cache(maxsize=64)
def open_store(store: str | None) -> fdb.Database:
    """A store that is there already. Raises ``StoreNotFound`` and what ``fdbqueue.open`` does."""
    found = _store(store)
    if found.engine is Engine.EMBEDDED and not os.path.exists(str(found.path)):
        raise StoreNotFound(
            store=found.path,
            problem="an embedded store must exist before Spark uses it; name it with the option "
            "store, or in the environment variable FDBQUEUE_STORE",
        )
    return binding.open(store)


def _store(store: str | None) -> Store:
    return binding.DEFAULT if store is None else binding.locate(store)


def _look(db: fdb.Database, handle: Queue) -> tuple[int, str, int]:
    @transactional
    def look(tr: fdb.Transaction) -> tuple[int, str, int]:
        scope = handle._scope(tr)
        return tr.get_read_version().wait(), scope.identity, scope.options.levels

    found: tuple[int, str, int] = look(db)
    return found


@lru_cache(maxsize=64)
def _compare(seen: Seen) -> None:
    place, host = seen.place, socket.gethostname()
    try:
        engine = _store(place.store).engine
        if engine.name != seen.engine:
            raise StoreNotShared(
                host=host,
                problem=f"it would use {engine.value}, and the driver uses "
                f"{Engine[seen.engine].value}: set FDBQUEUE_STORE or FDB_CLUSTER_FILE there, too",
            )
        if engine is Engine.EMBEDDED and host != seen.host:
            raise StoreNotShared(
                host=host,
                problem=f"an embedded store is a file of one machine, {seen.host}: on a cluster "
                "use FoundationDB, whose cluster file every executor needs",
            )
        version, identity, _ = _look(open_store(place.store), queue(place))
    except StoreNotShared:
        raise
    except (StoreError, QueueNotFound) as error:
        raise StoreNotShared(host=host, problem=str(error)) from None
    if version < seen.version or identity != seen.identity:
        raise StoreNotShared(
            host=host,
            problem=f"{_store(place.store)} has another queue {place.queue!r}: it is another "
            "store, or the queue was made anew meanwhile",
        )


def options_of(db: fdb.Database, handle: Queue) -> dict[str, str]:
    """See ``fdbqueue.spark.options``."""
    path = binding.describe(db).path
    store = {} if path is None else {"store": path}
    return {"queue": handle.name, "root": handle._root.key().hex(), **store}

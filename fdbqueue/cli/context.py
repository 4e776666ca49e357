"""The context of a command: the store and the root that it works on."""

from __future__ import annotations

import fdbqueue

changed = 0
"""Of how many messages the command has changed something."""
root = ""
"""The path of --root, its parts separated by slashes; empty for the default root."""


def connect(*, create: bool = False, timeout: float = 10.0) -> fdbqueue.fdb.Database:
    """Open the store. Raises ``StoreError`` if it does not exist, unless ``create``."""
    return fdbqueue.open(create=create, timeout=timeout)


def subspace() -> fdbqueue.fdb.Subspace:
    """The subspace that holds the queues."""
    from fdbqueue.schema.keys import DEFAULT_ROOT

    return fdbqueue.fdb.Subspace(tuple(root.split("/"))) if root else DEFAULT_ROOT


def queue(name: str) -> fdbqueue.Queue:
    """A handle for a queue."""
    return fdbqueue.Queue(name, subspace())


def open_queue(name: str) -> tuple[fdbqueue.fdb.Database, fdbqueue.Queue]:
    """The store, and a handle for a queue."""
    return connect(), queue(name)


def open_producing(name: str) -> tuple[fdbqueue.fdb.Database, fdbqueue.Queue]:
    """The store, and a handle for a queue that takes what its serializer takes, as far as that is
    known."""
    db = connect()
    return db, fdbqueue.Queue.open(db, name, create=False, root=subspace())


def queue_names(db: fdbqueue.fdb.Database) -> list[str]:
    """The names of all queues."""
    return fdbqueue.list_queues(db, root=subspace())

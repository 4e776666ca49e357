"""The context of a command: the store and the root that it works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import fdbqueue

from ..errors import StoreError

R = TypeVar("R")

ROUNDS = 100
"""How often at most removing goes on after it came to the end of the disk."""

changed = 0
"""Of how many messages the command has changed something."""
root = ""
"""The path of --root, its parts separated by slashes; empty for the default root."""


def connect(*, create: bool = False, timeout: float = 10.0) -> fdbqueue.fdb.Database:
    """Open the store. Raises ``StoreError`` if it does not exist, unless ``create``."""
    return fdbqueue.open(create=create, timeout=timeout)


def removing(remove: Callable[[], R]) -> R:
    """What ``remove`` returns; where the disk of an embedded store is full, with the room that it
    keeps for this."""
    from fdbqueue.store import embedded

    path: str | None = None
    for _ in range(ROUNDS):
        try:
            found = remove()
        except (embedded.StoreFull, StoreError) as error:
            path = full(error)
            if path is None or not embedded.use_reserve(path):
                raise
        else:
            if path is not None:
                embedded.restore_reserve(path)
            return found
    return remove()


def full(error: BaseException | None) -> str | None:
    """The path of the embedded store whose disk is full, if an error says that."""
    from fdbqueue.store import embedded

    error = error.__context__ if isinstance(error, StoreError) else error
    return error.path if isinstance(error, embedded.StoreFull) else None


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

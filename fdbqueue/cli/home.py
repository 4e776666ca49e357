"""Where the commands of this process find queues: the store, and the root that they lie below."""

from __future__ import annotations

import fdbqueue

root = ""
"""The path of --root, its parts set off by slashes; empty for the root that programs use."""


def opened(*, create: bool = False, timeout: float = 10.0) -> fdbqueue.fdb.Database:
    """The store, which must be there unless it is to be made."""
    return fdbqueue.open(create=create, timeout=timeout)


def space() -> fdbqueue.fdb.Subspace:
    """The subspace that the queues lie below."""
    from fdbqueue.schema.keys import DEFAULT_ROOT

    return fdbqueue.fdb.Subspace(tuple(root.split("/"))) if root else DEFAULT_ROOT


def queue(name: str) -> fdbqueue.Queue:
    """A queue by its name."""
    return fdbqueue.Queue(name, space())


def names(db: fdbqueue.fdb.Database) -> list[str]:
    """The names of all queues."""
    return fdbqueue.list_queues(db, root=space())

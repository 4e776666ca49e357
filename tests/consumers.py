"""Registers consumers as workers do, for tests."""

from __future__ import annotations

from fdbqueue import Queue
from fdbqueue.consumers import registry, sessions
from fdbqueue.schema.codec.consumers import ConsumerRef
from fdbqueue.store.binding import fdb


def process(db: fdb.Database, queue: Queue) -> bytes:
    """A session, as another process has one."""
    return sessions.start(db, queue._root_keys, queue._clock)


def register(
    db: fdb.Database,
    queue: Queue,
    name: str,
    priority: int = 0,
    *,
    session: bytes | None = None,
    acquiring: bool = True,
) -> ConsumerRef:
    """A consumer of a process, one of its own where no session is given."""
    scope = queue._scope(db.create_transaction())
    session = process(db, queue) if session is None else session
    return registry.register(db, scope, session, name, priority, acquiring=acquiring)

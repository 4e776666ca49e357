"""Registers consumers as workers do, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fdbqueue import Delivery, Queue
from fdbqueue.consumers import registry, sessions
from fdbqueue.schema.consumers import ConsumerRef
from fdbqueue.store.binding import fdb

from .patience import DEADLINE


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


def woken(db: fdb.Database, queue: Queue, act: Callable[[], object]) -> list[bytes]:
    """What a consumer is given that waits when something happens."""
    found: list[Delivery | None] = []
    waiting = threading.Thread(
        target=lambda: found.append(queue.receive(db, wait=DEADLINE)), daemon=True
    )
    waiting.start()
    while not any(each.state for each in queue.admin.consumers(db)):
        assert waiting.is_alive()
    act()
    waiting.join(DEADLINE / 2)
    return [each.payload for each in found if each is not None]

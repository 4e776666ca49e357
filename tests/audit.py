"""What ``verify`` says of queues."""

from __future__ import annotations

from typing import Any

from fdbqueue import Queue
from fdbqueue.store.binding import fdb


def sound(db: fdb.Database, *queues: Queue[Any]) -> bool:
    """Whether it finds nothing; it fails with what it finds."""
    for queue in queues:
        found = queue.admin.verify(db)
        assert found.ok, found
    return True

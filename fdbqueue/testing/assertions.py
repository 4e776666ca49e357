"""What a test asserts about a queue. A failure shows the test, and not the code here."""

from __future__ import annotations

from typing import Any

from ..queue.queue import Queue
from ..store.binding import fdb
from ..values.model import Depth, HeaderValue, Message

_SEARCHED = 10_000


def assert_depth(db: fdb.Database, queue: Queue, **expected: int) -> None:
    """Assert the named counters of ``Depth``; all others are ignored."""
    __tracebackhide__ = True
    depth = queue.depth(db)
    found = {name: getattr(depth, name) for name in expected}
    assert found == expected, f"{queue} has {_counted(depth)}"


def assert_enqueued(
    db: fdb.Database,
    queue: Queue,
    payload: Any = None,
    *,
    priority: int | None = None,
    headers: dict[str, HeaderValue] | None = None,
    count: int | None = None,
) -> list[Message]:
    """Assert that matching messages are ready; returns them in the order of delivery.

    payload: the value after the queue's serializer. headers: those that must be equal.
    count: the number of matching messages; None: at least one.
    """
    __tracebackhide__ = True
    ready = queue.peek(db, _SEARCHED)
    found = [
        message
        for message in ready
        if (payload is None or queue.value(message) == payload)
        and (priority is None or message.priority == priority)
        and (headers or {}).items() <= message.headers.items()
    ]
    described = f"payload={payload!r}, priority={priority}, headers={headers}"
    shown = "\n".join(
        f"  {message.payload[:80]!r} priority={message.priority} {dict(message.headers)}"
        for message in ready[:20]
    )
    right = bool(found) if count is None else len(found) == count
    assert right, f"{len(found)} messages with {described}; ready are {len(ready)}:\n{shown}"
    return found


def _counted(depth: Depth) -> str:
    counts = ((name, getattr(depth, name)) for name in Depth.__struct_fields__)
    return ", ".join(f"{name}={count}" for name, count in counts if count) or "nothing"

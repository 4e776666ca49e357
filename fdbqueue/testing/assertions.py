"""What a test asserts about a queue. A failure shows the test, and not the code here."""

from __future__ import annotations

from typing import Any

from ..queue.queue import Queue
from ..store.binding import fdb
from ..values.model import Depth, HeaderValue, Message
from ..values.states import State

_SEARCHED, _LISTED = 10_000, 1_000


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
    key: str | None = None,
    count: int | None = None,
) -> list[Message]:
    """Assert that matching messages are ready, or wait for a key or a limit; returns them, the
    ready ones first.

    payload: the value after the queue's serializer. headers: those that must be equal.
    count: the number of matching messages; None: at least one.
    """
    __tracebackhide__ = True
    waiting = queue.messages(db, State.WAITING.value, _LISTED)
    there = [*queue.peek(db, _SEARCHED), *(each.message for each in waiting)]
    found = [
        message
        for message in there
        if (payload is None or queue.value(message) == payload)
        and (priority is None or message.priority == priority)
        and (key is None or message.key == key)
        and (headers or {}).items() <= message.headers.items()
    ]
    described = f"payload={payload!r}, priority={priority}, headers={headers}, key={key!r}"
    shown = "\n".join(
        f"  {message.payload[:80]!r} priority={message.priority} {dict(message.headers)}"
        + f" key={message.key!r}" * (message.key is not None)
        for message in there[:20]
    )
    right = bool(found) if count is None else len(found) == count
    assert right, f"{len(found)} messages with {described}; there are {len(there)}:\n{shown}"
    return found


def _counted(depth: Depth) -> str:
    counts = ((name, getattr(depth, name)) for name in Depth.__struct_fields__)
    return ", ".join(f"{name}={count}" for name, count in counts if count) or "nothing"

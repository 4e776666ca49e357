"""What a handler knows of its message, the messages that follow it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Unpack

from msgspec.structs import replace

from ...errors import InvalidArgument
from ...store.binding import fdb
from ...values.model import Message, MessageTerms, NewMessage, T
from ...values.serializers import dumps
from ..enqueue import Enqueuing
from ..validation import draft
from .results import Result, encoded

MAX_SUCCESSORS = 1_000
"""The most successors of one message, or batch."""


class Successors:
    """What follows a message, or a batch, and what came of the message: written in the transaction
    that acknowledges it."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[Enqueuing, list[NewMessage[bytes]]]] = {}
        self._closed = False
        self._result: tuple[Enqueuing[Any], Result] | None = None
        self.count = self.bytes = 0
        """How many there are, and the bytes of their payloads, and of the result."""

    def __bool__(self) -> bool:
        return self.count > 0 or self._result is not None

    def returned(self, queue: Enqueuing[Any], message: Message, value: object) -> None:
        """Take what a handler has returned as the message's result. Raises ``InvalidPayload`` and
        ``PayloadTooLarge``."""
        kept = encoded(queue, message, value)
        if kept is not None:
            self._result = queue, kept
            self.bytes += len(kept.payload)

    def add(self, queue: Enqueuing, message: NewMessage) -> None:
        """Add one. Raises what ``Queue.enqueue`` raises for its arguments."""
        if self._closed or self.count == MAX_SUCCESSORS:
            problem = f"a handler takes up to {MAX_SUCCESSORS:,} of them"
            if self._closed:
                problem = "the handler has returned"
            raise InvalidArgument(argument="then", value=queue, problem=problem)
        payload, content_type = dumps(queue._serializer, message.payload)
        each = replace(message, payload=payload, content_type=content_type)
        draft(each, queue._clock.wall_ms(), None)  # It may be wrong.
        _, entries = self._entries.setdefault(queue._keys.prefix, (queue, []))
        entries.append(each)
        self.count += 1
        self.bytes += len(each.payload)

    def enqueue(self, tr: fdb.Transaction) -> None:
        """Enqueue all, those of a queue in their order, and keep the result; after the
        acknowledgement. Raises what ``Queue.enqueue`` raises."""
        if self._result is not None:
            queue, kept = self._result
            kept.put(tr, queue)
        for queue, entries in self._entries.values():
            # Delays count from the acknowledgement, and not from the call: the handler may take
            # hours.
            now_ms = queue._clock.now_ms(tr)
            given = [draft(each, now_ms, None) for each in entries]
            queue._admit(tr, given, 0.0)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Let ``context.then`` add to these, while a handler runs."""
        token = _recording.set(self)
        try:
            yield
        finally:
            self._closed = True
            _recording.reset(token)


_recording: ContextVar[Successors | None] = ContextVar("fdbqueue_successors", default=None)


_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("fdbqueue_cancelled", default=None)


@contextmanager
def handling(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let ``context.cancelled`` ask ``cancelled``, while a handler runs."""
    token = _cancelled.set(cancelled)
    try:
        yield
    finally:
        _cancelled.reset(token)


class Context:
    """What a handler learns and says about the message that it handles: ``fdbqueue.context``."""

    @property
    def cancelled(self) -> bool:
        """Whether the message was cancelled while it is handled; of a batch, whether all were.

        A worker learns it within moments. If the handler returns, the message is done all the same;
        if it raises anything, the message ends, and is not handled again. Costs nothing, so ask
        often. False outside of a handler.
        """
        ask = _cancelled.get()
        return ask is not None and ask()

    def then(
        self,
        queue: Enqueuing[T],
        payload: T,
        **terms: Unpack[MessageTerms],
    ) -> None:
        """Enqueue a message in the transaction that acknowledges the one that is handled.

        The arguments are those of ``Queue.enqueue``. ``delay`` and ``ttl`` begin with the
        acknowledgement. So the successor is enqueued exactly once, and not at all if the handler
        fails, or the lease is lost. If it cannot be enqueued, as in a full queue, the attempt has
        failed. The successors of a batch belong to the whole of it, whatever the verdicts on its
        messages. For handlers that a worker calls, and those of ``fdbqueue.testing``.

        Raises what ``Queue.enqueue`` raises for its arguments, and ``InvalidArgument`` where there
        is no acknowledgement to come: outside of a handler, with ``settle="before"``, and while
        browsing.
        """
        found = _recording.get()
        if found is None:
            raise InvalidArgument(
                argument="then",
                value=queue,
                problem="no acknowledgement comes here: call it in the handler of a worker, which "
                "neither browses nor settles before",
            )
        found.add(queue, NewMessage(payload, **terms))


context = Context()

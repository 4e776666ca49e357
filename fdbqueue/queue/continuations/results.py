"""Results of messages: what a consumer gives with an acknowledgement, and who asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...consumers import watching
from ...consumers.watching import Signal, Watched
from ...errors import (
    InvalidArgument,
    NoResult,
    PayloadTooLarge,
    ResultPending,
)
from ...messages import lookup, settle
from ...messages.delivery import results
from ...schema.records import Kept
from ...store import world
from ...store.binding import fdb
from ...values import durations, serializers
from ...values.durations import Seconds
from ...values.model import Delivery, Message, parse_id
from ...values.states import State
from ..queue_base import Transactor

if TYPE_CHECKING:
    from ..enqueue import Enqueuing

MAX_BYTES = 10_000
"""The most bytes of a result, as the serializer makes them."""
LOOK_SECONDS = 10.0
"""How long who waits for a result trusts the watch before it looks."""


class Result(Struct, frozen=True):
    """What came of a message, encoded, to be kept with its acknowledgement."""

    message_id: str
    keep_ms: int
    content_type: str
    payload: bytes

    def put(self, tr: fdb.Transaction, queue: Enqueuing[Any]) -> None:
        """Keep it; in the transaction that acknowledges the message, after that. Blind."""
        scope = queue._scope(tr)
        until_ms = scope.now_ms(tr) + self.keep_ms
        kept = Kept(State.DONE, until_ms, self.content_type, self.payload)
        results.put(tr, scope, self.message_id, kept)


def encoded(queue: Enqueuing[Any], message: Message, value: object) -> Result | None:
    """What came of a message; None if that is None, or the producer has not asked for it.

    Raises ``InvalidPayload`` and ``PayloadTooLarge``.
    """
    if value is None or message.keep_result_ms is None:
        return None
    payload, content_type = serializers.dumps(queue._serializer, value)
    if len(payload) > MAX_BYTES:
        raise PayloadTooLarge(
            what=f"the result of message {message.id}", size=len(payload), limit=MAX_BYTES
        )
    return Result(message.id, message.keep_result_ms, content_type, payload)


def ack(tr: fdb.Transaction, queue: Enqueuing[Any], delivery: Delivery, kept: Result) -> None:
    """Acknowledge a delivery, and keep what came of it."""
    settle.ack(tr, queue._entry, (delivery,))
    kept.put(tr, queue)


def result(
    queue: Enqueuing[Any],
    tr: Transactor,
    message_id: str,
    *,
    wait: Seconds = 0.0,
) -> Any:
    """What came of a message that was enqueued with ``keep_result``.

    That is what its handler returned, or what was given to ``ack``, decoded; None if that was
    nothing.

    wait: seconds to wait until the message has ended, by a watch; only with a database.

    One or two round trips of snapshot reads: no conflicts. Raises ``ResultPending`` if the message
    has not ended yet, and ``NoResult`` if it is a dead letter, is gone without having been done, or
    nothing is known of it: what was kept is over, it was enqueued without ``keep_result``, or the
    queue never had it. Also ``UnknownContentType``, ``CorruptData``, ``QueueNotFound``, and
    ``InvalidArgument`` if it is no id.
    """
    patience = durations.patience("wait", wait)
    if patience and isinstance(tr, fdb.Transaction):
        problem = "a transaction does not wait: call it with the database"
        raise InvalidArgument(argument="wait", value=wait, problem=problem)
    ends = world.monotonic() + patience
    while True:
        kept, pending, signal = queue._read(tr, _look, queue, message_id)
        if kept is not None:
            return _value(queue, message_id, kept)
        left = ends - world.monotonic()
        if left <= 0 or isinstance(tr, fdb.Transaction):
            raise ResultPending(message_id=message_id, state=pending)
        watches = watching.arm(tr, signal, queue._keys.once.timeout)
        watching.wait(watches, min(left, LOOK_SECONDS))


def kept(queue: Enqueuing[Any], tr: Transactor, message_id: str) -> Kept | None:
    """What is kept of a message, encoded; None if nothing is, or its time is over. One round trip
    of snapshot reads."""

    def read(tr: fdb.Transaction) -> Kept | None:
        scope = queue._scope(tr)
        stored = tr.snapshot.get(queue._keys.result(message_id))
        found = Kept.unpack(stored.value) if stored.present() else None
        return None if found is None or found.until_ms <= scope.now_ms(tr) else found

    return queue._read(tr, read)


def _look(
    tr: fdb.Transaction, queue: Enqueuing[Any], message_id: str
) -> tuple[Kept | None, str, Signal]:
    """How a message ended; else its state, and what changes when it ends. Raises
    ``NoResult``."""
    scope, keys = queue._scope(tr), queue._keys
    parse_id(message_id)
    stored, meta = tr.snapshot.get(keys.result(message_id)), tr.snapshot.get(keys.meta)
    found = lookup.current(tr, scope, message_id)
    kept = Kept.unpack(stored.value) if stored.present() else None
    if found is not None and found.death is not None and found.state is State.DEAD:
        return Kept(State.DEAD, 0, reason=found.death.reason), "", ()
    if kept is not None and kept.until_ms > scope.now_ms(tr):
        return kept, "", ()
    if found is None or found.message.keep_result_ms is None:
        problem = "it was enqueued without keep_result, or that time is over"
        raise NoResult(message_id=message_id, state="unknown", problem=problem)
    # META, too: the deletion of the queue ends the wait with an error.
    seen = Watched(keys.result(message_id), stored.value), Watched(keys.meta, meta.value)
    return None, found.state.value, seen


def _value(queue: Enqueuing[Any], message_id: str, kept: Kept) -> Any:
    """The value of a result. Raises how the message ended, if it was not done."""
    if kept.state is not State.DONE:
        state = kept.state.value
        problem = f"it was not done: it is {state}"
        if kept.state is State.DEAD:
            problem = f"it is a dead letter: {kept.reason}"
        if kept.queue:
            problem = f"it went to queue {kept.queue!r} as {kept.id}"
        raise NoResult(message_id=message_id, state=state, problem=problem)
    if kept.result is None or kept.content_type is None:
        return None
    what = f"the result of message {message_id}"
    return serializers.decoded(queue._serializer, kept.content_type, kept.result, message_id, what)

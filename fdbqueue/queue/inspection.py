"""Looking into a queue, as methods of ``Queue``: its messages, leases, consumers and history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..consumers import registry
from ..consumers.registry import Consumer
from ..errors import InvalidArgument
from ..messages import age, lookup
from ..messages import history as events
from ..messages import inspection as waiting
from ..messages.delivery import lease as lease_records
from ..messages.delivery import scan
from ..schema import counters
from ..store.binding import fdb
from ..values.model import Depth, Event, LeasedMessage, Message, MessageState
from .handle import Handle, Transactor

MAX_LISTED = 10_000
"""Messages, leases or lines of history of one call."""
PAGE = 500
"""Messages of a look that is iterated over which one transaction reads."""


def get(queue: Handle, tr: Transactor, message_id: str) -> MessageState | None:
    """Where a message is now; None if it is gone.

    One round trip, or two if the message has moved, at any number of messages and leases; up to
    sixteen more while plans have messages. Snapshot reads: no conflicts. Raises
    ``InvalidArgument`` if it is no id, ``QueueNotFound``.
    """
    return queue._read(tr, lambda tr: lookup.current(tr, queue._scope(tr), message_id))


def peek(queue: Handle, tr: Transactor, limit: int = 1) -> list[Message]:
    """The first ready messages, left where they are. A snapshot read: no conflicts.

    Ends early at 8,000,000 bytes, but with one message at least, if there is one.
    """
    if type(limit) is not int or not 0 < limit <= MAX_LISTED:
        raise InvalidArgument(argument="limit", value=limit, problem=f"must be 1 to {MAX_LISTED:,}")

    def look(tr: fdb.Transaction) -> list[Message]:
        return [
            message.envelope.message(message.position)
            for message in scan.peek(tr, queue._scope(tr), limit)
        ]

    return queue._read(tr, look)


def look(
    queue: Handle, tr: Transactor, state: str = "ready", limit: int = 100, after: str | None = None
) -> list[MessageState]:
    """Messages that wait, up to ``limit`` of them, in their order.

    state: "ready"; "delayed", those due first at the beginning; or "waiting" for another
        message of their ordering key, which counts as ready, too.
    after: the id of the last one of an earlier look, to go on behind it.

    Ends early at 8,000,000 bytes, but with one message at least, if there is one. Snapshot
    reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    _check_state(state)
    if type(limit) is not int or not 0 < limit <= MAX_LISTED:
        raise InvalidArgument(argument="limit", value=limit, problem=f"must be 1 to {MAX_LISTED:,}")

    def look(tr: fdb.Transaction) -> list[MessageState]:
        scope = queue._scope(tr)
        begin = waiting.behind(tr, scope, state, after)
        return waiting.page(tr, scope, state, limit, begin)[0]

    return queue._read(tr, look)


def looking(
    queue: Handle, db: fdb.Database, state: str = "ready", after: str | None = None
) -> Iterator[MessageState]:
    """``look`` as it is iterated over: all messages, some hundred from each transaction.

    So it is no picture of one instant. Arguments and errors as ``look``.
    """
    _check_state(state)
    begin = queue._read(db, lambda tr: waiting.behind(tr, queue._scope(tr), state, after))

    def page(tr: fdb.Transaction) -> tuple[list[MessageState], bytes]:
        return waiting.page(tr, queue._scope(tr), state, PAGE, begin)

    while True:
        found, begin = queue._read(db, page)
        yield from found
        if not found:
            return


def browse(
    queue: Handle, db: fdb.Database, *, levels: Iterable[int] | None = None
) -> Iterator[Message]:
    """Yield every ready message in the order of delivery, of all levels or of some.

    Keeps no place: see ``subscribe`` for a browser that goes on where it was. Spans
    transactions, a hundred messages each, so it is no picture of one instant: what is taken
    meanwhile may be missing, and what arrives behind it comes too. Snapshot reads: no
    conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    from .subscriptions import browse_levels, check_levels  # which few programs need

    wanted = check_levels(levels, queue._read(db, queue._options).levels)
    return browse_levels(queue, db, wanted)


def depth(queue: Handle, tr: Transactor) -> Depth:
    """How many messages are in which state. A snapshot read: no conflicts."""
    return sum(depths(queue, tr).values(), Depth())


def depths(queue: Handle, tr: Transactor) -> dict[int, Depth]:
    """The depth of every level that ever had a message. A snapshot read: no conflicts."""

    def count(tr: fdb.Transaction) -> dict[int, Depth]:
        queue._options(tr)
        return counters.depths(tr, queue._keys)

    return queue._read(tr, count)


def ready_since_ms(queue: Handle, tr: Transactor) -> int | None:
    """When the oldest message that is first of its level was enqueued; None if none is ready.

    By its enqueuer's wall clock, in milliseconds. Two round trips, snapshot reads: no
    conflicts. Raises ``QueueNotFound``.
    """
    return queue._read(tr, lambda tr: age.ready_since_ms(tr, queue._scope(tr)))


def leases(
    queue: Handle, tr: Transactor, limit: int = 1_000, after: bytes | None = None
) -> list[LeasedMessage]:
    """The leases: those of plans, then the others in the order of messages; ``limit`` of them.

    after: the token of the last one of an earlier list, to go on behind it.

    With a database it spans transactions, of 8,000,000 bytes each; with a transaction it ends
    early there. Snapshot reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    if type(limit) is not int or not 0 < limit <= MAX_LISTED:
        raise InvalidArgument(argument="limit", value=limit, problem=f"must be 1 to {MAX_LISTED:,}")
    found: list[LeasedMessage] = []
    begin = b"" if after is None else queue._keys.lease(after) + b"\x00"

    def look(tr: fdb.Transaction) -> tuple[list[LeasedMessage], bytes]:
        return lease_records.listed(tr, queue._scope(tr), limit - len(found), begin)

    while True:
        some, begin = queue._read(tr, look)
        found += some
        if not begin or len(found) == limit or isinstance(tr, fdb.Transaction):
            return found


def consumers(queue: Handle, tr: Transactor) -> list[Consumer]:
    """The consumers: the registered ones, as workers are, and who waits in front of the line.

    By descending priority. Snapshot reads: no conflicts. Raises ``QueueNotFound``.
    """
    return queue._read(tr, lambda tr: registry.consumers(tr, queue._scope(tr)))


def history(queue: Handle, tr: Transactor, limit: int = 1_000, after: bytes = b"") -> list[Event]:
    """The transitions of the queue's messages, the oldest first, up to ``limit`` of them.

    after: the ``stamp`` of the last one of an earlier call, to go on behind it.

    Needs the option ``history_seconds``; older lines are gone. Snapshot reads: no conflicts;
    not in a transaction that itself has moved messages of the queue (FoundationDB's error
    1036). Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    if type(limit) is not int or not 0 < limit <= MAX_LISTED:
        raise InvalidArgument(argument="limit", value=limit, problem=f"must be 1 to {MAX_LISTED:,}")
    return queue._read(tr, lambda tr: events.read(tr, queue._scope(tr), limit, after))


def _check_state(state: str) -> None:
    if state not in waiting.KINDS:
        raise InvalidArgument(
            argument="state", value=state, problem=f"must be one of {', '.join(waiting.KINDS)}"
        )

"""Inspection of messages, leases, consumers and history: methods of ``Queue``."""

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
from ..schema.codec.leases import lease_key
from ..store.binding import fdb
from ..values.content import check_count
from ..values.model import Depth, Event, LeasedMessage, Message, MessageState
from .handle import Handle, Transactor

MAX_LISTED = 10_000
"""The most messages, leases or lines of history of one call."""


def get(queue: Handle, tr: Transactor, message_id: str) -> MessageState | None:
    """Where a message is now; None if it is gone.

    One round trip, or two if the message has moved; up to sixteen more while plans hold messages.
    Snapshot reads: no conflicts. Raises ``InvalidArgument`` if it is not an id,
    ``QueueNotFound``.
    """
    return queue._read(tr, lambda tr: lookup.current(tr, queue._scope(tr), message_id))


def peek(queue: Handle, tr: Transactor, limit: int = 1) -> list[Message]:
    """The first ready messages, left in place. A snapshot read: no conflicts.

    Stops at 8 MB, but always returns at least one message if the queue has any.
    """
    check_count("limit", limit, MAX_LISTED)

    def read(tr: fdb.Transaction) -> list[Message]:
        return [
            message.envelope.message(message.position)
            for message in scan.peek(tr, queue._scope(tr), limit)
        ]

    return queue._read(tr, read)


def messages(
    queue: Handle,
    tr: Transactor,
    state: str = "ready",
    limit: int = 100,
    after: str | None = None,
) -> list[MessageState]:
    """Up to ``limit`` waiting messages, in order.

    state: "ready"; "delayed", in the order of their times; or "waiting" for their ordering key
        (these count as ready).
    after: the id of the last message of the previous page.

    Stops at 8 MB, but always returns at least one message if the queue has any. Snapshot reads: no
    conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    _check_state(state)
    check_count("limit", limit, MAX_LISTED)

    def read(tr: fdb.Transaction) -> list[MessageState]:
        scope = queue._scope(tr)
        begin = waiting.behind(tr, scope, state, after)
        return waiting.page(tr, scope, state, limit, begin)[0]

    return queue._read(tr, read)


def browse(
    queue: Handle,
    db: fdb.Database,
    *,
    levels: Iterable[int] | None = None,
) -> Iterator[Message]:
    """Yield every ready message in the order of delivery, of all levels or of some.

    To continue later where you stopped, use ``subscribe``. Spans transactions of a hundred
    messages, and so does not show one instant: messages taken meanwhile may be missing, and
    arrivals further back appear. Snapshot reads: no conflicts. Raises ``InvalidArgument``,
    ``QueueNotFound``.
    """
    from .subscriptions import browse_levels, check_levels  # which few programs need

    wanted = check_levels(levels, queue._read(db, queue._options).levels)
    return browse_levels(queue, db, wanted)


def depth(queue: Handle, tr: Transactor) -> Depth:
    """How many messages are in each state. A snapshot read: no conflicts."""
    return sum(depths(queue, tr).values(), Depth())


def depths(queue: Handle, tr: Transactor) -> dict[int, Depth]:
    """The depth of every level that ever had a message. A snapshot read: no conflicts."""

    def count(tr: fdb.Transaction) -> dict[int, Depth]:
        queue._options(tr)
        return counters.depths(tr, queue._keys)

    return queue._read(tr, count)


def ready_since_ms(queue: Handle, tr: Transactor) -> int | None:
    """When the oldest of the first messages of the levels was enqueued; None if none is ready.

    By its producer's wall clock, in milliseconds. Two round trips, snapshot reads: no conflicts.
    Raises ``QueueNotFound``.
    """
    return queue._read(tr, lambda tr: age.ready_since_ms(tr, queue._scope(tr)))


def leases(
    queue: Handle,
    tr: Transactor,
    limit: int = 1_000,
    after: bytes | None = None,
) -> list[LeasedMessage]:
    """Up to ``limit`` leases: first those of plans, then the others in the order of messages.

    after: the token of the last lease of the previous page.

    With a database it spans transactions of 8 MB; with a transaction it stops at 8 MB. Snapshot
    reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    check_count("limit", limit, MAX_LISTED)
    found: list[LeasedMessage] = []
    begin = b"" if after is None else lease_key(queue._keys, after) + b"\x00"

    def read(tr: fdb.Transaction) -> tuple[list[LeasedMessage], bytes]:
        return lease_records.listed(tr, queue._scope(tr), limit - len(found), begin)

    while True:
        some, begin = queue._read(tr, read)
        found += some
        # Several leases may share the last row.
        if not begin or len(found) >= limit or isinstance(tr, fdb.Transaction):
            return found[:limit]


def consumers(queue: Handle, tr: Transactor) -> list[Consumer]:
    """Registered consumers, such as workers, and those that wait in the line, by descending
    priority. Snapshot reads: no conflicts. Raises ``QueueNotFound``."""
    return queue._read(tr, lambda tr: registry.consumers(tr, queue._scope(tr)))


def history(
    queue: Handle,
    tr: Transactor,
    limit: int = 1_000,
    after: bytes = b"",
) -> list[Event]:
    """Up to ``limit`` transitions of the queue's messages, oldest first.

    after: the ``stamp`` of the last one of the previous page.

    Needs the option ``history_seconds``; older lines are gone. Snapshot reads: no conflicts. Does
    not work in a transaction that has moved messages of the queue (FoundationDB's error 1036).
    Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    check_count("limit", limit, MAX_LISTED)
    return queue._read(tr, lambda tr: events.read(tr, queue._scope(tr), limit, after))


def _check_state(state: str) -> None:
    if state not in waiting.KINDS:
        raise InvalidArgument(
            argument="state", value=state, problem=f"must be one of {', '.join(waiting.KINDS)}"
        )
